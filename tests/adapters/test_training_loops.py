"""The training loops of docs/how-to, run as they are written, on a small dataset and with the real libraries."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import penstock
from penstock.loader.batches import TOKEN_ARRAYS
from tests.adapters.comparing import same
from tests.adapters.test_maxtext import HostIterator

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "training-loops.md"


def blocks() -> dict[str, str]:
    """The last block of Python of each section, by the section's title."""
    sections = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    code = [re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL) for section in sections[1::2]]
    return {title: found[-1] for title, found in zip(sections[::2], code, strict=True) if found}


BLOCKS = blocks()
RECIPE: dict[str, Any] = {"batch_size": 32, "length": 256, "seed": 1}
UNTRAINED = math.log(267)  # the loss of a model that finds every token as likely

Run = Callable[[str], dict[str, Any]]


@pytest.fixture(autouse=True)
def _prepared(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dataset lies where the page has it: in `prepared`."""
    (tmp_path / "prepared").symlink_to(dataset)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Run:
    """Runs a block and returns what is then defined."""

    def run(name: str) -> dict[str, Any]:
        defined: dict[str, Any] = {"__name__": "docs"}
        exec(compile(BLOCKS[name], f"{PAGE.name}, {name}", "exec"), defined)
        return defined

    return run


@pytest.fixture
def batch(dataset: Path) -> Callable[[int], dict[str, np.ndarray]]:
    """Batch k of the page's recipe, on one host."""
    loader = penstock.load(dataset, workers=0, **RECIPE)
    return lambda number: {name: np.array(array) for name, array in loader.batch(number).items()}


def test_the_pytorch_loop_learns_and_says_why_it_waits(run, batch, capsys):
    defined = run("PyTorch")
    assert defined["step"] == 49
    assert defined["loss"].item() < 0.8 * UNTRAINED
    assert same({**defined["batch"], "targets": defined["batch"]["targets"].int()}, batch(49))
    assert re.match(r"(not )?input-bound", capsys.readouterr().out)
    defined["loader"].close()


def test_the_jax_loop_learns_from_global_arrays(run, batch):
    defined = run("JAX")
    assert defined["step"] == 49
    assert defined["loss"] < 0.8 * UNTRAINED
    assert same(defined["batch"], batch(49))
    assert len(defined["batch"]["inputs"].addressable_shards) == len(jax.devices()) > 1
    defined["loader"].close()


def take_batches(dataloader: Any, global_mesh: Mesh) -> HostIterator:
    """In the place of MaxText's own, which does the same with batches."""
    assert global_mesh.axis_names == ("data",)
    return HostIterator(dataloader, new=True)


def test_maxtext_gets_its_six_arrays(run, batch, monkeypatch):
    stand_in = ModuleType("maxtext.input_pipeline.multihost_dataloading")
    stand_in.MultiHostDataLoadIterator = take_batches  # type: ignore[attr-defined]
    for name in ("maxtext", "maxtext.input_pipeline"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    config = SimpleNamespace(global_batch_size_to_load=32, max_target_length=256, data_shuffle_seed=1)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    training, evaluation = run("MaxText")["create_data_iterator"](config, mesh)
    assert evaluation is None
    for number in range(4):
        found = next(training)
        assert tuple(found) == TOKEN_ARRAYS
        assert {(array.dtype.name, array.shape) for array in found.values()} == {("int32", (32, 256))}
        assert same(found, batch(number))
