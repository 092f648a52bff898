"""Duplicates: a dataset that near_dedup made -> pairs of its near-duplicates, read again from the input, compared."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import ConfigError, printable
from penstock.base.sizes import counted, format_count
from penstock.base.stores import open_store
from penstock.loader.order.kept import Kept
from penstock.shards import arrow as pa
from penstock.shards.columns import damaged_file
from penstock.shards.manifest import Manifest, read_artifact, read_manifest
from penstock.shards.origins import DUPLICATES, NEAR_SUMMARY, Origin
from penstock.shards.rereading.documents import Reread
from penstock.show.contents.differences import differences
from penstock.show.contents.side_by_side import SideBySide
from penstock.show.tables import make_list, make_table

Facts = dict[str, Any]
_MOST_CHARACTERS = 10_000  # of a text in JSON
_AT_ONCE = 1 << 16
_SIDES = {"survivor": "survivor_", "document": ""}  # the columns of each begin with
_DONE = {"remove": "removed", "mark": "marked"}
_LEGEND = "[+...+] only in the document that stayed, [-...-] only in the other one"


def duplicate_facts(path: str, most: int, inputs: Sequence[str] | None = None) -> Facts:
    """Counts of near_dedup, and the pairs that are the least similar. `inputs` are the folders of the input."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ConfigError(f"duplicates: {most!r} is not a number of pairs", next_step="0, or how many to show")
    store = open_store(path)
    manifest = read_manifest(store)
    summary = read_artifact(store, manifest, NEAR_SUMMARY)
    if summary is None:
        raise ConfigError(
            "this dataset was made without near_dedup, and has no near-duplicates to show",
            where=store.root,
            next_step="add `near_dedup` to the stages of its job, and run it with --redo",
        )
    kept, found = Kept(path, inputs), json.loads(summary)
    for source, patterns in zip(found["sources"], kept.patterns, strict=False):
        source["input"] = ", ".join(patterns)
    return {
        "output": store.root,
        **found,
        "origin_sources": len(kept.sources),
        "pairs": [_pair_facts(kept, pair) for pair in _least_similar(path, manifest, most)],
    }


def _least_similar(path: str, manifest: Manifest, most: int) -> list[Facts]:
    """Rows of duplicates/, by similarity and then by position."""
    import pyarrow.parquet

    store, found = open_store(path), None
    for name in (file.file for file in manifest.artifacts if file.file.startswith(f"{DUPLICATES}/")):
        try:
            data = read_artifact(store, manifest, name) or b""
            with pyarrow.parquet.ParquetFile(pa.BufferReader(data)) as file:
                for batch in file.iter_batches(_AT_ONCE):
                    rows = pa.Table.from_batches([batch])
                    found = rows if found is None else pa.concat_tables([found, rows]).unify_dictionaries()
                    found = found.take(np.argsort(found["similarity"].to_numpy(), kind="stable")[:most])
        except (pa.ArrowException, OSError) as error:
            raise damaged_file(name, "is not the file that was written") from error
    return [] if found is None else found.to_pylist()


def _pair_facts(kept: Kept, pair: Mapping[str, Any]) -> Facts:
    """Both documents of a pair. They are read for this pair alone: many large ones are not held together."""
    origins = {side: Origin(*(pair[f"{begin}{name}"] for name in Origin._fields)) for side, begin in _SIDES.items()}
    hashes = {origins[side]: pair.get(f"{begin}hash") for side, begin in _SIDES.items()}
    read = kept.documents(hashes)
    facts = {side: _document_facts(each, hashes[each], read[each]) for side, each in origins.items()}
    survivor, document = (read[each].text for each in origins.values())
    compared = None
    if survivor is not None and document is not None:
        found = differences(survivor, document)
        compared = {"regions": found.regions, "rest": dict(zip(_SIDES, found.rest, strict=True))}
    return {"similarity": pair["similarity"], **facts, "differences": compared}


def _document_facts(origin: Origin, content_hash: int | None, read: Reread) -> Facts:
    return {
        **origin._asdict(),
        "line": read.line,
        "hash": None if content_hash is None else f"{content_hash:016x}",
        "characters": None if read.text is None else len(read.text),
        "text": read.text and read.text[:_MOST_CHARACTERS],
        "problem": read.problem,
    }


def duplicate_tables(facts: Facts) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    yield ""
    table = make_table(">source", "input", ">documents", ">near-duplicates", ">share")
    for each in facts["sources"]:
        share = f"{each['removed'] / max(1, each['documents']):.1%}"
        counts = [format_count(each[name]) for name in ("documents", "removed")]
        table.add_row(str(each["source"]), printable(each.get("input", "")), *counts, share)
    yield table
    own, known = len(facts["sources"]), facts["origin_sources"]
    source = "" if own == known == 1 else " of source" if own == known else " of origin source"
    if own != known:
        yield Text(f"\nInputs are datasets with origins of their own: pairs name their {known} sources.", style="dim")
    for pair in facts["pairs"]:
        yield Text(f"\nsimilarity {_similarity(pair['similarity'])}", style="bold")
        compared = pair["differences"]
        heads = (_head("stayed", pair["survivor"], source), _head("near-duplicate", pair["document"], source))
        yield SideBySide(heads, compared["regions"] if compared else [])
        if compared:
            yield from _remarks(pair)
    if facts["pairs"]:
        shown = f"{counted(len(facts['pairs']), 'pair')} of {format_count(facts['removed'])}, the least similar first"
        yield Text(f"\n{_LEGEND}. {shown}; -n N shows more, --json their texts.", style="dim")


def _lines(facts: Facts) -> Iterator[tuple[str, str]]:
    share = f"{facts['removed'] / max(1, facts['documents']):.1%}"
    found = f"{counted(facts['removed'], 'near-duplicate')} ({share}) {_DONE[facts['act']]}"
    yield "documents", f"{format_count(facts['documents'])}; {found}"
    missing = f"; {counted(facts['not_compared'], 'more pair')} not compared" if facts["not_compared"] else ""
    compared = counted(facts["candidates"], "compared pair")
    yield "pairs", f"{format_count(facts['similar'])} similar of {compared}{missing}"
    found = f"{min(facts['detection'], 0.999):.1%} of the pairs at it"
    fewer = ", fewer where pairs were not compared" if facts["not_compared"] else ""
    bands = f"{counted(facts['bands'], 'band')} of {counted(facts['rows'], 'row')}"
    yield "threshold", f"{facts['threshold']}; {bands} find {found}{fewer}"


def _similarity(value: float) -> str:
    """Three digits; 1.000 only for documents whose shingles are all equal."""
    return f"{min(value, 0.999 if value < 1 else 1):.3f}"


def _head(word: str, document: Facts, source: str) -> str:
    source = f"{source} {document['source']}" if source else ""
    line = f", line {format_count(document['line'])}" if document["line"] is not None else ""
    lines = [f"{word}: {document['file']}{source}, position {format_count(document['position'])}{line}"]
    return "\n".join([*lines, *([document["problem"]] if document["problem"] else [])])


def _remarks(pair: Facts) -> Iterator[RenderableType]:
    compared = pair["differences"]
    rest = compared["rest"].values()
    if not compared["regions"] and not any(rest):
        is_equal = pair["survivor"]["hash"] == pair["document"]["hash"]
        yield Text("The texts are equal." if is_equal else "The words are equal; white space differs.")
    if any(rest):
        left, right = map(format_count, rest)
        yield Text(f"Not compared: the last {left} characters of the one, {right} of the other.", style="dim")
