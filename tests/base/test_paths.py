"""Paths: what was written becomes a path of this machine, or is refused by name; no strange folder appears."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.base.paths import local_path
from penstock.cli import main
from penstock.shards.foreign.exporting import export
from tests.show import desk

URLS = ["s3://bucket/x", "gs://bucket/x", "https://host/x.jsonl", "hf://datasets/org/name", "file:///x", "S3://b/x"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and a working directory in which nothing may appear."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.mark.parametrize(
    "text", ["data", "./s3:/x", "org/name", "a:b/c", "C:/x", "12:/x", "cost$5", "a$", "/x/~y", "*.csv"]
)
def test_a_path_stays_as_it_was_written(text):
    assert local_path(text, "/folder") == os.path.join("/folder", text)


@pytest.mark.parametrize("url", [*URLS, Path("s3://bucket/x")])
def test_a_url_is_refused_by_name(url):
    with pytest.raises(ConfigError, match=f"'{url}' is a URL") as refused:
        local_path(url)
    assert (
        "/x" in str(refused.value.next_step)
        or "disk" in str(refused.value.next_step)
        or "org/name" in str(refused.value.next_step)
    )


def test_a_home_is_expanded_and_one_that_is_nobodys_is_refused(home):
    assert local_path("~", "/folder") == str(home)
    assert local_path("~/x", "/folder") == f"{home}/x"
    assert local_path(f"~{_user()}/x") == os.path.expanduser(f"~{_user()}/x")
    with pytest.raises(ConfigError, match="there is no user 'nobody-at-all'"):
        local_path("~nobody-at-all/x")


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize("text", ["$HOME/x", "data/${RUN}/x", "out-$RUN"])
def test_a_variable_is_refused_unless_something_of_that_name_is_there(home, text):
    with pytest.raises(ConfigError, match="is not expanded"):
        local_path(text, str(home))
    os.makedirs(home / text)
    assert local_path(text, str(home)) == str(home / text)


def _refused(job: dict[str, object], folder: Path) -> str:
    before = sorted(folder.rglob("*"))
    with pytest.raises(ConfigError) as refused:
        penstock.run({"input": str(folder.parent / "in.jsonl"), "output": "out", "workers": 0, **job})
    assert sorted(folder.rglob("*")) == before
    return str(refused.value)


@pytest.mark.parametrize("written", ["s3://bucket/x", "$NOWHERE/x", "~nobody-at-all/x", "file:///tmp/x"])
def test_no_key_of_a_job_takes_what_is_no_path_and_nothing_appears(home, written):
    (home.parent / "in.jsonl").write_text('{"text": "a"}\n')
    work = Path.cwd()
    for key in ("output", "intermediate_dir", "input"):
        path = "input[0].path" if key == "input" else key
        assert _refused({key: written}, work).startswith(f"{path}: '{written}'")
    assert _refused({"export": {"to": "hf", "path": written}}, work).startswith(f"export.path: '{written}'")
    for stage in ({"dedup": {"remember": written}}, {"tokenize": {"tokenizer": written}}):
        assert repr(written) in _refused({"stages": [stage]}, work)


@pytest.mark.proof
def test_homes_are_expanded_in_a_job_and_wherever_a_dataset_is_read(home):
    job = desk.make_job(home, output="~/prepared", input="~/data", export={"to": "hf", "path": "~/exported"})
    penstock.run("~/job.yaml")
    assert not list(Path.cwd().iterdir())
    assert not (job.parent / "~").exists()
    assert (home / "exported" / "export.json").exists()
    assert len(penstock.open("~/prepared")) == len(penstock.open(home / "prepared"))
    assert penstock.verify("~/prepared").ok
    penstock.load("~/prepared", batch_size=4, columns=["value"]).close()
    export("~/prepared", "hf", "~/again")
    assert (home / "again" / "export.json").exists()


def test_no_command_takes_a_url_and_a_home_that_no_shell_expanded_is_one(home, capfd):
    desk.make_job(home)
    url, job = "s3://bucket/x", str(home / "job.yaml")
    commands = [
        ["run", job, "--output", url],
        ["run", job, "--input", url],
        ["plan", url],
        ["merge", url, "--config", job],
        ["merge", "--intermediate-dir", url, "--config", job],
        ["verify", url],
        ["inspect", url],
        ["inspect", url, "--tokens"],
        ["bench", url],
        ["export", url, "--to", "hf"],
        ["export", str(home), "--to", "hf", "--output", url],
        ["doctor", "--output", url],
        ["init", url],
    ]
    for command in commands:
        assert main(command) == 2, command
        assert "is a URL" in capfd.readouterr().err, command
    assert main(["run", job, "--output", "~/made", "--input", "~/data"]) == 0
    assert main(["inspect", "~/made"]) == 0
    assert main(["verify", "~/made"]) == 0
    assert main(["init", "~/new.yaml"]) == 0
    assert (home / "made" / "manifest.json").exists()
    assert (home / "new.yaml").exists()
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("door", [penstock.open, penstock.verify, lambda path: penstock.load(path, batch_size=1)])
def test_no_door_takes_a_url(door):
    with pytest.raises(ConfigError, match="is a URL"):
        door("s3://bucket/x")


def test_a_url_to_write_to_is_refused_with_what_to_do_instead():
    with pytest.raises(ConfigError) as refused:
        local_path("s3://bucket/x", is_output=True)
    assert refused.value.next_step == "write to a folder of this machine, then upload it"
