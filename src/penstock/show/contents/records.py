"""Records: the first records of a split -> their values for JSON, packed rows also decoded; and lines for people."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.stores.store import Store
from penstock.shards.dataset import ArrayRecordDataset, Dataset
from penstock.shards.manifest import Manifest
from penstock.shards.packed import TOKENIZER
from penstock.show.contents.decoded import document_facts, open_decoder, row_tables
from penstock.show.contents.values import jsonable, short
from penstock.show.tables import make_list


def first_records(dataset: Dataset | ArrayRecordDataset, most: int) -> list[dict[str, Any]]:
    return [jsonable(dataset[number]) for number in range(min(most, len(dataset)))]


def decoded_rows(store: Store, manifest: Manifest, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The documents of packed rows, with their text if the job left a tokenizer that can be opened."""
    decoder = open_decoder(store, manifest)
    documents = [document_facts(row, decoder) for row in rows]
    return {"documents": documents, "decoded_by": TOKENIZER if decoder else None}


def record_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    records = facts["records"]
    if "documents" not in records:
        for number, record in enumerate(records["first"]):
            yield Text(f"\n{records['split']}[{number}]", style="bold")
            yield make_list((f"  {name}", short(value)) for name, value in record.items())
        return
    for number, documents in enumerate(records["documents"]):
        yield from row_tables(f"{records['split']}[{number}]", documents)
    if not records["decoded_by"] and any(file["file"] == TOKENIZER for file in facts["artifacts"]):
        yield Text("\nTokens are numbers here: pip install 'penstock[text]' brings what decodes them.", style="dim")
