"""MosaicML Streaming's MDS as input: every encoding, compression and hash that its own writer wrote, and damage."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

import penstock
from penstock.base.errors import ConfigError, InputError
from tests.prepare.sources.mds_files import shard_bytes, write_texts
from tests.prepare.sources.reader import read, survey

WRITTEN = Path(__file__).parent / "mds"  # by the library itself: see mds/write.py
EXPECTED = json.loads((WRITTEN / "expected.json").read_text())
TYPES = {
    "typed": pa.list_(pa.int32()),
    "ndarray": pa.list_(pa.float64()),
    "shaped": pa.list_(pa.list_(pa.float32(), 3), 2),
    "rows": pa.list_(pa.list_(pa.uint8(), 2)),
    "json": pa.string(),
    "str_int": pa.string(),
    "jpeg": pa.binary(),
    "int": pa.int64(),
    "float16": pa.float16(),
}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}


def job_of(path: Path, folder: Path, **keys: Any) -> dict[str, Any]:
    return {"input": str(path), "output": str(folder / "out"), "workers": 0, **keys}


def rows_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    penstock.run(job)
    return penstock.open(job["output"])[:].to_pylist()


@pytest.mark.parametrize("name", ["raw", "zstd", "gz", "bz2"])
def test_a_folder_that_the_library_wrote_is_read_value_by_value(tmp_path, name):
    plan = penstock.plan(job_of(WRITTEN / name, tmp_path))
    assert (plan.survey.formats, plan.survey.unit, plan.survey.files) == (("mds",), "samples", 2)
    assert [plain(row) for row in rows_of(job_of(WRITTEN / name, tmp_path))] == EXPECTED


def test_columns_have_the_types_of_their_encodings():
    schema = survey(WRITTEN / "raw" / "shard.00000.mds").schema
    assert {name: schema.field(name).type for name in TYPES} == TYPES
    assert schema.names == sorted(EXPECTED[0])


@pytest.mark.parametrize(("rows", "size"), [(1, 1 << 20), (3, 1), (1000, 2000)])
def test_it_does_not_matter_how_much_is_read_at_once(rows, size):
    found = [
        plain(row)
        for number in (0, 1)
        for row in read(WRITTEN / "gz" / f"shard.{number:05d}.mds.gz", rows_at_once=rows, bytes_at_once=size).rows
    ]
    assert found == EXPECTED


def test_only_the_wanted_columns_are_decoded_and_digits_are_cast_by_the_job(tmp_path):
    stages = [{"select": ["str_float", "int"]}, {"cast": {"str_float": "float64"}}]
    found = rows_of(job_of(WRITTEN / "zstd", tmp_path, stages=stages))
    assert found == [{"str_float": number / 7, "int": number - 5} for number in range(12)]


def test_of_a_shard_that_is_there_twice_the_one_without_compression_is_read(tmp_path):
    shutil.copytree(WRITTEN / "zstd", tmp_path / "data")
    for path in sorted((tmp_path / "data").glob("*.zstd")):
        with pa.input_stream(path, compression="zstd") as stream:
            path.with_suffix("").write_bytes(stream.read())
    assert len(rows_of(job_of(tmp_path / "data", tmp_path))) == 12


def test_shards_are_read_by_name_without_an_index(tmp_path):
    shutil.copytree(WRITTEN / "raw", tmp_path / "data")
    (tmp_path / "data" / "index.json").unlink()
    assert [row["int"] for row in rows_of(job_of(tmp_path / "data" / "*.mds", tmp_path))] == list(range(-5, 7))


def test_pickles_are_refused_with_the_reason(tmp_path):
    with pytest.raises(InputError, match="column 'x' is pickles, which can run any code") as caught:
        penstock.plan(job_of(WRITTEN / "pickled", tmp_path))
    assert "another encoding" in caught.value.next_step


# Damage.


@pytest.mark.parametrize("name", ["raw", "zstd", "bz2"])
def test_a_flipped_byte_is_told_by_the_hash_of_the_index(tmp_path, name):
    shutil.copytree(WRITTEN / name, tmp_path / "data")
    shard = sorted((tmp_path / "data").glob("shard.00001*"))[0]
    data = bytearray(shard.read_bytes())
    data[-40] ^= 1
    shard.write_bytes(data)
    job = job_of(tmp_path / "data", tmp_path)
    with pytest.raises(InputError, match=r"shard of .*: its \w+ is [0-9a-f]+, and index.json has") as caught:
        penstock.run(job)
    assert shard.name in caught.value.where
    manifest = penstock.run({**job, "on_bad_input": "set_aside"})
    assert len(penstock.open(tmp_path / "out")[:]) == 7
    (aside,) = [step.set_aside for step in manifest.account if step.set_aside]
    assert aside in ({"damaged shard": 5}, {"unreadable file": 1})  # the second where not even its head can be read


SHARD = shard_bytes({"n": ("int32", 4), "t": ("str", None)}, [(struct.pack("<i", n), b"x" * n) for n in range(4)])
HEAD = 4 + 4 * 5


@pytest.mark.parametrize(
    ("at", "form", "value", "told"),
    [
        (0, "<I", 0, "at byte 0 it has 0 for its samples"),
        (0, "<I", 2**32 - 1, r"it ends at byte \d+, and 17,179,869,184 bytes were to come from byte 4 on"),
        (8, "<I", 1, "the places behind are not those of samples"),
        (HEAD, "<B", 0, f"at byte {HEAD} it has no description of its columns"),
        (20, "<I", 9999, r"it has \d+ bytes, and its samples end at byte 9,999"),
    ],
)
def test_a_shard_that_cannot_be_right_is_refused_with_the_byte_and_the_numbers(tmp_path, at, form, value, told):
    data = bytearray(SHARD)
    struct.pack_into(form, data, at, value)
    (tmp_path / "a.mds").write_bytes(data)
    with pytest.raises(InputError, match=told) as caught:
        survey(tmp_path / "a.mds")
    assert caught.value.where == str(tmp_path / "a.mds")


def test_a_sample_whose_values_have_other_sizes_stops_the_job_by_its_number(tmp_path):
    data = bytearray(SHARD)
    third = struct.unpack_from("<I", data, 4 + 4 * 2)[0]
    struct.pack_into("<I", data, third, 77)
    (tmp_path / "a.mds").write_bytes(data)
    with pytest.raises(InputError, match="sample 2 has 10 bytes, other than its values have together"):
        penstock.run(job_of(tmp_path / "a.mds", tmp_path))


def test_a_compressed_shard_that_is_cut_short_is_named(tmp_path):
    shutil.copytree(WRITTEN / "gz", tmp_path / "data")
    shard = tmp_path / "data" / "shard.00001.mds.gz"
    os.truncate(shard, 700)
    with pytest.raises(InputError, match=r"700 bytes on disk; index.json has") as caught:
        penstock.plan(job_of(tmp_path / "data", tmp_path))
    assert caught.value.where == str(shard)
    (tmp_path / "data" / "index.json").unlink()
    shutil.copy(WRITTEN / "gz" / shard.name, shard)
    os.truncate(shard, shard.stat().st_size - 200)
    with pytest.raises(InputError, match=r"damaged shard .* it cannot be decompressed behind byte"):
        penstock.run(job_of(tmp_path / "data" / "*.mds.gz", tmp_path))


@pytest.mark.parametrize("word", ["pil", "list[jpeg]", "ndarray:bool", "ndarray::3", "int128"])
def test_other_encodings_are_refused_with_those_that_are_read(tmp_path, word):
    (tmp_path / "a.mds").write_bytes(shard_bytes({"x": (word, None)}, [(b"",)]))
    with pytest.raises(InputError, match=r"column 'x' is stored as .*, and these are read: int, int8, "):
        survey(tmp_path / "a.mds")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("ndarray:float32:0", r"column 'x' is an array float32\[0\], which has a dimension of 0; from 1 to"),
        ("ndarray:float32:2,0", r"float32\[2, 0\], which has a dimension of 0; from 1 to 2,147,483,647 are read"),
        (
            "ndarray:float32:x",
            "column 'x' is stored as .*, and 'x' is no shape: a shape has whole numbers, such as 2,3",
        ),
        ("ndarray:float32:2,", "'2,' is no shape"),
        ("ndarray:float32:-3", "'-3' is no shape"),
        ("ndarray:int8:9999999999", "a dimension of 9,999,999,999"),
        ("ndarray:int8:65536,65536", "which takes 4,294,967,296 bytes, and a shard has no room"),
    ],
)
def test_a_shape_that_no_column_can_have_is_refused(tmp_path, word, told):
    (tmp_path / "a.mds").write_bytes(shard_bytes({"x": (word, 0)}, [(b"",)]))
    with pytest.raises(InputError, match=told) as caught:
        survey(tmp_path / "a.mds")
    assert caught.value.where == str(tmp_path / "a.mds")
    assert "another encoding" in caught.value.next_step


@pytest.mark.parametrize(("shape", "told"), [((2, 0), r"float32\[\*, 0\]"), ((0, 5, 0), r"float32\[\*, 5, 0\]")])
def test_arrays_with_an_inner_dimension_of_0_are_refused(tmp_path, shape, told):
    (tmp_path / "a.mds").write_bytes(shard_bytes({"x": ("ndarray", None)}, [(array(34, *shape),)] * 2))
    with pytest.raises(InputError, match=f"column 'x' is an array {told}, which has a dimension of 0") as caught:
        survey(tmp_path / "a.mds")
    assert "another encoding" in caught.value.next_step


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"column_encodings": [5]}, r"column 0 of its description \('x'\) has the encoding 5, which is not text"),
        ({"column_encodings": [None]}, "has the encoding None, which is not text"),
        ({"column_names": [5]}, r"column 0 of its description \(5\) has the name 5, which is not text"),
        ({"column_names": [None]}, "has the name None, which is not text"),
        ({"column_names": ["\ud800"]}, "which is not text"),
        ({"column_names": "x"}, "column_names is 'x', not a list"),
        ({"column_sizes": ["4"]}, "its values are said to have 4 bytes"),
        (
            {"column_names": ["x", "x"], "column_encodings": ["int8", "int8"], "column_sizes": [1, 1]},
            "column 1 of its description has the name 'x', and so has another one",
        ),
    ],
)
def test_a_description_with_other_than_names_and_encodings_is_damage(tmp_path, change, told):
    folder = write_texts(tmp_path / "data", ["a", "b"], 1)
    (folder / "index.json").unlink()
    with_facts(folder / "shard.00001.mds", change)
    job = job_of(folder / "*.mds", tmp_path)
    with pytest.raises(InputError, match=told) as caught:
        penstock.plan(job)
    assert caught.value.where == str(folder / "shard.00001.mds")
    assert "on_bad_input: set_aside" in caught.value.next_step
    penstock.run({**job, "on_bad_input": "set_aside"})
    assert penstock.open(tmp_path / "out")[:].to_pylist() == [{"number": 0, "text": "a"}]


def with_facts(path: Path, change: dict[str, Any]) -> None:
    """Write a shard of one sample whose description is changed."""
    facts = {"column_names": ["x"], "column_encodings": ["int32"], "column_sizes": [4], **change}
    described = json.dumps(facts).encode()
    at = 12 + len(described)
    path.write_bytes(struct.pack("<3I", 1, at, at + 4) + described + bytes(4))


def array(code: int, *shape: int, data: bytes = b"") -> bytes:
    return bytes([code, len(shape) << 2, *shape]) + data


def test_an_array_of_another_type_or_shape_than_the_first_is_set_aside(tmp_path):
    values = [
        array(33, 1, 2, data=struct.pack("<2i", 1, 2)),
        array(33, 1, 3, data=struct.pack("<3i", 1, 2, 3)),
        array(34, 1, 2, data=struct.pack("<2f", 1, 2)),
        array(33, 2, 2, data=struct.pack("<4i", 3, 4, 5, 6)),
        array(33, 1, 2, data=b"\0"),
        array(99, 1, 2),
    ]
    (tmp_path / "a.mds").write_bytes(shard_bytes({"x": ("ndarray", None)}, [(value,) for value in values]))
    answer = read(tmp_path / "a.mds")
    assert ([row["x"] for row in answer.rows], answer.ordinals) == ([[[1, 2]], [[3, 4], [5, 6]]], [0, 3])
    assert answer.details == [
        "column 'x': it is int32[1, 3], and the first is int32[*, 2]",
        "column 'x': it is float32[1, 2], and the first is int32[*, 2]",
        "column 'x': it has 1 bytes of numbers, and int32[1, 2] takes 8",
        "column 'x': b'c' stands for no type of array",
    ]


def test_text_that_is_not_utf8_and_samples_that_memory_has_no_room_for_are_set_aside(tmp_path):
    texts = [b"good", b"\xff\xfe", b"x" * 5000, b"end"]
    (tmp_path / "a.mds").write_bytes(shard_bytes({"t": ("str", None)}, [(text,) for text in texts]))
    answer = read(tmp_path / "a.mds", most_row_bytes=1000)
    assert ([row["t"] for row in answer.rows], answer.ordinals) == (["good", "end"], [0, 3])
    assert [line["position"] for line in answer.aside] == [1, 2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "json"}, "shard 0 has format 'json' and version 2"),
        ({"raw_data": None}, "has not the entries of one that MDSWriter wrote"),
        ({"raw_data": {"basename": "shard.00000.mds", "bytes": 1, "hashes": {"md9": ""}}}, "hashes of the kind 'md9'"),
        (
            {"raw_data": {"basename": "gone.mds", "bytes": 1, "hashes": {}}, "compression": "br:9"}
            | {"zip_data": {"basename": "gone.mds.br", "bytes": 1, "hashes": {}}},
            "this shard is compressed with 'br:9', and zstd, gz and bz2 are read",
        ),
        ({"samples": 7}, r"it has 4 samples, .* index.json has 7"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(tmp_path, change, told):
    folder = write_texts(tmp_path / "data", ["a", "b", "c", "d"], 4)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0] |= change
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=told):
        penstock.plan(job_of(folder, tmp_path))


@pytest.mark.parametrize("below", [False, True], ids=["named itself", "in a folder that is named"])
@pytest.mark.parametrize(
    ("index", "told"),
    [
        ('{"version": 2}', "this index has no list `shards`, and .* lie beside it, such as shard.00000.mds"),
        ('{"version": 2, "shards": {}}', "this index has no list `shards`"),
        ('[{"a": 1}]', "this index has no list `shards`"),
        ('{"version": 2, "sha', "this index is not JSON"),
    ],
)
def test_an_index_without_shards_is_not_taken_for_data(tmp_path, index, told, below):
    folder = write_texts(tmp_path / "data" / "train", ["a", "b"], 1)
    (folder / "index.json").write_text(index)
    with pytest.raises(InputError, match=told) as caught:
        penstock.plan(job_of(folder.parent if below else folder, tmp_path))
    assert caught.value.where == str(folder / "index.json")
    assert "bring back the index" in caught.value.next_step
    assert len(rows_of(job_of(folder / "*.mds", tmp_path))) == 2


def test_a_table_may_be_called_index_where_no_shards_are(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "index.json").write_text('{"a": 1}\n')
    assert rows_of(job_of(tmp_path / "data", tmp_path)) == [{"a": 1}]


def test_a_split_is_a_folder_and_its_name_no_option(tmp_path):
    folder = write_texts(tmp_path / "data", ["a", "b"], 1)
    with pytest.raises((InputError, ConfigError), match="files have no split 'validation'"):
        penstock.plan(job_of(folder, tmp_path, input={"path": str(folder), "split": "validation"}))


def test_documents_of_shards_are_in_order_and_accounted_for(tmp_path):
    texts = [f"document {number} " * (number % 7) for number in range(300)]
    hashes = {"sha1": lambda data: hashlib.sha1(data).hexdigest(), "xxh64": lambda data: xxhash.xxh64(data).hexdigest()}
    folder = write_texts(tmp_path / "data", texts, 40, **hashes)
    job = job_of(folder, tmp_path, stages=[{"filter": "characters(text) > 20"}], slice_size="4KB")
    assert len(penstock.plan(job).survey.slices) > 4
    found = rows_of(job)
    assert [(row["number"], row["text"]) for row in found] == [(n, t) for n, t in enumerate(texts) if len(t) > 20]
    assert penstock.open(tmp_path / "out").manifest.account[1].taken == 300


def test_a_folder_around_folders_of_shards_is_refused_with_the_one_to_name(tmp_path):
    write_texts(tmp_path / "data" / "train", ["a", "b"], 1)
    with pytest.raises(InputError, match="a folder inside of this one is a dataset of MosaicML Streaming") as caught:
        penstock.plan(job_of(tmp_path / "data", tmp_path))
    assert "data/train, in " in caught.value.where
