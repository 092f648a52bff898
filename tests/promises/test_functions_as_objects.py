"""Functions of a script: a run that is killed resumes in a new process, and ends in the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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
