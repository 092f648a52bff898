"""Group: one record a key, cut where it is said to be cut, whatever the rows and however they come."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, PenstockError, TaskError
from penstock.prepare.rows.order import Exchange
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.fitting.group_summary import LARGEST, GroupSummary
from tests.prepare.rows import making
from tests.prepare.stages.rows import make_rows
from tests.promises import workshop


def run(folder: Path, columns: dict[str, Any] | pa.Table, stages: list[Any], batch_bytes: int = 0, **keys: Any) -> Path:
    """Two files, several slices and buckets; the answer is the output."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    half = -(-table.num_rows // 2)
    for number in range(2):
        pq.write_table(table.slice(number * half, half), folder / "data" / f"{number}.parquet", row_group_size=40)
    job = {"input": str(folder / "data"), "output": str(folder / "out"), "stages": stages}
    plan = penstock.plan({**job, "slice_size": "1kB", "workers": 0, **keys})
    penstock.run(workshop.with_batches(plan, batch_bytes) if batch_bytes else plan)
    return folder / "out"


def records(output: Path, split: str = "train") -> list[dict[str, Any]]:
    return penstock.open(output, split)[:].to_pylist()


def summary(output: Path) -> dict[str, Any]:
    return json.loads((output / "artifacts" / "group.json").read_text())


def account(output: Path) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in json.loads((output / "manifest.json").read_text())["account"]}


# Where a record ends.


def _sizes(table: pa.Table) -> list[int]:
    """Bytes a row as documented: numbers as wide as their type, text as its bytes and 4."""
    sizes = [0] * table.num_rows
    for column in table.columns:
        for row, value in enumerate(column.to_pylist()):
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                sizes[row] += 4 + len(value.encode() if isinstance(value, str) else value or b"")
            else:
                sizes[row] += max(1, column.type.bit_width // 8)
    return sizes


def _reference(rows: list[tuple[Any, int]], most: int) -> list[tuple[Any, int]]:
    """(key, rows) of each record, of (key, bytes) of rows in order: a row that would make it larger begins another."""
    found: list[tuple[Any, int]] = []
    held = 0
    for key, size in rows:
        if found and found[-1][0] == key and held + size <= most:
            found[-1] = (key, found[-1][1] + 1)
            held += size
        else:
            found.append((key, 1))
            held = size
    return found


def _grouped(table: pa.Table, most: int, run_rows: int) -> list[tuple[Any, int]]:
    """(key, rows) of each record when sorted rows come in runs of `run_rows`."""
    from penstock.prepare.rows.order import Sorted

    stage = build_stage("group", {"by": "k", "order": "t", "max_record": most})
    whole = making.sorted_rows(table, Exchange(("k",), ("t",)))
    pieces = [
        Sorted(
            whole.batch.slice(first, run_rows),
            whole.starts[(whole.starts >= first) & (whole.starts < first + run_rows)] - first,
        )
        for first in range(0, table.num_rows, run_rows)
    ]
    batches = list(stage.reduce(iter(pieces)))
    return [(row["k"], len(row["t"])) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("most", [1, 40, 41, 57, 200, 10**9])
def test_a_record_ends_before_the_row_that_would_make_it_larger(most):
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "k": rng.integers(0, 4, 300),
            "t": pa.array(rng.integers(0, 50, 300), pa.timestamp("us")),
            "small": pa.array(rng.integers(0, 9, 300), pa.int8()),
            "yes": pa.array(rng.random(300) < 0.5),
            "text": pa.array([None if n % 11 == 0 else "é" * (n % 9) for n in range(300)]),
        }
    )
    ordered = table.take(making.in_order(table, Exchange(("k",), ("t",))))
    expected = _reference(list(zip(ordered["k"].to_pylist(), _sizes(ordered), strict=True)), most)
    for run_rows in (300, 77, 5, 1):
        assert _grouped(table, most, run_rows) == expected, f"in runs of {run_rows}"


def test_a_row_larger_than_a_record_may_be_is_a_record_of_its_own(tmp_path):
    output = run(tmp_path, {"k": [1, 1, 1], "t": [1, 2, 3], "text": ["a", "b" * 500, "c"]},
                 [{"group": {"by": "k", "order": "t", "max_record": "100B"}}])  # fmt: skip
    assert [row["t"] for row in records(output)] == [[1], [2], [3]]


@pytest.mark.proof
def test_how_much_is_sorted_at_once_shows_neither_in_records_nor_in_artifacts(tmp_path):
    rng = np.random.default_rng(2)
    columns = {
        "k": pa.array([f"key {n}" for n in rng.zipf(1.5, 900) % 90]),
        "t": rng.integers(0, 30, 900),
        "text": pa.array([None if n % 50 == 0 else f"word {n}" for n in rng.integers(0, 900, 900)]),
    }
    stages = [{"group": {"by": "k", "order": "t", "max_record": "700B"}}, {"split": {"test": 0.3}}]
    seen = [
        workshop.bytes_of(run(tmp_path / str(size), columns, stages, size, slice_size="8kB")) for size in (0, 9000, 900)
    ]
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


def test_texts_of_rows_that_are_done_with_are_not_carried_on():
    """A bucket in many runs, every text another: what is handed on must not hold the texts of all runs before."""
    from penstock.prepare.rows.order import Sorted

    stage = build_stage("group", {"by": "k", "order": "t", "max_record": "1kB"})

    def runs():
        for number in range(40):
            table = pa.table(
                {"k": [f"key {number}"] * 100, "t": range(100), "text": [f"run {number} row {n}" for n in range(100)]}
            )
            found = making.sorted_rows(table, Exchange(("k",), ("t",)))
            yield Sorted(found.batch, found.starts)

    held = [len(batch.column("text").values.dictionary) for batch in stage.reduce(runs())]
    assert max(held) <= 300, f"a batch of records holds {max(held)} texts, of which it can use about 120"


# Keys and values of every kind.

KEYS: dict[str, pa.Array] = {
    "dictionary": pa.array(["a", "b", None] * 20).dictionary_encode(),
    "dictionary of numbers": pa.array([7, 8, None] * 20, pa.int64()).dictionary_encode(),
    "zoned timestamp": pa.array([0, 10**15, None] * 20, pa.timestamp("us", "Europe/Berlin")),
    "date": pa.array([0, 20_000, None] * 20, pa.int32()).view(pa.date32()),
    "time of day": pa.array([0, 20_000, None] * 20, pa.int32()).view(pa.time32("s")),
    "bool": pa.array([True, False, None] * 20),
    "float": pa.array([0.5, float("nan"), None] * 20),
    "half float": pa.array([np.float16(0.5), np.float16(2), None] * 20, pa.float16()),
    "uint64": pa.array([0, 2**64 - 1, None] * 20, pa.uint64()),
    "binary": pa.array([b"\xff", b"", None] * 20),
    "fixed binary": pa.array([b"\xff\x00", b"ab", None] * 20, pa.binary(2)),
    "large string": pa.array(["é", "", None] * 20, pa.large_string()),
}


@pytest.mark.proof
@pytest.mark.parametrize("name", KEYS)
def test_rows_are_grouped_by_keys_of_every_type(tmp_path, name):
    table = pa.table({"k": KEYS[name], "t": pa.array(range(60))})
    output = run(tmp_path / "set_aside", table, [{"group": {"by": "k", "order": "t"}}])
    found = {repr(row["k"]): row["t"] for row in records(output)}
    keys = [repr(key) for key in penstock_values(KEYS[name])]
    assert found == {keys[0]: list(range(0, 60, 3)), keys[1]: list(range(1, 60, 3))}
    assert account(output)["group"]["set_aside"] == {"null key": 20}
    lines = [json.loads(line) for path in sorted((output / "rejected").glob("*.jsonl")) for line in path.open()]
    assert [line["row"]["t"] for line in lines] == list(range(2, 60, 3))
    assert {line["reason"] for line in lines} == {"null key"}

    output = run(tmp_path / "group", table, [{"group": {"by": "k", "order": "t", "null_keys": "group"}}])
    found = {repr(row["k"]): row["t"] for row in records(output)}
    assert found == {key: list(range(n, 60, 3)) for n, key in enumerate([*keys[:2], "None"])}
    assert account(output)["group"]["set_aside"] == {}


def penstock_values(array: pa.Array) -> list[Any]:
    """As penstock gives them back: of a dictionary, its values."""
    return (array.dictionary_decode() if pa.types.is_dictionary(array.type) else array).slice(0, 3).to_pylist()


@pytest.mark.proof
@pytest.mark.parametrize("name", KEYS)
def test_rows_are_ordered_by_columns_of_every_type_and_lists_hold_them(tmp_path, name):
    table = pa.table({"k": [1] * 60, "o": KEYS[name], "t": pa.array(range(60))})
    for batch_bytes in (0, 400):
        output = run(tmp_path / str(batch_bytes), table, [{"group": {"by": "k", "order": "o"}}], batch_bytes)
        (record,) = records(output)
        expected = making.in_order(table, Exchange(("k",), ("o",)))
        assert record["t"] == expected
        values = table["o"].combine_chunks()
        plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        assert repr(record["o"]) == repr(plain.take(pa.array(expected)).to_pylist())


def test_decimals_are_held_and_cannot_be_ordered_by(tmp_path):
    table = pa.table(
        {"k": [1, 2] * 10, "t": range(20), "d": pa.array([Decimal(n) for n in range(20)], pa.decimal128(9, 2))}
    )
    output = run(tmp_path, table, [{"group": {"by": "k", "order": "t"}}])
    assert sorted(row["d"] for row in records(output))[0] == [Decimal(n) for n in range(0, 20, 2)]
    with pytest.raises(ConfigError, match=r"'d' is decimal128\(9, 2\), which cannot be a key or an order"):
        run(tmp_path, table, [{"group": {"by": "k", "order": "d"}}])


def test_decimals_as_keys_are_grouped_or_refused_by_name(tmp_path):
    table = pa.table({"k": pa.array([Decimal(n % 3) for n in range(20)], pa.decimal128(9, 2)), "t": range(20)})
    try:
        output = run(tmp_path, table, [{"group": {"by": "k", "order": "t"}}])
    except ConfigError as error:
        assert "'k' is decimal128(9, 2)" in error.what
    else:
        assert sorted(row["k"] for row in records(output)) == [Decimal(0), Decimal(1), Decimal(2)]


def test_a_column_without_a_type_is_held_or_refused_by_name(tmp_path):
    """As plain jobs treat it: a column of nothing but nulls is common in files written by pandas."""
    table = pa.table({"k": [1, 2] * 10, "t": range(20), "n": pa.nulls(20)})
    for number, stages in enumerate([[], [{"group": {"by": "k", "order": "t"}}]]):
        try:
            assert len(penstock.open(run(tmp_path / str(number), table, stages))) == (2 if stages else 20)
        except PenstockError as error:
            assert "'n'" in error.what


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.list_(pa.int8(), 2)])
def test_nested_columns_are_refused_by_name(tmp_path, kind):
    table = pa.table({"k": [1, 2], "t": [1, 2], "nest": pa.nulls(2, kind)})
    with pytest.raises(ConfigError, match=r"column 'nest' is .*, but group takes no nested columns") as caught:
        run(tmp_path, table, [{"group": {"by": "k", "order": "t"}}])
    assert "select" in (caught.value.next_step or "")
    assert len(penstock.open(run(tmp_path, table, [{"select": ["k", "t"]}, {"group": {"by": "k", "order": "t"}}]))) == 2


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"by": []}, "name at least one column"),
        ({"by": ["k", "k"]}, "'k' is named twice"),
        ({"by": "k", "order": "k"}, "'k' is named twice"),
        ({"by": "k", "max_record": "0B"}, "it must be more than zero"),
        ({"by": "k", "null_keys": "drop"}, "set_aside"),
        ({"by": "k", "colour": 1}, "colour"),
        ({}, "by"),
    ],
)
def test_options_that_make_no_sense_are_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        build_stage("group", written)
    assert message in str(caught.value)


@pytest.mark.parametrize("option", ["by", "order"])
def test_a_column_that_is_not_there_is_refused_with_a_suggestion(tmp_path, option):
    with pytest.raises(ConfigError, match=r"there is no column 'tiem'.*Did you mean 'time'"):
        run(tmp_path, {"k": [1], "time": [1]}, [{"group": {"by": "k", "order": "time", option: "tiem"}}])


# Among other stages.


@pytest.mark.proof
def test_a_key_keeps_its_split_when_the_data_grow(tmp_path):
    rng = np.random.default_rng(3)
    table = pa.table({"k": [f"key {n}" for n in rng.integers(0, 200, 2000)], "t": rng.integers(0, 99, 2000)})
    stages = [{"group": {"by": "k", "order": "t"}}, {"split": {"by": "key", "test": 0.3, "val": 0.1}}]
    seen = []
    for number, rows in enumerate((500, 2000)):
        output = run(tmp_path / str(number), table.slice(0, rows), stages, slice_size="8kB")
        seen.append({row["k"]: split for split in ("train", "test", "val") for row in records(output, split)})
    assert seen[0].items() <= seen[1].items()
    assert len(set(seen[0].values())) == 3
    rows = make_rows({"k": list(seen[1])})
    plain = build_stage("split", {"by": "k", "test": 0.3, "val": 0.1})
    assert [plain.splits()[number] for number in plain(rows).splits] == list(seen[1].values())


@pytest.mark.parametrize("by", [None, "key", ["a", "b"]])
def test_behind_group_a_split_is_by_the_key_in_every_spelling(tmp_path, by):
    stages = [{"group": {"by": ["a", "b"]}}, {"split": {"test": 0.4, **({"by": by} if by else {})}}]
    columns = {"a": [n % 5 for n in range(60)], "b": [f"{n % 4}" for n in range(60)], "v": range(60)}
    output = run(tmp_path, columns, stages)
    rows = make_rows({"a": [1, 2, 3, 4], "b": ["1", "2", "3", "0"]})
    hashed = build_stage("split", {"by": ["a", "b"], "test": 0.4})
    in_test = {(row["a"], row["b"]) for row in records(output, "test")}
    for (a, b), number in zip([(1, "1"), (2, "2"), (3, "3"), (4, "0")], hashed(rows).splits, strict=True):
        assert ((a, b) in in_test) == (number == 1)


def test_a_split_before_group_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"stages\[0\]\.split: it stands before group") as caught:
        run(tmp_path, {"k": [1], "t": [1]}, [{"split": {"test": 0.1}}, {"group": {"by": "k", "order": "t"}}])
    assert caught.value.next_step == "move it behind stages[1]: there it decides by key"


OWN = """
import pyarrow as pa
import pyarrow.compute as pc

def longest(batch):
    return batch.append_column("events", pc.list_value_length(batch["t"]).cast(pa.int32()))

def long(batch):
    return pc.greater(pc.list_value_length(batch["t"]), 5)

def shrink(batch):
    return batch.slice(1)
"""


def _own_job(folder: Path, stages: list[Any]) -> Path:
    (folder / "own_group_stages.py").write_text(OWN)
    rng = np.random.default_rng(4)
    table = pa.table({"k": rng.zipf(1.6, 400) % 40, "t": rng.integers(0, 99, 400), "v": rng.random(400)})
    pq.write_table(table, folder / "a.parquet", row_group_size=50)
    return workshop.write_job(folder / "job.yaml", folder / "a.parquet", stages=stages, workers=0, slice_size="1kB")


@pytest.mark.proof
def test_records_can_be_filtered_selected_and_given_to_ones_own_function(tmp_path):
    group = {"group": {"by": "k", "order": "t"}}
    stages = [
        "own_group_stages:longest",
        {"filter": {"where": "own_group_stages:long", "keep": True}},
        {"select": ["k", "events"]},
    ]
    job = _own_job(tmp_path, [group, *stages])
    seen = []
    for batch_bytes in (1 << 20, 300):
        penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes), redo=True)
        seen.append(workshop.bytes_of(tmp_path / "out"))
    assert seen[0] == seen[1]
    keys, counts = np.unique(pq.read_table(tmp_path / "a.parquet")["k"].to_numpy(), return_counts=True)
    expected = {int(key): int(count) for key, count in zip(keys, counts, strict=True)}
    kept = {row["k"]: row["events"] for row in records(tmp_path / "out")}
    assert kept == {key: count for key, count in expected.items() if count > 5}
    steps = account(tmp_path / "out")
    assert steps["group"]["made"] == {"records": len(expected)}
    assert steps["filter"]["taken"] == len(expected)
    assert steps["filter"]["unit"] == "records"
    assert steps["write"]["given"] == len(kept)
    lines = [json.loads(line) for path in (tmp_path / "out" / "rejected").iterdir() for line in path.open()]
    assert sorted(len(line["row"]["t"]) for line in lines) == sorted(count for count in expected.values() if count <= 5)


def test_a_function_that_drops_records_is_refused(tmp_path):
    with pytest.raises((TaskError, ConfigError), match="own_group_stages:shrink was given"):
        penstock.run(_own_job(tmp_path, [{"group": {"by": "k", "order": "t"}}, "own_group_stages:shrink"]))


@pytest.mark.proof
def test_statistics_of_records_are_exact_however_they_come(tmp_path):
    stages = [{"group": {"by": "k", "order": "t"}}, "own_group_stages:longest", {"statistics": ["events"]}]
    job = _own_job(tmp_path, stages)
    seen = []
    for batch_bytes in (1 << 20, 300):
        penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes), redo=True)
        seen.append(json.loads((tmp_path / "out" / "artifacts" / "statistics.json").read_text()))
    assert seen[0] == seen[1]
    counts = [row["events"] for row in records(tmp_path / "out")]
    found = seen[0]["events"] if "events" in seen[0] else seen[0]["columns"]["events"]
    assert found["count"] == len(counts)
    assert found["mean"] == pytest.approx(np.mean(counts))


@pytest.mark.proof
def test_what_needs_an_artifact_may_stand_on_either_side_of_group(tmp_path):
    before = [{"normalize": ["v"]}, {"group": {"by": "k", "order": "t"}}]
    penstock.run(_own_job(tmp_path, before))
    values = [value for row in records(tmp_path / "out") for value in row["v"]]
    assert np.mean(values) == pytest.approx(0, abs=1e-6)
    assert np.std(values) == pytest.approx(1, abs=1e-3)
    after = [
        {"group": {"by": "k", "order": "t"}},
        "own_group_stages:longest",
        {"select": ["k", "events"]},
        {"normalize": ["events"]},
    ]
    penstock.run(_own_job(tmp_path, after), redo=True)
    assert np.mean([row["events"] for row in records(tmp_path / "out")]) == pytest.approx(0, abs=1e-5)


@pytest.mark.proof
def test_two_groups_in_one_job_keep_what_each_side_sets_aside(tmp_path):
    code = "import pyarrow as pa, pyarrow.compute as pc\ndef flat(batch):\n    return pa.record_batch({"
    code += "'pair': pc.bit_wise_and(batch['k'], 3), 'n': pc.list_value_length(batch['t']), 'k': batch['k']})\n"
    (tmp_path / "two_groups.py").write_text(code)
    keys = np.random.default_rng(6).integers(0, 60, 1000)
    pq.write_table(pa.table({"k": keys, "t": range(1000)}), tmp_path / "a.parquet", row_group_size=200)
    stages = [
        {"group": {"by": "k", "order": "t"}},
        "two_groups:flat",
        {"filter": {"where": "n > 15", "keep": True}},
        {"group": {"by": "pair", "order": "k"}},
        {"filter": {"where": "pair > 1", "keep": True}},
    ]
    job = workshop.write_job(tmp_path / "job.yaml", tmp_path / "a.parquet", stages=stages, workers=0, slice_size="2kB")
    penstock.run(job)
    counts = {key: int((keys == key).sum()) for key in range(60)}
    kept = {key for key, count in counts.items() if count > 15}
    assert {row["pair"]: row["k"] for row in records(tmp_path / "out")} == {
        pair: sorted(key for key in kept if key % 4 == pair) for pair in (2, 3)
    }
    lines = [json.loads(line) for path in (tmp_path / "out" / "rejected").iterdir() for line in path.open()]
    reasons = [line["reason"] for line in lines]
    assert (reasons.count("n > 15"), reasons.count("pair > 1")) == (60 - len(kept), 2)
    assert penstock.verify(tmp_path / "out").ok


def test_equal_times_stand_in_the_order_of_sources_paths_and_rows(tmp_path):
    for number, (folder, name) in enumerate([("z", "b"), ("z", "a"), ("a", "c")]):
        (tmp_path / folder).mkdir(exist_ok=True)
        table = pa.table({"k": [1] * 50, "t": [7] * 50, "row": [f"{folder}/{name} {n:02d}" for n in range(50)]})
        pq.write_table(table, tmp_path / folder / f"{name}.parquet", row_group_size=20 + number)
    sources = [str(tmp_path / "z"), str(tmp_path / "a")]
    job = {"input": sources, "output": str(tmp_path / "out"), "stages": [{"group": {"by": "k", "order": "t"}}]}
    penstock.run({**job, "slice_size": "1kB", "workers": 0})
    expected = [f"{file} {n:02d}" for file in ("z/a", "z/b", "a/c") for n in range(50)]
    assert [row["row"] for row in records(tmp_path / "out")] == [expected]


@pytest.mark.proof
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_that_one_file_holds_as_codes_and_another_as_they_are_come_together(tmp_path, kind):
    """Read as codes, a column must still have the type that the job was planned with."""
    (tmp_path / "data").mkdir()
    for number, coded in enumerate((True, False, True)):
        texts = pa.array([f"{n % 5}" for n in range(400)]).cast(kind)
        table = pa.table({"k": texts, "t": range(400), "text": texts})
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet", use_dictionary=coded, row_group_size=100)
    job = {
        "input": str(tmp_path / "data"),
        "output": str(tmp_path / "out"),
        "stages": [{"group": {"by": "k", "order": "t"}}],
    }
    penstock.run({**job, "slice_size": "2kB", "workers": 0})
    assert penstock.verify(tmp_path / "out").ok
    values = pa.array([f"{n}" for n in range(5)]).cast(kind).to_pylist()
    found = {row["k"]: row for row in records(tmp_path / "out")}
    assert set(found) == set(values)
    assert all(set(found[value]["text"]) == {value} and len(found[value]["t"]) == 240 for value in values)


def test_lines_of_text_are_grouped_like_rows(tmp_path):
    lines = [f"u{n % 7},{n % 5},{n}" for n in range(500)]
    (tmp_path / "a.csv").write_text("\n".join(["k,t,v", *lines, "only-one-column", ""]))
    job = {"input": str(tmp_path / "a.csv"), "output": str(tmp_path / "out"), "on_bad_input": "set_aside"}
    penstock.run({**job, "stages": [{"group": {"by": "k", "order": "t"}}], "slice_size": "1kB", "workers": 0})
    found = {row["k"]: row["v"] for row in records(tmp_path / "out")}
    rows = {f"u{key}": [n for n in range(500) if n % 7 == key] for key in range(7)}
    assert found == {key: sorted(row, key=lambda n: n % 5) for key, row in rows.items()}
    assert account(tmp_path / "out")["read"]["set_aside"] == {"not a valid record": 1}


def test_a_filter_before_group_is_counted_in_events_and_what_it_drops_is_in_no_record(tmp_path):
    stages = [{"filter": "v > 20"}, {"group": {"by": "k", "order": "t"}}]
    output = run(tmp_path, {"k": [n % 3 for n in range(60)], "t": range(60), "v": range(60)}, stages)
    steps = account(output)
    assert (steps["read"]["unit"], steps["filter"]["unit"]) == ("events", "events")
    assert steps["filter"]["set_aside"] == {"v > 20": 21}
    assert sorted(value for row in records(output) for value in row["v"]) == list(range(21, 60))


# Its summary.


@pytest.mark.proof
def test_the_summary_counts_keys_records_and_events_with_keys_cut_into_several_records(tmp_path):
    rng = np.random.default_rng(5)
    keys, times = (rng.zipf(1.4, 1500) % 60).tolist(), rng.integers(-50, 5000, 1500).tolist()
    for batch_bytes in (0, 500):
        stages = [{"group": {"by": "k", "order": "t", "max_record": "320B"}}, {"split": {"test": 0.3}}]
        output = run(tmp_path / str(batch_bytes), {"k": keys, "t": times}, stages, batch_bytes, slice_size="4kB")
        counts = {key: keys.count(key) for key in set(keys)}
        found = summary(output)
        assert (found["keys"], found["events"]) == (len(counts), 1500)
        assert found["records"] == sum(-(-count // 20) for count in counts.values())
        assert (found["least"], found["greatest"]) == (min(times), max(times))
        assert [each["events"] for each in found["largest"]] == sorted(counts.values(), reverse=True)[:LARGEST]
        assert all(counts[each["key"]] == each["events"] for each in found["largest"])
        levels = [2 ** (count.bit_length() - 1) for count in counts.values()]
        assert found["keys_by_events"] == {str(level): levels.count(level) for level in sorted(set(levels))}


def test_the_summary_of_equally_large_keys_does_not_depend_on_how_they_come():
    """`largest` has ten places: which of equally large keys take them must not depend on where batches end."""
    summary = GroupSummary(("k",), ("t",))
    block = pa.record_batch({"k": [f"key {n:02d}" for n in reversed(range(40))], "t": [[1]] * 40})
    seen = []
    for rows in (40, 7, 1):
        state = summary.start()
        for first in range(0, 40, rows):
            state = summary.update(state, block.slice(first, rows))
        seen.append(summary.finish(json.loads(json.dumps(state))))
    assert seen[0] == seen[1] == seen[2]


def test_the_summary_of_a_key_that_goes_on_in_the_next_batch_is_of_one_key():
    summary = GroupSummary(("k", "j"), ("t",))
    block = pa.record_batch({"k": ["a", "a", "a"], "j": [None, None, 1], "t": [[1, 2], [3], [4]]})
    state = summary.start()
    for row in range(3):
        state = summary.update(state, block.slice(row, 1))
    found = summary.finish(state)
    assert (found["keys"], found["records"], found["events"]) == (2, 3, 4)
    assert found["largest"] == [{"key": ["a", None], "events": 3}, {"key": ["a", 1], "events": 1}]


def test_the_summary_takes_both_zeros_as_the_one_key_they_are(tmp_path):
    stages = [{"group": {"by": "k", "order": "t", "max_record": "64B"}}]
    output = run(tmp_path, {"k": [0.0, -0.0, -0.0] * 20, "t": range(60)}, stages)
    assert len(records(output)) == 15
    assert (summary(output)["keys"], summary(output)["records"]) == (1, 15)


def test_the_summary_counts_events_also_where_no_order_is_named(tmp_path):
    output = run(tmp_path, {"k": [1] * 10 + [2], "v": range(11)}, [{"group": {"by": "k"}}])
    assert summary(output)["events"] == 11


def test_the_summary_of_no_rows_says_so(tmp_path):
    empty = pa.table({"k": pa.array([], pa.string()), "t": pa.array([], pa.int64())})
    output = run(tmp_path, empty, [{"group": {"by": "k", "order": "t"}}, {"split": {"test": 0.5}}])
    assert (summary(output)["keys"], summary(output)["events"], summary(output)["largest"]) == (0, 0, [])
    assert len(penstock.open(output)) == 0
    assert penstock.verify(output).ok


def test_a_split_by_a_list_is_refused_since_it_would_part_a_key(tmp_path):
    table = pa.table({"k": [1, 2] * 10, "t": range(20), "d": ["a", "b"] * 10})
    with pytest.raises(ConfigError, match=r"'d' is list<.*no single value per row"):
        run(tmp_path, table, [{"group": {"by": "k", "order": "t"}}, {"split": {"by": "d", "test": 0.1}}])
