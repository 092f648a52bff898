"""The arrayrecord format: what existing readers read, checked with hashlib, pyarrow and array_record alone."""

from __future__ import annotations

import errno
import hashlib
import itertools
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import ConfigError, FileError, InputError, IntegrityError, OutputError
from penstock.base.faults import Sweep, sweeping
from penstock.base.fingerprint import digest
from penstock.base.stores import open_store
from penstock.base.stores.local import TEMPORARY
from penstock.base.stores.store import Store
from penstock.shards.foreign.arrayrecord import encode_records, refuse_unfit
from penstock.shards.foreign.arrayrecord_file import PartWriter, merge_parts
from penstock.shards.manifest import Manifest, ShardFacts, Step, write_manifest
from tests.shards.foreign.records import TWO, broken_text, foreign, write_records
from tests.shards.making import FIXED, WORDS, bits, make_array

START = datetime(2024, 5, 6, 7, 8, 9, 123456)
EVENTS = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("src_addr", pa.string()),
        ("dst_addr", pa.string()),
        ("ip_version", pa.int8()),
        ("rtt", pa.float32()),
    ]
)
OUTER = [
    ("src_id", pa.int64()),
    ("measurements", pa.binary()),
    ("n_measurements", pa.int32()),
    ("time_span_seconds", pa.float64()),
    ("first_timestamp", pa.timestamp("us")),
    ("last_timestamp", pa.timestamp("us")),
]
TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(), pa.large_binary()]
TYPES = [*FIXED, *TEXTS, pa.decimal128(38, 10), pa.binary(3)]


def grouped(keys: dict[str, list[tuple[Any, ...]]], text: pa.DataType | None = None) -> pa.RecordBatch:
    """A batch of the native format from (time, dst_addr, ip_version, rtt) events by key."""
    columns: dict[str, pa.Array] = {"src_addr": pa.array(list(keys), pa.string())}
    for place, name in enumerate(["event_time", "dst_addr", "ip_version", "rtt"]):
        kind = EVENTS.field(name).type
        offsets = pa.array(np.cumsum([0, *map(len, keys.values())]), pa.int32())
        values = pa.array([event[place] for events in keys.values() for event in events], kind)
        values = values.cast(text) if text and name == "dst_addr" else values
        columns[name] = pa.ListArray.from_arrays(offsets, values)
    return pa.RecordBatch.from_pydict(columns)


def event(seconds: float, address: str | None = "10.0.0.1", version: int | None = 4, rtt: float | None = 1.5):
    return (START + timedelta(seconds=seconds), address, version, rtt)


def some_keys(count: int) -> dict[str, list[tuple[Any, ...]]]:
    """Records of 1 to 20 events; a third of them without any null."""
    rng = np.random.default_rng(count)
    keys = {}
    for number in range(count):
        nulls = 0.4 * (number % 3 > 0)
        keys[f"192.168.0.{number}"] = [
            event(
                seconds,
                None if rng.random() < nulls else WORDS[rng.integers(len(WORDS))],
                None if rng.random() < nulls else 4,
                None if rng.random() < nulls else float(rng.random()),
            )
            for seconds in range(int(rng.integers(1, 21)))
        ]
    return keys


def encode(batch: pa.RecordBatch) -> list[bytes]:
    return list(encode_records(batch, "src_addr", "event_time"))


def one_alone(key: str, lists: dict[str, pa.Array]) -> bytes:
    """The same record built by pyarrow from fresh arrays."""
    times = lists["event_time"]
    arrays = {"event_time": times, "src_addr": pa.array([key] * len(times)), **lists}
    arrays = {name: pa.concat_arrays([array.slice(0, 0), copied(array)]) for name, array in arrays.items()}
    inner = written(pa.RecordBatch.from_pydict(arrays))
    first, last = times[0].as_py(), times[-1].as_py()
    identity = int(hashlib.md5(key.encode()).hexdigest()[:15], 16)
    values = [identity, inner, len(times), (last - first).total_seconds(), first, last]
    return written(
        pa.RecordBatch.from_pydict(
            {name: pa.array([value], kind) for (name, kind), value in zip(OUTER, values, strict=True)}
        )
    )


def copied(array: pa.Array) -> pa.Array:
    """Fresh buffers of exactly the size they need, zero under nulls."""
    return array.take(pa.array(range(len(array)), pa.int32())) if len(array) else array


def written(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def opened(record: bytes) -> tuple[dict[str, Any], pa.Table]:
    outer = pa.ipc.open_stream(record).read_all()
    assert outer.schema == pa.schema(OUTER)
    (row,) = outer.to_pylist()
    return row, pa.ipc.open_stream(row.pop("measurements")).read_all()


# The record.


@pytest.mark.parametrize("text", TEXTS[:3], ids=str)
def test_plain_pyarrow_reads_back_the_rows(text):
    keys = some_keys(40)
    for (key, events), record in zip(keys.items(), encode(grouped(keys, text)), strict=True):
        facts, table = opened(record)
        assert table.schema == EVENTS
        expected = pa.Table.from_pylist(
            [dict(zip(EVENTS.names, (each[0], key, *each[1:]), strict=True)) for each in events], EVENTS
        )
        assert table.equals(expected)
        assert facts == {
            "src_id": int(hashlib.md5(key.encode("utf-8")).hexdigest()[:15], 16),
            "n_measurements": len(events),
            "time_span_seconds": (events[-1][0] - events[0][0]).total_seconds(),
            "first_timestamp": events[0][0],
            "last_timestamp": events[-1][0],
        }


def test_the_id_of_a_key_is_fifteen_digits_of_its_md5():
    keys = ["192.168.0.1", "", "naïve", "\U0001f600", "2001:db8::1"]
    found = [opened(record)[0]["src_id"] for record in encode(grouped({key: [event(0)] for key in keys}))]
    assert found == [int(hashlib.md5(key.encode("utf-8")).hexdigest()[:15], 16) for key in keys]
    assert found[1] == 0xD41D8CD98F00B20


def test_ties_nulls_nans_unicode_and_empty_text_go_through():
    nan, inf = float("nan"), float("inf")
    events = [
        event(1, "", None, nan),
        event(1, None, 6, None),
        event(1, "é\0\U0001f600", 4, inf),
        event(1, "", 4, -0.0),
    ]
    facts, table = opened(encode(grouped({"k": events}))[0])
    assert (facts["n_measurements"], facts["time_span_seconds"]) == (4, 0.0)
    assert table["dst_addr"].to_pylist() == ["", None, "é\0\U0001f600", ""]
    assert table["ip_version"].to_pylist() == [None, 6, 4, 4]
    assert str(table["rtt"].to_pylist()) == "[nan, None, inf, -0.0]"


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("nulls", [0, 0.3])
def test_every_type_goes_through_with_its_bits(kind, nulls):
    rng = np.random.default_rng(7)
    lengths = [1, 8, 9, 63, 64, 65, 3]
    offsets = pa.array(np.cumsum([5, *lengths]), pa.int32())
    values = make_array(kind, 5 + sum(lengths) + 5, rng, nulls)
    times = pa.array(np.arange(len(values)), pa.timestamp("us"))
    lists = {"event_time": times, "value": values}
    batch = pa.RecordBatch.from_pydict(
        {
            "src_addr": pa.array([f"key {number}" for number in range(len(lengths))]),
            **{name: pa.ListArray.from_arrays(offsets, each) for name, each in lists.items()},
        }
    )
    start = 5
    for record, length in zip(encode(batch), lengths, strict=True):
        table = opened(record)[1]
        assert table.column_names == ["event_time", "src_addr", "value"]
        assert bits(table["value"].chunk(0)) == bits(values.slice(start, length))
        start += length


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        *[(kind, kind) for kind in (pa.float16(), pa.timestamp("ns", "UTC"), pa.decimal128(9, 2), pa.binary(3))],
        *[(kind, pa.string()) for kind in TEXTS[:3]],
        *[(kind, pa.binary()) for kind in TEXTS[3:]],
    ],
    ids=str,
)
def test_text_leaves_as_plain_string_and_other_types_as_they_are(kind, found):
    value = make_array(kind, 1, np.random.default_rng(0), 0)
    times = pa.array([START], pa.timestamp("us"))
    lists = {name: pa.ListArray.from_arrays([0, 1], each) for name, each in {"event_time": times, "v": value}.items()}
    batch = pa.RecordBatch.from_pydict({"src_addr": ["k"], **lists})
    assert opened(encode(batch)[0])[1].schema.field("v").type == found


@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        (pa.timestamp("s"), datetime(2024, 5, 6, 7, 8, 9)),
        (pa.timestamp("ms"), datetime(1924, 5, 6, 7, 8, 9, 123000)),
        (pa.timestamp("us", "America/New_York"), datetime(2024, 5, 6, 7, 8, 9, 123456)),
        (pa.timestamp("s", "+05:30"), datetime(2024, 5, 6, 7, 8, 9)),
    ],
    ids=str,
)
def test_times_leave_as_microseconds_in_utc(kind, moment):
    value = moment.replace(tzinfo=UTC) if kind.tz else moment
    batch = pa.RecordBatch.from_pydict({"src_addr": ["k"], "event_time": pa.array([[value, value]], pa.list_(kind))})
    facts, table = opened(encode(batch)[0])
    assert table.schema.field("event_time").type == pa.timestamp("us")
    assert table["event_time"].to_pylist() == [moment, moment]
    assert facts["first_timestamp"] == facts["last_timestamp"] == moment


def test_an_event_without_time_is_refused_with_its_key():
    batch = grouped({"a": [event(0)] * 3, "b": [event(0), (None, "x", 4, 1.0)], "c": [(None, "x", 4, 1.0)]})
    with pytest.raises(InputError, match="without 'event_time'") as caught:
        encode(batch)
    assert caught.value.where == "src_addr 'b', record 1 of 3 in its batch, 2 such events"
    assert caught.value.next_step == "filter such rows out before `group`: `- filter: event_time is not null`"


def test_a_record_without_key_is_refused_with_its_number():
    batch = grouped({"a": [event(0)] * 3, "b": [event(0)] * 2})
    batch = batch.set_column(0, "src_addr", pa.array(["a", None], pa.string()))
    with pytest.raises(InputError, match="without 'src_addr'") as caught:
        encode(batch)
    assert caught.value.where == "src_addr None, record 1 of 2 in its batch, 2 events"
    assert caught.value.next_step == "filter such rows out before `group`: `- filter: src_addr is not null`"


def test_a_time_beyond_microseconds_is_refused():
    batch = pa.RecordBatch.from_pydict(
        {"src_addr": ["k"], "event_time": pa.array([[2**60]], pa.list_(pa.timestamp("s")))}
    )
    with pytest.raises(InputError, match="'event_time' has a time that does not fit into microseconds"):
        encode(batch)


def test_a_batch_of_no_records_gives_none():
    assert encode(grouped({})) == []


# The bytes.


def test_the_bytes_are_those_that_pyarrow_writes_for_the_record_alone():
    keys = some_keys(60)
    batch = grouped(keys)
    for row, (key, record) in enumerate(zip(keys, encode(batch), strict=True)):
        lists = {name: copied(batch[name][row].values) for name in batch.schema.names[1:]}
        assert record == one_alone(key, lists)


@given(st.integers(0, 2**32), st.lists(st.integers(0, 30), max_size=5))
def test_the_bytes_do_not_depend_on_where_a_batch_is_cut(seed, cuts):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 20, 30)
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    columns = {"event_time": pa.array(np.arange(lengths.sum()), pa.timestamp("us"))}
    for number, kind in enumerate([pa.bool_(), pa.int8(), pa.float64(), *TEXTS]):
        columns[str(number)] = make_array(kind, int(lengths.sum()), rng, 0.05)
    lists = {name: pa.ListArray.from_arrays(offsets, each) for name, each in columns.items()}
    batch = pa.RecordBatch.from_pydict({"src_addr": [f"key {number}" for number in range(30)], **lists})
    edges = [0, *sorted(cuts), 30]
    pieces = [batch.slice(low, high - low) for low, high in itertools.pairwise(edges)]
    assert [record for piece in pieces for record in encode(piece)] == encode(batch)


def test_what_lies_under_a_null_does_not_show():
    def batch(hidden: str, number: float) -> pa.RecordBatch:
        text = pa.array([hidden, "b"])
        _, offsets, data = text.buffers()
        text = pa.Array.from_buffers(pa.string(), 2, [pa.array([False, True]).buffers()[1], offsets, data])
        rtt = pa.array([number, 2.0], pa.float32()).buffers()[1]
        rtt = pa.Array.from_buffers(pa.float32(), 2, [pa.array([False, True]).buffers()[1], rtt])
        times = pa.array([START, START], pa.timestamp("us"))
        lists = {"event_time": times, "dst_addr": text, "rtt": rtt}
        arrays = {name: pa.ListArray.from_arrays([0, 2], each) for name, each in lists.items()}
        return pa.RecordBatch.from_pydict({"src_addr": ["k"], **arrays})

    assert encode(batch("secret", 1.0)) == encode(batch("", 0.0))


# The job.

ROWS = pa.schema([("t", pa.timestamp("ms", "UTC")), ("k", pa.string()), ("v", pa.float32()), ("d", TEXTS[2])])


def test_a_job_that_fits_is_taken():
    refuse_unfit(ROWS, ("k",), ("t",))
    refuse_unfit(ROWS, ("d",), ("t", "v"))


@pytest.mark.parametrize(
    ("schema", "by", "order", "reason"),
    [
        (ROWS, ("k", "d"), ("t",), "takes one key, this job groups by k, d"),
        (ROWS, ("v",), ("t",), "takes a key of type string; 'v' is float"),
        (ROWS, ("k",), (), "this job names no order"),
        (ROWS, ("k",), ("v", "t"), "'v' is float"),
        (ROWS.set(0, pa.field("t", pa.date32())), ("k",), ("t",), r"'t' is date32\[day\]"),
        (ROWS.append(pa.field("l", pa.list_(pa.int8()))), ("k",), ("t",), r"cannot hold column 'l' of type list"),
        (ROWS.append(pa.field("s", pa.struct([("a", pa.int8())]))), ("k",), ("t",), "cannot hold column 's'"),
        (ROWS.append(pa.field("src_id", pa.int8())), ("k",), ("t",), "has a column 'src_id' of its own"),
    ],
)
def test_a_job_that_the_format_cannot_hold_is_refused(schema, by, order, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        refuse_unfit(schema, by, order)
    assert caught.value.where == "format: arrayrecord"
    assert "leave `format:` out" in str(caught.value.next_step)


def test_a_missing_library_is_asked_for_by_name(monkeypatch, tmp_path):
    merged(tmp_path, [grouped(some_keys(2))])
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    for act in (lambda: refuse_unfit(ROWS, ("k",), ("t",)), lambda: penstock.open(tmp_path / "train.arrayrecord")):
        with pytest.raises(ConfigError, match="array_record") as caught:
            act()
        assert caught.value.next_step == "pip install 'penstock[arrayrecord]'"


# Parts, and the file they become.


def write_part(folder: Store, name: str, *batches: pa.RecordBatch) -> ShardFacts:
    writer = PartWriter(folder, name, "src_addr", "event_time")
    for batch in batches:
        writer.write(batch)
    return writer.commit()


def merged(path: Path, batches: list[pa.RecordBatch], name: str = "train") -> ShardFacts:
    folder = open_store(str(path))
    parts = [write_part(folder, f".penstock/parts/{name}-{n}", batch) for n, batch in enumerate(batches)]
    return merge_parts(folder, name, parts)


def test_a_part_is_framed_records_and_its_digest_is_that_of_its_bytes(tmp_path):
    folder = open_store(str(tmp_path))
    batch = grouped(some_keys(9))
    facts = write_part(folder, "parts/a", batch.slice(0, 4), batch.slice(4))
    data = b"".join(len(record).to_bytes(8, "little") + record for record in encode(batch))
    assert folder.read("parts/a.records") == data
    assert (facts.name, facts.records) == ("parts/a", 9)
    assert [(file.file, file.bytes, file.digest) for file in facts.files] == [
        ("parts/a.records", len(data), digest(data))
    ]


def test_a_part_appears_with_its_commit_and_not_before(tmp_path):
    folder = open_store(str(tmp_path))
    writer = PartWriter(folder, "a", "src_addr", "event_time")
    writer.write(grouped(some_keys(9)))
    assert [name for name in folder.list() if not name.startswith(TEMPORARY)] == []
    writer.close()
    assert folder.list() == []
    writer.close()
    write_part(folder, "a").files[0]
    assert (folder.list(), folder.size("a.records")) == (["a.records"], 0)


def test_a_large_part_is_written_as_it_comes(tmp_path):
    folder = open_store(str(tmp_path))
    writer = PartWriter(folder, "a", "src_addr", "event_time")
    batch = grouped({"k": [event(0, "x" * 1000)] * 2000})
    for _ in range(3):
        writer.write(batch)
        (name,) = folder.list(TEMPORARY)
        assert folder.size(name) > 2_000_000 * writer.records
    writer.close()


def test_the_library_reads_the_records_of_all_parts_in_order(tmp_path):
    batch = grouped(some_keys(30))
    facts = merged(tmp_path, [batch.slice(0, 10), batch.slice(10, 0), batch.slice(10)])
    reader = ArrayRecordReader(str(tmp_path / "train.arrayrecord"))
    assert reader.ok()
    assert [reader.read(i, i + 1)[0] for i in range(30)] == encode(batch)
    data = (tmp_path / "train.arrayrecord").read_bytes()
    (file,) = facts.files
    assert (facts.name, facts.records) == ("train", 30)
    assert (file.file, file.bytes, file.digest) == ("train.arrayrecord", len(data), digest(data))


def test_the_file_is_the_same_however_its_records_are_cut_into_parts(tmp_path):
    batch = grouped(some_keys(300))
    cuts = [[0, 300], [0, 100, 200, 300], [0, 1, 1, 299, 300]]
    found = set()
    for number, edges in enumerate(cuts * 2):
        pieces = [batch.slice(low, high - low) for low, high in itertools.pairwise(edges)]
        found.add(merged(tmp_path / str(number), pieces).files[0].digest)
    assert len(found) == 1


def test_a_split_without_parts_is_a_file_without_records(tmp_path):
    assert merge_parts(open_store(str(tmp_path)), "test", []).records == 0
    reader = ArrayRecordReader(str(tmp_path / "test.arrayrecord"))
    assert (reader.ok(), reader.num_records()) == (True, 0)
    dataset = penstock.open(tmp_path / "test.arrayrecord")
    assert (len(dataset), list(dataset), dataset[:].num_rows) == (0, [], 0)


@pytest.mark.proof
def test_a_flipped_bit_in_a_part_is_named_and_nothing_is_merged(tmp_path):
    folder = open_store(str(tmp_path))
    batch = grouped(some_keys(4))
    parts = [write_part(folder, "a", batch.slice(0, 3)), write_part(folder, "b", batch.slice(3))]
    good = folder.read("b.records")
    damages = [good[:-1], good + b"\0", b""]
    for place in range(0, len(good), 1 if len(good) < 3000 else 7):
        damages.append(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
    for damage in damages:
        (tmp_path / "b.records").write_bytes(damage)
        with pytest.raises(IntegrityError, match=r"b\.records is damaged"):
            merge_parts(folder, "train", parts)
    assert folder.list() == ["a.records", "b.records"]


def test_a_disk_that_fails_at_any_operation_leaves_no_half_file(tmp_path):
    folder = open_store(str(tmp_path))
    parts = [write_part(folder, "a", grouped(some_keys(5)))]
    with sweeping(Sweep()) as sweep:
        merge_parts(folder, "train", parts)
    assert sum(kind == "write" for kind, _ in sweep.operations) == 6  # each record, and the end
    folder.remove("train.arrayrecord")
    for place in range(len(sweep.operations)):
        with sweeping(Sweep(fail_at=place, error=errno.ENOSPC)), pytest.raises(FileError, match="ENOSPC"):
            merge_parts(folder, "train", parts)
        assert folder.list(TEMPORARY) == []
        folder.remove("train.arrayrecord")  # the last one fails when it is in place already
    assert merge_parts(folder, "train", parts).records == 5


def test_what_the_library_says_of_a_full_disk_is_said_with_the_path(tmp_path):
    resource = pytest.importorskip("resource")
    folder = open_store(str(tmp_path))
    parts = [write_part(folder, "a", grouped({f"{n}": [event(0, f"{n}" * 9)] * 100 for n in range(900)}))]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(FileError, match=r"cannot write: File too large \(EFBIG\)") as caught:
            merge_parts(folder, "train", parts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "train.arrayrecord" in str(caught.value.where)
    assert folder.list() == ["a.records"]


# Reading.


@pytest.fixture
def dataset(tmp_path):
    """A finished dataset of 7 and 2 records."""
    path = tmp_path / "out"
    batch = grouped(some_keys(9))
    splits = {"train": (merged(path, [batch.slice(0, 7)]),), "test": (merged(path, [batch.slice(7)], "test"),)}
    folder = open_store(str(path))
    folder.remove(".penstock/parts")
    account = (Step("read", "rows", 9, 9),)
    write_manifest(folder, Manifest({"stages": [], "format": "arrayrecord"}, {}, (), splits, account, (), (), "job"))
    return path


def test_a_dataset_opens_by_its_folder_and_split(dataset):
    train, test = penstock.open(dataset), penstock.open(dataset, "test")
    assert (len(train), len(test)) == (7, 2)
    assert [record["src_addr"][0] for record in train] == [f"192.168.0.{n}" for n in range(7)]
    assert [record["src_addr"][0] for record in test] == ["192.168.0.7", "192.168.0.8"]
    assert train[-1]["src_id"] == train[6]["src_id"]
    with pytest.raises(IndexError, match="record 7 of 7 in split 'train'"):
        train[7]
    with pytest.raises(OutputError, match="there is no split 'tset'"):
        penstock.open(dataset, "tset")


def test_a_record_speaks_numpy(tmp_path):
    kinds = {
        "flag": pa.array([True, None]),
        "day": pa.array([1, None], pa.date32()),
        "clock": pa.array([8, None], pa.time32("s")),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "raw": pa.array([b"a", None], pa.binary(1)),
        "count": pa.array([1, 2], pa.uint16()),
        "word": pa.array(["é", None]),
        "time": pa.array([5, None], pa.timestamp("ms", "UTC")),
    }
    lists = {"event_time": pa.array([START, START + timedelta(seconds=2)], pa.timestamp("us")), **kinds}
    arrays = {name: pa.ListArray.from_arrays([0, 2], each) for name, each in lists.items()}
    merged(tmp_path, [pa.RecordBatch.from_pydict({"src_addr": ["k"], **arrays})])
    record = penstock.open(tmp_path / "train.arrayrecord")[0]
    assert list(record) == [name for name, _ in OUTER if name != "measurements"] + ["event_time", "src_addr", *kinds]
    assert (record["n_measurements"], record["n_measurements"].dtype) == (2, np.int32)
    assert (record["time_span_seconds"], record["src_id"].dtype) == (2.0, np.int64)
    assert record["first_timestamp"] == np.datetime64(START)
    assert record["last_timestamp"] == record["event_time"][1]
    assert record["event_time"].dtype == np.dtype("M8[us]")
    assert (record["count"].tolist(), record["count"].dtype) == ([1, 2], np.uint16)
    for name, kind in [("flag", "?"), ("day", "M8[D]"), ("clock", "m8[s]"), ("time", "M8[ms]")]:
        assert isinstance(record[name], np.ma.MaskedArray)
        assert record[name].dtype == np.dtype(kind)
        assert record[name].mask.tolist() == [False, True]
    assert (record["flag"][0], record["clock"][0]) == (True, np.timedelta64(8, "s"))
    for name, value in [("price", Decimal("1.50")), ("raw", b"a"), ("word", "é"), ("src_addr", "k")]:
        assert record[name].dtype == object
        assert record[name].tolist() == [value, "k" if name == "src_addr" else None]


def test_a_slice_is_a_table_of_facts_and_lists(dataset):
    batch = grouped(some_keys(9))
    opened_dataset = penstock.open(dataset)
    table = opened_dataset[2:5]
    assert table.column_names[:5] == [name for name, _ in OUTER if name != "measurements"]
    assert table["n_measurements"].to_pylist() == [len(each) for each in batch["rtt"].slice(2, 3)]
    for name in ("event_time", "dst_addr", "ip_version", "rtt"):
        assert table[name].to_pylist() == batch[name].slice(2, 3).to_pylist()
    assert table.schema.field("dst_addr").type == pa.list_(pa.string())
    assert opened_dataset[3:3].schema == table.schema
    assert opened_dataset[:].num_rows == 7


def test_bare_files_open_by_name_and_by_pattern_in_bytewise_order(dataset, tmp_path):
    assert len(penstock.open(dataset / "test.arrayrecord")) == 2
    both = penstock.open(f"{dataset}/*.arrayrecord")
    assert [record["src_addr"][0] for record in both] == [f"192.168.0.{n}" for n in (7, 8, 0, 1, 2, 3, 4, 5, 6)]
    assert both[1:4]["src_addr"].to_pylist() == [list(both[i]["src_addr"]) for i in (1, 2, 3)]
    odd = tmp_path / "a[1].arrayrecord"
    odd.write_bytes((dataset / "test.arrayrecord").read_bytes())
    assert len(penstock.open(odd)) == 2
    (tmp_path / "a1.arrayrecord").write_bytes(odd.read_bytes())
    with pytest.raises(OutputError, match="and as a pattern it also matches 1 more"):
        penstock.open(odd)
    with pytest.raises(OutputError, match=r"no file matches .*/nothing\*\.arrayrecord"):
        penstock.open(f"{dataset}/nothing*.arrayrecord")


def test_a_split_of_a_folder_without_a_manifest_is_every_file_of_its_name(dataset, tmp_path):
    folder = tmp_path / "older"
    folder.mkdir()
    for name, source in [("train-00001-of-00002", "train"), ("train-00000-of-00002", "test"), ("trained", "test")]:
        (folder / f"{name}.arrayrecord").write_bytes((dataset / f"{source}.arrayrecord").read_bytes())
    opened = penstock.open(folder)
    assert [record["src_addr"][0] for record in opened] == [f"192.168.0.{n}" for n in (7, 8, 0, 1, 2, 3, 4, 5, 6)]
    assert len(penstock.open(f"{folder}/train-*.arrayrecord", "train")) == len(opened)
    assert len(penstock.open(folder, "train-00000-of-00002")) == len(penstock.open(folder, "trained")) == 2
    with pytest.raises(OutputError, match="there is no split 'test'") as caught:
        penstock.open(folder, "test")
    assert caught.value.next_step == "one of: train, trained"


def test_more_files_than_stay_open_are_read_all_the_same(tmp_path):
    source = tmp_path / "source"
    merged(source, [grouped(some_keys(2))])
    for number in range(70):
        (tmp_path / f"{number:02d}.arrayrecord").symlink_to(source / "train.arrayrecord")
    many = penstock.open(f"{tmp_path}/*.arrayrecord")
    assert [record["src_addr"][0] for record in many] == ["192.168.0.0", "192.168.0.1"] * 70


@pytest.mark.parametrize("keep", [0, 1, 1000, 65536, -1])
def test_a_file_that_breaks_off_is_refused_by_name(tmp_path, keep):
    merged(tmp_path, [grouped(some_keys(100))])
    path = tmp_path / "train.arrayrecord"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(IntegrityError, match=r"train\.arrayrecord is cut short, or not an ArrayRecord file") as caught:
        penstock.open(path)
    assert caught.value.next_step


def test_a_file_of_another_kind_is_refused_by_name(tmp_path):
    path = tmp_path / "train.arrayrecord"
    path.write_bytes(b"PAR1" * 50_000)
    with pytest.raises(IntegrityError, match=r"train\.arrayrecord is cut short, or not an ArrayRecord file"):
        penstock.open(path)


@pytest.mark.parametrize("data", [b"\n\x1a\n\x18\n\x04text\x12", b"", written(pa.RecordBatch.from_pydict({"a": [1]}))])
def test_records_of_another_shape_are_refused_with_how_they_start(tmp_path, data):
    path = tmp_path / "train.arrayrecord"
    writer = ArrayRecordWriter(str(path), "group_size:1")
    writer.write(data)
    writer.close()
    for index in (0, slice(None)):
        with pytest.raises(OutputError, match="this record is not an Arrow stream of src_id") as caught:
            penstock.open(path)[index]
        assert repr(data[:16]) in caught.value.what
        assert str(path) in str(caught.value.where)


# Records of other programs: records.py makes them.


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (foreign(src_id=None), "has no src_id: it is null"),
        (foreign(n_measurements=None), "has no n_measurements: it is null"),
        (foreign(first_timestamp=None), "has no first_timestamp: it is null"),
        (foreign(measurements=None), "has measurements that are no sound Arrow stream"),
        (foreign(measurements=b""), "has measurements that are no sound Arrow stream"),
        (foreign(src_id="7"), "has src_id of type string, and the format int64"),
        (foreign(measurements="text"), "has measurements of type string, and the format binary"),
        (foreign(n_measurements=3), "has an n_measurements of 3, and 2 events"),
        (foreign(n_measurements=0), "has an n_measurements of 0, and 2 events"),
        (foreign({**TWO, "src_id": pa.array([1, 2])}), "has more than one column src_id"),
        (foreign(measurements=broken_text()), "has measurements that are no sound Arrow stream: .*[Oo]ffset"),
        (
            foreign(measurements=broken_text("k", b"\xff\xfe")),
            "has measurements that are no sound Arrow stream: .*UTF8",
        ),
    ],
)
def test_a_record_that_contradicts_itself_is_refused_by_file_and_number(tmp_path, record, reason):
    path = write_records(tmp_path / "train.arrayrecord", [foreign(), record])
    dataset = penstock.open(path)
    assert dataset[0]["n_measurements"] == 2
    for index in (1, slice(None)):
        with pytest.raises(OutputError, match=f"this record {reason}") as caught:
            dataset[index]
        assert caught.value.where == f"{path}, record 1"
        assert caught.value.next_step


@pytest.mark.parametrize("batches", [0, 1])
def test_a_record_without_events_is_read(tmp_path, batches):
    none = foreign({name: array[:0] for name, array in TWO.items()}, batches, first_timestamp=None, n_measurements=0)
    dataset = penstock.open(write_records(tmp_path / "train.arrayrecord", [none, foreign(), none]))
    assert (dataset[0]["n_measurements"], dataset[0]["first_timestamp"]) == (0, None)
    assert [len(dataset[0][name]) for name in TWO] == [0, 0, 0]
    assert dataset[:]["rtt"].to_pylist() == [[], [0.5, 1.5], []]
    assert dataset[:1]["src_addr"].to_pylist() == [[]]


def test_records_with_other_event_columns_are_refused_together_and_read_singly(tmp_path):
    wide = foreign({**TWO, "rtt": TWO["rtt"].cast(pa.float64())})
    path = write_records(tmp_path / "a.arrayrecord", [foreign(), wide, foreign()])
    dataset = penstock.open(path)
    with pytest.raises(OutputError, match=r"other columns than the records before it: .*rtt: double") as caught:
        dataset[0:2]
    assert caught.value.where == f"{path}, record 1"
    assert "dataset[i]" in str(caught.value.next_step)
    assert dataset[1:2].schema.field("rtt").type == pa.list_(pa.float64())
    assert dataset[1]["rtt"].dtype == np.float64


def test_records_with_other_event_columns_are_refused_across_batches_and_files(tmp_path):
    wide = foreign({"event_time": TWO["event_time"], "src_addr": TWO["src_addr"]})
    one = write_records(tmp_path / "a.arrayrecord", [foreign()] * 256 + [wide])
    write_records(tmp_path / "b.arrayrecord", [foreign()])
    two = write_records(tmp_path / "c.arrayrecord", [wide])
    assert penstock.open(one)[:256].num_rows == 256
    for pattern, index, where in [(one, slice(None), f"{one}, record 256"), ("[bc]", slice(0, 2), f"{two}, record 0")]:
        with pytest.raises(OutputError, match="other columns") as caught:
            penstock.open(pattern if pattern == one else f"{tmp_path}/{pattern}.arrayrecord")[index]
        assert caught.value.where == where


def test_records_whose_schemas_differ_in_what_may_be_null_are_one_table(tmp_path):
    strict = foreign(schema=pa.schema([pa.field(name, array.type, False) for name, array in TWO.items()]))
    dataset = penstock.open(write_records(tmp_path / "a.arrayrecord", [foreign(), strict, foreign()]))
    assert dataset[:]["rtt"].to_pylist() == [[0.5, 1.5]] * 3


def test_more_events_than_a_table_counts_are_refused_with_what_to_do(tmp_path):
    many = foreign({"nothing": pa.nulls(2**30)}, n_measurements=2**30)
    path = write_records(tmp_path / "a.arrayrecord", [many, many])
    with pytest.raises(OutputError, match="2 records do not fit into one table") as caught:
        penstock.open(path)[:]
    assert caught.value.where == f"{path}, records 0 to 1"
    assert "dataset[i]" in str(caught.value.next_step)


def test_a_flipped_byte_is_refused_by_the_name_of_the_file_or_is_padding(dataset):
    path = dataset / "train.arrayrecord"
    good = path.read_bytes()
    sound = penstock.open(dataset)[:]
    refused = 0
    for place in range(0, len(good), 499):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        try:
            assert penstock.open(dataset)[:] == sound
        except IntegrityError as error:
            assert "train.arrayrecord" in error.what
            refused += 1
    assert refused > 5


def test_a_sound_dataset_has_no_problem(dataset):
    checked = penstock.verify(dataset)
    assert checked.ok, checked.problems
    assert (checked.files, checked.records) == (3, 9)


def test_verify_names_every_damaged_or_foreign_file(dataset):
    train = dataset / "train.arrayrecord"
    good = train.read_bytes()
    for place in range(0, len(good), 997):
        train.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        (problem,) = penstock.verify(dataset).problems
        assert "train.arrayrecord is not the file that was written" in problem.what
    train.write_bytes(good[:-1])
    assert "train.arrayrecord has 131,071 bytes" in penstock.verify(dataset).problems[0].what
    with pytest.raises(IntegrityError, match=r"train\.arrayrecord has"):
        penstock.open(dataset)
    train.unlink()
    assert "train.arrayrecord is missing" in penstock.verify(dataset).problems[0].what
    train.write_bytes(good)
    (dataset / "other.arrayrecord").write_bytes(good)
    (problem,) = penstock.verify(dataset).problems
    assert problem.what == "other.arrayrecord does not belong to this dataset"


def test_verify_counts_the_records(dataset):
    folder = open_store(str(dataset))
    train = merged(dataset, [grouped(some_keys(3))])
    folder.remove(".penstock/parts")
    wrong = ShardFacts("train", 4, train.files)
    write_manifest(
        folder, Manifest({"stages": [], "format": "arrayrecord"}, {}, (), {"train": (wrong,)}, (), (), (), "j")
    )
    found = [problem.what for problem in penstock.verify(dataset).problems]
    assert "train.arrayrecord holds 3 records, not the 4 it should" in found
    with pytest.raises(IntegrityError, match="holds 3 records, not 4"):
        penstock.open(dataset)


def test_a_folder_of_the_older_scripts_has_a_split_per_file(tmp_path):
    write_records(tmp_path / "train.arrayrecord", [foreign(), foreign()])
    write_records(tmp_path / "test.arrayrecord", [foreign()])
    assert (len(penstock.open(tmp_path)), len(penstock.open(tmp_path, "test"))) == (2, 1)
    with pytest.raises(OutputError, match=r"no split 'tset'.*Did you mean 'test'") as refused:
        penstock.open(tmp_path, "tset")
    assert refused.value.next_step == "one of: test, train"


def test_a_folder_that_penstock_has_not_finished_is_no_folder_of_the_older_scripts(tmp_path):
    write_records(tmp_path / "train.arrayrecord", [foreign()])
    (tmp_path / ".penstock").mkdir()
    with pytest.raises(OutputError, match="this dataset is not finished"):
        penstock.open(tmp_path)
