"""Slurm: a real cluster of one machine, of Debian's packages, unpacked beside the test and never installed.

munged, slurmctld and slurmd are processes of the test. Their files, sockets and logs lie in one short folder, since a
socket's path may have 107 characters.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PLUGINS = f"{LIBRARIES}/slurm-wlm"
CREDENTIAL_SECONDS = 5  # a requeued job may not start again before its credential has expired; Slurm's default is 120
CONFIG = """\
ClusterName=penstock
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={credential_seconds}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=10
NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes=node Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster: commands of Slurm reach it, and nothing else of this machine does."""

    folder: Path
    programs: Path
    environment: dict[str, str]

    def command(self, name: str, *arguments: str, check: bool = True) -> str:
        done = self.tried(name, *arguments)
        assert not check or done.returncode == 0, f"{name} {arguments}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout.strip()

    def tried(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = self.programs / "usr/bin" / name
        return subprocess.run(
            [path, *arguments], env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def submit(self, script: Path, *options: str) -> str:
        """The id of the array job that a script becomes. Its logs lie beside the script."""
        return self.command("sbatch", "--parsable", f"--chdir={script.parent}", *options, str(script))

    def states(self, job: str) -> dict[str, str]:
        """State of each element of an array job that Slurm still knows, by index."""
        lines = self.command("scontrol", "show", "job", "--oneliner", job, check=False).splitlines()
        found = [(re.search(r"ArrayTaskId=(\S+)", line), re.search(r"JobState=(\w+)", line)) for line in lines]
        return {index[1]: state[1] for index, state in found if index and state}

    def restarts(self, job: str, element: str) -> int:
        """How often an element was requeued."""
        line = self.command("scontrol", "show", "job", "--oneliner", f"{job}_{element}")
        found = re.search(r"Restarts=(\d+)", line)
        assert found, line
        return int(found[1])

    def wait_until(self, job: str, *states: str, element: str | None = None, seconds: float = 300) -> None:
        """Wait until every element, or that one, is in one of the states."""
        deadline = time.monotonic() + seconds
        while True:
            now = self.states(job)
            looked_at = [now.get(element, "")] if element else list(now.values())
            if looked_at and all(state in states for state in looked_at):
                return
            assert time.monotonic() < deadline, f"job {job} after {seconds} s: {now}\n{self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            parts += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-30:]]
        return "\n".join(parts)


@contextmanager
def slurm_cluster(cores: int = 8, memory_mb: int = 16_000) -> Iterator[Cluster]:
    """A cluster of one node that claims to have these cores and this memory. Its jobs end with the block."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    try:
        programs = _unpacked(folder / "programs")
        with ExitStack() as stack:
            yield _started(stack, folder, programs, cores, memory_mb)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpacked(folder: Path) -> Path:
    """Debian's packages as files. Where there is no Debian or no way to its packages, the test is skipped."""
    missing = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    if missing or os.uname().machine != "x86_64":
        pytest.skip(f"Slurm's packages cannot be unpacked here: no {' and no '.join(missing) or 'x86_64'}")
    archives = folder.parent / "archives"
    archives.mkdir()
    if not _downloaded(archives):
        subprocess.run(["apt-get", "update"], capture_output=True, timeout=300, check=False)
        if not _downloaded(archives):
            pytest.skip("Slurm's packages cannot be downloaded here (`apt-get download slurmctld` fails)")
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    return folder


def _downloaded(folder: Path) -> bool:
    done = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, timeout=300, check=False)
    return done.returncode == 0


def _started(stack: ExitStack, folder: Path, programs: Path, cores: int, memory_mb: int) -> Cluster:
    for name in ("state", "spool"):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    host = socket.gethostname().split(".")[0]
    plugins = programs / PLUGINS
    facts = {"host": host, "user": getpass.getuser(), "plugins": plugins, "ports": _free_ports(2)}
    config = folder / "slurm.conf"
    config.write_text(
        CONFIG.format(folder=folder, cores=cores, memory=memory_mb, credential_seconds=CREDENTIAL_SECONDS, **facts)
    )
    cluster = Cluster(
        folder,
        programs,
        {
            **os.environ,
            "SLURM_CONF": str(config),
            "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
            "LD_LIBRARY_PATH": f"{programs / LIBRARIES}:{plugins}",
            "PATH": f"{programs / 'usr/bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    daemons = {
        "munged": _munged(folder),
        "slurmctld-wlm": ["-D", "-i"],
        "slurmd-wlm": ["-D", "-N", "node", "-d", str(programs / "usr/sbin/slurmstepd-wlm")],
    }
    for name, arguments in daemons.items():
        stack.enter_context(_daemon(cluster, name, arguments))
        if name == "munged":
            _wait_for(cluster, "munged", lambda: (folder / "munge.socket").exists())
    _wait_for(cluster, "the node", lambda: cluster.tried("sinfo", "-h", "-o", "%t").stdout.strip() == "idle")
    stack.callback(_end_jobs, cluster)
    return cluster


def _munged(folder: Path) -> list[str]:
    """Its options. --force: a folder of /tmp is not the place where munged would have its files."""
    places = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid", "seed-file": "munge.seed"}
    places["log-file"] = "munged.log"
    return ["--foreground", "--force", *(f"--{name}={folder / place}" for name, place in places.items())]


@contextmanager
def _daemon(cluster: Cluster, name: str, arguments: list[str]) -> Iterator[None]:
    with open(cluster.folder / f"{name}.out.log", "w") as log:
        process = subprocess.Popen(
            [cluster.programs / "usr/sbin" / name, *arguments],
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _end_jobs(cluster: Cluster) -> None:
    """Cancel what still runs: jobs are children of their own slurmstepd, and would outlive the cluster."""
    cluster.tried("scancel", f"--user={getpass.getuser()}")
    deadline = time.monotonic() + 30
    while cluster.tried("squeue", "-h").stdout.strip() and time.monotonic() < deadline:
        time.sleep(0.2)


def _wait_for(cluster: Cluster, what: str, ready: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not start within {seconds} s\n{cluster.logs()}")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
