"""Dedup: which rows lose is what a Python dict would say, however they are cut, hashed, matched and remembered."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InputError, IntegrityError
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Task
from penstock.prepare.passes.match import hash as hashing_keys
from penstock.prepare.passes.match import matching
from penstock.prepare.passes.match.hash import KeysInto
from penstock.prepare.passes.match.matching import MatchWork, match
from penstock.prepare.passes.ranged import KeyRange
from penstock.prepare.passes.run_ranges import RunRanges, equal_edges
from penstock.prepare.rows.kept import forget_kept
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup import runs
from penstock.prepare.stages.dedup.losers import bits_of, read_losers, set_bits
from penstock.prepare.stages.dedup.remembered import Remembered, look_up
from penstock.prepare.stages.dedup.runs import (
    END_OF_KEYS,
    ENTRY,
    KEY,
    RunsWriter,
    entries_of,
    hash_texts,
    open_runs,
    repeats,
    sort_order,
)
from penstock.shards.columns import FileFacts

SETTINGS = Settings(0, 1 << 20, 0, 64.0, 64.0)
MEANING = {"text": []}
INPUT = "a digest of the input"
TEXTS = st.sampled_from(["", "a", "b", "ab", "ab ", "\0", "\0\0", "été", "e\u0301te\u0301", *map(str, range(12))])
SLICES = st.lists(st.lists(st.lists(TEXTS, max_size=12), max_size=3), min_size=1, max_size=4)


def hashed(folder: Store, slices: list[list[list[str]]], pass_number: int = 0) -> tuple[FileFacts, ...]:
    """The keys of each slice, whose texts come in batches."""
    found = []
    for number, batches in enumerate(slices):
        with ExitStack() as stack:
            sink = KeysInto(pass_number, "text").open(folder, number, stack, SETTINGS)
            for texts in batches:
                batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["text"])
                sink.write(Rows(batch, 0, ("f",), np.arange(len(texts))))
            spill = sink.finish().spill
        assert spill
        found.append(spill)
    return tuple(found)


def unseen(rows: int, place: str = "", whole: bool = True) -> None:
    """Progress that nobody watches."""


def matched(folder: Store, keys: tuple[FileFacts, ...], ranges: int, known: Remembered | None) -> list[FileFacts]:
    work = MatchWork(folder.root, 1, RunRanges("places", keys, equal_edges(ranges)), known)
    work = work.ready() if ranges > 1 else work
    rows = [work.execute(Task(f"{n}", KeyRange(n), ""), SETTINGS, unseen) for n in range(ranges)]
    return [row.spill for row in rows if row.spill]


def lost(folder: Store, keys: tuple[FileFacts, ...], losers: list[FileFacts]) -> list[tuple[list[bool], list[bool]]]:
    """Of each slice: whether each row is a duplicate, and whether an earlier job has had it."""
    found = []
    for number, facts in enumerate(keys):
        file = open_runs(folder, facts)
        rows = file.file.facts["rows"]
        both = read_losers(folder, file, losers, number)
        found.append(tuple(bits_of(each, 0, rows).tolist() for each in both))
    return found


def by_a_dict(slices: list[list[list[str]]], seen: set[str]) -> list[tuple[list[bool], list[bool]]]:
    """The definition. Of a text that was seen the first is `seen`, the others repeat it."""
    had: set[str] = set()
    answer = []
    for batches in slices:
        flags: tuple[list[bool], list[bool]] = ([], [])
        for text in (text for batch in batches for text in batch):
            flags[0].append(text in had)
            flags[1].append(text in seen and text not in had)
            had.add(text)
        answer.append(flags)
    return answer


@given(slices=SLICES, ranges=st.integers(1, 3), run=st.sampled_from([8, 16, 64]), at_once=st.integers(1, 20))
def test_the_first_by_position_stays_as_a_dict_would_have_it(tmp_path_factory, slices, ranges, run, at_once):
    folder = open_store(str(tmp_path_factory.mktemp("dedup")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing_keys, "_RUN_KEYS", run)
        patch.setattr(matching, "_KEYS_AT_ONCE", at_once)
        patch.setattr(runs, "_BLOCK_KEYS", 3)
        keys = hashed(folder, slices)
        losers = matched(folder, keys, ranges, None)
    assert lost(folder, keys, losers) == by_a_dict(slices, set())


@pytest.mark.proof
@given(jobs=st.lists(SLICES, min_size=2, max_size=4), ranges=st.integers(1, 3), at_once=st.integers(1, 20))
def test_what_earlier_jobs_had_is_left_out_whichever_of_them_had_it(tmp_path_factory, jobs, ranges, at_once):
    root = tmp_path_factory.mktemp("remember")
    seen: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_KEYS_AT_ONCE", at_once)
        patch.setattr(runs, "_BLOCK_KEYS", 3)
        for number, slices in enumerate(jobs):
            folder = open_store(str(root / f"{number}"))
            known = look_up(str(root / "seen"), folder.root, MEANING, INPUT)
            assert len(known.runs) == number
            keys = hashed(folder, slices)
            losers = matched(folder, keys, ranges, known)
            assert lost(folder, keys, losers) == by_a_dict(slices, seen)
            known.save(entries_of(folder, losers))
            new = {text for batches in slices for batch in batches for text in batch} - seen
            seen |= new
            assert _keys_in(root / "seen" / known.own) == sorted(map(_key, new))


def _key(text: str) -> tuple[int, int]:
    number = xxhash.xxh3_128_intdigest(text.encode())
    return number >> 64, number & (1 << 64) - 1


def _keys_in(path: Path) -> list[tuple[int, int]]:
    store = open_store(path.parent)
    index = runs.read_index(store, path.name)
    file = open_runs(store, FileFacts(path.name, index.source.size, index.digest))
    return [(int(high), int(low)) for keys in file.entries() for high, low in keys.tolist()]


def test_a_key_is_the_hash_of_the_bytes_wherever_a_text_lies_in_its_array():
    texts = pa.array(["x", "été", "", None, "a\0b", "z"], pa.string())
    for array in (texts, texts.cast(pa.large_string()), texts.slice(1, 4), texts.cast(pa.large_string()).slice(2)):
        keys = hash_texts(array)
        assert [(int(high), int(low)) for high, low in keys.tolist()] == [
            _key(text or "") for text in array.to_pylist()
        ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_keys_that_share_their_first_word_are_told_apart(pairs):
    """Two texts share 64 bits once in a blue moon: the sort and the search must not mind."""
    keys = np.array(pairs, KEY) if pairs else np.zeros(0, KEY)
    order = sort_order(keys)
    assert [tuple(each) for each in keys[order].tolist()] == sorted(pairs)
    assert order.tolist() == sorted(range(len(pairs)), key=lambda number: (pairs[number], number))
    ordered = sorted(pairs)
    assert repeats(keys[order]).tolist() == [at > 0 and ordered[at - 1] == each for at, each in enumerate(ordered)]


COLLIDING = st.tuples(st.sampled_from([0, 1, 5, 2**63, 2**64 - 1]), st.sampled_from([0, 1, 2, 2**64 - 1]))


@given(
    slices=st.lists(st.lists(COLLIDING, max_size=15), min_size=1, max_size=3),
    known=st.lists(COLLIDING, max_size=15, unique=True),
    buckets=st.integers(1, 4),
    pieces=st.integers(1, 9),
)
def test_matching_is_by_all_128_bits_at_both_ends_of_the_range(tmp_path_factory, slices, known, buckets, pieces):
    root = tmp_path_factory.mktemp("match")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_BLOCK_KEYS", 2)
        files = [_file(root / f"{n}", _entries(each), ENTRY) for n, each in enumerate(slices)]
        remembered = [_file(root / "known", [np.array(sorted(known), KEY)], KEY)] if known else []
        edges = (*equal_edges(buckets), END_OF_KEYS)
        found = [each for ends in itertools.pairwise(edges) for each in match(files, remembered, *ends, pieces)]
    had: set[Any] = set()
    expected = set()
    for number, keys in enumerate(slices):
        for row, key in enumerate(keys):
            if key in had or key in known:
                expected.add((number, row, int(key not in had)))
            had.add(key)
    losers = [
        (number, *loser) for each in found for number, loser in zip(each.slices, each.losers.tolist(), strict=True)
    ]
    assert sorted(tuple(map(int, each)) for each in losers) == sorted(expected)
    new = [tuple(key) for each in found for key in each.new.tolist()]
    assert new == sorted(had - set(known))


def _entries(keys: list[tuple[int, int]]) -> list[Any]:
    """One run for each key: the most that a file may hold."""
    return [np.array([(high, low, row)], ENTRY) for row, (high, low) in enumerate(keys)]


def _file(path: Path, pieces: list[Any], dtype: np.dtype[Any]) -> runs.RunsFile:
    with ExitStack() as stack:
        writer = RunsWriter(open_store(str(path)), "keys", stack, dtype, lasting=False)
        for piece in pieces:
            writer.write(piece)
        facts = writer.finish({})
    return open_runs(open_store(str(path)), facts)


@given(
    batches=st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=30), max_size=4),
    bounds=st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**64)),
    block=st.integers(1, 9),
)
def test_a_range_of_keys_is_what_numpy_selects(tmp_path_factory, batches, bounds, block):
    low, high = min(bounds), max(bounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_BLOCK_KEYS", block)
        made = [np.array([(each, at) for at, each in enumerate(sorted(keys))], KEY) for keys in batches]
        file = _file(tmp_path_factory.mktemp("runs"), made, KEY)
    every = np.concatenate([np.zeros(0, KEY), *made])
    assert file.keys == len(every)
    assert np.array_equal(np.concatenate([np.zeros(0, KEY), *file.entries()]), every)
    if low < high:
        expected = [each for each in every.tolist() if low <= each[0] < high]
        assert file.between(low, high).tolist() == expected


@given(rows=st.integers(0, 70), data=st.data())
def test_a_bitmap_is_a_set_of_numbers(rows, data):
    numbers = data.draw(st.lists(st.integers(0, max(0, rows - 1)), max_size=rows))
    start = data.draw(st.integers(0, rows))
    count = data.draw(st.integers(0, rows - start))
    first = np.packbits(np.array([number in numbers[::2] for number in range(rows)], bool), bitorder="little")
    set_bits(first, np.array(numbers[1::2], "u4"))
    assert bits_of(first, start, count).tolist() == [number in numbers for number in range(start, start + count)]


def test_remembered_keys_are_read_a_little_at_a_time_however_many_there_are(tmp_path):
    """A small corpus against a large memory: what is held follows from neither."""
    chance = np.random.default_rng(1)
    known = np.zeros(200_000, KEY)
    known["high"] = np.sort(chance.integers(0, 2**64, len(known), "u8"))
    remembered = _file(tmp_path / "known", [known], KEY)
    few = np.zeros(10, ENTRY)
    few["high"] = known["high"][::20_000]
    read = [len(each) for each in remembered.near(few["high"])]
    assert sum(read) <= 10 * runs._BLOCK_KEYS
    found = list(match([_file(tmp_path / "few", [few], ENTRY)], [remembered], 0, END_OF_KEYS, 1))
    assert sum(len(each.slices) for each in found) == 10
    assert max(len(each) for each in remembered.near(known["high"])) < len(known) / 2


# What lies on disk.


def _flips(path: Path, step: int = 61) -> Iterator[int]:
    """Flip one byte after the other, some apart, and mend each again; one in ten of them in the index."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:], "little") + 16
    spots = {*range(0, len(whole), step), *range(len(whole) - length, len(whole), max(1, step // 10))}
    for position in sorted({*spots, len(whole) - 1}):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x04]) + whole[position + 1 :])
        yield position
    path.write_bytes(whole)


def _forget_opened():
    """As in a process of its own."""
    forget_kept()


def test_a_flipped_byte_in_keys_or_losers_is_named(tmp_path):
    slices = [[[f"text {n % 700}" for n in range(1500)]], [[f"text {n}" for n in range(900)]]]
    folder = open_store(str(tmp_path))
    keys = hashed(folder, slices)
    losers = matched(folder, keys, 1, None)
    expected = by_a_dict(slices, set())
    for facts in (keys[1], losers[0]):
        path = tmp_path / facts.file
        for position in _flips(path, 499):
            _forget_opened()
            try:
                again = matched(open_store(str(tmp_path)), keys, 1, None) if facts in keys else losers
                found = lost(folder, keys, again)
            except IntegrityError as error:
                assert path.name in str(error.where), position
            else:
                assert found == expected, f"{path.name}, byte {position}: a flip went unnoticed and changed the answer"
        _forget_opened()
        assert lost(folder, keys, matched(folder, keys, 1, None)) == expected


def test_a_flipped_byte_in_what_is_remembered_is_named(tmp_path):
    known = look_up(str(tmp_path / "seen"), str(tmp_path / "a"), MEANING, INPUT)
    folder = open_store(str(tmp_path / "a"))
    known.save(entries_of(folder, matched(folder, hashed(folder, [[[f"text {n}" for n in range(900)]]]), 1, known)))
    path = tmp_path / "seen" / known.own
    keys = _keys_in(path)
    for position in _flips(path, 499):
        _forget_opened()
        with pytest.raises(IntegrityError) as caught:
            _read_all(look_up(str(tmp_path / "seen"), str(tmp_path / "b"), MEANING, INPUT))
        assert path.name in str(caught.value.where), position
    assert _keys_in(path) == keys


def _read_all(known: Remembered) -> None:
    for file in known.open():
        for _ in file.entries():
            pass


@pytest.mark.parametrize("left", [0, 3, 8, 100, -1])
def test_a_truncated_memory_is_named(tmp_path, left):
    known = look_up(str(tmp_path / "seen"), str(tmp_path / "a"), MEANING, INPUT)
    known.save(iter([np.array([(1, 2), (3, 4)], KEY)]))
    path = tmp_path / "seen" / known.own
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(IntegrityError, match="damaged"):
        look_up(str(tmp_path / "seen"), str(tmp_path / "b"), MEANING, INPUT)


def test_a_file_of_remembered_keys_has_the_bytes_that_it_always_had(tmp_path):
    """It outlasts the version that wrote it: other bytes are another version, and older files must still be read."""
    keys = np.zeros(2000, KEY)
    keys["high"], keys["low"] = np.arange(2000) * 7, 3
    known = look_up(str(tmp_path / "seen"), str(tmp_path / "a"), MEANING, INPUT)
    known.save(iter([keys[:700], keys[700:]]))
    written = hashlib.sha256((tmp_path / "seen" / known.own).read_bytes()).hexdigest()
    assert written == "a100cbf7a3904de870d28c747ef83f6d2a2dbcd43ff4e7fea82eabe1f1bfaa47"


def test_datasets_are_remembered_in_their_order_and_each_replaces_its_own(tmp_path):
    seen = str(tmp_path / "seen")
    for name in ("a", "b", "c"):
        look_up(seen, str(tmp_path / name), MEANING, INPUT).save(iter([np.array([(ord(name), 1)], KEY)]))
    assert sorted(name[:5] for name in _names(seen)) == ["00001", "00002", "00003"]
    again = look_up(seen, str(tmp_path / "b"), MEANING, INPUT)
    assert [each.name[:5] for each in again.runs] == ["00001"]
    again.save(iter([np.array([(7, 7)], KEY)]))
    assert len(_names(seen)) == 3
    assert _keys_in(Path(seen) / again.own) == [(7, 7)]
    assert len(look_up(seen, str(tmp_path / "d"), MEANING, INPUT).runs) == 3


def test_an_output_is_the_same_by_whichever_path_it_is_reached(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    known = look_up(str(tmp_path / "seen"), str(tmp_path / "disk" / "out"), MEANING, INPUT)
    known.save(iter([]))
    assert look_up(str(tmp_path / "seen"), str(tmp_path / "link" / "out"), MEANING, INPUT) == known


def test_what_is_remembered_is_the_same_keys_whatever_they_were_made_from(tmp_path):
    """A later job is to be done again when they change, and not when a file of the input was written anew."""
    described = []
    for made_from in ("one input", "another"):
        seen = str(tmp_path / made_from)
        look_up(seen, str(tmp_path / "a"), MEANING, made_from).save(iter([np.array([(1, 2)], KEY)]))
        described.append(look_up(seen, str(tmp_path / "b"), MEANING, INPUT).describe())
    assert described[0] == described[1]


def _names(seen: str) -> list[str]:
    return [name for name in os.listdir(seen) if not name.startswith(".")]


SAVE = """
import sys
from penstock.prepare.stages.dedup.remembered import look_up
look_up(*sys.argv[1:3], {}, "").save(iter([]))
"""


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    token, seen = tmp_path / "token", tmp_path / "seen"
    token.touch()
    environment = {**os.environ, CRASH_VARIABLE: f"commit.before_rename:{token}"}
    command = [sys.executable, "-c", SAVE, str(seen), str(tmp_path / "a")]
    assert subprocess.run(command, env=environment, check=False).returncode == CRASH_EXIT_CODE
    (left,) = (seen / ".penstock" / "tmp").iterdir()
    other = left.with_name("0" * 12 + left.name[12:])
    other.write_bytes(b"of a job that may be at work on another machine")
    known = look_up(str(seen), str(tmp_path / "a"), MEANING, INPUT)
    known.save(iter([np.array([(1, 2)], KEY)]))
    assert list(other.parent.iterdir()) == [other]
    assert _keys_in(seen / known.own) == [(1, 2)]


@pytest.mark.parametrize("meaning", [{"text": [{"clean": {"normalize": "nfc"}}]}, {"text": [], "other": 1}])
def test_keys_of_another_text_are_refused(tmp_path, meaning):
    look_up(str(tmp_path / "seen"), str(tmp_path / "a"), MEANING, INPUT).save(iter([]))
    with pytest.raises(InputError, match="these keys are hashes of"):
        look_up(str(tmp_path / "seen"), str(tmp_path / "b"), meaning, INPUT)


def test_a_cache_of_md5_hashes_is_recognised_and_refused(tmp_path):
    (tmp_path / "seen" / "ab").mkdir(parents=True)
    (tmp_path / "seen" / "ab" / "0123456789abcdef0123456789abcdef").touch()
    with pytest.raises(InputError, match="MD5"):
        look_up(str(tmp_path / "seen"), str(tmp_path / "a"), MEANING, INPUT)
    assert os.listdir(tmp_path / "seen") == ["ab"]


@pytest.mark.parametrize("name", ["ab", "notes.txt", "00001.keys", "1-0123456789abcdef.keys"])
def test_a_folder_that_holds_something_else_is_refused_by_name(tmp_path, name):
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / name).touch()
    with pytest.raises(InputError, match=name):
        look_up(str(tmp_path / "seen"), str(tmp_path / "a"), MEANING, INPUT)


def test_a_memory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "seen").touch()
    with pytest.raises(InputError, match="a folder"):
        look_up(str(tmp_path / "seen"), str(tmp_path / "a"), MEANING, INPUT)
