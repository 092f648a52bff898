"""Finding: which files of a folder or pattern are the input, and that nothing else there is passed over in silence."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import ConfigError, FileError, InputError
from penstock.base.stores import open_store
from tests.promises import workshop


def _rows(path: Path, *values: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"a": value}) + "\n" for value in values))
    return path


def _plan(tmp_path, source, **keys):
    return penstock.plan({"input": source, "output": str(tmp_path / "out"), "stages": [], "workers": 0, **keys})


def _unread(plan) -> dict[str, int]:
    return {each.what: each.count for each in plan.survey.unread}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three rows, and below them a dataset that an earlier job made of them, with rows in `rejected/`."""
    data = tmp_path / "data"
    _rows(data / "rows.jsonl", 1, 2, 3)
    earlier = {"input": str(data), "output": str(data / "sub" / "earlier"), "workers": 0}
    penstock.run({**earlier, "stages": [{"filter": {"where": "a > 1", "keep": True}}]})
    assert list((data / "sub" / "earlier" / "rejected").glob("*.jsonl"))
    return data


@pytest.mark.parametrize("pattern", ["data", "data/**/*.jsonl"])
@pytest.mark.parametrize("left", ["whole", "unfinished", "without its hidden folder"])
def test_what_an_earlier_job_wrote_below_the_input_is_not_read_and_said(tmp_path, data, pattern, left):
    earlier = data / "sub" / "earlier"
    if left == "unfinished":
        (earlier / "manifest.json").unlink()
    if left == "without its hidden folder":
        shutil.rmtree(earlier / ".penstock")
    manifest = penstock.run(_plan(tmp_path, str(tmp_path / pattern)))
    assert (manifest.account[0].step, manifest.account[0].taken) == ("files", 1)
    assert penstock.open(tmp_path / "out")[:]["a"].to_pylist() == [1, 2, 3]
    said = {"what": "folder written by penstock", "count": 1, "first": str(earlier)}
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert said in run["not_read"]
    assert "not_read" not in (tmp_path / "out" / "manifest.json").read_text()


def test_a_dataset_that_is_named_is_input_and_so_are_its_rejected_rows(tmp_path, data):
    earlier = data / "sub" / "earlier"
    assert _plan(tmp_path, str(earlier)).survey.formats == ("dataset",)
    stages = [{"select": ["reason"]}]
    for named in (earlier / "rejected", earlier / "rejected" / "*.jsonl", earlier / "**" / "*.jsonl"):
        assert _plan(tmp_path, str(named), stages=stages).survey.files == 1


def test_exports_and_remembered_keys_and_the_jobs_own_output_are_not_input(tmp_path, data):
    own = data / "own"
    job = {"input": str(data), "output": str(own), "workers": 0, "export": {"to": "hf", "path": str(data / "export")}}
    for _ in range(2):
        penstock.run({**job, "stages": []})
        assert len(penstock.open(own)) == 3
    assert _unread(penstock.plan({**job, "stages": []}))["folder that this job writes"] == 2
    assert _unread(_plan(tmp_path, str(data)))["export of penstock"] == 1
    texts = tmp_path / "texts"
    _rows(texts / "rows.jsonl").write_text('{"text": "one"}\n')
    keys = {"input": str(texts), "output": str(tmp_path / "first"), "stages": [{"dedup": {"remember": str(texts)}}]}
    keys["stages"] = [{"dedup": {"remember": str(texts / "keys")}}]
    penstock.run(keys)
    assert _unread(_plan(tmp_path, str(texts))) == {"folder written by penstock": 1}


def test_batch_files_are_input_of_npz_alone_and_only_when_they_are_all_there(tmp_path, data):
    (data / "sub" / "earlier").rename(tmp_path / "elsewhere")
    batches = data / "batches"
    penstock.run({"input": str(data), "output": str(batches), "stages": [], "format": "npz", "workers": 0})
    assert _unread(_plan(tmp_path, str(data))) == {"folder written by penstock": 1}
    for named in (batches, data):
        assert _plan(tmp_path, {"npz": str(named)}).survey.files == 1
    (batches / "manifest.json").unlink()
    with pytest.raises(InputError, match="is not finished") as caught:
        _plan(tmp_path, {"npz": str(batches)})
    assert caught.value.next_step == "finish it: run its job again"


def test_files_of_other_endings_are_counted_by_ending_and_change_no_id(tmp_path):
    data = tmp_path / "data"
    _rows(data / "rows.jsonl", 1)
    alone = _plan(tmp_path, str(data))
    assert alone.survey.unread == ()
    for number in range(100):
        (data / f"{number}.txt").write_text("a note")
    (data / "README").write_text("a note")
    (data / "more.TXT.gz").write_text("a note")
    plan = _plan(tmp_path, str(data))
    assert _unread(plan) == {".txt": 100, ".txt.gz": 1, "no ending": 1}
    assert plan.job == alone.job


@pytest.mark.proof
def test_what_is_not_read_is_on_the_screen_of_plan_and_run_and_in_json(tmp_path):
    _rows(tmp_path / "data" / "rows.jsonl", *range(1000))
    for name in ("a.txt", "b.txt"):
        (tmp_path / "data" / name).write_text("a note")
    job = workshop.write_job(tmp_path / "job.yaml", "data", stages=[], workers=0)
    first = str(tmp_path / "data" / "a.txt")
    planned = workshop.on_screen(job, "plan").stdout
    assert "not read  2 .txt files" in planned
    ran = workshop.on_screen(job, "run", "--json")
    assert json.loads(ran.stdout)["not_read"] == [{"what": ".txt", "count": 2, "first": first}]
    assert f"not read: 2 .txt files ({first})" in ran.stderr
    assert "1 task to do, about 1,000 rows in all" in ran.stderr  # lines are estimated until they are read


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Rows among a FIFO, a socket, a link to a device, a link to their own folder, and what is hidden."""
    odd = tmp_path / "odd"
    _rows(odd / "rows.jsonl", 1, 2)
    os.mkfifo(odd / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(odd / "s.jsonl"))
    (odd / "device.jsonl").symlink_to("/dev/zero")
    (odd / "round").symlink_to(odd)
    _rows(odd / ".hidden.jsonl", 3)
    _rows(odd / ".checkpoints" / "rows.jsonl", 1, 2)
    _rows(odd / "folder.jsonl" / "part.jsonl", 4)
    return odd


def test_fifos_devices_and_links_to_folders_are_not_read_and_said(tmp_path, odd):
    kinds = {"FIFO": 1, "socket": 1, "device": 1}
    plan = _plan(tmp_path, str(odd))
    assert _unread(plan) == {**kinds, "hidden": 2, "linked folder": 1}
    assert plan.survey.files == 2
    plan = _plan(tmp_path, f"{odd}/*.jsonl")
    assert _unread(plan) == {**kinds, "folder": 1}
    assert plan.survey.files == 1


@pytest.mark.parametrize("key", ["path", "files", "npz"])
@pytest.mark.parametrize("name", ["pipe.jsonl", "s.jsonl", "device.jsonl"])
def test_what_is_no_file_is_refused_by_name_where_it_is_named(tmp_path, odd, key, name):
    more = {"function": "json:loads"} if key == "files" else {}
    with pytest.raises(InputError, match=r"this is a (FIFO|socket|device), not a file") as caught:
        _plan(tmp_path, {key: str(odd / name), **more})
    assert caught.value.where == str(odd / name)


def test_a_pattern_through_a_link_to_its_own_folder_is_refused(tmp_path, odd):
    with pytest.raises(InputError, match="occurs twice in the input"):
        _plan(tmp_path, f"{odd}/**/rows.jsonl")


def test_nothing_that_penstock_opens_waits_for_a_fifo(tmp_path, odd):
    with pytest.raises(FileError, match="it is a FIFO"):
        open_store(str(odd)).read("pipe.jsonl")
    with pytest.raises(ConfigError, match="the job file is a FIFO"):
        penstock.plan(odd / "pipe.jsonl")
    with pytest.raises(ConfigError, match="Is a directory"):
        penstock.plan(odd)
    text = _rows(tmp_path / "t.jsonl")
    text.write_text('{"text": "one"}\n')
    with pytest.raises((ConfigError, InputError, FileError), match="pipe"):
        _plan(tmp_path, str(text), stages=[{"tokenize": {"tokenizer": str(odd / "pipe.jsonl")}}])


def test_a_file_that_vanishes_after_the_survey_is_named(tmp_path):
    for number in range(2):
        _rows(tmp_path / "data" / f"{number}.jsonl", number)
    plan = _plan(tmp_path, str(tmp_path / "data"))
    (tmp_path / "data" / "1.jsonl").unlink()
    with pytest.raises(FileError, match="No such file") as caught:
        penstock.run(plan)
    assert "1.jsonl" in (caught.value.where or "")


def test_where_nothing_can_be_read_the_error_says_what_is_there(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.xyz").write_text("?")
    with pytest.raises(InputError, match="no file matches") as caught:
        _plan(tmp_path, str(tmp_path / "data"))
    assert "1 .xyz" in (caught.value.where or "")


@pytest.mark.parametrize(("name", "other"), [("part-*.jsonl", "part-1.jsonl"), ("part[1].jsonl", "part1.jsonl")])
def test_a_file_named_as_the_pattern_hides_nothing(tmp_path, name, other):
    _rows(tmp_path / "g" / name, 1)
    penstock.run(_plan(tmp_path, str(tmp_path / "g" / name)))
    assert penstock.open(tmp_path / "out")[:]["a"].to_pylist() == [1]
    _rows(tmp_path / "g" / other, 2)
    with pytest.raises(InputError, match="and as a pattern it also matches 1 more") as caught:
        _plan(tmp_path, str(tmp_path / "g" / name))
    assert name in (caught.value.where or "")
    assert other in (caught.value.where or "")


def test_a_folder_named_as_the_pattern_hides_nothing(tmp_path):
    for name in ("part-*", "part-1"):
        _rows(tmp_path / "g" / name / "rows.jsonl", 1)
    with pytest.raises(InputError, match="this is the name of a file or folder"):
        _plan(tmp_path, str(tmp_path / "g" / "part-*"))


@pytest.mark.parametrize("target", ["gone.jsonl", "lost.jsonl"])  # lost.jsonl leads to itself
@pytest.mark.parametrize("pattern", ["", "*.jsonl", "lost.jsonl"])
def test_a_link_that_leads_nowhere_is_refused_with_what_it_leads_to(tmp_path, target, pattern):
    _rows(tmp_path / "data" / "rows.jsonl", 1)
    (tmp_path / "data" / "lost.jsonl").symlink_to(target)
    with pytest.raises(InputError, match=f"this link is broken: there is no file {target}") as caught:
        _plan(tmp_path, os.path.join(tmp_path / "data", pattern))
    assert caught.value.where == str(tmp_path / "data" / "lost.jsonl")


@pytest.mark.parametrize(
    ("output", "message"),
    [("data", "`output:` is the input folder itself"), (".", "`output:` is a folder around the input")],
)
def test_an_output_that_holds_the_input_is_told_as_such(tmp_path, output, message):
    _rows(tmp_path / "data" / "rows.jsonl", 1, 2)
    with pytest.raises(InputError, match=message) as caught:
        _plan(tmp_path, str(tmp_path / "data"), output=str(tmp_path / output))
    assert "files inside the output are never read" in caught.value.what
    assert "another `output:`" in str(caught.value.next_step)
