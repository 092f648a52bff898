"""Whether a batch of any library's arrays is the very batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def same(found: Mapping[str, Any], expected: Mapping[str, np.ndarray]) -> bool:
    """The same names, dtypes, shapes and values."""
    arrays = {name: np.asarray(array.cpu() if hasattr(array, "cpu") else array) for name, array in found.items()}
    assert list(arrays) == list(expected)
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype, name
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    return True


def joined(parts: list[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The global batch, of what each rank has of it."""
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}
