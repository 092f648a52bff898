"""Promise 4, of arrays: files and samples in = out + set aside, whatever a function raises or yields."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.errors import PenstockError
from tests.promises import arrays_making, workshop

SET_ASIDE = {"on_bad_input": "set_aside"}
BAD = ["yields_none", "is_ragged", "has_another_key", "lacks_a_key", "does_not_fit"]
WRONG = {  # what each of them is set aside for: reason and key
    "yields_none": ("not a sample", ""),
    "is_ragged": ("wrong shape", "features"),
    "has_another_key": ("unexpected key", "score"),
    "lacks_a_key": ("missing key", "labels.target"),
    "does_not_fit": ("value does not fit its type", "labels.target"),
}


def _mixed_games(folder: Path) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Two games a task: good ones, those that raise somewhere, those with a bad sample, and some without a sample."""
    games: list[dict[str, Any]] = [{"count": 4 + number % 3} for number in range(70)]
    games[20] = {"count": 40, "do": "raises", "at": 0}
    games[21] = {"count": 40, "do": "raises", "at": 25}
    games[40] = {"count": 40, "do": "raises", "at": 40}
    games[60], games[69] = {"count": 0}, {"count": 0}
    for number, bad in enumerate(BAD):
        games[50 + 2 * number] = {"count": 9, "do": bad, "at": 2 * number + 1}
    games[61] = {"count": 20, "do": "is_ragged", "at": 3, "then": "raises", "then_at": 15}
    arrays_making.write_games(folder, *games)
    return folder, {f"{number}.game": {"seed": number, "count": 30, **game} for number, game in enumerate(games)}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    return _mixed_games(tmp_path_factory.mktemp("mixed") / "games")


@pytest.fixture(scope="module")
def written(mixed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All samples in one split, in the order in which they come."""
    folder = tmp_path_factory.mktemp("written")
    penstock.run(arrays_making.write_job(folder / "job.yaml", mixed[0], stages=[], **SET_ASIDE))
    return folder / "out"


def test_every_file_and_sample_is_in_the_arrays_or_set_aside_by_name(mixed, written):
    games, output = mixed[1], written
    raised = {name for name, game in games.items() if "raises" in (game.get("do"), game.get("then"))}
    bad = {name: game for name, game in games.items() if game.get("do") in BAD and name not in raised}
    good = sum(game["count"] for name, game in games.items() if name not in raised)
    reasons = {WRONG[each][0]: 1 for each in BAD}

    steps = arrays_making.steps_of(output)
    assert steps["files"]["taken"] == 70
    assert steps["files"]["set_aside"] == {"function raised": len(raised)}
    assert (steps["read"]["unit"], steps["read"]["taken"]) == ("samples", good + len(bad))
    assert steps["read"]["set_aside"] == reasons
    assert steps["write"]["given"] == good == arrays_making.records_of(output)

    lines = {line["file"]: line for line in arrays_making.rejected_of(output)}
    assert set(lines) == raised | set(bad)
    for name in raised:
        assert (lines[name]["reason"], lines[name]["detail"]) == ("function raised", "ValueError: no such move")
        assert "raise ValueError(" in lines[name]["traceback"].splitlines()[-1]
    for name, game in bad.items():
        line = lines[name]
        assert (line["reason"], line["key"]) == WRONG[game["do"]]
        assert line["sample"] == game["at"]


def test_every_good_sample_arrives_once_unchanged_and_in_order(mixed, written):
    games, output = mixed[1], written
    expected = []
    for name in sorted(games, key=os.fsencode):
        game = {key: value for key, value in games[name].items() if key in ("seed", "count")}
        if "raises" not in (games[name].get("do"), games[name].get("then")):
            expected += arrays_making.samples_of(game)
    assert np.array_equal(np.load(output / "X_train.npy"), [each["features"] for each in expected])
    assert np.load(output / "labels_train.npz")["action"].tolist() == [each["labels"]["action"] for each in expected]
    assert arrays_making.texts_of(output, "game_id", "train") == [each["game_id"] for each in expected]


@pytest.mark.thorough
def test_what_is_set_aside_does_not_depend_on_workers_memory_or_batches(mixed, written, tmp_path):
    """With batches of one sample a file that raises has been given on before it does; with others it has not."""
    keys = {"stages": [], **SET_ASIDE}
    plan = penstock.plan(arrays_making.write_job(tmp_path / "one" / "job.yaml", mixed[0], **keys))
    penstock.run(workshop.with_batches(plan, 300))
    seen = [workshop.bytes_of(written), workshop.bytes_of(tmp_path / "one" / "out")]
    job = arrays_making.write_job(tmp_path / "job.yaml", mixed[0], workers=2, memory="200MB", **keys)
    told = json.dumps(workshop.run_well(job))
    assert '"function raised": 4' in told
    assert '"wrong shape": 1' in told
    seen.append(workshop.bytes_of(tmp_path / "out"))
    assert seen[0] == seen[1] == seen[2]
    assert len([name for name in seen[0] if name.startswith("rejected/")]) >= 8


@pytest.mark.parametrize("bad", BAD)
def test_by_default_a_bad_sample_stops_the_run_and_is_named(tmp_path, bad):
    data = arrays_making.write_games(tmp_path / "games", {}, {"do": bad, "at": 17}, {})
    with pytest.raises(PenstockError) as caught:
        penstock.run(arrays_making.write_job(tmp_path / "job.yaml", data))
    reason, key = WRONG[bad]
    assert caught.value.what.startswith(reason)
    assert caught.value.where == f"{data}/1.game, sample 17, key {key!r}"
    assert "on_bad_input: set_aside" in caught.value.next_step
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_function_that_yields_nothing_at_all_is_refused_and_one_that_raises_everywhere_too(tmp_path):
    for name, game in {"nothing": {"count": 0}, "raises": {"do": "raises", "at": 0}}.items():
        data = arrays_making.write_games(tmp_path / name / "games", game, game)
        with pytest.raises(PenstockError) as caught:
            penstock.run(arrays_making.write_job(tmp_path / name / "job.yaml", data))
        assert {"nothing": "yielded no sample", "raises": "failed for 2 of 2 files"}[name] in caught.value.what


def test_with_a_declared_schema_no_sample_at_all_is_a_valid_dataset(tmp_path):
    data = arrays_making.write_games(tmp_path / "games", {"count": 0}, {"do": "raises", "at": 3})
    declared = {"features": "float32[50]", "labels": {"action": "int64", "target": "int16"}, "game_id": "string"}
    declared["masks"] = {"action": "int8[4]", "target": "int8[3]"}
    penstock.run(arrays_making.write_job(tmp_path / "job.yaml", data, {"schema": declared}))
    steps = arrays_making.steps_of(tmp_path / "out")
    assert (steps["files"]["given"], steps["write"]["given"]) == (1, 0)
    assert np.load(tmp_path / "out" / "X_train.npy").shape == (0, 50)
    assert sorted(np.load(tmp_path / "out" / "labels_test.npz")) == ["action", "target"]
    assert not penstock.verify(tmp_path / "out").problems


def test_rows_that_a_function_makes_samples_of_are_accounted_for(tmp_path):
    """A batch of rows for which the function raises is set aside whole."""
    data = workshop.make_input(tmp_path / "data", files=2, rows=1000)
    source = {"path": str(data), "function": "rows:samples", "batch_rows": 100}
    seen = []
    for workers in (0, 2):
        folder = tmp_path / str(workers)
        job = arrays_making.write_job(folder / "job.yaml", data, stages=[], workers=workers, input=source)
        (folder / "rows.py").write_text(ROWS)
        workshop.run_well(job) if workers else penstock.run(job)
        seen.append(workshop.bytes_of(folder / "out"))
        steps = arrays_making.steps_of(folder / "out")
        lost = arrays_making.rejected_of(folder / "out")
        assert {(line["reason"], line["rows"]) for line in lost} == {("function raised", 100)}
        assert steps["rows"]["taken"] == 2000
        assert steps["rows"]["given"] == 2000 - 100 * len(lost)
        assert steps["read"]["taken"] == steps["rows"]["given"] == len(np.load(folder / "out" / "size_train.npy"))
    assert 0 < len(lost) < 20
    assert seen[0] == seen[1]


ROWS = """
def samples(batch):
    for row in batch.to_pylist():
        if row["size"] > 1490:
            raise ValueError(f"{row['size']} is too large")
        yield {"size": row["size"]}
"""
