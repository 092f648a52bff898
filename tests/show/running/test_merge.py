"""`penstock run` with batch files in between, `--skip-merge`, and `penstock merge`, which goes on from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from penstock.base import machine
from penstock.cli import main
from tests.show.desk import document

FUNCTION = """
import numpy as np

def samples(path):
    for ply in range(int(path.read_text())):
        yield {
            "features": np.arange(3) + ply,
            "labels": {"move": ply % 4 - 1},
            "masks": {"move": [1, 1, 1]},
            "game": path.stem,
        }
"""
STAGES = [{"split": {"by": "game", "val": 0.3, "test": 0.2}}, {"normalize": {"columns": ["features"], "skip": [1]}}]
BLOCK = {
    "num_workers": 12,
    "parallel": True,
    "verbose": True,
    "batch_size": 7,
    "use_float32": True,
    "monitor_memory": True,
    "intermediate_dir": "batches",
    "merge_strategy": "sequential",
}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Nine games and a job for them that keeps batch files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FUNCTION)
    for number in range(9):
        (tmp_path / f"{number}.game").write_text(f"{3 * number}")
    write(tmp_path, "job.yaml", intermediate_dir="batches", batch_size=7, workers=0)
    return tmp_path


def write(folder: Path, name: str, **keys: Any) -> None:
    source = {"files": "*.game", "function": "mine:samples"}
    job = {"input": source, "output": "out", "memory": "1GB", "stages": STAGES, **keys}
    (folder / name).write_text(yaml.safe_dump(job, sort_keys=False))


def arrays(folder: Path) -> dict[str, bytes]:
    """The arrays and archives of a dataset."""
    return {each.name: each.read_bytes() for each in sorted(folder.glob("*.np?"))}


def batches(folder: Path) -> list[Path]:
    return sorted((folder / "batches").glob("batch_*.npz"))


@pytest.mark.proof
def test_a_run_keeps_its_batch_files_and_merges_them(desk, capfd):
    assert main(["run", "job.yaml"]) == 0
    out = capfd.readouterr().out
    assert "groups" in out
    assert "in two splits: 0" in out
    sizes = [len(np.load(each)["labels_move"]) for each in batches(desk)]
    assert sum(sizes) == 108
    assert max(sizes) == 7
    write(desk, "without.yaml", workers=0, output="without", provenance=False)  # batch files keep none
    assert main(["run", "without.yaml"]) == 0
    assert arrays(desk / "out") == arrays(desk / "without")
    assert main(["verify", "out"]) == 0


def test_skip_merge_stops_at_the_batch_files_and_merge_goes_on_from_there(desk, capfd):
    assert main(["run", "job.yaml", "--skip-merge", "--json"]) == 0
    made = document(capfd.readouterr().out)
    assert made["output"] == str(desk / "batches")
    assert not (desk / "out").exists()
    with np.load(batches(desk)[0]) as first:
        assert {"features", "labels_move", "masks_move", "game"} <= set(first)
    assert main(["merge", "batches", "--config", "job.yaml", "--json"]) == 0
    merged = document(capfd.readouterr().out)
    assert merged["output"] == str(desk / "out")
    assert sum(split["records"] for split in merged["splits"].values()) == 108
    whole = arrays(desk / "out")
    assert {"X_train.npy", "labels_move_val.npy", "masks_test.npz"} <= set(whole)
    for others in (["--intermediate-dir", "batches"], []):  # the older name, and the job's own folder
        assert main(["merge", *others, "--config", "job.yaml", "--output", "again", "--redo"]) == 0
        assert arrays(desk / "again") == whole


def test_a_merge_needs_no_raw_file(desk):
    assert main(["run", "job.yaml"]) == 0
    whole = arrays(desk / "out")
    for each in desk.glob("*.game"):
        each.unlink()
    assert main(["merge", "batches", "-c", "job.yaml", "-o", "again"]) == 0
    assert arrays(desk / "again") == whole


def test_a_run_that_was_done_has_nothing_to_do(desk, capfd):
    assert main(["run", "job.yaml"]) == 0
    capfd.readouterr()
    assert main(["run", "job.yaml", "--json"]) == 0
    assert document(capfd.readouterr().out)["already_done"]
    assert batches(desk)


def test_where_batch_files_are_must_be_said(desk, capfd):
    write(desk, "without.yaml", workers=0)
    assert main(["run", "without.yaml", "--skip-merge"]) == 2
    assert "there is no folder for the batch files" in capfd.readouterr().err
    assert main(["merge", "--config", "without.yaml"]) == 2
    assert "there is no folder of batch files" in capfd.readouterr().err
    assert main(["merge", "nowhere", "--config", "without.yaml"]) == 4
    assert "no file matches" in capfd.readouterr().err
    assert main(["merge", "batches"]) == 2
    assert "--config" in capfd.readouterr().err


def test_a_plan_is_of_the_half_that_makes_batch_files_and_says_what_follows(desk, capfd):
    assert main(["plan", "job.yaml"]) == 0
    out = capfd.readouterr().out
    assert "of batch files" in out
    assert f"Then the batch files are merged into {desk / 'out'}." in out.replace("\n", " ").replace("  ", " ")
    assert not (desk / "batches").exists()
    assert main(["run", "job.yaml", "--skip-merge"]) == 0
    capfd.readouterr()
    assert main(["plan", "job.yaml", "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert (facts["run"]["would"], facts["merged_into"]) == ("nothing", str(desk / "out"))


# The config of the scripts that wrote such files.


@pytest.mark.proof
def test_another_programs_config_is_understood_and_the_job_file_it_means_is_printed(desk, capfd, monkeypatch):
    monkeypatch.setattr(machine, "cpu_count", lambda: machine.Limit(16, "a test"))
    write(desk, "config.yaml", model={"layers": 3}, preprocessing={**BLOCK, "num_workers": None})
    assert main(["run", "config.yaml", "--workers", "0", "--skip-merge", "--json"]) == 0
    out, err = capfd.readouterr()
    assert document(out)["output"] == str(desk / "batches")
    assert "config.yaml is understood as this job file:" in err
    printed = err.partition("job file:\n\n")[2].partition("\n\n")[0]
    (desk / "printed.yaml").write_text(printed)
    assert yaml.safe_load(printed)["workers"] == 0  # with what the command line says on top
    assert "not about preparing data, and left alone: model" in err
    assert "verbose: what happens is in" in err
    assert main(["merge", "--config", "config.yaml", "--workers", "0"]) == 0
    assert main(["merge", "--config", "printed.yaml", "--workers", "0", "--output", "again"]) == 0
    assert arrays(desk / "out") == arrays(desk / "again")
    capfd.readouterr()
    assert main(["plan", "config.yaml", "--workers", "0", "--json"]) == 0
    assert document(capfd.readouterr().out)["job_file"]["batch_size"] == 7


def test_parallel_false_is_one_process_whatever_number_of_workers_the_config_has(desk, capfd):
    write(desk, "config.yaml", preprocessing=BLOCK)
    assert main(["run", "config.yaml", "--parallel", "false", "--json"]) == 0
    assert document(capfd.readouterr().out)["run"]["workers"] == 0
    assert main(["run", "config.yaml", "--parallel", "False", "--json"]) == 0
    assert document(capfd.readouterr().out)["already_done"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--parallel", "maybe"], "'maybe' is neither true nor false"),
        (["--parallel", "false", "--workers", "3"], "--parallel false and --workers 3 contradict each other"),
        (["--parallel", "false", "--strategy", "parallel"], "--strategy parallel contradict each other"),
    ],
)
def test_parallel_is_true_or_false_and_contradicts_nothing(desk, capfd, options, told):
    assert main(["run", "job.yaml", *options]) == 2
    assert told in capfd.readouterr().err
    assert not (desk / "out").exists()


def test_a_mistake_in_the_block_is_told_with_its_line(desk, capfd):
    write(desk, "config.yaml", preprocessing={"btch_size": 7})
    assert main(["run", "config.yaml", "--json"]) == 2
    told = document(capfd.readouterr().out)
    lines = (desk / "config.yaml").read_text().splitlines()
    assert told["where"] == f"config.yaml, line {lines.index('  btch_size: 7') + 1}"
    assert "Did you mean 'batch_size'?" in told["what"]
