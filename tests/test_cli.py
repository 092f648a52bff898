"""The command line: exit codes, one JSON document on stdout, errors on one screen, and stopping cleanly."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

import penstock
from penstock.base.errors import PenstockError
from penstock.cli import EXIT_CODES, app, main
from penstock.show.streams import drop_unread
from tests.show.desk import ROWS, document, end, give, make_job, start, wait_for

# Waits on every slice but the first while the file `slow` lies beside it; not when the plan tries the first rows.
SLOW_STAGE = """\
import os, time
HERE = os.path.dirname(__file__)
def slow(batch):
    running = os.path.exists(os.path.join(HERE, "out", ".penstock", "job.json"))
    while running and batch["value"][0].as_py() >= 1000 and os.path.exists(os.path.join(HERE, "slow")):
        time.sleep(0.01)
    return batch
"""


def test_a_run_prints_where_every_row_went(tmp_path, capfd):
    assert main(["run", str(make_job(tmp_path))]) == 0
    printed = capfd.readouterr().out
    assert "in = out + set aside, in every step" in printed
    assert " ".join(_line(printed, "filter").split()) == "filter rows 3,000 2,900 100 not: value >= 100"
    assert "peak" in _line(printed, "memory")
    assert "projected" in _line(printed, "memory")
    assert len(penstock.open(tmp_path / "out")) + len(penstock.open(tmp_path / "out", "test")) == 2900


def test_a_second_run_says_that_the_job_is_done(tmp_path, capfd):
    job = str(make_job(tmp_path))
    assert main(["run", job]) == 0
    assert main(["run", job]) == 0
    assert "This job is done already" in capfd.readouterr().out


@pytest.mark.proof
def test_json_is_one_document_on_stdout_and_progress_goes_to_stderr(tmp_path):
    done = give("run", make_job(tmp_path, workers=1), "--json")
    assert done.returncode == 0
    facts = document(done.stdout)
    assert facts["account"][1] == {
        "step": "read",
        "unit": "rows",
        "taken": ROWS,
        "given": ROWS,
        "set_aside": {},
        "made": {},
        "balances": True,
    }
    assert facts["splits"].keys() == {"train", "test"}
    assert "3 tasks to do, 3,000 rows in all" in done.stderr


@pytest.mark.proof
def test_what_user_code_prints_stays_out_of_the_document(tmp_path):
    (tmp_path / "chatty.py").write_text(
        "import os\ndef talk(batch):\n    print('a')\n    os.write(1, b'b')\n    return batch\n"
    )
    done = give("run", make_job(tmp_path, stages=["chatty:talk"]), "--json")
    assert done.returncode == 0, done.stderr
    assert document(done.stdout)["already_done"] is False
    assert "a\n" in done.stderr


def _wrong(kind: str, folder: Path) -> list[str]:
    """Arguments that end in this error."""
    job = str(make_job(folder))
    if kind == "ConfigError":
        return ["run", job, "--set", "stages=[{filtre: value > 0}]"]
    if kind == "PlanError":
        return ["plan", job, "--memory", "1MB", "--workers", "1"]
    if kind == "InputError":
        return ["run", job, "--input", str(folder / "nothing-*.csv")]
    if kind == "OutputError":
        (folder / "mine").mkdir()
        (folder / "mine" / "letter.txt").write_text("not penstock's")
        return ["run", job, "--output", str(folder / "mine")]
    (folder / "broken_code.py").write_text("def fail(batch):\n    return batch['value'] / 0\n")
    return ["run", job, "--set", "stages=[broken_code:fail]"]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("kind", "code"), [("ConfigError", 2), ("PlanError", 3), ("InputError", 4), ("OutputError", 5), ("TaskError", 7)]
)
def test_each_kind_of_error_is_named_and_has_its_own_exit_code(kind, code, tmp_path, capfd):
    arguments = _wrong(kind, tmp_path)
    assert main(arguments) == code
    printed = capfd.readouterr()
    assert printed.out == ""
    assert f"{kind}: " in printed.err
    assert "Traceback" not in printed.err
    assert main([*arguments, "--json"]) == code
    facts = document(capfd.readouterr().out)
    assert (facts["error"], facts["exit_code"]) == (kind, code)


def test_a_damaged_dataset_is_named_by_file_column_and_block(tmp_path, capfd):
    assert main(["run", str(make_job(tmp_path))]) == 0
    shard = next((tmp_path / "out" / "train").iterdir())
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    capfd.readouterr()
    assert main(["verify", str(tmp_path / "out")]) == 6
    printed = capfd.readouterr().out
    assert f"train/{shard.name}" in printed
    assert "column 'value'" in printed or "column 'user'" in printed
    assert "block 0" in printed
    assert main(["verify", str(tmp_path / "out"), "--json"]) == 6
    assert document(capfd.readouterr().out)["ok"] is False


def test_a_whole_dataset_is_verified_with_its_counts(tmp_path, capfd):
    assert main(["run", str(make_job(tmp_path))]) == 0
    capfd.readouterr()
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert "2,900 records" in capfd.readouterr().out


def test_a_defect_is_called_one_and_debug_shows_the_traceback(tmp_path, capfd, monkeypatch):
    import penstock.show.asking.asked

    def fall(*arguments: object) -> None:  # noqa: ARG001
        raise KeyError("a hole in penstock")

    monkeypatch.setattr(penstock.show.asking.asked, "plan_with", fall)
    job = str(make_job(tmp_path))
    assert main(["plan", job]) == 1
    printed = capfd.readouterr().err
    assert printed.startswith("Defect of penstock: KeyError: 'a hole in penstock'")
    assert "--debug" in printed
    assert "Traceback" not in printed
    assert main(["plan", job, "--debug"]) == 1
    assert "Traceback" in capfd.readouterr().err


def test_a_wrong_option_is_an_error_like_any_other(capfd):
    assert main(["run", "--nonsense", "--json"]) == 2
    assert "--nonsense" in document(capfd.readouterr().out)["what"]
    assert main(["rum"]) == 2
    assert "Did you mean 'run'?" in capfd.readouterr().err


def test_paths_on_the_command_line_start_at_the_working_directory(tmp_path, capfd, monkeypatch):
    job = make_job(tmp_path / "jobs")
    (tmp_path / "jobs" / "data").rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(job), "--input", "elsewhere", "--output", "made/here", "--json"]) == 0
    assert document(capfd.readouterr().out)["output"] == str(tmp_path / "made" / "here")
    assert (tmp_path / "made" / "here" / "manifest.json").exists()


def test_the_version_and_the_exit_codes_are_a_word_away(capfd):
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"penstock {penstock.__version__}\n"
    for arguments in ([], ["--help"]):
        assert main(arguments) == 0
        assert "130  stopped by Ctrl-C or SIGTERM" in capfd.readouterr().out


GROUP = typer.main.get_command(app)
COMMANDS = {
    **GROUP.commands,
    **{f"deploy {name}": command for name, command in GROUP.commands["deploy"].commands.items()},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_every_word_that_is_declared(name, capfd, monkeypatch):
    """Rich takes lowercase words in brackets for markup, and drops them."""
    monkeypatch.setenv("COLUMNS", "1000")
    assert main([*name.split(), "--help"]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", "") in shown
    assert COMMANDS[name].help in shown


def test_the_exit_codes_of_the_help_are_those_of_the_errors():
    assert [code for code, _ in EXIT_CODES] == [
        0,
        PenstockError.exit_code,
        *sorted(kind.exit_code for kind in PenstockError.__subclasses__()),
    ]


@pytest.mark.proof
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_of_the_result_that_went_away_ends_the_command_quietly(options, tmp_path):
    process = start("plan", make_job(tmp_path), *options)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141


def test_a_reader_is_known_to_be_gone_when_nothing_waits_to_be_written():
    reading, writing = os.pipe()
    with open(writing, "w") as stream:
        assert not drop_unread(stream)
        os.close(reading)
        assert drop_unread(stream)  # python drops what is larger than its buffer
    assert not drop_unread(io.StringIO())


def test_a_pipe_that_breaks_elsewhere_is_not_taken_for_stdout(tmp_path, capfd, monkeypatch):
    def fall(*arguments: object) -> None:  # noqa: ARG001
        raise BrokenPipeError("to a worker")

    monkeypatch.setattr("penstock.show.asking.asked.plan_with", fall)
    assert main(["plan", str(make_job(tmp_path))]) == 1
    assert "Defect of penstock: BrokenPipeError: to a worker" in capfd.readouterr().err


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_go_on_and_does(number, tmp_path):
    (tmp_path / "slow_stage.py").write_text(SLOW_STAGE)
    job = make_job(tmp_path, stages=["slow_stage:slow"], workers=1)
    with _running_until_one_task_is_done(tmp_path, job) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted: stopped with 1 of 3 tasks done" in err
    assert "try: run the same command" in err
    assert "Traceback" not in err
    assert out == ""

    unfinished = give("inspect", tmp_path / "out")
    assert unfinished.returncode == 0
    assert "its ledger has 1 of 3 tasks" in unfinished.stdout
    (tmp_path / "slow").unlink()
    again = give("run", job)
    assert again.returncode == 0
    assert "resuming an earlier run: 1 of 3 tasks done" in again.stderr
    assert "1 of 3 tasks kept from an earlier run" in again.stdout


@pytest.mark.proof
def test_a_run_that_is_stopped_while_it_plans_ends_cleanly(tmp_path):
    (tmp_path / "sleepy.py").write_text("import time\ndef sleep(batch):\n    time.sleep(60)\n    return batch\n")
    process = start("run", make_job(tmp_path, stages=["sleepy:sleep"], workers=1))
    try:
        assert process.stderr is not None
        assert "planning" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 130
    assert err.startswith("Interrupted: ")
    assert "Traceback" not in err


@pytest.mark.proof
def test_without_a_terminal_progress_is_a_plain_line_now_and_then(tmp_path):
    (tmp_path / "slow_stage.py").write_text(SLOW_STAGE)
    job = make_job(tmp_path, stages=["slow_stage:slow"], workers=1)
    with _running_until_one_task_is_done(tmp_path, job) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "33%" in line)
        (tmp_path / "slow").unlink()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert line.startswith("penstock: ")
    assert "map: 1,000 of 3,000 rows read, 33% of all work" in line
    assert "of 1 GB" in line
    assert "\x1b" not in line


@pytest.mark.proof
def test_a_log_that_nobody_reads_any_more_does_not_end_the_run(tmp_path):
    process = start("run", make_job(tmp_path), "--json")
    assert process.stderr is not None
    assert process.stdout is not None
    process.stderr.close()
    assert document(process.stdout.read())["already_done"] is False
    assert process.wait(timeout=60) == 0


@contextmanager
def _running_until_one_task_is_done(folder: Path, job: Path) -> Iterator[subprocess.Popen[str]]:
    """The job at work on its second slice."""
    events = folder / "out" / ".penstock" / "events.jsonl"
    (folder / "slow").touch()
    process = start("run", job)
    try:
        wait_for(lambda: process.poll() is not None or (events.exists() and '"event": "task"' in events.read_text()))
        yield process
    finally:
        end(process)


def _line(printed: str, first_word: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith(first_word))


@pytest.mark.proof
@pytest.mark.parametrize("command", [["--help"], ["init", "--schema"]])
def test_a_reader_of_the_help_that_went_away_ends_the_command_quietly(command):
    process = start(*command)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141


@pytest.mark.proof
def test_a_command_without_a_stdout_does_its_work(tmp_path):
    command = [sys.executable, "-m", "penstock", "run", str(make_job(tmp_path))]
    done = subprocess.run(["sh", "-c", '"$@" >&- 2> /dev/null', "sh", *command], check=False)
    assert done.returncode == 0
    assert (tmp_path / "out" / "manifest.json").exists()


SHOWN = """\
import json, sys
from penstock.cli import main
for command in json.loads(sys.argv[1]):
    print("code", main(command.split()), flush=True)
"""
LOCALE_C = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}  # stdout and file names are ASCII


@pytest.mark.proof
def test_names_that_an_encoding_lacks_are_written_as_escapes(tmp_path):
    """Paths, columns and text in plan, run and inspect; JSON stays JSON, and files are found as they are called."""
    (tmp_path / "dätä").mkdir()
    (tmp_path / "dätä" / "ß.jsonl").write_text('{"größe": "日本", "n": 1}\n{"größe": "b", "n": 2}\n', encoding="utf-8")
    job = "input: dätä\noutput: öut\nworkers: 0\nstages:\n- filter: größe != 'b'\n"
    (tmp_path / "jöb.yaml").write_text(job, encoding="utf-8")
    commands = ["plan jöb.yaml", "run jöb.yaml", "run jöb.yaml --json", "inspect öut", "inspect öut --json"]
    commands += ["verify öut", "inspect nöthing", "inspect nöthing --json"]
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, **LOCALE_C},
        capture_output=True,
        check=False,
    )
    assert b"Defect" not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    codes = [line for line in done.stdout.splitlines() if line.startswith(b"code ")]
    assert codes == [b"code 0"] * 6 + [b"code 5"] * 2, done.stderr
    document = done.stdout.split(b"code 0\n")[2]
    assert json.loads(document)["output"].encode("utf-8", "surrogateescape").endswith("öut".encode())
    assert (tmp_path / "öut" / "manifest.json").exists()
