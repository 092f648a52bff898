"""Messages of the Ray engine, without Ray: what comes out, and what is too large."""

from __future__ import annotations

import pytest

from penstock.base.errors import TaskError
from penstock.prepare.engines.ray.arriving import MOST_BYTES, message_of, unpacked


def test_a_message_comes_out_as_it_went_in():
    assert unpacked(message_of(("a", 1, {"b": [2]}), "it")) == ("a", 1, {"b": [2]})


def test_rows_of_data_do_not_travel():
    with pytest.raises(TaskError, match=r"a ledger row takes 16.8 MB; at most 16.8 MB may travel through Ray"):
        message_of(bytes(MOST_BYTES), "a ledger row")
