"""Parts: what many ranges leave for a slice comes back whole, however small the parts are."""

from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import IntegrityError
from penstock.base.stores import open_store
from penstock.prepare.stages.dedup import parts
from penstock.prepare.stages.dedup.parts import PartsWriter, parts_of
from penstock.prepare.stages.dedup.runs import KEY, RunsWriter

ENTRY = np.dtype([("number", "<u4"), ("value", "<u8")])
PORTIONS = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), max_size=8), max_size=5)


def write(store, name, portions):
    with ExitStack() as stack:
        runs = RunsWriter(store, name, stack, KEY, lasting=False)
        writer = PartsWriter(runs.file, "found", ENTRY, 4)
        for portion in portions:
            slices = np.array([number for number, _ in portion], "u8")
            writer.add(slices, np.array([(value, value) for _, value in portion], ENTRY))
        return runs.finish(writer.finish())


@given(files=st.lists(PORTIONS, max_size=3), most=st.integers(1, 9))
def test_each_slice_reads_its_own_entries_in_the_order_they_came(tmp_path_factory, files, most):
    store = open_store(str(tmp_path_factory.mktemp("parts")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_ENTRIES_PER_PART", most)
        written = [write(store, f"{number}.parts", portions) for number, portions in enumerate(files)]
    for number in range(4):
        read = [value for each in parts_of(store, written, "found", ENTRY, number) for value, _ in each.tolist()]
        assert read == [value for portions in files for each in portions for own, value in each if own == number]


def test_small_portions_share_a_part(tmp_path):
    store = open_store(str(tmp_path))
    written = write(store, "0.parts", [[(0, value)] for value in range(100)])
    assert len(list(parts_of(store, [written], "found", ENTRY, 0))) == 1


def test_a_flipped_byte_in_a_part_is_named(tmp_path):
    store = open_store(str(tmp_path))
    written = write(store, "0.parts", [[(0, 7), (1, 8)]])
    data = bytearray((tmp_path / "0.parts").read_bytes())
    data[data.index(np.array([(8, 8)], ENTRY).tobytes())] ^= 1
    (tmp_path / "0.parts").write_bytes(data)
    assert [each.tolist() for each in parts_of(store, [written], "found", ENTRY, 0)] == [[(7, 7)]]
    with pytest.raises(IntegrityError, match="slice 1"):
        list(parts_of(store, [written], "found", ENTRY, 1))
