"""`penstock deploy modal`: the real client sends what the app asks for to a server of ours. Nothing was deployed."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.deploy.making import make_job
from tests.promises import workshop

pytest.importorskip("modal")
from tests.adapters.modal_recorder import Recorder, recording

TEXT = Path(__file__).parents[2] / "examples" / "text"
GIVEN = ["--cores", "8", "--memory", "32GB", "--disk", "600GB", "--timeout", "7200", "--retries", "3"]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


def deployed(job: Path, *options: str) -> Path:
    """The app of the job, beside it."""
    app = job.parent / "app.py"
    command = [sys.executable, "-m", "penstock", "deploy", "modal", str(job), "-o", str(app)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return app


def modal(recorder: Recorder, *words: object, folder: Path) -> str:
    """A command of the real client."""
    command = [sys.executable, "-m", "modal", *map(str, words)]
    environment = recorder.environment(folder)
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_client_sends_what_the_app_asks_for(recorder, tmp_path):
    app = deployed(make_job(tmp_path), *GIVEN, "--volume", "rows_of-2026")
    modal(recorder, "deploy", app, folder=tmp_path)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    commands = recorder.image_commands()
    assert commands[0].startswith(f"FROM python:{python}")
    assert f"RUN python -m pip install penstock=={penstock.__version__}" in commands
    volume = recorder.request("VolumeGetOrCreate")
    assert volume.deployment_name == "rows_of-2026"
    function = recorder.request("FunctionCreate").function
    resources, retries = function.resources, function.retry_policy
    assert (resources.milli_cpu, resources.milli_cpu_max) == (8000, 8000)
    assert (resources.memory_mb, resources.memory_mb_max) == (32 * 10**9 // 2**20, 32 * 10**9 // 2**20 + 512)
    assert resources.ephemeral_disk_mb == -(-600 * 10**9 // 2**20)
    assert function.timeout_secs == 7200
    assert (retries.retries, retries.initial_delay_ms, retries.backoff_coefficient) == (3, 10_000, 2.0)
    assert function.autoscaler_settings.max_containers == 1
    [mount] = function.volume_mounts
    assert (mount.volume_id, mount.mount_path, mount.allow_background_commits) == ("vo-1", "/data", True)
    assert recorder.request("AppPublish").name == "penstock-job"


def test_without_a_number_the_container_has_the_disk_that_costs_nothing(recorder, tmp_path):
    modal(recorder, "deploy", deployed(make_job(tmp_path)), folder=tmp_path)
    assert recorder.request("FunctionCreate").function.resources.ephemeral_disk_mb == 0


def test_extras_of_the_job_and_a_wheel_of_ones_own_are_installed(recorder, tmp_path):
    wheel = tmp_path / f"penstock-{penstock.__version__}-py3-none-any.whl"
    wheel.write_bytes(b"as good as any: nothing is built")
    shutil.copytree(TEXT, tmp_path / "text")
    app = deployed(tmp_path / "text" / "job.yaml", "--wheel", str(wheel))
    modal(recorder, "deploy", app, folder=tmp_path)
    commands = recorder.image_commands()
    assert "COPY . /" in " ".join(commands)
    assert f"RUN python -m pip install '/tmp/{wheel.name}[text]'" in commands
    uploaded = {each.filename for request in recorder.requests("MountGetOrCreate") for each in request.files}
    assert f"/tmp/{wheel.name}" in uploaded


# What a container does, in a process of this machine: the Volume is the job's folder, and is committed to the server.
CONTAINER = """
import signal, sys
sys.path.insert(0, {folder!r})
import app
app.FOLDER, app.COMMIT_SECONDS = {folder!r}, 0.5
print("exit code", app.prepare.local())
"""
SLOW = """
import os, time

def slow(batch):
    time.sleep(0.3 if os.path.exists({token!r}) else 0)
    return batch
"""


def container(recorder: Recorder, folder: Path) -> subprocess.Popen[str]:
    code = CONTAINER.format(folder=str(folder))
    environment = recorder.environment(folder)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_preempted_container_is_resumed_by_the_next_one_and_the_bytes_are_those_of_a_local_run(recorder, tmp_path):
    token = tmp_path / "slow"
    token.touch()
    (tmp_path / "slow_stage.py").write_text(SLOW.format(token=str(token)))
    stages = ["slow_stage:slow", {"split": {"by": "user", "test": 0.3}}]
    deployed(make_job(tmp_path, stages=stages, slice_size="1kB"), "--cores", "1", "--memory", "1GB")
    first = container(recorder, tmp_path)
    output = tmp_path / "prepared"
    workshop.wait_for(lambda: workshop.ledger_rows(output) >= 2 or first.poll() is not None, 100)
    first.send_signal(signal.SIGINT)  # how Modal tells a container that it must go
    told, _ = first.communicate(timeout=60)
    assert "KeyboardInterrupt" in told
    assert not (output / "manifest.json").exists()
    kept, commits = workshop.ledger_rows(output), len(recorder.requests("VolumeCommit"))
    assert kept >= 2
    assert commits >= 1

    token.unlink()
    second = container(recorder, tmp_path)
    told, _ = second.communicate(timeout=100)
    assert "exit code 0" in told, told
    assert f"resuming an earlier run: {kept} of" in told
    assert len(recorder.requests("VolumeCommit")) > commits
    job = make_job(tmp_path, "local.yaml", stages=stages, slice_size="1kB", output="local")
    workshop.run_well(job)
    assert workshop.bytes_of(output) == workshop.bytes_of(tmp_path / "local")


def test_a_mistake_in_the_job_is_no_reason_for_another_attempt(recorder, tmp_path):
    deployed(make_job(tmp_path), "--cores", "1", "--memory", "1GB")
    (tmp_path / "data" / "rows.jsonl").write_text("no JSON\n")
    told, _ = container(recorder, tmp_path).communicate(timeout=60)
    assert "exit code 4" in told, told


def test_with_credentials_it_uploads_the_files_of_the_job_and_runs_it(recorder, tmp_path):
    job = make_job(tmp_path)
    (tmp_path / "notes.txt").write_text("not named by the job")
    command = [sys.executable, "-m", "penstock", "deploy", "modal", str(job), "-o", str(tmp_path / "app.py"), "--run"]
    done = subprocess.run(
        [*command, "--json"],
        env=recorder.environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["dollars"] > 0
    [request] = recorder.requests("VolumePutFiles")
    sent = {each.filename: each.sha256_hex for each in request.files}
    files = {"job.yaml": job, "data/rows.jsonl": tmp_path / "data" / "rows.jsonl"}
    wanted = {f"/{name}": hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert {"/" + name.lstrip("/"): digest for name, digest in sent.items()} == wanted
    [call] = recorder.requests("FunctionMap")
    assert call.function_id == "fu-1"
