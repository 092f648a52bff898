"""Scripts: a script may hold the functions of its own job; one without a guard is told so in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.promises.workshop import THOROUGH

FUNCTION = """\
import penstock
def samples(path):
    yield {"x": 1.0}
def double(batch):
    return batch
"""
CALL = """penstock.run({"input": {"files": "data", "function": "%s:samples"}, "output": "out", "workers": 1})\n"""
STAGE = """penstock.run({"input": "data.csv", "stages": ["mine:double"], "output": "out", "workers": 1})\n"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.bin").touch()
    (tmp_path / "data.csv").write_text("x\n1\n")
    return tmp_path


def _run(place: Path, *options: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options], cwd=place, input=text, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("call", [CALL % "mine", STAGE] if THOROUGH else [STAGE])
def test_a_script_that_starts_itself_is_told_so_once(place, call):
    (place / "mine.py").write_text(FUNCTION + call)
    done = _run(place, "mine.py")
    assert done.returncode == 1
    assert done.stderr.count("it would never end") == 1
    assert done.stderr.rstrip().splitlines()[-2:] == [
        f"  where: {place}/mine.py, line 6",
        "  try: put the work of the script below `if __name__ == '__main__':`, or its functions in another module",
    ]
    assert len(done.stderr.splitlines()) < 40
    assert not (place / "out").exists()


def test_a_job_whose_module_starts_it_is_told_so_once(place):
    (place / "mine.py").write_text(FUNCTION + 'penstock.run("job.yaml")\n')
    (place / "job.yaml").write_text("input: {files: data, function: mine:samples}\noutput: out\n")
    done = _run(place, "-m", "penstock", "run", "job.yaml")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("ConfigError: ")
    assert "it would never end" in done.stderr
    assert len(done.stderr.splitlines()) == 3


if THOROUGH:  # it takes the time of a whole job

    def test_a_script_with_a_guard_may_hold_the_functions_of_its_job(place):
        (place / "mine.py").write_text(f'{FUNCTION}if __name__ == "__main__":\n    {CALL % "mine"}')
        done = _run(place, "mine.py")
        assert done.returncode == 0, done.stderr
        assert (place / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (("mine.py",), "write mine:samples, and put the work of the script below"),
        (("-i",), "save the function in a file, such as features.py"),
        (("-",), "save the function in a file, such as features.py"),
    ][0 if THOROUGH else 1 :],
)
def test_a_function_of_main_is_refused_with_what_to_write(place, options, advice):
    lines = FUNCTION.replace("def double", "\ndef double") + "\n" + CALL % "__main__"
    (place / "mine.py").write_text(lines)
    done = _run(place, *options, text=lines)
    assert "workers cannot import __main__, which is another program in each process" in done.stderr
    assert advice in done.stderr
    assert not (place / "out").exists()
