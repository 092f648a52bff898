"""Lines of rows that were set aside come in the order of the rows, whichever step set them aside."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.stores import open_store
from penstock.prepare.passes.folds import rejected
from penstock.prepare.passes.folds.rejected import Rejected
from penstock.prepare.rows.rows import SetAside, rejected_line

FILES = [(0, "a"), (0, "b")]


@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 30)), max_size=12), max_size=3
    ),
    most=st.sampled_from([0, 200, 1 << 20]),
    piece=st.sampled_from([1, 70, 1 << 16]),
)
def test_lines_are_written_in_the_order_of_their_rows(tmp_path_factory, batches, most, piece):
    expected = []
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(rejected, "_MOST_WAITING", most)
        patch.setattr(rejected, "_PIECE", piece)
        writer = Rejected(open_store(str(folder)), "rejected/0.jsonl", stack, True, FILES)
        for batch in batches:
            lines = [rejected_line(*FILES[file], position, "x" * length) for file, position, length in batch]
            for line in lines:
                writer.take(SetAside("x", 1, (line,)))
            writer.write()
            expected += sorted(lines, key=lambda line: (line["file"], line["position"]))
        facts = writer.facts
    path = folder / "rejected" / "0.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in expected)
    assert (path.read_text() if path.exists() else "") == text
    assert facts is None or facts.bytes == len(text)
