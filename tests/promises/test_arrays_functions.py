"""Functions that misbehave: what they raise, how they hang, die and grow, and what it takes with it: one file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import PenstockError
from penstock.base.memory import process_tree
from tests.promises import arrays_making, workshop
from tests.promises.killing import assert_no_leftovers

SET_ASIDE = {"on_bad_input": "set_aside"}
LATER = {"at": 5, "later": True}  # once the job runs: not yet when the function is only tried


def _reasons(output: Path) -> dict[str, str]:
    return {line["file"]: line["reason"] for line in arrays_making.rejected_of(output)}


# What it raises.

ODD: dict[str, tuple[dict[str, Any], str]] = {
    "StopIteration": ({"do": "raises_by_name", "name": "StopIteration"}, "RuntimeError: generator raised"),
    "SystemExit": ({"do": "raises_by_name", "name": "SystemExit"}, "SystemExit: so it goes"),
    "recursion": ({"do": "recurses"}, "RecursionError: maximum recursion depth exceeded"),
    "no words": ({"do": "raises_unprintable"}, "Odd: it cannot say why"),
    "many words": ({"do": "raises", "message": "very " * 500_000}, "ValueError: very very"),
    "half a character": ({"do": "raises", "message": "a\udcffb\n\x00\u2028"}, "ValueError: a\\udcffb\n\x00\u2028"),
}


def test_whatever_a_function_raises_sets_its_file_aside_in_the_same_words(tmp_path):
    """At the first sample, and in the middle; inside the driver, and in workers that stand less deep in calls."""
    games = [{}, *({"at": at, **game} for game, _ in ODD.values() for at in (0, 7)), {}]
    data = arrays_making.write_games(tmp_path / "games", *games)
    seen = []
    for workers in (0, 2):
        job = arrays_making.write_job(tmp_path / str(workers) / "job.yaml", data, workers=workers)
        workshop.run_well(job) if workers else penstock.run(job)
        output = job.parent / "out"
        steps = arrays_making.steps_of(output)
        assert steps["files"]["set_aside"] == {"function raised": 2 * len(ODD)}
        assert steps["write"]["given"] == 60 == arrays_making.records_of(output)
        lines = sorted(arrays_making.rejected_of(output), key=lambda line: int(line["file"].removesuffix(".game")))
        for line, (_, words) in zip(lines, [each for each in ODD.values() for _ in range(2)], strict=True):
            assert line["detail"].startswith(words)
            assert 0 < len(json.dumps(line)) < 20_000
        seen.append(workshop.bytes_of(output))
    assert seen[0] == seen[1]


def test_names_of_files_may_hold_anything_that_a_file_system_allows(tmp_path):
    data = arrays_making.write_games(tmp_path / "games", {}, {})
    names = [b"two words.game", b"two\nlines.game", b"not \xff utf-8.game", "größe.game".encode(), b"'\"\\$(x).game"]
    for number, name in enumerate(names):
        game = json.dumps({"seed": number, "count": 3, "do": "raises", "at": 2})
        with open(os.fsencode(data) + b"/" + name, "w") as file:
            file.write(game)
    workshop.run_well(arrays_making.write_job(tmp_path / "job.yaml", data, workers=2))
    expected = {name.decode("utf-8", "backslashreplace"): "function raised" for name in names}
    assert _reasons(tmp_path / "out") == expected


@pytest.mark.parametrize(
    ("function", "samples", "reason"),
    [
        ("one", 2, None),
        ("listed", 60, None),
        ("nothing", 0, "TypeError: games:nothing returned None"),
        ("stops", 0, "StopIteration: not a generator"),
    ],
)
def test_what_a_function_returns_may_be_one_sample_or_a_list_but_not_none(tmp_path, function, samples, reason):
    data = arrays_making.write_games(tmp_path / "games", {}, {})
    job = arrays_making.write_job(tmp_path / "job.yaml", data, {"function": f"games:{function}"})
    if reason:
        with pytest.raises(PenstockError, match=reason):
            penstock.run(job)
    else:
        penstock.run(job)
        assert arrays_making.records_of(tmp_path / "out") == samples


def test_a_function_may_fill_the_same_arrays_and_dicts_again_for_every_sample(tmp_path):
    for name, keys in {"fresh": {}, "reused": {"reuse": True}}.items():
        data = arrays_making.write_games(tmp_path / name / "games", *({"count": 90, **keys} for _ in range(3)))
        penstock.run(arrays_making.write_job(tmp_path / name / "job.yaml", data))
    fresh, reused = (arrays_making.arrays_of(tmp_path / name / "out") for name in ("fresh", "reused"))
    assert fresh == reused


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_function_prints_does_not_mix_with_the_answer(tmp_path, workers):
    data = arrays_making.write_games(tmp_path / "games", {"do": "prints", "at": 0}, {"do": "prints", "at": 9})
    done = workshop.run(arrays_making.write_job(tmp_path / "job.yaml", data, workers=workers))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"]["workers"] == workers
    assert "a word of the function's own" in done.stderr
    assert "and one more" in done.stderr


# How it hangs, dies and grows.


def test_files_in_which_a_function_hangs_dies_or_grows_are_set_aside_by_name_and_the_rest_is_whole(tmp_path):
    """The workers that are lost take nothing with them, and leave no process."""
    games = {
        1: ({"do": "hangs"}, "function hung"),
        3: ({"do": "exits"}, "function killed its worker"),
        4: ({"do": "kills_itself"}, "function killed its worker"),
        6: ({"do": "raises_by_name", "name": "KeyboardInterrupt"}, "function killed its worker"),
        7: ({"do": "grabs", "megabytes": 300}, "function took too much memory"),
        8: ({"do": "raises"}, "function raised"),
    }
    data = arrays_making.write_games(
        tmp_path / "games", *({**games[number][0], **LATER} if number in games else {} for number in range(10))
    )
    keys = {"workers": 2, "task_timeout": 2.0, "memory": "2GB", **SET_ASIDE}
    job = arrays_making.write_job(tmp_path / "job.yaml", data, {"function_memory": "50MB"}, **keys)
    before = set(process_tree(os.getpid()))
    workshop.run_well(job)
    assert set(process_tree(os.getpid())) <= before
    output = tmp_path / "out"
    assert _reasons(output) == {f"{number}.game": reason for number, (_, reason) in games.items()}
    steps = arrays_making.steps_of(output)
    assert (steps["files"]["taken"], steps["files"]["given"]) == (10, 4)
    assert steps["write"]["given"] == 120 == arrays_making.records_of(output)
    run = json.loads((output / ".penstock" / "run.json").read_text())
    assert run["peak_memory_bytes"] < run["allowed_memory_bytes"]
    assert_no_leftovers(output)

    good = arrays_making.write_games(tmp_path / "good" / "games", *({} for _ in range(10)))
    for number in games:
        (good / f"{number}.game").unlink()
    penstock.run(arrays_making.write_job(tmp_path / "good" / "job.yaml", good))
    assert arrays_making.arrays_of(tmp_path / "good" / "out") == arrays_making.arrays_of(output)


@pytest.mark.parametrize(
    ("do", "keys", "words"),
    [
        ("hangs", {"task_timeout": 1.5}, "showed no row for"),
        ("exits", {}, "its worker died of exit code 3"),
        ("kills_itself", {}, "its worker died of signal 9 (SIGKILL)"),
    ][: None if workshop.THOROUGH else 2],
)
def test_by_default_a_function_that_hangs_or_dies_stops_the_run_and_its_file_is_named(tmp_path, do, keys, words):
    data = arrays_making.write_games(tmp_path / "games", {}, {}, {"do": do, **LATER}, {})
    done = workshop.run(arrays_making.write_job(tmp_path / "job.yaml", data, workers=2, **keys))
    assert done.returncode == 7, done.stdout + done.stderr
    error = json.loads(done.stdout)
    assert words in error["what"]
    assert "2.game" in error["where"]
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("do", ["grabs", "grabs_in_c"])
def test_a_file_that_takes_more_than_its_workers_share_is_set_aside_though_nothing_was_declared(tmp_path, do):
    data = arrays_making.write_games(tmp_path / "games", {}, {}, {"do": do, "megabytes": 400, **LATER}, {})
    job = arrays_making.write_job(tmp_path / "job.yaml", data, workers=1, memory="260MB")
    workshop.run_well(job)
    assert _reasons(tmp_path / "out") == {"2.game": "function took too much memory"}
    assert arrays_making.records_of(tmp_path / "out") == 90


def test_a_function_that_keeps_memory_from_file_to_file_is_told_so(tmp_path):
    games = [{"do": "leaks", "megabytes": 25, "seconds": 0.2, **LATER} for _ in range(5)]
    data = arrays_making.write_games(tmp_path / "games", *games)
    job = arrays_making.write_job(tmp_path / "job.yaml", data, {"function_memory": "60MB"}, workers=1)
    done = workshop.run(job)
    assert done.returncode in (0, 7), done.stdout + done.stderr
    if done.returncode == 0:  # each file in a worker of its own
        assert arrays_making.records_of(tmp_path / "out") == 5 * 30
        assert not _reasons(tmp_path / "out")
    else:
        assert "keeps memory from one file to the next" in json.loads(done.stdout)["what"]


@pytest.mark.thorough
def test_a_slow_function_is_not_a_hanging_one(tmp_path):
    """A sample now and then is progress, though the whole file takes longer than the time-out."""
    data = arrays_making.write_games(tmp_path / "games", {"count": 8, "slow": 0.4}, {})
    workshop.run_well(arrays_making.write_job(tmp_path / "job.yaml", data, workers=1, task_timeout=1.5))
    assert arrays_making.records_of(tmp_path / "out") == 38


HOLDING_UP = [("hangs", 0, "function hung"), ("exits", 5, "function killed its worker")]
HOLDING_UP += [("hangs", 5, "function hung"), ("exits", 0, "function killed its worker")] if workshop.THOROUGH else []


@pytest.mark.parametrize(("do", "at", "reason"), HOLDING_UP)
def test_a_file_that_ends_or_holds_up_the_planning_is_set_aside_too(tmp_path, do, at, reason):
    data = arrays_making.write_games(tmp_path / "games", {}, {}, {"do": do, "at": at}, {})
    keys = {"workers": 2, "task_timeout": 1.5, **SET_ASIDE}
    workshop.run_well(arrays_making.write_job(tmp_path / "job.yaml", data, **keys))
    assert _reasons(tmp_path / "out") == {"2.game": reason}
    assert arrays_making.records_of(tmp_path / "out") == 90


@pytest.mark.parametrize("do", ["hangs", "exits"] if workshop.THOROUGH else ["exits"])
def test_by_default_the_file_that_ends_or_holds_up_the_planning_is_named(tmp_path, do):
    data = arrays_making.write_games(tmp_path / "games", {}, {}, {"do": do, "at": 5}, {})
    timeout = 1.5 if do == "hangs" else 60  # a busy machine is not taken for a file that hangs
    done = workshop.run(arrays_making.write_job(tmp_path / "job.yaml", data, workers=2, task_timeout=timeout))
    assert done.returncode == 7
    assert "2.game" in json.loads(done.stdout)["where"]
