"""A job that stands still in the middle, so that it can be looked at."""

import json

import pytest

# A run that does its first task, and then waits for a file before each of the others.
FUNCTION = """
import pathlib, time
HERE = pathlib.Path(__file__).parent

def slowly(batch):
    is_task = (HERE / "out" / ".penstock" / "job.json").exists()  # else the job is being planned
    while is_task and batch.column("x")[0].as_py() >= 10 and not (HERE / "go").exists():
        time.sleep(0.01)
    return batch
"""


@pytest.fixture
def slow_job(tmp_path):
    (tmp_path / "mine.py").write_text(FUNCTION)
    for number in range(3):
        lines = [json.dumps({"x": 10 * number + each}) for each in range(10)]
        (tmp_path / f"in-{number}.jsonl").write_text("\n".join(lines) + "\n")
    path = tmp_path / "job.yaml"
    path.write_text(
        "input: in-*.jsonl\noutput: out\nworkers: 1\nslice_size: 100B\n"
        "stages: [{filter: {where: ['x != 3']}}, 'mine:slowly']\n"
    )
    return path
