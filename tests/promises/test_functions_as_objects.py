"""Functions of a script: a run that is killed resumes in a new process, and ends in the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.promises import workshop
from tests.promises.killing import assert_no_leftovers

SCRIPT = """\
import sys, time
import numpy as np
import penstock

SCALE = 3.0
def world(item, seed):
    return np.random.default_rng([seed, item]).normal(0, SCALE, 8).astype("f4")
def simulating(seed):
    def simulate(item):
        time.sleep(0.01)
        if item % 50 == 17:
            raise ValueError(f"no world {item}")
        return {"features": world(item, seed), "group": f"g{item % 9}"}
    return simulate
job = {
    "input": {"items": range(400), "function": simulating(5)},
    "stages": [{"split": {"by": "group", "test": 0.3}}],
    "output": sys.argv[1],
    "workers": int(sys.argv[2]),
}
penstock.run(job, progress=False)
"""


def _start(folder: Path, output: str, workers: int, seed: int) -> subprocess.Popen[bytes]:
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.Popen([sys.executable, "script.py", output, str(workers)], cwd=folder, env=environment)


def test_a_killed_run_of_a_scripts_function_resumes_to_the_same_bytes(tmp_path):
    assert _start(tmp_path, "clean", workers=0, seed=3).wait(120) == 0
    killed = _start(tmp_path, "out", workers=2, seed=1)
    workshop.wait_for(lambda: workshop.ledger_rows(tmp_path / "out") > 5)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert _start(tmp_path, "out", workers=1, seed=77).wait(120) == 0
    assert json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())["tasks_kept"] > 5
    assert workshop.bytes_of(tmp_path / "out") == workshop.bytes_of(tmp_path / "clean")
    assert_no_leftovers(tmp_path / "out")


HELD = """\
import dataclasses, enum, functools, sys
import pyarrow as pa
import penstock

WORDS = {"beta", "gamma", "alpha", "delta", 8, 0}
class Settings:
    zeta = 1
    words = WORDS
    alpha = 2
class Color(enum.Enum):
    RED = 1
    CRIMSON = 1
@dataclasses.dataclass
class Held:
    words: frozenset = frozenset("abcdef")
held, nested = Held(), {"x": [{"q", "w", "e"}]}
def told(batch, *, default=frozenset("uvwxyz")):
    words = [WORDS, Settings.words, held.words, nested["x"][0], default]
    names = [name for name in vars(Settings) if not name.startswith("__")]
    text = f"{[list(map(str, each)) for each in words]} {names} {list(Color.__members__)} {globals().get('unseen')}"
    return batch.append_column("told", pa.array([text] * batch.num_rows))
unseen = 1
job = {"input": "in.parquet", "output": sys.argv[1], "stages": [told], "workers": int(sys.argv[2])}
print(penstock.run(job, progress=False).job)
"""
CELL = "import sys\nexec(compile(sys.stdin.read(), '<cell 1>', 'exec'), globals())\n"


def _done(folder: Path, output: str, workers: int, seed: int, how: list[str]) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(HELD)
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, *how, output, str(workers)]
    return subprocess.run(
        command, cwd=folder, env=environment, input=HELD, capture_output=True, text=True, timeout=120, check=False
    )


def test_one_job_is_one_output_whatever_the_workers_the_hash_seed_and_how_its_code_is_run(tmp_path):
    pq.write_table(pa.table({"x": list(range(100))}), tmp_path / "in.parquet")
    runs = [(0, 0, ["script.py"]), (1, 1, ["-c", HELD]), (2, 7, ["-"]), (1, 12345, ["-c", CELL])]
    outputs, jobs = [], set()
    for number, (workers, seed, how) in enumerate(runs):
        done = _done(tmp_path, f"out{number}", workers, seed, how)
        assert done.returncode == 0, done.stderr
        jobs.add(done.stdout)
        outputs.append(workshop.bytes_of(tmp_path / f"out{number}"))
    assert len(jobs) == 1
    assert all(each == outputs[0] for each in outputs)


def test_without_workers_a_set_is_refused_where_its_order_is_that_of_this_process(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "in.parquet")
    done = _done(tmp_path, "out", 0, 7, ["script.py"])
    assert "the order of a set, and `hash`, differ between processes" in done.stderr
    assert "start Python with PYTHONHASHSEED=0" in done.stderr
    assert not (tmp_path / "out").exists()
