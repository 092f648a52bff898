"""Trial: what planning says of a function that takes more memory than there is, whoever ends its process."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.promises import workshop
from tests.promises.workshop import THOROUGH

LEAKY = """
import os, signal
import numpy as np
kept = []

def killed(path):
    kept.append(np.ones(4_000_000))  # 32 MB
    if len(kept) == 5:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does it
    yield {"x": 1.0}

def leaks(path):
    kept.append(np.ones(4_000_000))
    yield {"x": 1.0}

def large(path):
    while True:
        kept.append(np.ones(4_000_000))
    yield {"x": 1.0}
"""
KEEPS = r"leaky:\w+ keeps memory from one file to the next: its process held \d+ MB before this file and \d+ MB in it"


def _refusal(folder: Path, function: str) -> dict[str, str]:
    """In a process of its own: how much its worker may hold depends on what the driver holds."""
    (folder / "leaky.py").write_text(LEAKY)
    (folder / "data").mkdir()
    for number in range(24):
        (folder / "data" / f"{number:02d}.bin").touch()
    job = folder / "job.yaml"
    job.write_text(f"input: {{files: data, function: 'leaky:{function}'}}\noutput: out\nmemory: 400MB\nworkers: 1\n")
    refused: dict[str, str] = json.loads(workshop.run(job).stdout)
    assert refused["error"] == "TaskError"
    assert not (folder / "out").exists()
    return refused


def test_a_leak_that_the_kernel_ended_is_named_with_its_numbers(tmp_path):
    refused = _refusal(tmp_path, "killed")
    assert re.match(KEEPS + r", and ended 3 times, the last time by signal 9 \(SIGKILL\)", refused["what"])
    assert "free what earlier files left in memory" in refused["next_step"]


if THOROUGH:  # the same words as those above

    def test_a_leak_that_reached_the_limit_is_named_with_its_numbers(tmp_path):
        refused = _refusal(tmp_path, "leaks")
        assert re.match(KEEPS + r".* holding \d+ MB, more than the \d+ MB that it may", refused["what"])

    def test_one_file_that_is_too_large_is_no_leak(tmp_path):
        refused = _refusal(tmp_path, "large")
        assert re.match(
            r"leaky:large ended its process 3 times, the last time by holding \d+ MB, more than", refused["what"]
        )
