"""The examples run as they stand, and give what they say they give."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import penstock
from tests.promises import workshop

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_rows_example_gives_what_its_expected_file_says(tmp_path):
    shutil.copytree(EXAMPLES / "rows", tmp_path / "rows")
    workshop.run_well(tmp_path / "rows" / "job.yaml")
    output = tmp_path / "rows" / "out"
    seen = {
        "train": penstock.open(output)[:].to_pylist(),
        "test": penstock.open(output, "test")[:].to_pylist(),
        "account": json.loads((output / "manifest.json").read_text())["account"],
        "rejected": [json.loads(line) for line in (output / "rejected" / "00000.jsonl").open()],
        "statistics": json.loads((output / "artifacts" / "statistics.json").read_text()),
    }
    assert seen == json.loads((EXAMPLES / "rows" / "expected.json").read_text())
