"""What the tests of deploy share: a small job in a folder of its own, and the command as a user gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from penstock.cli import main


def make_job(folder: Path, name: str = "job.yaml", **keys: Any) -> Path:
    """A job over 300 lines, whose input lies in a folder beside it."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"user": f"u{number % 9}", "x": number / 7}) + "\n" for number in range(300))
    (folder / "data" / "rows.jsonl").write_text(lines)
    job = {"input": "data/*.jsonl", "output": "prepared", "stages": [{"split": {"by": "user", "test": 0.3}}], **keys}
    path = folder / name
    path.write_text(yaml.safe_dump(job))
    return path


def deploy(capfd: Any, *words: object) -> dict[str, Any]:
    """The facts that `penstock deploy ... --json` prints."""
    code = main(["deploy", *map(str, words), "--json"])
    out, err = capfd.readouterr()
    assert code == 0, err
    facts: dict[str, Any] = json.loads(out)
    return facts


def refused(capfd: Any, *words: object) -> dict[str, Any]:
    """The error that the command prints."""
    code = main(["deploy", *map(str, words), "--json"])
    error: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert code == error["exit_code"] != 0
    return error
