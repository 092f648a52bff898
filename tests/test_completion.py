"""A shell completes commands, options and paths of penstock."""

import os
import subprocess
import sys

import pytest


def _completed(folder, line, shell="bash"):
    words = line.split(" ")
    asked = {"_PENSTOCK_COMPLETE": f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "penstock"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path):
    for name in ("prepared", "presents"):
        (tmp_path / name).mkdir()
    (tmp_path / "preview.txt").write_text("")
    (tmp_path / "events.yaml").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("penstock ins", ["inspect"]),
        ("penstock run --mem", ["--memory", "--memory-limit-gb"]),
        ("penstock verify pre", ["prepared/", "presents/"]),
        ("penstock run job.yaml --output pre", ["prepared/", "presents/"]),
        ("penstock init pre", ["prepared/", "presents/", "preview.txt"]),
        ("penstock plan ev", ["events", "events.yaml"]),
    ],
)
def test_a_shell_is_offered_what_can_stand_there(folder, line, words):
    assert _completed(folder, line) == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_penstock(shell):
    asked = {**os.environ, "_PENSTOCK_COMPLETE": f"source_{shell}"}
    command = [sys.executable, "-m", "penstock"]
    script = subprocess.run(command, env=asked, capture_output=True, text=True, check=True).stdout
    assert f"_PENSTOCK_COMPLETE=complete_{shell}" in script
