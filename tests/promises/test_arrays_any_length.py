"""Arrays of any length on their way: inferred, refused by name where they have no place, exported and loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.cli import main
from penstock.shards.foreign.exporting import export

FUNCTION = """
import numpy as np


def samples(path):
    number = int(path.stem)
    for place in range(4):
        yield {"ids": np.arange(number + place, dtype="i4"), "label": np.int16(place), "image": bytes([number, place])}


def same_length_at_first(path):
    for place in range(4):
        yield {"ids": np.arange(4 + place, dtype="i4")}


def sometimes_none(path):
    yield {"x": np.float32(1), "label": None if path.stem == "1" else np.int16(3)}
"""

pytestmark = pytest.mark.core


def write(folder: Path, function: str = "samples", source: dict[str, Any] | None = None, **keys: Any) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "own.py").write_text(FUNCTION)
    for number in range(1, 4):
        (folder / "in" / f"{number}.txt").touch()
    job = {"input": {"files": "in/*", "function": f"own:{function}", **(source or {})}, "output": "out", "workers": 0}
    (folder / "job.yaml").write_text(yaml.safe_dump({**job, "memory": "1GB", **keys}))
    return folder / "job.yaml"


def test_lengths_that_differ_between_files_are_inferred_and_the_plan_says_so(tmp_path, capfd):
    job = write(tmp_path)
    assert main(["plan", str(job)]) == 0
    printed = capfd.readouterr().out
    assert re.search(r"ids +int32\[\*\] +int32\[\*\]", printed)
    assert re.search("image +binary +binary", printed)
    assert "Arrays of ids differ in length there: [*] takes any length." in printed


def test_the_plan_names_columns_that_may_be_null(tmp_path, capfd):
    assert main(["plan", str(write(tmp_path, "sometimes_none", {"missing": {"label": None}}))]) == 0
    assert "May be null, as `missing:` says: label." in capfd.readouterr().out


def test_a_length_that_differs_later_names_what_to_declare(tmp_path):
    with pytest.raises(InputError, match=r"wrong shape: 5 values, int32\[4\] was inferred from 1\.txt") as caught:
        penstock.run(write(tmp_path, "same_length_at_first"))
    assert "[*] takes any length" in caught.value.next_step
    penstock.run(write(tmp_path, "same_length_at_first", {"schema": {"ids": "int32[*]"}}))
    assert [len(row["ids"]) for row in penstock.open(tmp_path / "out")] == [4, 5, 6, 7] * 3


def test_the_files_are_values_and_offsets(tmp_path):
    penstock.run(write(tmp_path))
    values, offsets = (np.load(tmp_path / "out" / f"ids_train.{part}.npy") for part in ("values", "offsets"))
    lengths = [number + place for number in (1, 2, 3) for place in range(4)]
    assert (values.dtype, offsets.dtype) == (np.int32, np.int64)
    assert offsets.tolist() == [0, *np.cumsum(lengths).tolist()]
    assert values[offsets[5] : offsets[6]].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "keys", "told"),
    [
        ({}, {"intermediate_dir": "kept"}, "column 'ids' has type list<int32>, which a batch file cannot hold"),
        ({}, {"stages": [{"normalize": ["ids"]}]}, "column 'ids' is list"),
        ({}, {"stages": [{"statistics": ["ids"]}]}, "column 'ids' is list"),
        (
            {"missing": {"label": None}},
            {"stages": [{"normalize": ["label"]}]},
            "column 'label' may be null .*format: arrays cannot normalize",
        ),
    ],
    ids=str,
)
def test_what_has_no_place_for_them_is_refused_by_name_before_anything_is_written(tmp_path, source, keys, told):
    with pytest.raises((ConfigError, InputError), match=told):
        penstock.run(write(tmp_path, source=source, **keys))
    assert not (tmp_path / "out").exists() or not (tmp_path / "out" / "manifest.json").exists()


def test_a_none_that_nobody_asked_for_says_what_to_write(tmp_path):
    with pytest.raises(InputError) as caught:
        penstock.run(write(tmp_path, "sometimes_none"))
    assert "missing: {column: null}" in caught.value.next_step
    penstock.run(write(tmp_path, "sometimes_none", {"missing": {"label": None}}))
    assert [row["label"] for row in penstock.open(tmp_path / "out")] == [None, 3, 3]
    assert np.load(tmp_path / "out" / "label_train.valid.npy").tolist() == [False, True, True]
    with pytest.raises(ConfigError, match="column 'label' has nulls"):
        penstock.load(tmp_path / "out", batch_size=1)


def test_batch_files_refuse_a_column_that_may_be_null(tmp_path):
    source = {"missing": {"label": None}, "schema": {"x": "float32", "label": "int16"}}
    with pytest.raises(ConfigError, match=r"column 'label' may be null .*which a batch file cannot hold"):
        penstock.run(write(tmp_path, "sometimes_none", source, intermediate_dir="kept"))


@pytest.mark.parametrize("format", ["arrays", "safetensors"])
def test_loading_names_the_columns_that_batches_can_have(tmp_path, format):
    penstock.run(write(tmp_path, format=format))
    with pytest.raises(ConfigError, match=r"not ids \(int32\[\*\]\)") as caught:
        penstock.load(tmp_path / "out", batch_size=2)
    assert caught.value.next_step == (
        "name the columns to load: columns=['label']; encode='raw' also loads lists of any length"
    )
    batch = penstock.load(tmp_path / "out", batch_size=2, columns=["label"], workers=0).batch(0)
    assert list(batch) == ["label"]


def test_an_export_to_hdf5_has_every_sample(tmp_path):
    penstock.run(write(tmp_path))
    export(tmp_path / "out", "hdf5", tmp_path / "out.h5")
    dataset = penstock.open(tmp_path / "out")
    with h5py.File(tmp_path / "out.h5") as file:
        ids, image = file["train/ids"], file["train/image"]
        for number, row in enumerate(dataset):
            low, high = ids["offsets"][number : number + 2]
            assert ids["values"][low:high].tolist() == row["ids"].tolist()
            low, high = image["offsets"][number : number + 2]
            assert image["bytes"][low:high].tobytes() == row["image"]
