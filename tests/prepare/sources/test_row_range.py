"""Row ranges: `split: train[a:b]` gives those rows, whatever the files are, and nonsense is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.prepare.sources.row_range import parse_split

COUNT = 337
RANGES = {
    "[:100]": (0, 100),
    "[100:200]": (100, 200),
    "[330:]": (330, COUNT),
    "[:1_000_000]": (0, COUNT),
    "[-7:]": (COUNT - 7, COUNT),
    "[:-7]": (0, COUNT - 7),
    "[10%:20%]": (34, 67),
    "[:50%]": (0, 168),  # 168.5 is rounded to the even one
    "[-10%:]": (COUNT - 34, COUNT),
    "[:]": (0, COUNT),
}


def _write(folder: Path, kind: str) -> str:
    """All numbers from 0 on, in three files of unequal length, each of several row groups or pieces."""
    folder.mkdir()
    for number, (first, last) in enumerate([(0, 50), (50, 260), (260, COUNT)]):
        table = pa.table({"n": range(first, last), "m": [f"row {n}" for n in range(first, last)]})
        place = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(table, place, row_group_size=40)
        elif kind == "csv":
            pa.csv.write_csv(table, place)
        elif kind == "arrow":
            with pa.ipc.new_file(place, table.schema) as file:
                file.write_table(table, max_chunksize=40)
        else:
            place.write_text("\n\n".join(map(json.dumps, table.to_pylist())) + "\n")
    return f"{folder}/*.{kind}"


def _run(output: Path, source: dict[str, Any], **keys: Any) -> list[int]:
    job = {"input": source, "output": str(output), "stages": [{"select": ["n"]}], "workers": 0, **keys}
    penstock.run({"slice_size": "2kB", **job})
    return penstock.open(output)[:]["n"].to_pylist()


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "arrow"])
def test_a_range_of_files_is_those_rows_in_their_order(tmp_path, kind):
    pattern = _write(tmp_path / "data", kind)
    for number, spelled in enumerate(["[100:200]", "[10%:20%]", "[-7:]"]):
        found = _run(tmp_path / str(number), {"path": pattern, "split": f"train{spelled}"})
        assert found == list(range(*RANGES[spelled])), spelled


def test_ends_may_be_open_negative_percent_or_behind_the_last_row():
    for spelled, expected in RANGES.items():
        rows = parse_split(f"train{spelled}")
        assert rows
        assert rows.of(COUNT) == expected, spelled
        assert str(rows) == f"train{spelled}".replace("_", "")


@pytest.mark.proof
def test_workers_and_slices_change_nothing_and_positions_stay(tmp_path):
    pattern = _write(tmp_path / "data", "jsonl")
    split = [{"select": ["n"]}, {"split": {"test": 0.5}}]
    whole = {"input": pattern, "output": str(tmp_path / "whole"), "workers": 0, "stages": split, "slice_size": "2kB"}
    penstock.run(whole)
    some = {**whole, "input": {"path": pattern, "split": "train[100:200]"}}
    seen = []
    for number, keys in enumerate([{}, {"workers": 2, "memory": "1GB"}]):
        penstock.run({**some, "output": str(tmp_path / str(number)), **keys})
        seen.append(sorted(penstock.open(tmp_path / str(number), "test")[:]["n"].to_pylist()))
    of_whole = penstock.open(tmp_path / "whole", "test")[:]["n"].to_pylist()
    assert seen[0] == seen[1] == [n for n in of_whole if 100 <= n < 200]


def test_a_range_of_arrays_knows_the_place_of_every_row(tmp_path):
    pattern = _write(tmp_path / "data", "parquet")
    for number, split in enumerate([[], [{"split": {"test": 0.3}}]]):
        output = tmp_path / str(number)
        job = {"input": {"path": pattern, "split": "train[45:101]"}, "output": str(output), "workers": 0}
        penstock.run({**job, "stages": [{"select": ["n"]}, *split], "format": "arrays", "slice_size": "1kB"})
        names = ["train", "test"][: 1 + len(split)]
        found = [n for name in names for n in penstock.open(output, name)[:]["n"].to_pylist()]
        assert sorted(found) == list(range(45, 101))


def test_a_bad_line_counts_as_a_row_and_is_set_aside_only_inside_the_range(tmp_path):
    lines = ['{"n": 0}', "not json", '{"n": 2}', '{"n": 3}', "neither", '{"n": 5}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = {"path": str(tmp_path / "a.jsonl"), "split": "train[:4]"}
    assert _run(tmp_path / "out", source, on_bad_input="set_aside") == [0, 2, 3]
    account = json.loads((tmp_path / "out" / "manifest.json").read_text())["account"]
    (read,) = (step for step in account if step["step"] == "read")
    assert (read["taken"], read["given"], sum(read["set_aside"].values())) == (4, 3, 1)


def test_a_range_is_part_of_what_the_dataset_is_made_from(tmp_path):
    source = {"path": _write(tmp_path / "data", "parquet")}
    jobs = [{**source, "split": split} for split in ("train", "train[:100]", "train[:101]", "train[:30%]")]
    keys = {"output": str(tmp_path / "out"), "stages": [], "workers": 0}
    assert len({penstock.plan({"input": job, **keys}).job for job in jobs}) == 4


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ("train[10]", "is not a range of rows; write train"),
        ("train[:10", "is not a range"),
        ("train[a:b]", "is not a range"),
        ("train[:1.5%]", "is not a range"),
        ("train[:10%](pct1_dropremainder)", "percent rounded to the closest row"),
        ("train[10%:500]", "mixes rows and percent"),
        ("train[:120%]", "120% is more than all rows"),
        ("train[20:10]", "is an empty range"),
        ("train[5:5]", "is an empty range"),
    ],
)
def test_what_is_no_range_is_refused_by_name(tmp_path, split, told):
    with pytest.raises(ConfigError, match=told) as caught:
        penstock.plan({"input": {"path": "a/b", "split": split}, "output": str(tmp_path / "out")})
    assert "split" in caught.value.what


def test_a_range_without_a_row_is_refused_with_the_number_of_rows(tmp_path):
    pattern = _write(tmp_path / "data", "jsonl")
    for split in ("train[500:600]", "train[-1:5]"):
        with pytest.raises(InputError, match=f"holds no row: there are {COUNT} in all"):
            _run(tmp_path / "out", {"path": pattern, "split": split})


def test_several_splits_and_other_splits_of_files_are_refused_with_what_to_write(tmp_path):
    pattern = _write(tmp_path / "data", "parquet")
    with pytest.raises(InputError, match="files have no split 'test'"):
        _run(tmp_path / "out", {"path": pattern, "split": "test[:5]"})
    with pytest.raises(InputError, match="names several splits") as caught:
        _run(tmp_path / "out", {"path": "org/name", "split": "train[:5]+test"})
    assert "`split: train[:5]` and `split: test`" in (caught.value.next_step or "")


def test_a_file_whose_rows_cannot_be_counted_is_named(tmp_path):
    pattern = _write(tmp_path / "data", "parquet")
    (tmp_path / "data" / "1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be counted") as caught:
        _run(tmp_path / "out", {"path": pattern, "split": "train[:10%]"}, on_bad_input="set_aside")
    assert "1.parquet" in (caught.value.where or "")


PLAN_AND_RUN = """
import json, sys, penstock
plan = penstock.plan(json.loads(sys.argv[1]))
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1000)
penstock.run(plan)
"""


@pytest.mark.proof
def test_a_line_too_long_for_the_memory_counts_as_a_row_and_planning_never_holds_it(tmp_path):
    with (tmp_path / "a.jsonl").open("w") as file:
        file.write('{"n": 0, "m": ""}\n{"n": 1, "m": "')
        for _ in range(60):
            file.write("x" * 1_000_000)
        file.write('"}\n{"n": 2, "m": ""}\n{"n": 3, "m": ""}\n')
    source = {"path": str(tmp_path / "a.jsonl"), "split": "train[1:3]"}
    job = {"input": source, "output": str(tmp_path / "out"), "stages": [], "workers": 0, "memory": "300MB"}
    command = [sys.executable, "-c", PLAN_AND_RUN, json.dumps({**job, "on_bad_input": "set_aside"})]
    peak_megabytes = int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0])
    assert peak_megabytes < 200
    assert penstock.open(tmp_path / "out")[:]["n"].to_pylist() == [2]


@pytest.mark.parametrize("split", ["train[:10]", "train[-3:]", "train[:50%]", "train[:]"])
def test_a_range_of_an_empty_file_is_refused(tmp_path, split):
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="holds no row: there are 0 in all") as caught:
        _run(tmp_path / "out", {"path": str(tmp_path / "a.parquet"), "split": split})
    assert "input[0]" in (caught.value.where or "")
