"""Promise 3, of text: what changed since the last run is noticed; what earlier jobs had is remembered."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError, IntegrityError, OutputError
from tests.promises import text_making, workshop
from tests.promises.killing import assert_no_leftovers

FILES = text_making.files_of_documents(files=2, count=30)


def _make(folder: Path) -> None:
    text_making.write_documents(folder / "data", *FILES)


def _job(folder: Path, **keys: Any) -> Path:
    return text_making.write_job(folder / "job.yaml", folder / "data", **keys)


def _other_tokenizer(folder: Path) -> dict[str, Any]:
    text_making.write_tokenizer(folder / "other", pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True})
    return {"stages": text_making.stages("other")}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _other_length(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"stages": text_making.stages(pack={"length": 48})}


def _other_method(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"stages": text_making.stages(pack={"method": "best_fit"})}


def _no_end(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"stages": text_making.stages(tokenize={"add_eos": False})}


def _no_dedup(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    clean, _, tokenize, pack = text_making.stages()
    return {"stages": [clean, tokenize, pack]}


def _other_cleaning(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"stages": text_making.stages(clean={"trim": False})}


def _another_document(folder: Path) -> dict[str, Any]:
    text_making.write_documents(folder / "data", FILES[0], [*FILES[1], "one more " * 30])
    return {}


def _something_was_seen(folder: Path) -> dict[str, Any]:
    """The same job, but an earlier one has had its second file."""
    text_making.write_documents(folder / "earlier" / "data", FILES[1])
    stages = text_making.stages(dedup={"remember": str(folder / "seen")})
    penstock.run(text_making.write_job(folder / "earlier" / "job.yaml", folder / "earlier" / "data", stages=stages))
    return {"stages": text_making.stages(dedup={"remember": "seen"})}


CHANGES = [_other_tokenizer, _another_document, _something_was_seen]
CHANGES += [_other_length, _no_dedup, _other_method, _no_end, _other_cleaning] if workshop.THOROUGH else []
POINTS = ["pack.before_ledger", ""]
POINTS += ["task.after_ledger", "match.before_ledger", "run.before_manifest"] if workshop.THOROUGH else []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_change_after_any_end_of_a_run_gives_what_a_fresh_run_gives(tmp_path, die, change):
    """The run before had died when all was tokenized, or had ended well."""
    _make(tmp_path / "fresh")
    fresh = _job(tmp_path / "fresh", **change(tmp_path / "fresh"))
    penstock.run(fresh)
    assert_no_leftovers(tmp_path / "fresh" / "out")
    for point in POINTS:
        folder = tmp_path / (point or "whole")
        _make(folder)
        die(_job(folder), point) if point else penstock.run(_job(folder))
        plan = penstock.plan(_job(folder, **change(folder)))
        if not point:
            with pytest.raises(OutputError, match="made from something else"):
                penstock.run(plan)
        penstock.run(plan, redo=not point)
        assert workshop.bytes_of(folder / "out") == workshop.bytes_of(tmp_path / "fresh" / "out"), point
        assert_no_leftovers(folder / "out")


@pytest.mark.parametrize("change", [_other_length, _other_tokenizer], ids=lambda change: change.__name__.strip("_"))
def test_duplicates_that_were_found_stay_found_when_tokens_or_rows_change(tmp_path, die, change):
    _make(tmp_path)
    die(_job(tmp_path), "run.before_clean_up")
    penstock.run(_job(tmp_path, **change(tmp_path)))
    (start,) = workshop.events_named(tmp_path / "out", "start")[-1:]
    assert start["tasks_kept"] >= _tasks(tmp_path / "out", "0-hash") + _tasks(tmp_path / "out", "1-match")


def test_where_the_tokenizer_lies_and_the_engine_decide_nothing(tmp_path):
    _make(tmp_path)
    penstock.run(_job(tmp_path))
    before = workshop.bytes_of(tmp_path / "out")
    shutil.move(tmp_path / "tokenizer", tmp_path / "moved")
    stages = text_making.stages("moved/tokenizer.json")
    assert penstock.plan(_job(tmp_path, stages=stages)).job == penstock.plan(_job(tmp_path)).job
    penstock.run(_job(tmp_path, stages=stages))
    assert workshop.bytes_of(tmp_path / "out") == before


# Remembered across jobs.


def _remembering(folder: Path, name: str, texts: list[str], **keys: Any) -> Path:
    """A job `name` over these texts whose memory all jobs of the folder share."""
    text_making.write_documents(folder / name / "data", texts)
    stages = text_making.stages(dedup={"remember": "../seen", "keep": True}, **keys)
    return text_making.write_job(folder / name / "job.yaml", folder / name / "data", stages=stages)


def test_a_remembered_document_wins_whatever_its_position(tmp_path):
    first, second = text_making.documents(50, 3), text_making.documents(50, 3)[25:] + text_making.documents(40, 4)
    penstock.run(_remembering(tmp_path, "a", first))
    penstock.run(_remembering(tmp_path, "b", second))
    seen = set(text_making.cleaned(first))
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([first])
    assert text_making.rows_of(tmp_path / "b" / "out") == text_making.expected([second], seen)
    step = text_making.steps_of(tmp_path / "b" / "out")["dedup"]
    left = text_making.cleaned(second)
    assert step["set_aside"]["seen in an earlier job"] == len(set(left) & seen)
    assert sum(step["set_aside"].values()) == len(left) - len(text_making.unique(left, seen))
    reasons = [line["reason"] for line in text_making.rejected_of(tmp_path / "b" / "out")]
    assert reasons.count("seen in an earlier job") == step["set_aside"]["seen in an earlier job"]


def test_a_job_that_is_done_again_gives_what_it_gave_also_after_later_ones(tmp_path):
    jobs = [
        _remembering(tmp_path, name, text_making.documents(60, 7)[n * 10 : n * 10 + 40]) for n, name in enumerate("abc")
    ]
    for job in jobs:
        penstock.run(job)
    written = [workshop.bytes_of(job.parent / "out") for job in jobs]
    memory = {path.name: path.read_bytes() for path in (tmp_path / "seen").glob("*.keys")}
    assert len(memory) == 3
    for job in (jobs[1], jobs[0], jobs[2]):
        penstock.run(job, redo=True)
    assert [workshop.bytes_of(job.parent / "out") for job in jobs] == written
    assert {path.name: path.read_bytes() for path in (tmp_path / "seen").glob("*.keys")} == memory
    shutil.rmtree(jobs[1].parent / "out")
    penstock.run(jobs[1])
    assert [workshop.bytes_of(job.parent / "out") for job in jobs] == written


# Whose keys are whose, when outputs are moved, removed and made from other input.

WEEK_1 = text_making.documents(40, 1)
WEEK_2 = text_making.documents(40, 1)[20:] + text_making.documents(30, 2)
WEEK_3 = WEEK_2[30:] + text_making.documents(30, 3)


def _memory(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "seen").glob("*.keys")}


def _week_1_moved_away(folder: Path) -> tuple[dict[str, bytes], Path]:
    """What it remembers, and the same job over the documents of week 2."""
    penstock.run(_remembering(folder, "a", WEEK_1))
    (folder / "a" / "out").rename(folder / "a" / "week1")
    return _memory(folder), _remembering(folder, "a", WEEK_2)


def _assert_both_are_remembered(folder: Path, first: dict[str, bytes]) -> None:
    assert text_making.rows_of(folder / "a" / "out") == text_making.expected([WEEK_2], text_making.cleaned(WEEK_1))
    assert len(_memory(folder)) == 2
    assert first.items() <= _memory(folder).items()
    penstock.run(_remembering(folder, "b", WEEK_1 + WEEK_2))
    assert text_making.rows_of(folder / "b" / "out") == []


def test_an_output_that_was_moved_away_stays_remembered(tmp_path):
    first, job = _week_1_moved_away(tmp_path)
    penstock.run(job)
    _assert_both_are_remembered(tmp_path, first)


@pytest.mark.thorough
def test_several_are_made_in_one_place_and_one_is_moved_back_and_done_again(tmp_path):
    _, job = _week_1_moved_away(tmp_path)
    penstock.run(job)
    (tmp_path / "a" / "out").rename(tmp_path / "a" / "week2")
    penstock.run(_remembering(tmp_path, "a", WEEK_3))
    seen = text_making.cleaned(WEEK_1 + WEEK_2)
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([WEEK_3], seen)
    memory = _memory(tmp_path)
    assert len(memory) == 3
    (tmp_path / "a" / "out").rename(tmp_path / "a" / "week3")
    (tmp_path / "a" / "week2").rename(tmp_path / "a" / "out")
    penstock.run(_remembering(tmp_path, "a", WEEK_2), redo=True)
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([WEEK_2], text_making.cleaned(WEEK_1))
    assert _memory(tmp_path) == memory


@pytest.mark.thorough
@pytest.mark.parametrize(
    "point",
    [
        "run.after_forgetting_manifest",
        "run.after_forgetting_tasks",
        "match.before_ledger",
        "run.before_clean_up",
        "run.before_manifest",
    ],
)
def test_a_job_in_the_place_of_one_that_was_moved_away_keeps_to_its_own_file_after_a_kill(tmp_path, die, point):
    first, job = _week_1_moved_away(tmp_path)
    die(job, point)
    assert first.items() <= _memory(tmp_path).items()
    penstock.run(job)
    _assert_both_are_remembered(tmp_path, first)


@pytest.mark.thorough
def test_input_that_changes_after_such_a_kill_still_leaves_the_moved_one_remembered(tmp_path, die):
    penstock.run(_remembering(tmp_path, "a", WEEK_1))
    (tmp_path / "a" / "out").rename(tmp_path / "a" / "week1")
    first = _memory(tmp_path)
    die(_remembering(tmp_path, "a", WEEK_3), "match.before_ledger")
    penstock.run(_remembering(tmp_path, "a", WEEK_2))
    _assert_both_are_remembered(tmp_path, first)


def test_an_output_made_from_other_input_in_its_place_replaces_what_it_remembered(tmp_path):
    penstock.run(_remembering(tmp_path, "a", WEEK_1))
    penstock.run(_remembering(tmp_path, "a", WEEK_2), redo=True)
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([WEEK_2])
    assert len(_memory(tmp_path)) == 1


def test_so_does_one_that_was_killed_with_the_old_input_and_with_the_new(tmp_path, die):
    die(_remembering(tmp_path, "a", WEEK_1), "run.before_manifest")
    assert len(_memory(tmp_path)) == 1
    job = _remembering(tmp_path, "a", WEEK_2)
    die(job, "match.before_ledger")
    penstock.run(job)
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([WEEK_2])
    assert len(_memory(tmp_path)) == 1


@pytest.mark.thorough
def test_the_first_of_several_in_one_place_is_made_again_from_its_own_input_wherever_that_lies(tmp_path):
    first, job = _week_1_moved_away(tmp_path)
    penstock.run(job)
    memory = _memory(tmp_path)
    shutil.rmtree(tmp_path / "a" / "out")
    _remembering(tmp_path, "a", WEEK_1)
    (tmp_path / "a" / "data").rename(tmp_path / "a" / "elsewhere")
    stages = text_making.stages(dedup={"remember": "../seen", "keep": True})
    job = text_making.write_job(tmp_path / "a" / "job.yaml", tmp_path / "a" / "elsewhere", stages=stages)
    penstock.run(job)
    assert workshop.bytes_of(tmp_path / "a" / "out") == workshop.bytes_of(tmp_path / "a" / "week1")
    assert _memory(tmp_path) == memory
    text_making.write_documents(tmp_path / "a" / "elsewhere", WEEK_1[:30])
    penstock.run(job, redo=True)  # now it is the first that lies there
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([WEEK_1[:30]])
    changed = {name for name, data in _memory(tmp_path).items() if data != memory[name]}
    assert changed == set(first)


def test_an_output_that_forgot_its_state_is_known_by_its_input_alone(tmp_path):
    """Nothing there says so, but removed and begun with other input looks like moved away: no key is forgotten."""
    job = _remembering(tmp_path, "a", WEEK_1)
    penstock.run(job)
    written = workshop.bytes_of(tmp_path / "a" / "out")
    (tmp_path / "a" / "out" / ".penstock" / "job.json").write_text("half of")
    penstock.run(job, redo=True)
    assert workshop.bytes_of(tmp_path / "a" / "out") == written
    assert len(_memory(tmp_path)) == 1
    shutil.rmtree(tmp_path / "a" / "out")
    penstock.run(_remembering(tmp_path, "a", WEEK_2))
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([WEEK_2], text_making.cleaned(WEEK_1))


@pytest.mark.thorough
def test_an_output_that_began_to_remember_later_takes_no_other_for_its_own(tmp_path):
    first, job = _week_1_moved_away(tmp_path)
    remembering = job.read_text()
    penstock.run(text_making.write_job(job, tmp_path / "a" / "data"))
    job.write_text(remembering)
    penstock.run(job, redo=True)
    _assert_both_are_remembered(tmp_path, first)


def test_a_finished_job_is_done_already_although_later_ones_were_remembered(tmp_path):
    first = _remembering(tmp_path, "a", text_making.documents(40, 1))
    penstock.run(first)
    penstock.run(_remembering(tmp_path, "b", text_making.documents(40, 2)))
    answer = workshop.run(first)
    assert answer.returncode == 0
    assert len(workshop.events_named(tmp_path / "a" / "out", "start")) == 1


def test_when_an_earlier_job_changes_a_later_one_notices(tmp_path):
    early, late = text_making.documents(40, 1), text_making.documents(40, 1)[20:] + ["late " * 40]
    penstock.run(_remembering(tmp_path, "a", early))
    job = _remembering(tmp_path, "b", late)
    penstock.run(job)
    penstock.run(_remembering(tmp_path, "a", early[:25]), redo=True)
    with pytest.raises(OutputError, match="made from something else"):
        penstock.run(job)
    penstock.run(job, redo=True)
    assert text_making.rows_of(tmp_path / "b" / "out") == text_making.expected([late], text_making.cleaned(early[:25]))


def test_a_job_that_was_killed_before_it_was_remembered_meets_one_that_came_between(tmp_path, die):
    texts, others = text_making.documents(40, 1), text_making.documents(40, 1)[10:]
    job = _remembering(tmp_path, "a", texts)
    die(job, "run.before_clean_up")
    penstock.run(_remembering(tmp_path, "b", others))
    penstock.run(job)
    assert text_making.rows_of(tmp_path / "b" / "out") == text_making.expected([others])
    assert text_making.rows_of(tmp_path / "a" / "out") == text_making.expected([texts], text_making.cleaned(others))


def test_a_memory_of_other_cleaning_is_refused(tmp_path):
    penstock.run(_remembering(tmp_path, "a", text_making.documents(20, 1)))
    with pytest.raises(InputError, match="these keys are hashes of"):
        penstock.run(_remembering(tmp_path, "b", text_making.documents(20, 1), clean={"normalize": "nfc"}))
    assert not (tmp_path / "b" / "out").exists()


def test_what_only_keeps_or_chooses_rows_is_no_other_cleaning(tmp_path):
    penstock.run(_remembering(tmp_path, "a", text_making.documents(20, 1)))
    penstock.run(_remembering(tmp_path, "b", text_making.documents(20, 2), clean={"keep": True}))
    assert len(list((tmp_path / "seen").glob("*.keys"))) == 2


def test_two_stages_of_a_job_cannot_share_a_memory(tmp_path):
    _make(tmp_path)
    clean, dedup, tokenize, pack = text_making.stages(dedup={"remember": "seen"})
    with pytest.raises(ConfigError, match=r"stages\[2\].dedup: remember: seen"):
        penstock.plan(_job(tmp_path, stages=[clean, dedup, dedup, tokenize, pack]))


def test_a_cache_of_md5_hashes_is_refused_by_the_command_with_a_way_out(tmp_path):
    for text in ("a", "b"):
        (tmp_path / "seen" / f"{text}b").mkdir(parents=True)
        (tmp_path / "seen" / f"{text}b" / f"{text}b{'0' * 30}").touch()
    done = workshop.run(_remembering(tmp_path, "a", ["x"]))
    assert done.returncode == 4, done.stdout + done.stderr
    error = json.loads(done.stdout)
    assert "MD5" in error["what"]
    assert "choose an empty folder" in error["next_step"]
    assert not (tmp_path / "a" / "out").exists()


# Damage between the passes: a job that died when all of a kind was on disk.


@pytest.mark.parametrize("kind", ["keys", "losers", "part"])
def test_a_flipped_byte_between_the_passes_is_named_and_deleting_the_file_helps(tmp_path, die, kind):
    stages = text_making.stages(dedup={"remember": "seen"})
    _make(tmp_path / "fresh")
    fresh = _job(tmp_path / "fresh", stages=stages)
    penstock.run(fresh)
    _make(tmp_path / "job")
    job = _job(tmp_path / "job", stages=stages)
    if kind == "losers":  # which are there behind the tasks that hash and the one that matches
        for _ in range(_tasks(tmp_path / "fresh" / "out", "0-hash") + 1):
            die(job, "task.after_ledger")
    else:
        die(job, "match.before_ledger" if kind == "keys" else "pack.before_ledger")
    path = min((tmp_path / "job" / "out" / ".penstock").rglob(f"*.{kind}"))
    whole, plan = path.read_bytes(), penstock.plan(job)
    for position in (0, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(IntegrityError) as caught:
            penstock.run(plan)
        assert path.name in f"{caught.value.what} {caught.value.where}", position
    path.unlink()
    penstock.run(plan)
    assert workshop.bytes_of(tmp_path / "job" / "out") == workshop.bytes_of(tmp_path / "fresh" / "out")
    assert_no_leftovers(tmp_path / "job" / "out")


@pytest.mark.parametrize("remember", ["", "seen"], ids=["alone", "remembering"])
@pytest.mark.parametrize("lost", ["manifest.json", "train/*"])
def test_a_finished_dataset_that_lost_a_file_is_made_whole(tmp_path, lost, remember):
    _make(tmp_path)
    plan = penstock.plan(_job(tmp_path, stages=text_making.stages(dedup={"remember": remember})))
    penstock.run(plan)
    written = workshop.bytes_of(tmp_path / "out")
    min((tmp_path / "out").glob(lost)).unlink()
    penstock.run(plan)
    assert workshop.bytes_of(tmp_path / "out") == written
    assert_no_leftovers(tmp_path / "out")


def _tasks(output: Path, kind: str) -> int:
    return len(list((output / ".penstock" / "tasks").glob(f"{kind}-*")))


def test_a_flipped_byte_in_the_memory_is_named_by_the_command(tmp_path):
    penstock.run(_remembering(tmp_path, "a", text_making.documents(40, 1)))
    (path,) = (tmp_path / "seen").glob("*.keys")
    data = bytearray(path.read_bytes())
    data[8] ^= 1
    path.write_bytes(data)
    job = _remembering(tmp_path, "b", text_making.documents(40, 1))
    done = subprocess.run(workshop.command(job), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 6, done.stdout + done.stderr
    assert path.name in done.stdout


def test_keys_of_another_column_are_refused(tmp_path):
    for name in ("title", "text"):
        table = pa.table({"title": ["a", "b"], "text": ["x y", "z"]})
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "data.parquet")
    job = {"memory": "1GB", "workers": 0}
    for name in ("title", "text"):
        stages = [{"dedup": {"column": name, "remember": str(tmp_path / "seen")}}]
        keys = {"input": str(tmp_path / name), "output": str(tmp_path / name / "out"), "stages": stages}
        if name == "title":
            penstock.run({**job, **keys})
            continue
        with pytest.raises(InputError, match=r"these keys are hashes of .*'column': 'title'"):
            penstock.run({**job, **keys})


def test_two_memories_of_a_job_go_on_from_one_job_to_the_next(tmp_path):
    """What the first has remembered meanwhile is no other cleaning to the second."""
    stages = [{"dedup": {"column": name, "remember": str(tmp_path / f"seen-{name}")}} for name in ("title", "text")]
    for number, texts in enumerate((["x", "y"], ["y", "z"])):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        pq.write_table(pa.table({"title": [f"{number} {text}" for text in texts], "text": texts}), folder / "a.parquet")
        penstock.run({"input": str(folder), "output": str(folder / "out"), "stages": stages, "workers": 0})
    assert penstock.open(tmp_path / "1" / "out")[:].column("text").to_pylist() == ["z"]
