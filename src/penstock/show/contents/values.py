"""Values: the first records of a split -> their JSON form, packed rows also decoded; and lines for people."""

import json
import math
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import printable
from penstock.base.stores.store import Store
from penstock.shards.dataset import ArrayRecordDataset, Dataset
from penstock.shards.manifest import Manifest
from penstock.shards.packed import TOKENIZER
from penstock.show.contents.decoded import document_facts, open_decoder, row_tables
from penstock.show.tables import make_list

_MOST_CHARACTERS = 200  # of a text
_MOST_OF_A_LIST = 60  # what of its values stands before the count


def first_records(dataset: Dataset | ArrayRecordDataset, most: int) -> list[dict[str, Any]]:
    return [jsonable(dataset[number]) for number in range(min(most, len(dataset)))]


def decoded_rows(store: Store, manifest: Manifest, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The documents of packed rows, with their text if the job left a tokenizer that can be opened."""
    decoder = open_decoder(store, manifest)
    documents = [document_facts(row, decoder, manifest.kept) for row in rows]
    return {"documents": documents, "decoded_by": TOKENIZER if decoder else None}


def record_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    records = facts["records"]
    if "documents" not in records:
        for number, record in enumerate(records["first"]):
            yield Text(f"\n{records['split']}[{number}]", style="bold")
            yield make_list((f"  {name}", short(value)) for name, value in record.items())
        return
    for number, documents in enumerate(records["documents"]):
        yield from row_tables(f"{records['split']}[{number}]", documents, short_values)
    if not records["decoded_by"] and any(file["file"] == TOKENIZER for file in facts["artifacts"]):
        yield Text("\nTokens are numbers here: pip install 'penstock[text]' brings what decodes them.", style="dim")


def jsonable(value: Any) -> Any:
    """JSON's own types as they are; NaN, times, decimals and bytes by their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    return str(value)


def short(value: Any, most: int = _MOST_CHARACTERS) -> str:
    """One line, cut where it is too long, with the size of what was cut."""
    if isinstance(value, list):
        return _short_list(value, min(most, _MOST_OF_A_LIST))
    text = _text(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def short_values(values: list[Any], most: int = _MOST_CHARACTERS) -> str:
    """Values beside tokens: the one that all have, or the first ones and how many there are."""
    return short(values[0] if values and all(each == values[0] for each in values) else values, most)


def _short_list(values: list[Any], most: int) -> str:
    """The first values and how many there are; a value that all of them have stands once."""
    if len(values) > 2 and all(each == values[0] for each in values):
        return f"{short(values[0], most)} (all {len(values):,} values)"
    shown: list[str] = []
    for each in values:
        text = short(each, most)
        if shown and len(", ".join([*shown, text])) > most:
            return f"{', '.join(shown)}, ... ({len(values):,} values)"
        shown.append(text)
    return f"[{', '.join(shown)}]"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(_rounded(value), ensure_ascii=False)
    return printable(text)


def _rounded(value: Any) -> Any:
    """Seven digits: as many as a float32 has, so that 0.1 does not read 0.10000000149011612."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
