"""The jobs of the README run on small data, and the commands of the examples' READMEs print what stands there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from tests.docs.page import DOCS
from tests.docs.running import pattern_of, spaced

ROOT = DOCS.parent
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = (ROOT / "README.md").read_text().partition("\n## Three kinds of data\n")[2].partition("\n## ")[0]
JOBS = [code for language, code in FENCED.findall(KINDS) if language == "yaml"]
FEATURES = """\
import json

def samples(path):
    for line in open(path):
        yield json.loads(line)
"""


def give(command: str, folder: Path) -> str:
    """What a command prints, from a folder that has a copy of the examples."""
    found = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": found, "COLUMNS": "120", "NO_COLOR": "1"}
    call = re.sub(r"^penstock\b", f"{sys.executable} -m penstock", command)
    done = subprocess.run(["bash", "-ec", call], cwd=folder, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_documents(folder: Path) -> None:
    (folder / "docs").mkdir()
    with pa.CompressedOutputStream(str(folder / "docs" / "a.jsonl.zst"), "zstd") as file:
        for number in range(300):
            file.write(json.dumps({"body": f"Letter {number}. " + "The hill is older than the sea. " * 9}).encode())
            file.write(b"\n")
    tokenizer = (ROOT / "examples" / "text" / "tokenizer" / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer.replace("<|end|>", "<|endoftext|>"))


def write_events(folder: Path) -> None:
    (folder / "data" / "2024").mkdir(parents=True)
    rows = {"src_addr": ["10.0.0.1", "10.0.0.2"] * 50, "event_time": range(100), "rtt": np.arange(100.0)}
    pq.write_table(pa.table(rows), folder / "data" / "2024" / "a.parquet")


def write_games(folder: Path) -> None:
    (folder / "games").mkdir()
    (folder / "features.py").write_text(FEATURES)
    for game in range(20):
        lines = [json.dumps({"game_id": game, "features": [float(game), float(move)]}) for move in range(5)]
        (folder / "games" / f"{game}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.proof
@pytest.mark.parametrize(
    ("number", "write", "steps"),
    [(0, write_documents, ["pack"]), (1, write_events, ["filter", "group"]), (2, write_games, ["normalize"])],
)
def test_a_job_of_the_readme_runs_as_it_stands(number, write, steps, tmp_path):
    write(tmp_path)
    (tmp_path / "job.yaml").write_text(JOBS[number])
    give("penstock run job.yaml", tmp_path)
    manifest = penstock.open(tmp_path / "prepared").manifest
    assert manifest.records("train") > 0
    assert {*steps} <= {step.step for step in manifest.account}


def test_the_readme_has_a_job_per_kind_of_data():
    assert len(JOBS) == 3


@pytest.mark.proof
@pytest.mark.parametrize("name", ["arrays", "text"])
def test_the_commands_of_an_example_print_what_its_readme_shows(name, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("prepared*"))
    monkeypatch.chdir(tmp_path)
    printed, commands = "", 0
    for language, code in FENCED.findall((ROOT / "examples" / name / "README.md").read_text()):
        if language == "python":
            exec(code, {})
        elif code.startswith("penstock "):
            printed, commands = give(code, tmp_path), commands + 1
        else:
            assert re.search(pattern_of(code), spaced(printed)), f"not printed:\n{code}\nbut:\n{printed}"
    assert commands >= 2
