"""Promise 3, of text: what changed since the last run is noticed; what earlier jobs had is remembered."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import ConfigError, InputError, IntegrityError, OutputError
from penstock.prepare.dedup.runs import open_runs
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


CHANGES = [_other_tokenizer, _other_length, _no_dedup, _another_document, _something_was_seen]
CHANGES += [_other_method, _no_end, _other_cleaning] if workshop.THOROUGH else []
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
    with pytest.raises(InputError, match="hashes of something else"):
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
        open_runs.cache_clear()  # as in a process of its own
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
