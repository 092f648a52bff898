"""The manifest says the same after a round trip, and another version is told from a damaged one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import IntegrityError, OutputError
from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import (
    MANIFEST,
    Manifest,
    ShardFacts,
    Step,
    dataset_id,
    decode_manifest,
    encode_manifest,
    read_manifest,
    write_manifest,
)
from penstock.shards.schema import Field

MANIFEST_VALUE = Manifest(
    config={"stages": [{"filter": {"where": ["rtt > 0.1"]}}], "é": None},
    input={"files": 2},
    schema=(Field("a", "int64"), Field("b", "timestamp[us, UTC]")),
    splits={"train": (ShardFacts("train/0", 3, (FileFacts("train/0.safetensors", 10, "ab"),)),), "test": ()},
    account=(Step("read", "rows", 5, 3, {"bad": 2}),),
    artifacts=(FileFacts("artifacts/s.json", 4, "cd"),),
    rejected=(),
    job="j",
)

WORDS = st.text(max_size=8)
FACTS = st.builds(FileFacts, WORDS, st.integers(0, 2**60), WORDS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
SHARDS = st.builds(ShardFacts, WORDS, st.integers(0, 2**60), st.lists(FACTS, max_size=2).map(tuple))
MANIFESTS = st.builds(
    Manifest,
    config=st.dictionaries(WORDS, JSON, max_size=3),
    input=st.dictionaries(WORDS, JSON, max_size=3),
    schema=st.lists(st.builds(Field, WORDS, WORDS), max_size=3).map(tuple),
    splits=st.dictionaries(WORDS, st.lists(SHARDS, max_size=2).map(tuple), max_size=2),
    account=st.lists(
        st.builds(
            Step, WORDS, WORDS, st.integers(0, 99), st.integers(0, 99), st.dictionaries(WORDS, st.integers(0, 9))
        ),
        max_size=2,
    ).map(tuple),
    artifacts=st.lists(FACTS, max_size=2).map(tuple),
    rejected=st.lists(FACTS, max_size=2).map(tuple),
    job=WORDS,
)


@pytest.mark.proof
@given(MANIFESTS)
def test_a_manifest_says_the_same_after_a_round_trip(manifest):
    assert decode_manifest(encode_manifest(manifest), "here") == manifest


def test_equal_manifests_are_equal_bytes_and_one_dataset(tmp_path):
    folders = [open_store(str(tmp_path / name)) for name in "ab"]
    for folder in folders:
        write_manifest(folder, MANIFEST_VALUE)
        assert read_manifest(folder) == MANIFEST_VALUE
    assert dataset_id(folders[0]) == dataset_id(folders[1]) == "1a6647c83060eb44a0f4e25f5b82a217"


def test_records_and_files_are_counted_over_shards():
    assert MANIFEST_VALUE.records("train") == 3
    assert MANIFEST_VALUE.records("test") == 0
    assert [file.file for file in MANIFEST_VALUE.files] == ["train/0.safetensors", "artifacts/s.json"]


def test_a_step_balances_when_nothing_is_lost():
    assert Step("read", "rows", 5, 3, {"bad": 2}).balances
    assert not Step("read", "rows", 5, 3, {"bad": 1}).balances


def test_another_version_is_refused_with_what_to_do():
    body = json.loads(encode_manifest(MANIFEST_VALUE))
    del body["digest"]
    body["format_version"] = 3
    body["digest"] = fingerprint({name: value for name, value in body.items() if name != "digest"})
    with pytest.raises(OutputError) as caught:
        decode_manifest(json.dumps(body).encode(), "/data/manifest.json")
    assert "format version 3, this penstock reads version 2" in caught.value.what
    assert caught.value.where == "/data/manifest.json"
    assert "--redo" in caught.value.next_step


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'"text"',
        b"{",
        b"\xff",
        b'{"format_version": 2}',
        b'{"format_version": 2, "digest": 5}',
        b"[" * 5000,
        encode_manifest(MANIFEST_VALUE) + b"\n",
        encode_manifest(MANIFEST_VALUE).replace(b'"job": "j"', b'"job":"j"'),
        encode_manifest(MANIFEST_VALUE).replace(b'"files": 2', b'"files": 1e999'),
    ],
)
def test_what_is_not_a_manifest_is_refused_by_name(data):
    with pytest.raises(IntegrityError) as caught:
        decode_manifest(data, "/data/manifest.json")
    assert MANIFEST in caught.value.what
    assert "/data/manifest.json" in caught.value.where


def test_a_manifest_that_lacks_a_part_is_refused_although_its_digest_fits():
    body = {"format": "penstock", "format_version": 2, "config": {}}
    data = json.dumps({**body, "digest": fingerprint(body)}).encode()
    with pytest.raises(IntegrityError, match="lacks or misspells 'input'"):
        decode_manifest(data, "here")
