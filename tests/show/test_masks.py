"""`penstock verify` on a dataset with labels and masks: a line when all is well, a table and code 4 when it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.cli import main
from tests.show.desk import document
from tests.show.prepared import make_arrays, prepare

ROWS, CLASSES = 200, 20


def make_labels(folder: Path, wrong: int) -> Path:
    """Two heads; the first has labels on its first `wrong` rows that its masks do not allow."""
    labels = np.arange(ROWS) % CLASSES
    masks = np.zeros((ROWS, CLASSES), "i1")
    masks[np.arange(ROWS), labels] = 1
    masks[:wrong] = 1 - masks[:wrong]
    columns = {
        "labels_move": pa.array(labels, pa.int16()),
        "masks_move": pa.array(masks.tolist(), pa.list_(pa.int8(), CLASSES)),
        "labels_target": pa.array(np.full(ROWS, -1), pa.int16()),
        "masks_target": pa.array([[False]] * ROWS, pa.list_(pa.bool_(), 1)),
    }
    return prepare(folder, columns, [])


def test_labels_that_are_all_allowed_are_told_in_one_line(tmp_path, capfd):
    assert main(["verify", str(make_labels(tmp_path, wrong=0))]) == 0
    assert "ok: 200 labels of 2 heads, each allowed by its mask" in capfd.readouterr().out


def test_a_dataset_without_masks_hears_nothing_of_them(tmp_path, capfd):
    assert main(["verify", str(make_arrays(tmp_path))]) == 0
    out = capfd.readouterr().out
    assert "mask" not in out
    assert "label" not in out


@pytest.mark.parametrize(("wrong", "more"), [(3, ""), (20, ""), (25, "... and 5 more")])
def test_labels_that_are_not_allowed_are_listed_and_the_exit_code_is_4(tmp_path, capfd, monkeypatch, wrong, more):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["verify", str(make_labels(tmp_path, wrong))]) == 4
    out = capfd.readouterr().out
    assert "every block as it was written" in out
    assert f"{wrong} of 200 labels not allowed by their masks" in out
    assert sum(line.startswith("train") for line in out.splitlines()) == min(wrong, 20)
    third = next(line for line in out.splitlines() if line.split()[:2] == ["train", "2"])
    assert third.split(maxsplit=4)[2:] == ["move", "2", f"0, 1, {', '.join(map(str, range(3, 17)))}, and 3 more"]
    assert (more in out) if more else ("... and" not in out)
    assert "try: correct them where they are made" in out


def test_json_has_them_all(tmp_path, capfd):
    path = make_labels(tmp_path, wrong=25)
    assert main(["verify", str(path), "--json"]) == 4
    facts = document(capfd.readouterr().out)
    assert (facts["ok"], facts["exit_code"], facts["problems"]) == (False, 4, [])
    assert (facts["heads"], facts["labels"], facts["violation_count"]) == (["move", "target"], 200, 25)
    assert len(facts["violations"]) == 25
    first = {"split": "train", "row": 0, "head": "move", "label": 0, "allowed": list(range(1, CLASSES))}
    assert facts["violations"][0] == first


def test_damage_outweighs_labels(tmp_path, capfd):
    path = make_labels(tmp_path, wrong=3)
    (path / "foreign.txt").write_text("mine")
    assert main(["verify", str(path)]) == 6
    out = capfd.readouterr().out
    assert "foreign.txt does not belong" in out
    assert "3 of 200 labels not allowed" in out
