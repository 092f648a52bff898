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
from penstock.base.errors import IntegrityError, OutputError
from tests.promises import workshop


@pytest.fixture(scope="module", params=["safetensors", "npy"])
def dataset(request, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flip")
    data = workshop.make_input(folder / "data", files=2, rows=20_000, group=20_000)
    workshop.run_well(workshop.write_job(folder / "job.yaml", data, format=request.param, slice_size="300kB"))
    return folder / "out"


def _flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x10]))


def _problems(path: Path) -> list[IntegrityError]:
    try:
        return list(penstock.verify(path).problems)
    except (IntegrityError, OutputError) as error:  # a flipped version number makes it another version's manifest
        return [IntegrityError(error.what, error.where)]


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
