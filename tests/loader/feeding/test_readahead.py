"""Read ahead: what a batch of rows will need is listed to the byte, and no range that fails keeps others from it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np
import pytest

import penstock
from penstock.loader.compiled import pages
from penstock.loader.feeding import readahead
from penstock.loader.kinds.rows import Rows
from penstock.loader.tables import address
from tests.loader.compiled.test_kernel_equals_reference import single_draws
from tests.loader.making import Datasets, hash_of
from tests.loader.tokens.test_reference import Data, make_data

PAGE = mmap.PAGESIZE


class Advised:
    """A map of pages, and which of them the system was told about: the library's calls, written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int | None) -> None:
        self.alone: list[tuple[int, int]] = []
        self.together: list[tuple[int, int]] = []
        self.fails: set[int] = set()
        self._most = bytes_at_once
        monkeypatch.setattr(readahead, "_descriptor", lambda _: -1 if bytes_at_once is None else 7)
        monkeypatch.setattr(readahead.ctypes, "CDLL", lambda _: self)

    def madvise(self, start: ctypes.c_void_p, size: ctypes.c_size_t, _advice: int) -> int:
        self.alone.append((start.value or 0, size.value))
        return -1 if start.value in self.fails else 0

    def syscall(self, _call: int, _process: int, place: ctypes.c_void_p, count: ctypes.c_size_t, *_: int) -> int:
        assert count.value <= 1024
        taken = 0
        for start, size in (
            np.ctypeslib.as_array((ctypes.c_uint64 * (2 * count.value)).from_address(place.value))
            .reshape(-1, 2)
            .tolist()
        ):
            if start in self.fails:
                break
            part = min(size, self._most - taken)
            taken += part
            if part < size:
                break
            self.together.append((start, size))
        return taken or -1


def some_ranges(count: int, size: int = PAGE) -> np.ndarray:
    return np.array([(size * (i + 1), size) for i in range(count)], "u8")


@pytest.mark.parametrize("count", [0, 1, 1024, 1025, 5000])
def test_every_range_is_advised_once(monkeypatch, count):
    advised = Advised(monkeypatch, 2**31 - PAGE)
    readahead._will_need(some_ranges(count))
    assert advised.together == list(map(tuple, some_ranges(count).tolist()))
    assert not advised.alone


def test_each_range_is_advised_alone_where_there_is_no_call_for_many(monkeypatch):
    advised = Advised(monkeypatch, None)
    readahead._will_need(some_ranges(2000))
    assert advised.alone == list(map(tuple, some_ranges(2000).tolist()))


@pytest.mark.parametrize("failing", [[0], [5], [1023], [1024], [1999], [3, 4, 1500]])
def test_a_range_that_fails_is_skipped_and_the_rest_goes_on(monkeypatch, failing):
    advised, ranges = Advised(monkeypatch, 2**31 - PAGE), some_ranges(2000)
    advised.fails = set(ranges[failing, 0].tolist())
    readahead._will_need(ranges)
    assert sorted(advised.together + advised.alone) == list(map(tuple, ranges.tolist()))
    assert not advised.fails & {start for start, _ in advised.together}


@pytest.mark.parametrize("size", [2**29, 2**29 + 1, 3 * 2**30])
def test_what_is_beyond_two_gigabytes_is_advised_too(monkeypatch, size):
    advised, ranges = Advised(monkeypatch, 2**31 - PAGE), some_ranges(40, size)
    readahead._will_need(ranges)
    assert sorted(advised.together + advised.alone) == list(map(tuple, ranges.tolist()))


def test_the_system_takes_what_it_is_given():
    """No fake: pages of a map, one range that is not mapped among them."""
    mapped = mmap.mmap(-1, 3000 * PAGE)
    start = np.frombuffer(mapped, "u1").ctypes.data
    ranges = np.array([(start + i * PAGE, PAGE) for i in range(3000)], "u8")
    ranges[1500] = (PAGE, PAGE)
    readahead._will_need(ranges)


def test_columns_are_read_once_within_their_maps(monkeypatch, datasets: Datasets):
    columns = list(penstock.open(datasets.ragged_rows).columns(0).values())
    advised = Advised(monkeypatch, 2**31 - PAGE)
    maps = {id(column.mapped): column.mapped for column in columns}.values()
    spans = [(np.frombuffer(each, "u1").ctypes.data, len(each)) for each in maps if each]
    readahead._read_columns(list(columns))
    assert len(advised.alone) == len(columns)
    assert not advised.together
    for (start, size), column in zip(advised.alone, columns, strict=True):
        assert start % PAGE == 0
        assert start <= column.array.ctypes.data
        assert start + size == column.array.ctypes.data + column.array.nbytes
        assert any(first <= start and start + size <= first + length for first, length in spans)


# What rows need.


def listed(kind: Rows, places: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, page: int = PAGE) -> np.ndarray:
    """The ranges that a batch asks for: addresses and sizes."""
    found: list[np.ndarray] = []
    monkeypatch.setattr(readahead, "_will_need", lambda ranges: found.append(ranges.copy()))
    monkeypatch.setattr(readahead.mmap, "PAGESIZE", page)
    draws = single_draws(places)
    kind._read_ahead(np.ascontiguousarray(draws.shards[:, 0]), np.ascontiguousarray(draws.records[:, 0]))
    return np.concatenate(found)


def long_rows(lengths: list[int]) -> Data:
    records = [{"tokens": [7] * length, "documents": [*range(0, length, 9)]} for length in lengths]
    return make_data([records], {"tokens": "list<int32>", "documents": "list<int32>"})


def rows_of(data: Data) -> Rows:
    kind = Rows([data.shards], data.schema, 100, overflow="truncate")
    for column in data.shards[0].values():
        column.check(0, len(column))
        kind.tables.seen[:] = 0
    return kind


def needed(data: Data, record: int) -> Iterator[tuple[int, int]]:
    for name in ("tokens", "documents"):
        offsets, values = (data.shards[0][f"{name}/{part}"].array for part in ("offsets", "values"))
        first, stop = int(offsets[record]), int(offsets[record + 1])
        yield offsets.ctypes.data + 8 * record, 8
        if first < stop:
            yield values.ctypes.data + 4 * first, 4 * (stop - first)


@pytest.mark.proof
@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_lists_of_any_length_are_listed_with_all_their_pages(monkeypatch, page):
    data = long_rows([0, 30_000, 1, 9_000, 0, 20_000, 3, 5])
    kind = rows_of(data)
    for records in ([5, 1], [2, 3], [0, 4], list(range(8))):
        ranges = listed(kind, [*((0, record) for record in records), (-1, 0)], monkeypatch, page)
        assert not (ranges[:, 0] % page).any()
        for record in records:
            for start, size in needed(data, record):
                inside = (ranges[:, 0] <= start) & (start + size <= ranges[:, 0] + ranges[:, 1])
                assert inside.any(), (record, start, size)
        assert ranges[:, 1].sum() < sum(size + 2 * page for each in records for _, size in needed(data, each))


def test_blocks_that_have_to_be_verified_are_listed_whole(monkeypatch):
    data = long_rows([30_000, 30_000])
    kind = Rows([data.shards], data.schema, 100, overflow="truncate")
    ranges = listed(kind, [(0, 1)], monkeypatch)
    tokens = data.shards[0]["tokens/values"].array
    block = tokens.ctypes.data + (4 * 30_000 >> 16 << 16)
    assert ((ranges[:, 0] <= block) & (block + 65536 <= ranges[:, 0] + ranges[:, 1])).any()


def test_damaged_offsets_list_nothing_outside_their_column():
    for offsets in ([0, -5, 3], [0, 2**62, 2**63 - 1], [9, 4, 2]):
        data = long_rows([5, 5])
        kind = rows_of(data)
        own = np.array(offsets, "i8")
        kind.tables.put(0, 1, own)
        ranges, count = np.zeros((16, 2), "u8"), np.zeros(1, "i8")
        wanted = pages.Pages(address(ranges), address(count), 16, PAGE)
        pages.list_lists(kind.tables.addresses, 1, 0, np.zeros(2, "i4"), np.arange(2), wanted)
        assert not count[0]


@pytest.mark.parametrize("name", ["rows", "ragged_rows", "plain_rows"])
def test_rows_on_disk_are_the_same(datasets: Datasets, name):
    options = {"batch_size": 8, "length": 30, "seed": 2, "workers": 0, "overflow": "truncate"}
    with (
        penstock.load(getattr(datasets, name), cache="disk", **options) as large,
        penstock.load(getattr(datasets, name), **options) as usual,
    ):
        assert [hash_of(large.batch(k)) for k in range(10)] == [hash_of(usual.batch(k)) for k in range(10)]
