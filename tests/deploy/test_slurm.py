"""`penstock deploy slurm` writes a script that sbatch takes, or says which value Slurm cannot take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.deploy.slurm import seconds_of
from tests.deploy.making import deploy, make_job, refused

GIVEN = ("--memory-per-node", "2GB", "--cores", 4)


def options_of(script: Path) -> dict[str, str]:
    """What the lines for sbatch say."""
    found = re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script.read_text(errors="replace"), re.MULTILINE)
    return dict(found)


def values_in_bash(script: Path, *names: str) -> list[str]:
    """Variables of the script as bash has them, just before its first command."""
    head = script.read_bytes().partition(b"\nchild=")[0]
    shown = b"".join(b'\nprintf "%%s\\0" "${%s[@]}"' % name.encode() for name in names)
    environment = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", head + shown], capture_output=True, check=True, env=environment)
    return [value.decode("utf-8", "surrogateescape") for value in done.stdout.split(b"\0")[:-1]]


@pytest.mark.parametrize(("ends", "requeued"), [("exit 130", True), ("kill -TERM $$", True), ("exit 4", False)])
def test_an_element_that_was_asked_to_stop_is_requeued_even_while_python_starts(tmp_path, capfd, ends, requeued):
    script = tmp_path / "array.sbatch"
    deploy(capfd, "slurm", make_job(tmp_path), *GIVEN, "-o", script)
    says = 'echo " JobState=RUNNING "; [[ $1 == show ]] || echo "$@" >> asked'
    for name, does in {"python": ends, "scontrol": says}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / name).chmod(0o755)
    script.write_text(script.read_text().replace(f"penstock=({sys.executable} ", "penstock=(python "))
    environment = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert subprocess.run(["bash", script], check=False, cwd=tmp_path, env=environment).returncode
    assert (tmp_path / "asked").exists() == requeued


def test_the_script_asks_for_what_was_given(tmp_path, capfd):
    script = tmp_path / "array.sbatch"
    words = ["--nodes", 4, *GIVEN, "--time", "1-12:30", "--partition", "short,long", "-o", script]
    facts = deploy(capfd, "slurm", make_job(tmp_path), *words)
    assert facts["script"] == str(script)
    assert options_of(script) == {
        "job-name": "penstock-job",
        "array": "0-3",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": "4",
        "mem": "1907M",  # Slurm's M is MiB: never more than was given
        "time": "1-12:30",
        "partition": "short,long",
        "requeue": "",
        "open-mode": "append",
        "signal": "B:TERM@120",
        "output": "%x-%A_%a.out",
    }
    assert values_in_bash(script, "memory", "cores") == ["1843MiB", "4"]
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_memory_and_cores_come_from_the_plan_if_they_are_not_given(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = deploy(capfd, "slurm", make_job(tmp_path, memory="800MB"))
    assert facts["script"] == "job.sbatch"
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] >= 10**9
    assert facts["projection"]["seconds"] > 0
    assert options_of(tmp_path / "job.sbatch")["mem"] == f"{facts['memory_bytes'] >> 20}M"


def test_the_time_is_that_of_the_projection_on_such_nodes(tmp_path, capfd):
    """One model says how long a job takes on other machines, with the same words about what it assumes."""
    job, script = make_job(tmp_path), tmp_path / "a.sbatch"
    told = deploy(capfd, "slurm", job, *GIVEN, "--nodes", 6, "-o", script)
    facts = told["projection"]
    assert (facts["nodes"], facts["cores"], facts["memory_bytes"]) == (6, 4, told["worker_memory_bytes"])
    assert main(["plan", str(job), "--nodes", "6", "--cores", "4", "--json"]) == 0
    planned = json.loads(capfd.readouterr().out)["projection"]
    assert facts.keys() == planned.keys()
    assert [each["tasks"] for each in facts["passes"]] == [each["tasks"] for each in planned["passes"]]
    assert facts["extrapolated"] == planned["extrapolated"] != []
    assert main(["deploy", "slurm", str(job), *map(str, GIVEN), "--nodes", "6", "-o", str(script)]) == 0
    said = capfd.readouterr().out
    assert "nodes as fast as this machine" in said
    assert "extrapolated" in said


STRANGE = """it's "$HOME" `pwd` \\ %j \n * ; & é"""


def test_every_path_reaches_penstock_as_it_is(tmp_path, capfd):
    job = make_job(tmp_path / STRANGE, "a $(job) #1.yaml", output="out 'of' \"it\" \udcff")
    script = tmp_path / "array.sbatch"
    deploy(capfd, "slurm", job, *GIVEN, "-o", script)
    folder = tmp_path / STRANGE
    wanted = [sys.executable, "-m", "penstock", str(job), f"{folder}/out 'of' \"it\" \udcff"]
    assert values_in_bash(script, "penstock", "job", "output") == wanted
    assert options_of(script)["job-name"] == "penstock-a-job-1"


def test_a_job_whose_input_is_elsewhere_needs_memory_and_cores(tmp_path, capfd):
    job = make_job(tmp_path, input="/scratch/of/the/cluster/*.parquet")
    error = refused(capfd, "slurm", job, "-o", tmp_path / "a.sbatch")
    assert error["error"] == "InputError"
    assert "Without a plan, give --memory-per-node and --cores." in error["notes"][-1]
    facts = deploy(capfd, "slurm", job, *GIVEN, "-o", tmp_path / "a.sbatch")
    assert facts["projection"] is None
    assert "/scratch/of/the/cluster" in facts["unknown"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", 0], "--nodes 0 is not between 1 and 4,000,001"),
        (["--nodes", 4_000_002], "--nodes 4000002 is not between 1 and 4,000,001"),
        (["--cores", 0], "--cores 0 is not between 1 and 65,533"),
        (["--cores", 70_000], "--cores 70000 is not between 1 and 65,533"),
        (["--memory-per-node", "100MB"], "--memory-per-node 100MB is not between 268 MB and 1000 TB"),
        (["--memory-per-node", "2PB"], "'2PB' is not a size"),
        (["--memory-per-node", "50%"], "a percentage is not allowed here"),
        (["--time", "4"], "--time 4 is not between 5 minutes and 365 days"),
        (["--time", "366-0"], "--time 366-0 is not between 5 minutes and 365 days"),
        (["--time", "soon"], "'soon' is not a time that Slurm understands"),
        (["--time", "1:2:3:4"], "'1:2:3:4' is not a time that Slurm understands"),
        (["--partition", "a b"], "'a b' is not a name"),
        (["--partition", "a\n#SBATCH --exclusive"], "is not a name"),
        (["--partition", ""], "'' is not a name"),
    ],
)
def test_a_value_that_slurm_cannot_take_is_refused_with_the_range(words, said, tmp_path, capfd):
    error = refused(capfd, "slurm", make_job(tmp_path), *words, "-o", tmp_path / "a.sbatch")
    assert error["error"] == "ConfigError"
    assert said in error["what"]
    assert error["next_step"]
    assert not (tmp_path / "a.sbatch").exists()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("1:30:00", 5400),
        ("2-3", 2 * 86400 + 3 * 3600),
        ("2-3:04", 2 * 86400 + 3 * 3600 + 4 * 60),
        ("2-3:04:05", 2 * 86400 + 3 * 3600 + 4 * 60 + 5),
    ],
)
def test_times_are_read_as_slurm_reads_them(text, seconds):
    assert seconds_of(text) == seconds


def test_a_script_that_says_something_else_is_not_overwritten(tmp_path, capfd):
    job, script = make_job(tmp_path), tmp_path / "a.sbatch"
    deploy(capfd, "slurm", job, *GIVEN, "-o", script)
    deploy(capfd, "slurm", job, *GIVEN, "-o", script)  # the same again
    before = script.read_text()
    error = refused(capfd, "slurm", job, *GIVEN, "--nodes", 2, "-o", script)
    assert error["error"] == "OutputError"
    assert script.read_text() == before


def test_a_preset_is_no_job_file(capfd, tmp_path):
    assert "is a preset" in refused(capfd, "slurm", "events", "-o", tmp_path / "a.sbatch")["what"]


def test_what_is_printed_says_how_to_submit_it(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["deploy", "slurm", str(make_job(tmp_path)), *map(str, GIVEN), "--nodes", "2000"]) == 0
    out = capfd.readouterr().out
    assert "wrote job.sbatch" in out
    assert "  sbatch job.sbatch" in out
    assert f"  penstock run {tmp_path / 'job.yaml'} --engine workers --memory 1843MiB" in out
    assert "MaxArraySize" in out
