"""Promise 7, in the loader: a flipped byte is named with file, column and block; no batch is ever made of it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock.base.errors import IntegrityError, PenstockError
from penstock.prepare.job.presets import PRESETS
from penstock.shards.columns import BLOCK, CHECKSUMS
from tests.loader import making
from tests.promises import workshop
from tests.promises.flipping import flip

ONE_SHARD = "100MB"


class Kind(NamedTuple):
    """A dataset of one shard, the columns that batches are made of, and how they are made."""

    path: Path
    options: dict[str, Any]


def prepare_all(folder: Path) -> dict[str, Kind]:
    """Columns of several blocks each, where they are a column of events."""
    pings, events = (PRESETS[name] for name in ("pings", "events"))
    stages = [*pings.stages({"test": 0})]
    others = events.stages({"by": "peer", "order": "at", "test": 0})
    arrays = making.make_arrays(3000, 4).drop_columns(["name"])
    return {
        "pings": Kind(making.prepare(folder / "pings", making.make_pings(20_000, 300, 2), stages, slice_size=ONE_SHARD),
                      {"length": 200}),
        "one_key": Kind(folder / "pings" / "out", {"length": 200, "fill": "one_key"}),
        "events": Kind(making.prepare(folder / "events", making.make_events(3000, 40, 2), others, slice_size=ONE_SHARD),
                       {"length": 100, "fields": making.FIELDS}),
        "rows": Kind(making.prepare(folder / "rows", making.make_token_rows(2000, 65, 2), [], slice_size=ONE_SHARD),
                     {}),
        "ragged": Kind(making.prepare(folder / "ragged", making.make_ragged_rows(900, 60, 2), [], slice_size=ONE_SHARD),
                       {"length": 60}),
        "arrays": Kind(making.prepare(folder / "arrays", arrays, [], slice_size=ONE_SHARD), {}),
        "raw": Kind(making.prepare(folder / "raw", making.make_records(20_000, 300, 2), [], slice_size=ONE_SHARD),
                    {"encode": "raw", "length": 64, "window": {"sliding": 50}, "nulls": ["seconds"]}),
    }  # fmt: skip


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    return prepare_all(tmp_path_factory.mktemp("kinds"))


def columns_of(shard: Path) -> Iterator[tuple[str, int, int, int]]:
    """Name, item size, and where it begins and ends in the file, of each column that has items."""
    data = shard.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name not in ("__metadata__", CHECKSUMS):
            start, stop = (8 + size + offset for offset in entry["data_offsets"])
            if stop > start:
                yield name, int(entry["dtype"][1:]) // 8 if entry["dtype"] != "BOOL" else 1, start, stop


def spots(item: int, start: int, stop: int) -> list[tuple[int, int]]:
    """(position, bits): the first, a middle and the last byte, and the highest bits of items, which lead far away."""
    chance = random.Random(start)
    middle = start + (stop - start) // item // 2 * item
    found = [
        (start, 0x01),
        (start + item - 1, 0x80),
        (start + item - 1, 0x20),
        (middle + item - 1, 0x40),
        (stop - 1, 0x80),
    ]
    return found + [(chance.randrange(start, stop), 1 << chance.randrange(8)) for _ in range(8 * workshop.THOROUGH)]


def told_of(
    kind: Kind, flips: list[tuple[str, int, int]], garbage: list[tuple[str, int, int, str]] = (), **options: Any
) -> list[dict[str, Any]]:
    job = {"path": str(kind.path), "options": {**kind.options, **options}, "flips": flips, "garbage": garbage}
    done = subprocess.run(
        [sys.executable, "-m", "tests.promises.flipping"],
        input=json.dumps(job),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    places = [*flips, *garbage, "the end"]
    assert done.returncode == 0, f"{done.stderr}\nat {places[len(told) - 1] if told else 'the start'}"
    return told


def copy_of(kind: Kind, folder: Path) -> tuple[Kind, Path]:
    shutil.copytree(kind.path, folder / "copy")
    (shard,) = (folder / "copy" / "train").iterdir()
    return kind._replace(path=folder / "copy"), shard


KINDS = ("pings", "one_key", "events", "rows", "ragged", "arrays", "raw")
CASES = [
    *((name, {"workers": 2}) for name in KINDS),
    *((name, {"workers": 0, "cache": "disk"}) for name in (KINDS if workshop.THOROUGH else ("pings", "rows"))),
    *((name, {"cache": "memory"}) for name in (KINDS if workshop.THOROUGH else ("pings", "rows"))),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_flipped_byte_in_any_column_is_named_and_never_in_a_batch(kinds, tmp_path, name, options):
    kind, shard = copy_of(kinds[name], tmp_path)
    file = f"train/{shard.name}"
    places = [
        (column, (position - start) // BLOCK, (file, position, bits))
        for column, item, start, stop in columns_of(shard)
        for position, bits in spots(item, start, stop)
    ]
    expected, *told = told_of(kind, [place for *_, place in places], **options)
    refused = {column: 0 for column, *_ in places}
    for (column, block, place), outcome in zip(places, told, strict=True):
        if "refused" in outcome:
            assert file in outcome["refused"], (column, place, outcome)
            assert f"{column!r}" in outcome["refused"] or column in outcome["refused"], (column, place, outcome)
            assert f"block {block}" in outcome["refused"], (column, place, outcome)
            refused[column] += 1
        else:  # no batch of the epoch is made of that block
            assert outcome["found"] == expected["expected"], (column, place)
    assert all(refused.values()), refused


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["pings", "one_key", "events", "arrays", "rows", "ragged", "raw"])
def test_columns_of_garbage_are_refused_and_crash_nothing(kinds, tmp_path, name):
    """Kernels read blocks before they are known to be intact: whatever is in them must not lead astray."""
    kind, shard = copy_of(kinds[name], tmp_path)
    garbage = [
        (f"train/{shard.name}", start, stop, pattern)
        for _, item, start, stop in columns_of(shard)
        for pattern in ("", "ff", "00" * (item - 1) + "80", "ff" * (item - 1) + "7f")
    ]
    (*_, (_, _, last, _)) = garbage
    garbage.append((f"train/{shard.name}", min(start for _, start, *_ in garbage), last, ""))
    _, *told = told_of(kind, [], garbage, workers=1)
    assert [outcome for outcome in told if "refused" not in outcome] == []


def test_a_truncated_shard_is_refused_when_it_is_loaded(kinds, tmp_path):
    kind, shard = copy_of(kinds["pings"], tmp_path)
    whole = shard.read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        shard.write_bytes(whole[:size])
        with pytest.raises(IntegrityError) as refused:
            penstock.load(kind.path, batch_size=8, **kind.options)
        assert shard.name in str(refused.value)
    shard.write_bytes(whole)
    penstock.load(kind.path, batch_size=8, **kind.options).close()


def test_a_shard_of_another_dataset_is_refused_when_it_is_loaded(kinds, tmp_path):
    kind, shard = copy_of(kinds["pings"], tmp_path)
    shutil.copy(next((kinds["events"].path / "train").iterdir()), shard)
    with pytest.raises(IntegrityError, match=shard.name):
        penstock.load(kind.path, batch_size=8, **kind.options)


def test_a_flipped_byte_in_a_header_or_manifest_is_refused_when_it_is_loaded(kinds, tmp_path):
    kind, shard = copy_of(kinds["rows"], tmp_path)
    header = 8 + int.from_bytes(shard.read_bytes()[:8], "little")
    for path, position in ((shard, 0), (shard, 9), (shard, header + 3), (kind.path / "manifest.json", 300)):
        flip(path, position, 0x04)
        with pytest.raises(PenstockError) as refused:
            penstock.load(kind.path, batch_size=8, **kind.options)
        assert path.name in str(refused.value)
        flip(path, position, 0x04)


def test_other_batches_are_still_made(kinds, tmp_path):
    """The damage is told at the batch that draws it; a consumer may go on behind it."""
    kind, shard = copy_of(kinds["rows"], tmp_path)
    start = next(start for column, _, start, _ in columns_of(shard) if column == "tokens")
    with penstock.load(kind.path, batch_size=4, workers=0) as loader:
        expected = {k: making.hash_of(loader.batch(k)) for k in range(60)}
    flip(shard, start + 2 * BLOCK + 5, 0x10)
    made = 0
    with penstock.load(kind.path, batch_size=4, workers=0) as loader:
        for k, wanted in expected.items():
            try:
                assert making.hash_of(loader.batch(k)) == wanted
                made += 1
            except IntegrityError as error:
                assert "block 2" in str(error)
    assert 0 < made < 60
