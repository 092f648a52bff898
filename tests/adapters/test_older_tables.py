"""Pickled tables of older batch files that are data frames of pandas."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from penstock.base.errors import InputError
from tests.prepare.sources.test_older_batches import columns_of


def test_a_table_may_be_a_data_frame(tmp_path):
    for y in (["é", ""], pandas.Categorical(["é", ""])):
        found = columns_of(tmp_path / "a.npz", pandas.DataFrame({"x": [0.1, np.nan], "y": y}))
        assert found["x"].tobytes() == np.array([0.1, np.nan]).tobytes()
        assert found["y"].tolist() == ["é", ""]
    found = columns_of(tmp_path / "a.npz", pandas.DataFrame({"x": [2**63, 1], "y": pandas.array([1, 2], "Int64")}))
    assert (found["x"].dtype, found["y"].dtype) == ("uint64", "int64")
    with pytest.raises(InputError, match="column 'y' holds NAType, int"):
        columns_of(tmp_path / "a.npz", pandas.DataFrame({"y": pandas.array([1, None], "Int64")}))
