"""The disk that workers share is full: each ends with that error, the watcher names it and waits, and when there is
room again, workers write the bytes of one machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.promises import members, workshop
from tests.promises.killing import assert_no_leftovers

FILLER = """
from pathlib import Path

HERE = Path(__file__).parent
ROOM = HERE / "room"  # bytes to leave, as text; without this file, there is room for all

def fill(batch):
    \"\"\"Someone else's file takes the disk while a worker is in the middle of a task.\"\"\"
    if ROOM.exists() and (HERE / "small" / "out" / ".penstock" / "tasks").exists():
        with open(HERE / "small" / "filler", "ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                file.truncate(max(0, file.tell() - int(ROOM.read_text())))
    return batch
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which machines that start later see too."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(folder)]
    if (mounted := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.proof
@pytest.mark.parametrize("room", [20_000, pytest.param(0, marks=pytest.mark.thorough)])
def test_a_full_disk_ends_workers_and_the_watcher_says_so_and_waits_for_others(small, tmp_path, room):
    (tmp_path / "mine.py").write_text(FILLER)
    data = workshop.make_input(tmp_path / "data", files=4, rows=40_000, group=10_000)
    common = {"stages": [*workshop.STAGES, "mine:fill"], "slice_size": "150kB"}
    plain = workshop.write_job(tmp_path / "plain.yaml", data, **common, output="plain")
    penstock.run(plain, progress=False)
    engine = {"workers": {"lease": members.LEASE}}
    job = workshop.write_job(tmp_path / "job.yaml", data, **common, output=str(small / "out"), engine=engine)
    with members.machines(2) as machines, Watching(job, tmp_path / "said") as watching:
        machines[0].begin(small / "out")
        workshop.wait_for(lambda: workshop.ledger_rows(small / "out"))
        (tmp_path / "room").write_text(str(room))
        machines[1].begin(small / "out")
        for machine in machines:
            code, said = machine.end()
            assert code in (3, 8), said
            assert "No space left on device" in said or "is free" in said, said
        watching.until("No space left on device (ENOSPC)" if room else "")
        watching.until("no worker is at work, and the run waits" if room else "")
        if room:
            assert watching.process.poll() is None, watching.said
            assert f"penstock work {small / 'out'}" in watching.said
        assert not (small / "out" / "manifest.json").exists()
        (tmp_path / "room").unlink()
        (small / "filler").unlink()
        watching.again()
        for machine in machines:
            machine.begin(small / "out")
        for machine in machines:
            assert machine.end() == (0, "")
        assert watching.process.wait(60) == 0, watching.said
    assert workshop.bytes_of(small / "out") == workshop.bytes_of(tmp_path / "plain")
    assert_no_leftovers(small / "out")


class Watching:
    """`penstock run` with engine: workers. It says what happens into a file on another disk."""

    def __init__(self, job: Path, file: Path) -> None:
        self._job, self._file = job, file
        self._plan = job.parent / "small" / "out" / ".penstock" / "plan.json"

    def __enter__(self) -> Watching:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _begin(self) -> None:
        with open(self._file, "ab") as into:
            self.process = subprocess.Popen(workshop.command(self._job), stdout=into, stderr=into)
        workshop.wait_for(lambda: self._plan.exists() or self.process.poll() is not None)

    def again(self) -> None:
        """Begin it again if it has met the full disk itself, and ended with that error."""
        if self.process.poll() is not None:
            assert self.process.returncode == 8, self.said
            assert "No space left on device" in self.said
            self._begin()

    @property
    def said(self) -> str:
        return self._file.read_text()

    def until(self, words: str) -> None:
        workshop.wait_for(lambda: words in self.said)
