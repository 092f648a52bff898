"""People, hooks and CI use the same words, and the version is written once."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import penstock

ROOT = Path(__file__).parent.parent.parent
WORDS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _hooks():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"  # nothing is downloaded
    return local["hooks"]


def _workflow_steps():
    jobs = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("command", [*(hook["entry"] for hook in _hooks()), *_workflow_steps()])
def test_a_hook_or_a_workflow_calls_a_word_of_the_makefile(command):
    make, *settings, word = command.split()
    assert make == "make"
    assert settings in ([], ["PYTHON=python"])
    assert word in WORDS


def test_the_workflow_runs_every_word_of_make_check():
    (needed,) = re.findall(r"^check: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(needed.split()) <= {step.split()[-1] for step in _workflow_steps()}


def test_the_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    files = subprocess.run(
        ["git", "grep", "-lF", f'"{penstock.__version__}"', "--", "*.py", "*.toml", "*.cff"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert files == ["src/penstock/__init__.py"]


def test_the_classifiers_name_the_versions_that_the_workflow_runs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r":: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    assert workflow["jobs"]["check"]["strategy"]["matrix"]["python"] == named
