"""Placing: parts become the dataset's files; scaled on the way, one by one or all at once, the bytes are the same."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import IntegrityError
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Task
from penstock.prepare.passes.arrays.moving import Changes
from penstock.prepare.passes.arrays.parts import PartsInto, lay_out_parts
from penstock.prepare.passes.arrays.placing import Part, PlaceWork
from penstock.prepare.passes.folds.sink import PARTS
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.normalize import Normalize, Scale
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import EDGES, columns_of, finish_column, finish_split
from penstock.shards.schema import schema_from_arrow

SETTINGS = Settings(0, 1 << 20, 0, 64.0, 64.0)
SPLITS = ("train", "test")
ARROW = pa.schema({"features": pa.list_(pa.float64(), 3), "labels_move": pa.int16(), "game": pa.string()})
SCHEMA = schema_from_arrow(ARROW, "a test")
SCALED = schema_from_arrow(ARROW.set(0, pa.field("features", pa.list_(pa.float32(), 3))), "a test")
SCALE = Scale(
    normalize=Normalize(columns=("features",)),
    artifact={"features": {"mean": [1.0, -2.0, 0.0], "std": [2.0, 0.5, 0.0], "shape": [3]}},
)


def rows_of(first: int, count: int) -> Rows:
    numbers = np.arange(first, first + count)
    features = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 3) / 7), 3)
    arrays = [features.cast(ARROW.field(0).type), pa.array(-numbers % 100, pa.int16())]
    arrays.append(pa.array([f"game {number % 11}" * (number % 3) for number in numbers], pa.string()))
    batch = pa.record_batch(arrays, schema=ARROW)
    return Rows(batch, 0, ("f",), numbers, (numbers % 5 == 0).astype("u1"))


def unseen(rows: int, place: str = "") -> None:
    """Progress that nobody watches."""


def put_down(folder: Store, counts: list[int]) -> tuple[dict[str, ShardFacts], ...]:
    """A part a count, written in batches of up to four."""
    into, parts, first = PartsInto(SCHEMA, SPLITS, len(counts), ()), [], 0
    for number, count in enumerate(counts):
        with ExitStack() as stack:
            sink = into.open(folder, number, stack, SETTINGS)
            for start in range(0, count, 4):
                sink.write(rows_of(first + start, min(4, count - start)))
            parts.append(sink.finish().shards)
        first += count
    return tuple(parts)


def source_of(folder: Store, parts: tuple[dict[str, ShardFacts], ...], scaled: bool, in_memory: bool) -> PlaceWork:
    layout = lay_out_parts(folder, SPLITS, SCHEMA, SCALED if scaled else SCHEMA, parts)
    types = {name: dtype for name, dtype, _ in columns_of(SCHEMA)}
    return PlaceWork(folder.root, parts, layout, Changes({"features": SCALE} if scaled else {}, types), in_memory)


def place_all(folder: Store, source: PlaceWork, tasks: list[Part]) -> dict[str, Any]:
    """Every file of the dataset as numpy has it, once all tasks are done."""
    rows = [source.execute(Task(f"1-place-{part.number:05d}", part, "f"), SETTINGS, unseen) for part in tasks]
    assert all(row.steps["place"].balances for row in rows)
    assert sum(row.steps["place"].taken for row in rows) == sum(
        shard.records for part in source.parts for shard in part.values()
    )
    finish(folder, source, rows)
    return {column.file: np.load(folder.local_path(column.file)) for of in source.layout.values() for column in of}


def finish(folder: Store, source: PlaceWork, rows: list[LedgerRow]) -> None:
    for split, columns in source.layout.items():
        finished = {
            column: finish_column(
                folder, column, [edge for row in rows for edge in row.states[EDGES].get(column.file, ())]
            )
            for column in columns
        }
        finish_split(folder, split, 0, finished, {})


def expected_of(count: int, split: int, scaled: bool) -> dict[str, Any]:
    rows = rows_of(0, count)
    batch = rows.take_split(split)
    features = np.array(batch["features"].to_pylist(), "f8").reshape(-1, 3)
    if scaled:
        features = ((features - [1.0, -2.0, 0.0]) / [2.0, 0.5, 1.0]).astype("f4")
    texts = [text.encode() for text in batch["game"].to_pylist()]
    name = SPLITS[split]
    return {
        f"X_{name}.npy": features,
        f"labels_move_{name}.npy": np.array(batch["labels_move"].to_pylist(), "i2"),
        f"game_{name}.bytes.npy": np.frombuffer(b"".join(texts), "u1"),
        f"game_{name}.offsets.npy": np.cumsum([0, *map(len, texts)]).astype("i8"),
    }


@pytest.mark.proof
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    scaled=st.booleans(),
    in_memory=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_every_row_is_at_its_place_whatever_the_parts(tmp_path_factory, counts, scaled, in_memory, order):
    folder = open_store(str(tmp_path_factory.mktemp("placing")))
    source = source_of(folder, put_down(folder, counts), scaled, in_memory)
    tasks = [Part(number, number + 1) for number in range(len(counts))]
    order.shuffle(tasks)
    files = place_all(folder, source, [Part(0, len(counts))] if in_memory else tasks)
    expected = expected_of(sum(counts), 0, scaled) | expected_of(sum(counts), 1, scaled)
    assert files.keys() == expected.keys()
    for name, array in expected.items():
        assert (files[name].dtype, files[name].shape) == (array.dtype, array.shape)
        assert files[name].tobytes() == array.tobytes()


def test_placing_a_part_again_changes_no_byte(tmp_path):
    folder = open_store(str(tmp_path))
    source = source_of(folder, put_down(folder, [13, 20, 7]), scaled=True, in_memory=False)
    again = [Part(0, 1), Part(1, 2), Part(0, 1), Part(2, 3)]
    rows = [source.execute(Task("t", part, "f"), SETTINGS, unseen) for part in again]
    assert rows[0] == rows[2]
    finish(folder, source, rows)
    assert np.array_equal(np.load(tmp_path / "X_train.npy"), expected_of(40, 0, scaled=True)["X_train.npy"])


def test_a_byte_that_changed_in_a_part_is_named(tmp_path):
    folder = open_store(str(tmp_path))
    parts = put_down(folder, [50, 50])
    source = source_of(folder, parts, scaled=False, in_memory=False)
    name = parts[1]["train"].files[0].file
    assert name.startswith(PARTS)
    data = bytearray(folder.read(name))
    data[100] ^= 1
    Path(folder.local_path(name)).write_bytes(data)
    source.execute(Task("t", Part(0, 1), "f"), SETTINGS, unseen)
    with pytest.raises(IntegrityError, match="its bytes differ from the bytes that were written") as caught:
        source.execute(Task("t", Part(1, 2), "f"), SETTINGS, unseen)
    assert name in caught.value.where
    Path(folder.local_path(name)).write_bytes(data[:-1])
    with pytest.raises(IntegrityError, match=r"bytes were written, there are"):
        lay_out_parts(folder, SPLITS, SCHEMA, SCHEMA, parts)


def test_another_layout_or_scale_is_another_identity(tmp_path):
    folder = open_store(str(tmp_path))
    source = source_of(folder, put_down(folder, [5, 9]), scaled=True, in_memory=False)
    assert replace(source, in_memory=True).identity == source.identity
    other = {"features": {**SCALE.artifact["features"], "mean": [1.0, -2.0, 0.5]}}
    assert (
        replace(source, changes=replace(source.changes, scales={"features": replace(SCALE, artifact=other)})).identity
        != source.identity
    )
    moved = {**source.layout, "test": source.layout["train"]}
    assert replace(source, layout=moved).identity != source.identity
    assert source.bytes == sum(column.data_bytes for columns in source.layout.values() for column in columns)


def test_a_part_is_called_by_its_number():
    assert (str(Part(3, 4)), str(Part(0, 3))) == ("part 3", "parts 0 to 2")


def test_columns_are_those_of_records_without_nulls():
    facts = [("features", "f8", (3,)), ("labels_move", "i2", ()), ("game/bytes", "u1", ()), ("game/offsets", "i8", ())]
    assert columns_of(SCHEMA) == facts


# Whole jobs.


@pytest.fixture
def batches(tmp_path):
    rng = np.random.default_rng(3)
    for number, count in enumerate((40, 1, 25)):
        features = rng.normal(100, 3, (count, 5)).astype("f4")
        labels = rng.integers(-1, 4, count, "i2")
        np.savez(tmp_path / f"batch_{number:04d}.npz", strategic_features=features, labels_move=labels)
    return tmp_path


def run(folder: Path, name: str, **keys: Any) -> dict[str, bytes]:
    """Every file of the dataset but what says how it was made."""
    job = {"input": {"npz": "batch_*.npz"}, "output": name, "workers": 0, "slice_size": "500", **keys}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(job))
    penstock.run(folder / f"{name}.yaml")
    assert penstock.verify(folder / name).ok
    files = {
        str(each.relative_to(folder / name)): each for each in sorted((folder / name).rglob("*")) if each.is_file()
    }
    return {each: path.read_bytes() for each, path in files.items() if not each.startswith((".penstock", "manifest"))}


@pytest.mark.proof
@pytest.mark.parametrize(
    "stages", [[], [{"split": {"test": 0.3}}], [{"split": {"test": 0.3}}, {"normalize": ["strategic_features"]}]]
)
def test_both_placements_and_both_strategies_write_the_same_bytes(batches, stages):
    direct = run(batches, "direct", stages=stages)
    placed = run(batches, "placed", stages=stages, on_bad_input="set_aside")  # so that counts are not known
    gathered = run(batches, "gathered", stages=stages, merge_strategy="accumulative")
    assert direct == placed == gathered
    passes = [
        json.loads((batches / name / ".penstock/run.json").read_text())["passes"] for name in ("direct", "placed")
    ]
    assert [each["kind"] for each in passes[1]] == ["map", "place"]
    # Rows of batch files bring positions of their own, and what is normalised must all be there first.
    assert [each["kind"] for each in passes[0]] == (["map", "place"] if stages else ["map"])
    assert not list((batches / "placed/.penstock").glob("pa*"))


def test_nothing_of_the_way_is_left_in_the_output(batches):
    run(batches, "out", on_bad_input="set_aside")
    left = {each.name for each in (batches / "out/.penstock").iterdir()}
    assert not left & {"parts", "placing", "spill"}
