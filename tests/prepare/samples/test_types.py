"""Types of samples: every value comes out as it was given, in its own type, or an error names it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.errors import InputError

FUNCTION = """
import pickle


def samples(path):
    yield from pickle.loads(path.read_bytes())
"""


def write_job(folder: Path, *files: list[dict[str, Any]], stages: Any = (), **keys: Any) -> dict[str, Any]:
    """A job whose function yields exactly these samples, file by file."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "yielding.py").write_text(FUNCTION)
    for number, samples in enumerate(files):
        (folder / "in" / f"{number}.pkl").write_bytes(pickle.dumps(samples))
    source = {"files": str(folder / "in" / "*"), "function": "yielding:samples", **keys.pop("source", {})}
    return {"input": source, "output": str(folder / "out"), "stages": list(stages), "workers": 0, **keys}


@pytest.fixture(autouse=True)
def beside(tmp_path, monkeypatch):
    """Modules are looked for beside the job, and this job has no file."""
    monkeypatch.chdir(tmp_path)


def array_of(folder: Path, column: str) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.load(folder / "out" / f"{column}_train.npy")
    return found


EXTREMES = {
    name: np.array([np.iinfo(name).min, np.iinfo(name).max], name)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
} | {name: np.array([np.finfo(name).max, np.finfo(name).tiny], name) for name in ("float16", "float32", "float64")}
GIVEN: dict[str, tuple[Any, str]] = {  # a value, and the type of its column
    "python_float": (1700000000.123, "f8"),
    "python_int": (2**53 + 1, "i8"),
    "python_bool": (True, "?"),
    "list_of_floats": ([0.1, 1700000000.123], "f8"),
    "list_of_ints": ([2**53 + 1, -(2**63)], "i8"),
    "ints_and_floats": ([1, 0.1], "f8"),
    "float32_and_int": ([np.float32(0.1), 1], "f4"),
    "float32_and_float": ([np.float32(0.5), 0.1], "f8"),
    "bools_and_ints": ([True, 2], "i8"),
    **{f"scalar_{name}": (values[0], values.dtype.str) for name, values in EXTREMES.items()},
    **{f"array_{name}": (values, values.dtype.str) for name, values in EXTREMES.items()},
    **{f"no_dimension_{name}": (np.array(values[1]), values.dtype.str) for name, values in EXTREMES.items()},
    **{f"big_endian_{name}": (values.astype(f">{values.dtype.str[1:]}"), name) for name, values in EXTREMES.items()},
    "bools": (np.array([[True, False]]), "?"),
    "not_contiguous": (np.arange(12.0).reshape(3, 4)[::2, ::-2], "f8"),
    "fortran": (np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3)), "f4"),
    "read_only": (np.broadcast_to(np.float64(0.1), (3,)), "f8"),
}


@pytest.mark.parametrize("through", ["parts", "batch files", "hdf5"])
def test_every_number_keeps_its_type_and_its_bits(tmp_path, through):
    sample = {name: value for name, (value, _) in GIVEN.items()}
    sample |= {"word": np.str_("kö\0nig"), "text": "kö\0nig", "text_array": np.array("king")}
    keys = {"intermediate_dir": str(tmp_path / "batches")} if through == "batch files" else {}
    if through == "hdf5":
        sample |= {"word": np.str_("könig"), "text": "könig"}
    penstock.run(write_job(tmp_path, [sample, sample], [sample], **keys))
    if through == "hdf5":
        h5py = pytest.importorskip("h5py")
        from penstock.shards.foreign.exporting import export

        export(tmp_path / "out", "hdf5", tmp_path / "out.h5")
        file = h5py.File(tmp_path / "out.h5")
    for name, (value, dtype) in GIVEN.items():
        found = file["train"][name][:] if through == "hdf5" else array_of(tmp_path, name)
        expected = np.array(value, dtype).astype(np.dtype(dtype).newbyteorder("="))
        assert found.dtype == expected.dtype, name
        assert found.shape == (3, *expected.shape), name
        assert all(row.tobytes() == expected.tobytes() for row in found), name
    for row in penstock.open(tmp_path / "out"):
        assert (row["word"], row["text"], row["text_array"]) == (sample["word"], sample["text"], "king")


@pytest.mark.proof
def test_every_number_is_in_batches_and_opened_records_as_it_was_given(tmp_path):
    sample = {name: value for name, (value, _) in GIVEN.items()}
    penstock.run(write_job(tmp_path, [sample, sample]))
    record = penstock.open(tmp_path / "out")[1]
    with penstock.load(tmp_path / "out", batch_size=2, shuffle=False, workers=0) as loader:
        batch = next(loader)
    for name, (value, dtype) in GIVEN.items():
        expected = np.array(value, dtype).astype(np.dtype(dtype).newbyteorder("="))
        assert batch[name].dtype == expected.dtype, name
        assert batch[name].tobytes() == expected.tobytes() * 2, name
        assert np.asarray(record[name], expected.dtype).tobytes() == expected.tobytes(), name


def test_floats_change_their_type_where_that_is_asked_for(tmp_path):
    floats = "float32"
    sample = {"a": 0.1, "b": np.float64(0.1), "c": np.array([0.1], "f2"), "d": [np.float32(0.1), 1], "e": 1}
    penstock.run(write_job(tmp_path, [sample], source={"floats": floats}))
    for name in "abcd":
        assert array_of(tmp_path, name).dtype == floats
    assert array_of(tmp_path, "a").tolist() == [np.dtype(floats).type(0.1)]
    assert array_of(tmp_path, "e").dtype == "int64"


MASKED = np.ma.masked_array([1.0, 2.0], mask=[False, True])
ARRAY = np.array([1.0, 2.0])
LATER: dict[str, tuple[Any, Any, str]] = {  # a first value, which tells the type; a later one; what the error calls it
    "float in float32": (np.float32(0.5), 0.1, "float 0.1"),
    "float64 in float32": (np.float32(0.5), np.float64(1700000000.123), "float64 1700000000.123"),
    "array of float64 in float32": (np.zeros(2, "f4"), np.array([0.5, 0.1]), "float64 0.1 at [1]"),
    "float32 in float16": (np.zeros(2, "f2"), np.array([0.5, 0.1], "f4"), "float32 0.10000000149011612 at [1]"),
    "list in float32": (np.zeros(2, "f4"), [0.5, 0.1], "float 0.1 at [1]"),
    "long double in float64": (0.5, np.longdouble(1) / 3, "longdouble 0.333333333333333"),
    "int in float64": (0.5, 2**53 + 1, "int 9007199254740993"),
    "array of int64 in float64": (np.zeros(2), np.array([1, 2**53 + 1]), "int64 9007199254740993 at [1]"),
    "int in float32": (np.float32(0.5), 2**24 + 1, "int 16777217"),
    "float in int64": (1, 0.5, "float 0.5"),
    "NaN in int64": (1, float("nan"), "float nan"),
    "int beyond int64": (1, 2**63, "int 9223372036854775808"),
    "uint64 in int64": (1, np.uint64(2**63), "uint64 9223372036854775808"),
    "int in int8": (np.int8(1), 128, "int 128"),
    "int in bool": (True, 2, "int 2"),
    "none": (1, None, "NoneType"),
    "bytes": ("king", b"king", "bytes"),
    "numpy bytes": ("king", np.bytes_(b"king"), "bytes_"),
    "text in float64": (0.5, "0.5", "str '0.5'"),
    "number in text": ("0.5", 0.5, "float 0.5"),
    "array of text": (ARRAY, np.array(["a", "b"]), "array of <U1"),
    "datetime64": (1, np.datetime64("2020-01-01", "s"), "datetime64 2020-01-01T00:00:00"),
    "array of timedelta64": (ARRAY, np.zeros(2, "m8[s]"), "array of timedelta64[s]"),
    "complex": (0.5, 1j, "complex"),
    "array of complex": (ARRAY, np.zeros(2, "c8"), "array of complex64"),
    "array of objects": (ARRAY, np.array([1, 2], object), "array of object"),
    "structured array": (ARRAY, np.zeros(2, [("a", "i4")]), "array of [('a', '<i4')]"),
    "masked array": (ARRAY, MASKED, "masked array"),
    "masked array without a mask": (ARRAY, np.ma.masked_array([1.0, 2.0]), "masked array"),
    "masked value": (0.5, MASKED[1], "masked array"),
    "masked value in a list": (ARRAY, [1.0, MASKED[1]], "masked array"),
    "empty array": (ARRAY, np.zeros(0), "0 values"),
    "ragged list": (np.zeros((2, 2)), [[1, 2], [1]], "a list inside has 1 values"),
}


def test_a_later_value_that_its_column_cannot_hold_exactly_is_named_and_changes_nothing(tmp_path):
    first = {name: value for name, (value, _, _) in LATER.items()}
    samples = [first, *({**first, name: later} for name, (_, later, _) in LATER.items()), first]
    penstock.run(write_job(tmp_path, samples, on_bad_input="set_aside"))
    (file,) = (tmp_path / "out" / "rejected").glob("*.jsonl")
    rejected = {line["key"]: line["detail"] for line in map(json.loads, file.open())}
    assert list(rejected) == list(LATER)
    for name, (_, _, called) in LATER.items():
        assert rejected[name].startswith(called), name
        assert rejected[name].endswith("was inferred from 0.pkl, sample 0"), name
    assert array_of(tmp_path, "float in float32").tolist() == [0.5, 0.5]


def test_a_type_that_was_inferred_takes_later_values_that_it_holds_exactly(tmp_path):
    firsts = {"a": np.float32(0.5), "b": np.zeros(2, "f2"), "c": 0.5, "d": 1, "e": np.zeros(2, "f4")}
    later = {"a": 0.25, "b": [0.5, float("nan")], "c": 2**53, "d": 3.0, "e": np.array([float("inf"), -0.0])}
    penstock.run(write_job(tmp_path, [firsts, later]))
    assert array_of(tmp_path, "a").tolist() == [0.5, 0.25]
    assert array_of(tmp_path, "b")[1].tobytes() == np.array([0.5, np.nan], "f2").tobytes()
    assert array_of(tmp_path, "c").tolist() == [0.5, 2.0**53]
    assert array_of(tmp_path, "d").tolist() == [1, 3]
    assert array_of(tmp_path, "e")[1].tobytes() == np.array([np.inf, -0.0], "f4").tobytes()


def test_a_type_that_is_declared_rounds_floats_as_it_says(tmp_path):
    penstock.run(write_job(tmp_path, [{"x": 0.1}, {"x": np.float64(0.2)}], source={"schema": {"x": "float32"}}))
    assert array_of(tmp_path, "x").tolist() == np.array([0.1, 0.2], "f4").tolist()


def test_files_whose_types_differ_are_both_named(tmp_path):
    with pytest.raises(InputError, match=r"key .x. is int64 in 0\.pkl, sample 0, but float64 in 1\.pkl, sample 0"):
        penstock.run(write_job(tmp_path, [{"x": 2**53 + 1}], [{"x": 0.5}]))


def test_keys_are_columns_by_name_whatever_order_a_sample_has_them_in(tmp_path):
    first = {"features": {"gold": 1, "pieces": 2}, "masks": {"move": np.array([True, False])}}
    later = {"masks": {"move": [True, False]}, "features": {"pieces": 20, "gold": 10}}
    manifest = penstock.run(write_job(tmp_path, [first, later], [later, first]))
    assert [field.name for field in manifest.schema] == ["features_gold", "features_pieces", "masks_move", "_origin"]
    assert array_of(tmp_path, "features_gold").tolist() == [1, 10, 10, 1]
    assert array_of(tmp_path, "features_pieces").tolist() == [2, 20, 20, 2]
    with np.load(tmp_path / "out" / "masks_train.npz") as masks:
        assert masks["move"].dtype == bool
        assert masks["move"].tolist() == [[True, False]] * 4
    opened = penstock.open(tmp_path / "out")[0]["masks_move"]
    assert (opened.dtype, opened.tolist()) == (bool, [True, False])
