"""What is in the arrays: every bit as it was given, groups in one split each, statistics of the training rows alone."""

from __future__ import annotations

import json
import math
import tempfile
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.errors import PenstockError
from penstock.base.stores import open_store
from penstock.prepare.samples.groups import prove_apart
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import ShardFacts
from tests.promises import arrays_making, workshop

# Quiet and signalling NaNs with payloads, infinities, zeros of both signs, the smallest and the largest numbers.
BITS = [0x7FC00000, 0xFFC0BEEF, 0x7FC0DEAD, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000, 0x00000000]
BITS += [0x00000001, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF]


@pytest.mark.parametrize("keys", [{}, {"merge_strategy": "accumulative"}, {"on_bad_input": "set_aside"}], ids=str)
def test_nan_infinities_zeros_labels_of_minus_one_and_empty_masks_are_preserved_bit_for_bit(tmp_path, keys):
    game = {"count": 20, "width": len(BITS), "do": "is_raw", "at": 11, "bits": BITS}
    data = arrays_making.write_games(tmp_path / "games", {**game}, {**game, "at": 0}, {**game, "at": 20})
    penstock.run(arrays_making.write_job(tmp_path / "job.yaml", data, stages=[], **keys))
    output = tmp_path / "out"
    features = np.load(output / "X_train.npy")
    rows = [11, 21, 62]
    assert features.dtype == np.dtype("f4")
    assert features.view("u4")[rows].tolist() == [BITS] * 3
    assert np.load(output / "labels_action_train.npy")[rows].tolist() == [-1] * 3
    assert not np.load(output / "masks_action_train.npy")[rows].any()
    assert not np.load(output / "masks_target_train.npy").any()  # of every sample
    with np.load(output / "labels_train.npz") as labels, np.load(output / "masks_train.npz") as masks:
        assert labels["action"][rows].tolist() == [-1] * 3
        assert masks["action"].shape == (63, 4)
    others = [row for row in range(63) if row not in rows]
    expected = [each["features"] for seed in range(3) for each in arrays_making.samples_of({**game, "seed": seed})]
    assert np.array_equal(features[others], expected)


@pytest.mark.parametrize("way", ["direct", "parts"])
def test_bits_of_batch_files_are_preserved_too(tmp_path, way):
    (tmp_path / "in").mkdir()
    features = np.array([BITS, BITS[::-1]], "u4").view("f4")
    labels = np.array([-1, 7], "i2")
    masks = np.zeros((2, 3), "i1")
    np.savez(tmp_path / "in" / "a.npz", strategic_features=features, labels_a=labels, masks_a=masks)
    keys = {"on_bad_input": "set_aside"} if way == "parts" else {}
    source = {"npz": str(tmp_path / "in")}
    penstock.run(arrays_making.write_job(tmp_path / "job.yaml", tmp_path / "in", input=source, stages=[], **keys))
    assert np.load(tmp_path / "out" / "X_train.npy").tobytes() == features.tobytes()
    assert np.load(tmp_path / "out" / "labels_a_train.npy").tobytes() == labels.tobytes()
    assert np.load(tmp_path / "out" / "masks_a_train.npy").tobytes() == masks.tobytes()


# Groups.

GROUPED = """
import json

import numpy as np


def samples(path):
    kind, values = json.loads(path.read_text())
    for number, value in enumerate(values):
        yield {"number": number, "group": np.uint64(value).view("f8") if kind == "floats" else value}
"""
NANS = [0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0001, 0xFFF8_DEAD_0000_BEEF]
_BITS_OF = st.floats(width=64).map(lambda value: int(np.float64(value).view("u8")))
GROUPS = {
    "texts": st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    "whole": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "floats": st.sampled_from([0, 1 << 63, *NANS]) | _BITS_OF,
    "bools": st.booleans(),
}
_columns = st.sampled_from(sorted(GROUPS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.lists(GROUPS[kind], max_size=8), min_size=1, max_size=4))
)


@settings(max_examples=60 if workshop.THOROUGH else 6, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(column=_columns)
@example(column=("floats", [[0, 1 << 63], [1 << 63, *NANS], NANS]))
@example(column=("texts", [["", "null", "None"], ["'", "\0", "a\0", "\\x00"], [""]]))
def test_no_group_is_in_two_splits_and_the_proof_counts_those_that_are_there(column):
    kind, files = column
    if not any(files):
        return
    with tempfile.TemporaryDirectory() as folder:
        output = _grouped_run(Path(folder), kind, files)
        found = {split: _groups(output, kind, split) for split in ("train", "val", "test")}
        proof = json.loads((output / "artifacts" / "split.json").read_text())
    assert sum(len(groups) for groups, _ in found.values()) == len(
        set().union(*(groups for groups, _ in found.values()))
    )
    assert sum(rows for _, rows in found.values()) == sum(map(len, files))
    assert proof["groups"] == {split: len(groups) for split, (groups, _) in found.items()}
    assert (proof["by"], proof["groups_in_two_splits"]) == (["group"], 0)


def _grouped_run(folder: Path, kind: str, files: list[list[Any]]) -> Path:
    (folder / "in").mkdir()
    for number, values in enumerate(files):
        (folder / "in" / f"{number}.json").write_text(json.dumps([kind, values]))
    stages = [{"split": {"by": "group", "val": 0.3, "test": 0.3}}]
    types = {"texts": "string", "whole": "int64", "floats": "float64", "bools": "bool"}
    source = {"files": str(folder / "in"), "function": "grouped:samples"}
    source |= {"schema": {"number": "int32", "group": types[kind]}}
    job = arrays_making.write_job(folder / "job.yaml", folder / "in", stages=stages, input=source)
    (folder / "grouped.py").write_text(GROUPED)
    penstock.run(job)
    return folder / "out"


def _groups(output: Path, kind: str, split: str) -> tuple[set[Any], int]:
    """What plain Python holds for equal is one group; all NaN are one."""
    if kind == "texts":
        values: list[Any] = arrays_making.texts_of(output, "group", split)
    else:
        values = np.load(output / f"group_{split}.npy").tolist()
    return {"nan" if isinstance(value, float) and math.isnan(value) else value for value in values}, len(values)


def test_the_proof_fails_when_a_group_is_in_two_splits(tmp_path):
    """Parts of two runs whose splits are called alike, but decided otherwise: a check that cannot fail is none."""
    games = [{"count": 3, "seed": seed} for seed in range(7)]
    data = arrays_making.write_games(tmp_path / "games", *games)
    parts = {}
    for name, share in {"few": 0.2, "many": 0.8}.items():
        stages = [{"split": {"by": "game_id", "test": share}}]
        job = arrays_making.write_job(tmp_path / name / "job.yaml", data, stages=stages)
        plan = penstock.plan(job)
        _run_without_placing(plan)
        parts[name] = _ledger_parts(tmp_path / name / "out")
        proof = prove_apart(open_store(str(tmp_path / name / "out")), ("train", "test"), ["game_id"], parts[name])
        assert sum(proof["groups"].values()) == 7
    mixed = tmp_path / "mixed" / ".penstock"
    for name in parts:
        for file in (tmp_path / name / "out" / ".penstock" / "parts").rglob("*"):
            if file.is_file():
                target = mixed / "parts" / name / file.relative_to(tmp_path / name / "out" / ".penstock" / "parts")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    every = tuple(
        {split: _moved(shard, name) for split, shard in part.items()} for name in parts for part in parts[name]
    )
    with pytest.raises(PenstockError, match="groups are in more than one split"):
        prove_apart(open_store(str(tmp_path / "mixed")), ("train", "test"), ["game_id"], every)


def _run_without_placing(plan: Any) -> None:
    """Up to the parts: the placing fails, since the disk does."""
    from penstock.base.faults import Sweep, sweeping

    class AtPlacing(Sweep):
        @property
        def fail_at(self) -> int:
            placing = [number for number, (_, path) in enumerate(self.operations) if "/placing" in path]
            return placing[0] if placing else -1

        @fail_at.setter
        def fail_at(self, value: int) -> None:
            pass

    with pytest.raises(PenstockError), sweeping(AtPlacing(error=5)):
        penstock.run(plan)


def _ledger_parts(output: Path) -> tuple[dict[str, ShardFacts], ...]:
    from penstock.prepare.ledger import read_rows

    rows = read_rows(open_store(str(output)))
    return tuple(rows[name].shards for name in sorted(rows) if name.startswith("0-map"))


def _moved(shard: ShardFacts, name: str) -> ShardFacts:
    files = tuple(
        FileFacts(each.file.replace("/parts/", f"/parts/{name}/"), each.bytes, each.digest) for each in shard.files
    )
    return ShardFacts(shard.name, shard.records, files)


# Statistics.


def test_normalising_numbers_far_from_zero_agrees_with_exact_arithmetic_over_training_rows(tmp_path):
    """Mean 1e4, range 1e-2, in float32, where naive sums lose everything."""
    (tmp_path / "in").mkdir()
    chance = np.random.default_rng(3)
    for number in range(9):
        near = (1e4 + chance.uniform(-5e-3, 5e-3, (300, 4))).astype("f4")
        near[:, 3] = 7
        np.savez(tmp_path / "in" / f"{number}.npz", features=near, game=np.full(300, number, "i4"))
    stages = [{"split": {"by": "game", "test": 0.4}}, {"normalize": {"columns": ["features"], "skip": ["0:1"]}}]
    source = {"npz": str(tmp_path / "in")}
    keys = {"input": source, "slice_size": "5kB"}
    penstock.run(arrays_making.write_job(tmp_path / "raw" / "job.yaml", tmp_path, stages=stages[:1], **keys))
    seen = []
    for batch_bytes in (3000, 8_000_000):
        job = arrays_making.write_job(tmp_path / str(batch_bytes) / "job.yaml", tmp_path, stages=stages, **keys)
        penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes))
        seen.append(workshop.bytes_of(job.parent / "out"))
    assert seen[0] == seen[1]
    output, raw = job.parent / "out", tmp_path / "raw" / "out"
    assert 0 < len(np.load(raw / "X_test.npy")) < 2700
    found = json.loads((output / "artifacts" / "normalize.json").read_text())["features"]
    for element in range(4):
        mean, deviation = _exactly(np.load(raw / "X_train.npy")[:, element])
        assert abs(Decimal(found["mean"][element]) - mean) <= Decimal("1e-11") * mean
        assert abs(Decimal(found["std"][element]) - deviation) <= Decimal("1e-10") * max(deviation, Decimal("1e-9"))
        for split in ("train", "test"):
            values = np.load(raw / f"X_{split}.npy")[:, element]
            written = np.load(output / f"X_{split}.npy")[:, element]
            if element == 0:
                assert np.array_equal(written, values)
            elif element == 3:
                assert not written.any()
            else:
                expected = [float((Decimal(float(value)) - mean) / deviation) for value in values]
                np.testing.assert_allclose(written, np.array(expected, "f4"), rtol=3e-7, atol=1e-7)


def _exactly(values: Any) -> tuple[Decimal, Decimal]:
    with localcontext() as context:
        context.prec = 60
        exact = [Decimal(float(value)) for value in values]
        mean = sum(exact) / len(exact)
        return mean, (sum((each - mean) ** 2 for each in exact) / len(exact)).sqrt()


@pytest.mark.thorough
def test_rows_of_other_splits_do_not_move_the_statistics(tmp_path):
    """The same training games, and other games elsewhere."""
    found = []
    for shift in (0.0, 1e6):
        folder = tmp_path / str(shift)
        (folder / "in").mkdir(parents=True)
        for number in range(8):
            features = np.random.default_rng(number).normal(0, 1, (50, 3)).astype("f4")
            is_train = _is_train(number, tmp_path)
            np.savez(
                folder / "in" / f"{number}.npz",
                features=features if is_train else features + np.float32(shift),
                game=np.full(50, number, "i4"),
            )
        stages = [{"split": {"by": "game", "test": 0.5}}, {"normalize": ["features"]}]
        keys = {"input": {"npz": str(folder / "in")}, "stages": stages}
        penstock.run(arrays_making.write_job(folder / "job.yaml", folder, **keys))
        found.append((folder / "out" / "artifacts" / "normalize.json").read_text())
        assert len(np.load(folder / "out" / "X_test.npy")) > 0
    assert found[0] == found[1]


def _is_train(game: int, folder: Path) -> bool:
    """As a job with that game alone has it."""
    here = folder / f"alone-{game}"
    if not here.exists():
        (here / "in").mkdir(parents=True)
        np.savez(here / "in" / "0.npz", features=np.zeros((1, 3), "f4"), game=np.full(1, game, "i4"))
        stages = [{"split": {"by": "game", "test": 0.5}}]
        penstock.run(arrays_making.write_job(here / "job.yaml", here, input={"npz": str(here / "in")}, stages=stages))
    return len(np.load(here / "out" / "X_train.npy")) == 1
