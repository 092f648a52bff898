"""`penstock export --to hf`: what lies in the folder, read with Arrow alone. The library reads it in tests/adapters."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import ConfigError
from penstock.shards.foreign.exporting import export
from penstock.shards.packed import read_document_lengths
from tests.shards.foreign.test_export import make_rows
from tests.shards.making import TYPES, bits, make_batch, write_dataset


def read(folder: Path) -> pa.Table:
    """The files that state.json names, in its order."""
    files = [each["filename"] for each in json.loads((folder / "state.json").read_text())["_data_files"]]
    assert files == sorted(path.name for path in folder.glob("*.arrow"))
    return pa.concat_tables([pa.ipc.open_stream(pa.memory_map(str(folder / file))).read_all() for file in files])


def features(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "dataset_info.json").read_text())["features"]
    assert json.loads(read(folder).schema.metadata[b"huggingface"]) == {"info": {"features": found}}
    return found


def make(tmp_path: Path, **columns: pa.Array) -> Path:
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict(columns)]]})
    return tmp_path / "in"


def test_packed_rows_have_the_names_and_types_that_trainers_look_for(tmp_path):
    path, out = make_rows(tmp_path / "rows"), tmp_path / "out"
    exported = export(path, "hf", out, shard_size="1kB")
    assert (exported.rows, exported.tokens) == ({"train": 60, "test": 9}, {"train": 60 * 33, "test": 9 * 33})
    assert json.loads((out / "dataset_dict.json").read_text()) == {"splits": ["train", "test"]}
    for split in ("train", "test"):
        table, own = read(out / split), penstock.open(path, split)[:]
        assert [(field.name, str(field.type)) for field in table.schema] == [
            ("input_ids", "list<item: int32>"),
            ("seq_lengths", "list<item: int32>"),
        ]
        assert table["input_ids"].to_pylist() == own["tokens"].to_pylist()
        for lengths, starts in zip(table["seq_lengths"].to_pylist(), own["documents"].to_pylist(), strict=True):
            assert sum(lengths) == 33
            assert np.cumsum([0, *lengths[:-1]]).tolist() == sorted({0, *starts})
    assert len(list((out / "train").glob("*.arrow"))) > 3
    numbers = {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "Sequence"}
    assert features(out / "train") == {"input_ids": numbers, "seq_lengths": numbers}


def test_one_split_is_a_folder_of_its_own_whatever_the_size_of_files(tmp_path):
    path = make_rows(tmp_path / "rows")
    for name, size in (("a", "1kB"), ("b", "200MB")):
        export(path, "hf", tmp_path / name, split="train", shard_size=size)
    a, b = ({path.name for path in (tmp_path / name).iterdir()} for name in "ab")
    assert b == {"data-00000-of-00001.arrow", "dataset_info.json", "state.json", "export.json"}
    assert len(a) > len(b)
    assert read(tmp_path / "a").to_pylist() == read(tmp_path / "b").to_pylist()
    states = [json.loads((tmp_path / name / "state.json").read_text()) for name in "ab"]
    assert states[0]["_split"] == "train"
    assert states[0]["_fingerprint"] == states[1]["_fingerprint"]


def test_another_split_or_dataset_has_another_fingerprint(tmp_path):
    found = set()
    for number, rows in enumerate([60, 61]):
        path = make_rows(tmp_path / f"rows{number}", rows)
        export(path, "hf", tmp_path / f"out{number}")
        for split in ("train", "test"):
            state = json.loads((tmp_path / f"out{number}" / split / "state.json").read_text())
            found.add(state["_fingerprint"])
    assert len(found) == 4
    assert all(len(each) == 16 for each in found)


def test_columns_of_every_type_keep_their_bits_and_their_nulls(tmp_path):
    batch = make_batch(60, 5)
    write_dataset(tmp_path / "in", {"train": [[batch.slice(0, 20)], [batch.slice(20)]]})
    exported = export(tmp_path / "in", "hf", tmp_path / "out", shard_size="5kB")
    assert exported.tokens == {}
    table = read(tmp_path / "out")
    assert table.column_names == batch.schema.names
    for name, kind in zip(batch.schema.names, TYPES, strict=True):
        assert bits(pa.concat_arrays(table[name].chunks)) == bits(batch[name]), kind


@pytest.mark.parametrize(
    ("kind", "feature"),
    [
        (pa.float16(), "float16"),
        (pa.bool_(), "bool"),
        (pa.timestamp("us"), "timestamp[us]"),
        (pa.timestamp("ns", "America/New_York"), "timestamp[ns, tz=America/New_York]"),
        (pa.duration("ms"), "duration[ms]"),
        (pa.decimal128(38, 10), "decimal128(38, 10)"),
        (pa.binary(3), "binary"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.large_string(), "large_string"),
    ],
    ids=str,
)
def test_types_are_called_what_that_library_calls_them(tmp_path, kind, feature):
    export(make(tmp_path, a=pa.array([None], kind)), "hf", tmp_path / "out")
    assert features(tmp_path / "out") == {"a": {"dtype": feature, "_type": "Value"}}


def test_shapes_are_lists_of_their_length(tmp_path):
    export(make(tmp_path, a=pa.array([[[1, 2]] * 3], pa.list_(pa.list_(pa.int8(), 2), 3))), "hf", tmp_path / "out")
    inner = {"feature": {"dtype": "int8", "_type": "Value"}, "length": 2, "_type": "Sequence"}
    assert features(tmp_path / "out") == {"a": {"feature": inner, "length": 3, "_type": "Sequence"}}


def test_rows_of_different_lengths_take_the_other_columns_along(tmp_path):
    columns = {"id": pa.array(["a", "b", "c"]), "tokens": pa.array([[7, 8], [], [9]], pa.list_(pa.uint16()))}
    exported = export(make(tmp_path, **columns), "hf", tmp_path / "out")
    assert (exported.rows, exported.tokens) == ({"train": 3}, {"train": 3})
    assert read(tmp_path / "out").to_pydict() == {"id": ["a", "b", "c"], "input_ids": [[7, 8], [], [9]]}


@pytest.mark.parametrize(
    ("kind", "found"),
    [(pa.uint8(), "int32"), (pa.int16(), "int32"), (pa.uint32(), "int64"), (pa.int64(), "int64")],
    ids=str,
)
def test_ids_are_int32_unless_they_need_more(tmp_path, kind, found):
    export(make(tmp_path, tokens=pa.array([[1, 2]], pa.list_(kind, 2))), "hf", tmp_path / "out")
    assert str(read(tmp_path / "out").schema.field("input_ids").type) == f"list<item: {found}>"


def test_splits_without_rows_have_a_file_without_rows(tmp_path):
    batch = pa.RecordBatch.from_pydict({"tokens": pa.array([[1]], pa.list_(pa.uint16(), 1))})
    write_dataset(tmp_path / "in", {"train": [[batch]], "val": [[batch.slice(0, 0)]], "test": []})
    exported = export(tmp_path / "in", "hf", tmp_path / "out")
    assert (exported.rows, exported.tokens) == ({"train": 1, "val": 0, "test": 0}, {"train": 1, "val": 0, "test": 0})
    assert read(tmp_path / "out" / "test").schema == read(tmp_path / "out" / "train").schema
    assert len(read(tmp_path / "out" / "test")) == len(read(tmp_path / "out" / "val")) == 0


def test_a_column_that_is_in_the_way_of_a_name_is_refused(tmp_path):
    path = make(tmp_path, tokens=pa.array([[1]]), input_ids=pa.array([1]))
    with pytest.raises(ConfigError, match="two columns would be called 'input_ids'"):
        export(path, "hf", tmp_path / "out")


def test_words_that_happen_to_be_called_tokens_stay_as_they_are(tmp_path):
    export(make(tmp_path, tokens=pa.array([["a", "b"]]), documents=pa.array([[0]])), "hf", tmp_path / "out")
    assert read(tmp_path / "out").to_pydict() == {"tokens": [["a", "b"]], "documents": [[0]]}


def test_nulls_among_tokens_are_refused_by_file(tmp_path):
    with pytest.raises(ConfigError, match="column 'tokens' has nulls"):
        export(make(tmp_path, tokens=pa.array([[1], None])), "hf", tmp_path / "out")


# Lengths of documents.


class Held:
    """A column in memory."""

    def __init__(self, values: list[int]) -> None:
        self.values = np.array(values, "i8")

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


def plain_lengths(count: int, starts: list[int]) -> list[int]:
    """As the loader cuts a row: up to the first start that is not in it; one that is not behind the last is none."""
    edges = [0]
    for start in itertools.takewhile(lambda start: start < count, starts):
        if start > edges[-1]:
            edges.append(start)
    return np.diff([*edges, count]).tolist() if count else []


ROW = st.tuples(st.integers(0, 9), st.lists(st.integers(-2, 11), max_size=5))


@given(st.lists(ROW, max_size=6))
def test_lengths_follow_from_the_starts_of_documents_as_the_loader_takes_them(rows):
    columns: Any = {
        "documents/offsets": Held(np.cumsum([0, *(len(starts) for _, starts in rows)]).tolist()),
        "documents/values": Held([start for _, starts in rows for start in starts]),
    }
    tokens = np.cumsum([0, *(count for count, _ in rows)])
    lengths, edges = read_document_lengths(columns, tokens, 0, len(rows))
    found = [lengths[low:high].tolist() for low, high in itertools.pairwise(edges)]
    assert found == [plain_lengths(*row) for row in rows]
