"""Interfaces of stages: a class of the user's own may have them, and what it lacks is told before anything runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.prepare.stages import _METHODS, interfaces

CODE = """
from dataclasses import dataclass
import pyarrow.compute as pc
from penstock.prepare.stages.stage import Stage
from penstock.prepare.stages.interfaces import Applies, Fits

class Largest:
    columns = ("x",)
    def block_rows(self, schema): return 1000
    def start(self): return 0
    def update(self, state, block): return max(state, pc.max(block["x"]).as_py() or 0)
    def pack(self, state): return state
    def merge(self, left, right): return max(left, right)
    def finish(self, state): return {"largest": state}

@dataclass(frozen=True, kw_only=True)
class Tell(Fits):
    def __call__(self, rows): return rows
    def fit(self): return Largest()

@dataclass(frozen=True, kw_only=True)
class OnlyLargest(Applies):
    def fit(self): return Largest()
    def bind(self, artifact): return Keep(largest=artifact["largest"])

@dataclass(frozen=True, kw_only=True)
class Keep(Stage):
    largest: int
    def __call__(self, rows):
        return rows.keep(pc.equal(rows.batch["x"], self.largest).to_numpy(zero_copy_only=False), "not the largest")

@dataclass(frozen=True, kw_only=True)
class Forgetful(Stage):
    def __call__(self, rows): return rows
    def splits(self): return ("train", "test")
"""


@pytest.fixture
def workplace(tmp_path: Path):
    for number in range(2):
        pq.write_table(pa.table({"x": [number, 7 * number, 3]}), tmp_path / f"{number}.parquet")
    (tmp_path / "own.py").write_text(CODE)
    yield tmp_path
    sys.modules.pop("own", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def _run(workplace: Path, *stages: Any) -> None:
    job = workplace / "job.yaml"
    written = {"input": str(workplace / "*.parquet"), "output": str(workplace / "out"), "stages": list(stages)}
    job.write_text(json.dumps({**written, "workers": 0}))
    penstock.run(job)


def test_a_stage_that_fits_leaves_an_artifact(workplace):
    _run(workplace, "own:Tell")
    assert json.loads((workplace / "out/artifacts/own.Tell.json").read_text()) == {"largest": 7}
    assert len(penstock.open(workplace / "out")) == 6


def test_a_stage_that_needs_its_artifact_gets_it_before_its_first_row(workplace):
    _run(workplace, "own:OnlyLargest")
    assert penstock.open(workplace / "out")[:]["x"].to_pylist() == [7]


def test_a_method_that_nobody_would_call_is_refused(workplace):
    with pytest.raises(ConfigError, match=r"stages\[0\].own:Forgetful: .*`splits`.*`Splits`"):
        _run(workplace, "own:Forgetful")


@pytest.mark.parametrize(
    "interface", sorted({*_METHODS.values()} - {interfaces.Compares}, key=lambda each: each.__name__)
)
def test_the_method_that_an_interface_asks_for_is_known_by_the_name_that_it_has(interface):
    """One that was renamed there alone would be passed over in silence."""
    asked = [name for name, method in vars(interface).items() if getattr(method, "__isabstractmethod__", False)]
    assert _METHODS.get(asked[0]) is interface
