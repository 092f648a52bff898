"""Promise 7: a flipped byte is named with file and block, never silent; foreign and mixed-up files are refused."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import IntegrityError, Interrupted, OutputError
from penstock.base.faults import CRASH_VARIABLE
from tests.promises import workshop


@pytest.fixture(scope="module", params=["safetensors", "npy"])
def dataset(request, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flip")
    data = workshop.make_input(folder / "data", files=2, rows=12_000, group=12_000)
    penstock.run(workshop.write_job(folder / "job.yaml", data, format=request.param, slice_size="300kB"))
    return folder / "out"


def _flip(path: Path, position: int, bits: int = 0x10) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ bits]))


def _problems(path: Path) -> list[IntegrityError]:
    try:
        return list(penstock.verify(path).problems)
    except (IntegrityError, OutputError) as error:  # a flipped version number makes it another version's manifest
        return [IntegrityError(error.what, error.where)]


@pytest.mark.core
def test_a_flipped_byte_in_any_file_is_found_by_verify_and_named(dataset, tmp_path):
    chance = random.Random(3)
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    files = [path for path in copy.rglob("*") if path.is_file() and ".penstock" not in path.parts]
    for path in files:
        size = path.stat().st_size
        spots = {0, 7, 8, size // 2, size - 1} | {chance.randrange(size) for _ in range(40 if workshop.THOROUGH else 8)}
        for position in sorted(spots):
            _flip(path, position)
            problems = _problems(copy)
            assert len(problems) == 1, f"{path.name} byte {position}: {problems}"
            told = f"{problems[0].what} {problems[0].where}"
            assert path.name in told, f"{path.name} byte {position}: {told}"
            assert "block" in told
            _flip(path, position)
    assert penstock.verify(copy).ok


def test_reading_a_damaged_record_raises_and_others_are_still_read(dataset, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    shard = max((copy / "train").iterdir(), key=lambda path: path.stat().st_size)
    _flip(shard, shard.stat().st_size // 2)
    data = penstock.open(copy)
    outcomes = {"read": 0, "refused": 0}
    for index in range(0, len(data), 97):
        try:
            data[index]
            outcomes["read"] += 1
        except IntegrityError as error:
            assert shard.name in str(error)
            outcomes["refused"] += 1
    assert outcomes["read"] > 0
    assert outcomes["refused"] > 0


def test_the_command_names_the_damage_and_exits_with_6(dataset, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    shard = sorted((copy / "train").iterdir())[0]
    _flip(shard, shard.stat().st_size - 1)
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "verify", str(copy), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 6
    assert shard.name in json.dumps(json.loads(done.stdout))


def test_a_truncated_swapped_missing_or_foreign_file_is_refused_by_name(dataset, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    first, second = sorted(path for path in (copy / "train").iterdir())[:2]
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    assert first.name in str(_problems(copy)[0])
    first.write_bytes(second.read_bytes())
    assert any(first.name in str(problem) for problem in _problems(copy))
    first.unlink()
    assert first.name in str(_problems(copy)[0])
    first.write_bytes(whole)
    (copy / "train" / "foreign.bin").write_bytes(b"x")
    assert [problem for problem in _problems(copy) if "foreign.bin" in str(problem)]


# Of a job with an exchange: what lies on disk between its passes, and the one file a split of another format.


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A job that died when all its spills were written and one bucket was done, and what it would have written."""
    folder = tmp_path_factory.mktemp("scattered")
    data = workshop.make_event_input(folder / "data", files=2, rows=1500)
    penstock.run(workshop.write_events_job(folder / "clean" / "job.yaml", data, workers=0))
    job = workshop.write_events_job(folder / "job" / "job.yaml", data, workers=0)
    spills = len(
        [path for path in (folder / "clean" / "out" / ".penstock" / "tasks").iterdir() if "scatter" in path.name]
    )
    plan = penstock.plan(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.prepare.engines.inline.execute", _stopping_after(spills + 1))
        with pytest.raises(Interrupted):
            penstock.run(plan)
    assert len(list((job.parent / "out" / ".penstock" / "spill").glob("*.spill"))) == spills
    return job, workshop.bytes_of(folder / "clean" / "out")


def _stopping_after(tasks: int):
    from penstock.prepare.engines.task import execute

    done = []

    def stopping(*arguments):
        if len(done) == tasks:
            raise KeyboardInterrupt
        done.append(execute(*arguments))
        return done[-1]

    return stopping


def _spots(path: Path) -> list[tuple[int, int]]:
    """(byte, bits to flip) in every region: chunks, the index, and the lowest bit of where some buckets' chunks start.

    That last one hands a chunk to the bucket next to it, and no count would differ. A thorough run has more of each.
    """
    size = path.stat().st_size
    chance = random.Random(5)
    more = 4 if workshop.THOROUGH else 1
    anywhere = {0, size // 3, size - 1, size - 12, size - 20, *(size - chance.randrange(24, 400) for _ in range(more))}
    buckets = range(2, 8) if workshop.THOROUGH else (2, 7)
    return [(position, 0x10) for position in sorted(anywhere)] + [(size - 24 - 8 * n, 1) for n in buckets]


@pytest.mark.thorough
def test_a_flipped_byte_in_a_spill_is_named_or_its_task_is_redone(scattered, tmp_path):
    job, expected = scattered
    names = sorted(path.name for path in (job.parent / "out" / ".penstock" / "spill").iterdir())
    silent, unclear, named = [], [], 0
    for number, (position, bits) in enumerate(_spots(job.parent / "out" / ".penstock" / "spill" / names[0])):
        copy = tmp_path / str(number)
        shutil.copytree(job.parent / "out", copy / "out")
        shutil.copyfile(job, copy / "job.yaml")
        _flip(copy / "out" / ".penstock" / "spill" / names[0], position, bits)
        try:
            penstock.run(copy / "job.yaml")
            if workshop.bytes_of(copy / "out") != expected:
                silent.append(position)
        except IntegrityError as error:
            assert names[0] in str(error), f"byte {position}"
            assert not (copy / "out" / "manifest.json").exists()
            named += 1
            (copy / "out" / ".penstock" / "spill" / names[0]).unlink()  # as the error says
            penstock.run(copy / "job.yaml")
            assert workshop.bytes_of(copy / "out") == expected, f"byte {position}: another output after the repair"
        except Exception as error:  # the test is that there is none
            unclear.append((position, repr(error)[:100]))
    assert (silent, unclear) == ([], [])
    assert named > 0


def test_a_spill_that_is_lost_or_cut_short_is_written_again(scattered, tmp_path):
    job, expected = scattered
    for number, damage in enumerate(
        (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-7]))
    ):
        copy = tmp_path / str(number)
        shutil.copytree(job.parent / "out", copy / "out")
        shutil.copyfile(job, copy / "job.yaml")
        damage(sorted((copy / "out" / ".penstock" / "spill").iterdir())[1])
        penstock.run(copy / "job.yaml")
        assert workshop.bytes_of(copy / "out") == expected


def test_a_flipped_byte_in_an_arrayrecord_file_is_found_by_verify_and_named(tmp_path):
    data = workshop.make_event_input(tmp_path / "data", files=1)
    penstock.run(workshop.write_events_job(tmp_path / "job.yaml", data, format="arrayrecord", workers=0))
    chance = random.Random(9)
    for path in (tmp_path / "out" / "train.arrayrecord", tmp_path / "out" / "test.arrayrecord"):
        size = path.stat().st_size
        for position in (0, size - 1, *(chance.randrange(size) for _ in range(40 if workshop.THOROUGH else 10))):
            _flip(path, position)
            problems = _problems(tmp_path / "out")
            assert len(problems) == 1, f"{path.name} byte {position}: {problems}"
            assert path.name in str(problems[0]), f"{path.name} byte {position}"
            _flip(path, position)
        whole = path.read_bytes()
        path.write_bytes(whole[:-100])
        assert path.name in str(_problems(tmp_path / "out")[0])
        path.write_bytes(whole)
    assert penstock.verify(tmp_path / "out").ok


@pytest.mark.thorough
def test_a_flipped_byte_in_a_part_of_an_arrayrecord_file_is_named(tmp_path):
    """A part waits from its task until the merge; damage in between must not become a file with good checksums."""
    data = workshop.make_event_input(tmp_path / "data", files=1)
    job = workshop.write_events_job(tmp_path / "job.yaml", data, format="arrayrecord", workers=0)
    token = tmp_path / "token"
    token.touch()
    workshop.run(job, environment={CRASH_VARIABLE: f"run.before_clean_up:{token}"})
    part = max((tmp_path / "out" / ".penstock" / "parts" / "train").iterdir(), key=lambda path: path.stat().st_size)
    _flip(part, part.stat().st_size // 2)
    done = workshop.run(job)
    if done.returncode:
        assert done.returncode == 6, done.stderr
        assert part.name in json.dumps(json.loads(done.stdout))
        part.unlink()
        penstock.run(job)
    fresh = workshop.write_events_job(tmp_path / "fresh" / "job.yaml", data, format="arrayrecord", workers=0)
    penstock.run(fresh)
    assert workshop.bytes_of(tmp_path / "out") == workshop.bytes_of(fresh.parent / "out")
