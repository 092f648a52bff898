"""Whether a batch of any library's arrays is the very batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def same(found: Mapping[str, Any], expected: Mapping[str, np.ndarray]) -> bool:
    """The same names, dtypes, shapes and values."""
    arrays = {name: np.asarray(array.cpu() if hasattr(array, "cpu") else array) for name, array in found.items()}
    assert set(arrays) == set(expected)
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype, name
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    return True


def joined(parts: list[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The global batch, of what each rank has of it."""
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}


def counted_down(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """For loader.map: positions from the end of the row, and an array of its own."""
    return {**batch, "row": np.arange(len(batch["inputs"])), "inputs_position": -batch["inputs_position"]}


class FailsOnce:
    """For loader.map: raises at the batch that it is told, the first time it sees it."""

    def __init__(self, batch: dict[str, np.ndarray], error: BaseException) -> None:
        self.inputs, self.error, self.has_failed = batch["inputs"], error, False

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self.has_failed and np.array_equal(batch["inputs"], self.inputs):
            self.has_failed = True
            raise self.error
        return batch


def turned(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """For loader.map: one array, column by column in memory."""
    return {"inputs": np.asfortranarray(batch["inputs"])}
