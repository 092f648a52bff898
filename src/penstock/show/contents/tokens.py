"""Tokens: a batch of a dataset -> its rows readably: segments, measurements decoded beside their tokens, padding."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import ConfigError, printable
from penstock.base.sizes import counted, format_count
from penstock.base.stores import open_store
from penstock.loader.loader import Loader
from penstock.loader.tokens.counts import ODD
from penstock.loader.tokens.decode import Measurement, decode
from penstock.loader.tokens.vocabulary import KINDS, START, Vocabulary
from penstock.shards.manifest import read_manifest
from penstock.show.contents.decoded import ColoredTokens, Decoder, open_decoder
from penstock.show.contents.values import jsonable, short, short_values
from penstock.show.loading import Wanted
from penstock.show.tables import make_list, make_table

Facts = dict[str, Any]
_STYLES = {"start": "bold magenta", "marker": "bold cyan", "byte": ""}
_SHOWN_ROWS, _USUAL_LENGTH = 3, 256  # a screen or two
_MOST_CHARACTERS = 24  # of a text, before it is cut
_MOST_NUMBERS = 2  # that have a column of their own; a screen is narrow


def token_facts(path: str, split: str | None, view: Mapping[str, Any]) -> Facts:
    """`view` has the number of the batch, how many of its rows to show, and options of load(); None: as usual."""
    options = {name: value for name, value in view.items() if value is not None}
    batch, rows = options.pop("batch", 0), options.pop("rows", _SHOWN_ROWS)
    wanted = Wanted(path=path, split=split, usual_length=_USUAL_LENGTH, is_a_look=True, workers="0", **options)
    with _open(wanted) as loader:
        state, vocabulary = loader.state(), loader.vocabulary
        arrays = loader.batch(batch)
        stats = loader.stats()
    recipe = state["recipe"]
    shown = range(min(rows, wanted.batch_size))
    decoder: Decoder | None = None
    keep: tuple[str, ...] = ()
    if recipe["kind"] == "rows":
        store = open_store(wanted.path)
        manifest = read_manifest(store)
        decoder, keep = open_decoder(store, manifest), manifest.kept
    return {
        "datasets": state["datasets"],
        "path": wanted.path,
        "split": recipe["split"],
        "kind": recipe["kind"],
        "batch": batch,
        "batch_size": wanted.batch_size,
        "length": recipe["length"],
        "fill": recipe.get("fill"),
        "augment": recipe.get("augment"),
        "overflow": recipe.get("overflow"),
        "tokens_truncated": stats.tokens_truncated,
        "seed": wanted.seed,
        "padding": stats.padding,
        "counts": stats.counts,
        "segments": int(sum(len(_runs(row)) for row in arrays["inputs_segmentation"])),
        "vocabulary": _vocabulary_facts(vocabulary) if vocabulary else None,
        "rows": [
            _row_facts({n: array[row] for n, array in arrays.items()}, row, vocabulary, decoder, keep) for row in shown
        ],
    }


def _open(wanted: Wanted) -> Loader:
    """Refused where there are no tokens: columns that load() hands out as they are, or not before some are chosen."""
    refused = None
    try:
        loader = wanted.open()
        if loader.stats().unit == "tokens":
            return loader
        loader.close()
    except ConfigError as error:
        if error.where != "load(columns=...)":
            raise
        refused = error
    raise ConfigError(
        "this dataset has no tokens: its columns are loaded as they are",
        where=wanted.path,
        next_step=f"`penstock inspect {wanted.path}` shows its records",
    ) from refused


def _vocabulary_facts(vocabulary: Vocabulary) -> Facts:
    fields = [{"name": each.name, "kind": each.kind.name, "markers": list(each.tokens)} for each in vocabulary.fields]
    return {"start": START, "fields": fields, "byte_base": vocabulary.byte_base, "size": vocabulary.size}


def _row_facts(
    row: Mapping[str, Any],
    number: int,
    vocabulary: Vocabulary | None,
    decoder: Decoder | None = None,
    keep: Sequence[str] = (),
) -> Facts:
    """`keep` names the columns that were kept beside the tokens."""
    tokens, segmentation = _whole(row)
    useful = int(np.count_nonzero(row["targets_segmentation"]))
    padding = 1 - np.count_nonzero(row["inputs_segmentation"]) / len(row["inputs"])
    kept = {name: np.append(row[f"inputs_{name}"], row[f"targets_{name}"][-1])[: len(tokens)] for name in keep}
    segments: list[Facts] = [
        {"segment": segment, "start": start, "tokens": tokens[start:stop].tolist()}
        | ({"columns": {name: jsonable(values[start:stop]) for name, values in kept.items()}} if kept else {})
        for segment, start, stop in _runs(segmentation)
    ]
    if vocabulary:
        decoded = decode(tokens, vocabulary, segmentation)
        for each in segments:
            each["measurements"] = _measurements(each, decoded)
    if decoder:
        for each in segments:
            each["pieces"] = decoder.pieces(each["tokens"])
    return {"row": number, "useful_tokens": useful, "padding": padding, "segments": segments}


def _whole(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """The inputs, and the last target if it continues them: without it a full row would seem cut."""
    last = slice(-1, None) if row["targets_segmentation"][-1] else slice(0, 0)
    segmentation = np.concatenate([row["inputs_segmentation"], row["targets_segmentation"][last]])
    return np.concatenate([row["inputs"], row["targets"][last]]), segmentation


def _runs(segmentation: Any) -> list[tuple[int, int, int]]:
    """(number, start, stop) of each segment; 0 is padding and no segment."""
    edges = [0, *(np.flatnonzero(np.diff(segmentation)) + 1).tolist(), len(segmentation)]
    return [(int(segmentation[low]), low, high) for low, high in itertools.pairwise(edges) if segmentation[low]]


def _measurements(segment: Facts, decoded: Sequence[Measurement]) -> list[Facts]:
    """Measurements of the segment, each with its tokens. Each begins at a token 0, which only starts have."""
    tokens = segment["tokens"]
    own = [measurement for measurement in decoded if measurement["segment"] == segment["segment"]]
    starts = [place for place, token in enumerate(tokens) if token == START]
    return [
        {**{name: jsonable(value) for name, value in each.items() if name != "segment"}, "tokens": tokens[low:high]}
        for each, low, high in zip(own, starts, [*starts[1:], len(tokens)], strict=True)
    ]


# For people.


def token_tables(facts: Facts) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    if facts["vocabulary"]:
        names = [Text(name, style) for name, style in _STYLES.items()]
        yield Text.assemble("\ntokens: ", Text(", ").join(names), f" ({facts['vocabulary']['size']} in all)")
    for row in facts["rows"]:
        measurements = sum(len(each.get("measurements", ())) for each in row["segments"])
        words = [f"{counted(row['useful_tokens'], 'useful token')} of {format_count(facts['length'])}"]
        words += [f"padding {row['padding']:.1%}", counted(len(row["segments"]), "segment")]
        words += [counted(measurements, "measurement")] if facts["vocabulary"] else []
        yield Text.assemble("\n", (f"row {row['row']}", "bold"), f": {', '.join(words)}\n")
        yield _measurement_table(row, facts["vocabulary"]) if facts["vocabulary"] else _plain_table(row)


def _lines(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "dataset", ", ".join(facts["datasets"])
    split = f", split {facts['split']}" if facts["split"] else ""
    yield "path", f"{facts['path']}{split}, seed {facts['seed']}"
    size = f"{counted(facts['batch_size'], 'row')} x {format_count(facts['length'])} tokens"
    fill = f", {facts['fill']}{', augmented' if facts['augment'] else ''}" if facts["fill"] else ""
    yield "batch", f"{format_count(facts['batch'])}, {size}{fill}"
    yield "padding", f"{facts['padding']:.2%} of the batch, which has {counted(facts['segments'], 'segment')}"
    odd = {name: facts["counts"][name] for name in ODD if facts["counts"].get(name)}
    if odd:
        yield "not as stored", ", ".join(f"{name.replace('_', ' ')} {format_count(n)}" for name, n in odd.items())
    if facts["overflow"]:
        yield "truncated", f"{counted(facts['tokens_truncated'], 'token')} of longer rows are left out"


def _plain_table(row: Facts) -> RenderableType:
    kept = list(row["segments"][0].get("columns", ())) if row["segments"] else []
    table = make_table(">segment", ">at", ">tokens", *map(printable, kept), "which")
    for each in row["segments"]:
        numbers = (each["segment"], each["start"], len(each["tokens"]))
        values = (short_values(each["columns"][name], _MOST_CHARACTERS) for name in kept)
        table.add_row(*map(format_count, numbers), *values, ColoredTokens(each))
    return table


def _measurement_table(row: Facts, vocabulary: Facts) -> RenderableType:
    fields = vocabulary["fields"]
    numbers = [each for each in fields if KINDS[each["kind"]].is_number]
    numbers = numbers if len(numbers) <= _MOST_NUMBERS else []
    table = make_table(">segment", "measurement", *(f">{each['name']}" for each in numbers), "tokens")
    table.columns[1].no_wrap = True  # an address is copied whole; tokens may be told line by line
    for segment in row["segments"]:
        for number, measurement in enumerate(segment["measurements"]):
            table.add_row(
                str(segment["segment"]) if number == 0 else "",
                "\n".join(_words(measurement, [each for each in fields if each not in numbers])),
                *(_value(measurement, each) for each in numbers),
                _colored(measurement["tokens"], vocabulary),
            )
        table.add_section()
    return table


def _words(measurement: Facts, fields: Sequence[Facts]) -> Iterator[str]:
    """Its time, its addresses, one leading to the next, then what has no column of its own; a line each."""
    ordered = sorted(fields, key=lambda field: {"time": 0, "ip": 1}.get(field["kind"], 2))
    addresses = 0
    for field in ordered:
        if field["name"] not in measurement and f"{field['name']}_delta" not in measurement:
            continue
        value = _value(measurement, field)
        if field["kind"] == "ip":
            yield f"{'-> ' if addresses else ''}{value}"
            addresses += 1
        else:
            yield value if field["kind"] == "time" else f"{field['name']} {value}"
    if measurement.get("cut"):
        yield "(cut by the end of the row)"


def _value(measurement: Facts, field: Facts) -> str:
    name, kind = field["name"], KINDS[field["kind"]]
    if f"{name}_delta" in measurement:
        return f"+{measurement[f'{name}_delta']:,} s"
    if name not in measurement:
        return ""
    value = measurement[name]
    if value is None:
        return kind.absent
    shown = kind.show(value)
    return short(value, _MOST_CHARACTERS) if shown is None else shown


def _colored(tokens: list[int], vocabulary: Facts) -> Text:
    """Blocks stand apart by one blank more, so that they can be told without colors too."""
    text = Text()
    for token in tokens:
        kind = "start" if token == START else "marker" if token < vocabulary["byte_base"] else "byte"
        text.append(("  " if kind == "marker" else " ") if text else "")
        text.append(str(token), _STYLES[kind])
    return text
