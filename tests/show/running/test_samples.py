"""What people see of a job of samples: its plan, a file that was given up, and what it made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli import main
from penstock.show.running.progress import notices
from tests.show.desk import document

FUNCTION = """
def samples(path):
    for ply in range(5):
        yield {
            "features": [float(ply)] * 6,
            "labels": {"move": ply % 2},
            "masks": {"move": [True, True]},
            "game": path.stem,
        }

def of_rows(batch):
    for value in batch["a"].to_pylist():
        yield {"features": [value, value]}
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    (tmp_path / "mine.py").write_text(FUNCTION)
    for number in range(4):
        (tmp_path / f"{number}.game").touch()
    (tmp_path / "rows.csv").write_text("a\n1\n2\n")
    return tmp_path


def write(folder: Path, source: dict[str, Any] | None = None, **keys: Any) -> str:
    job = {"input": {"files": "*.game", "function": "mine:samples", **(source or {})}, "output": "out", "workers": 0}
    (folder / "job.yaml").write_text(yaml.safe_dump({**job, "memory": "1GB", **keys}))
    return "job.yaml"


def shown(capfd: Any, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return str(capfd.readouterr().out)


def test_a_plan_shows_what_was_inferred_in_words_that_a_schema_takes(desk, capfd):
    out = shown(capfd, "plan", write(desk))
    assert "4 files, 4 B, about 20 samples, in 4 slices" in out
    line = next(line for line in out.splitlines() if line.startswith("features"))
    assert line.split() == ["features", "float64[6]", "float64[6]"]
    assert "masks_move    bool[2]" in out
    assert "What mine:samples yields is inferred from the first samples of 4 files." in out
    assert not (desk / "out").exists()


def test_a_plan_of_a_declared_schema_says_so(desk, capfd):
    schema = {"features": "float16[6]", "labels": {"move": "int8"}, "masks": {"move": "bool[2]"}, "game": "string"}
    out = shown(capfd, "plan", write(desk, {"schema": schema}))
    assert "What mine:samples yields is declared in the job." in out
    assert "float16[6]" in out
    facts = document(shown(capfd, "plan", "job.yaml", "--json"))
    assert {column["origin"] for column in facts["functions"][0]["columns"]} == {"declared"}


@pytest.mark.proof
def test_a_plan_says_what_a_function_is_given_and_what_it_may_take(desk, capfd):
    out = shown(capfd, "plan", write(desk))
    assert "mine:samples, given one file at a time; function_memory: " in out
    assert "measured on the first files" in out
    rows = {"input": {"path": "rows.csv", "function": "mine:of_rows", "batch_rows": 2, "function_memory": "40MB"}}
    out = shown(capfd, "plan", write(desk, **rows))
    assert "mine:of_rows, given 2 rows at a time; function_memory: 40MB declared" in out
    (facts,) = document(shown(capfd, "plan", "job.yaml", "--json", "--workers", "1"))["functions"]
    assert (facts["function_memory"], facts["rows_at_once"]) == ("40MB", 2)
    assert facts["measured_bytes"] >= 40_000_000
    assert facts["worker_limit_bytes"] > 40_000_000


@pytest.mark.parametrize(("strategy", "parts"), [("sequential", "4 parts of pass 0"), ("accumulative", "all parts of")])
def test_a_plan_tells_the_parts_from_the_output(desk, capfd, strategy, parts):
    out = shown(capfd, "plan", write(desk, merge_strategy=strategy, stages=[{"normalize": ["features"]}]))
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "4 slices of the input" in lines["reads"]
    assert parts in lines["reads"]
    assert " of parts " in lines["writes"]
    assert lines["writes"].rstrip().endswith("of output")
    assert lines["scratch"].split() == ["scratch", "0", "B"]
    facts = document(shown(capfd, "plan", "job.yaml", "--json"))
    assert [each["writes"] for each in facts["passes"]] == ["parts", "output"]
    assert facts["passes"][1]["output_bytes"] > 0


def test_a_file_that_was_given_up_is_told_when_it_happens():
    event = {"event": "lost_file", "task": "0-map-00003", "file": "7.game"}
    (line,) = notices({**event, "title": "function took too much memory", "reason": "more than 200 MB in its worker"})
    assert line.plain == "set aside: 7.game: function took too much memory, more than 200 MB in its worker"
    assert line.style == "yellow"


def test_batch_files_are_verified_and_inspected_without_a_word_of_labels(desk, capfd):
    assert main(["run", write(desk, intermediate_dir="batches")]) == 0
    capfd.readouterr()
    out = shown(capfd, "verify", "batches")
    assert "20 records, every block as it was written" in out
    assert "label" not in out
    assert document(shown(capfd, "verify", "batches", "--json"))["heads"] == []
    assert "features      float64[6]" in shown(capfd, "inspect", "batches")
    assert "ok: 20 labels of 1 head, each allowed by its mask" in shown(capfd, "verify", "out")
    out = shown(capfd, "inspect", "out", "-n", "1")
    assert "labels_train.npz" in out
    assert "train[0]" in out
    assert "features     0.0 (all 6 values)" in out
