"""Every Arrow type, taken every way, arrives with the same values, or is refused by an error that names its column.

docs/reference/types.md says which it is; these tests hold the page against what happens.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import PenstockError
from penstock.shards.foreign.arrayrecord_file import open_reader
from penstock.shards.foreign.exporting import export
from tests.promises import workshop
from tests.promises.arrow_types import VALUES, columns, exact, name_of
from tests.shards.foreign.test_example import plainly_encoded

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
COLUMNS = {f"c{number}": (name, array) for number, (name, array) in enumerate(columns().items())}
REFUSED = "refused"
Arrays = dict[str, pa.Array]
Outcome = dict[str, str]  # column -> "kept", the type it is stored as, or "refused"


# The page.


@cache
def page() -> dict[str, dict[str, str]]:
    """What docs/reference/types.md says: of each type, by way. A line of its table may be about several types."""
    lines = PAGE.read_text().partition("\n| type ")[2].partition("\n\n")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in ["type " + lines[0], *lines[1:]]]
    head, _, *rows = table
    said: dict[str, dict[str, str]] = {}
    for cells in rows:
        for name in re.findall(r"`([^`]+)`", cells[0]):
            said[name] = dict(zip(head[1:], cells[1:], strict=True))
    return said


def on_the_page(name: str, way: str) -> str:
    """`kept`, `refused`, or the type that a column is stored as."""
    return page()[COLUMNS[name][0]][way].split(" (")[0].strip("`")


# Taking columns some way.


def run(folder: Path, arrays: Arrays, stages: list[Any], ending: str = "arrow", **keys: Any) -> Path:
    """The dataset of a job over these columns, with `id` beside them."""
    folder.mkdir()
    file = folder / f"rows.{ending}"
    write(file, pa.table({"id": pa.array(range(len(next(iter(arrays.values())))), pa.int64()), **arrays}))
    penstock.run({"input": str(file), "output": str(folder / "out"), "workers": 0, "stages": stages, **keys})
    return folder / "out"


def write(file: Path, table: pa.Table) -> None:
    """The table as a file of the kind that its name says; `.foreign.parquet` does not keep the types of Arrow."""
    if file.suffix == ".parquet":
        pq.write_table(table, file, store_schema=".foreign." not in file.name)
    elif file.suffix == ".feather":
        feather.write_feather(table, file)
    else:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def taken(folder: Path, arrays: Arrays, way: Callable[[Path, Arrays], Arrays]) -> tuple[Arrays, set[str]]:
    """(columns as they arrive, those that were refused): each error must name a column, which is then left out."""
    left, refused = dict(arrays), set[str]()
    for number in range(len(arrays) + 1):
        if not left:
            break
        try:
            return way(folder / str(number), left), refused
        except PenstockError as error:
            assert error.exit_code != 1, f"a defect: {error}"
            named = [name for name in left if re.search(rf"\b{name}\b", str(error))]
            assert named, f"an error that names no column: {error}"
            refused.add(named[0])
            del left[named[0]]
    return {}, refused


def outcome(arrays: Arrays, arrived: Arrays, refused: set[str]) -> Outcome:
    """What became of each column; the test ends here for one whose values are not the same."""
    found = dict.fromkeys(refused, REFUSED)
    for name, array in arrived.items():
        assert exact(array) == exact(arrays[name]), f"{COLUMNS[name][0]} has other values"
        found[name] = "kept" if array.type == arrays[name].type else name_of(array.type)
    return found


def read(out: Path, arrays: Arrays, split: str = "train") -> Arrays:
    """Columns by slices, in the order of `id`, after every record was read by itself, too."""
    data = penstock.open(out, split)
    for record in data:
        assert set(arrays) <= set(record)
    table = data[:].combine_chunks().sort_by("id")
    return {name: one(table[name]) for name in arrays}


def one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def mapped(*stages: Any, **keys: Any) -> Callable[[Path, Arrays], Arrays]:
    def way(folder: Path, arrays: Arrays) -> Arrays:
        out = run(folder, arrays, list(stages), **keys)
        assert penstock.verify(out).ok
        return read(out, arrays)

    return way


def filtered(folder: Path, arrays: Arrays) -> Arrays:
    """Half of the rows; the others are kept in rejected/, where every type must have a text."""
    out = run(folder, arrays, [{"filter": {"where": "id >= 5", "keep": True}}])
    lines = (out / "rejected" / "00000.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"]["id"] for line in lines] == list(range(5))
    whole = run(folder / "whole", arrays, [{"filter": "id >= 0"}])
    part, every = read(out, arrays), read(whole, arrays)
    for name in arrays:
        assert exact(part[name]) == exact(arrays[name])[5:]
    return every


def renamed(folder: Path, arrays: Arrays) -> Arrays:
    out = run(folder, arrays, [{"select": {"id": "id", **{f"{name} new": name for name in arrays}}}])
    found = read(out, {f"{name} new": array for name, array in arrays.items()})
    return {name.removesuffix(" new"): array for name, array in found.items()}


def as_events(folder: Path, arrays: Arrays) -> Arrays:
    """One record for each row, so that a list holds one value."""
    out = run(folder, arrays, [{"group": {"by": "id"}}])
    return {name: array.flatten() for name, array in read(out, arrays).items()}


def through_a_function(folder: Path, arrays: Arrays) -> Arrays:
    return mapped("stage_for_every_type:same")(folder, arrays)


def exported_to_hf(folder: Path, arrays: Arrays) -> Arrays:
    out = run(folder, arrays, [])
    export(out, "hf", folder / "hf")
    (file,) = (folder / "hf").glob("*.arrow")
    table = pa.ipc.open_stream(file.read_bytes()).read_all().sort_by("id")
    return {name: one(table[name]) for name in arrays}


def _from_numpy(values: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        inner = _from_numpy(values.reshape(-1, *values.shape[2:]), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(inner, type=kind)
    plain = pa.array(values)
    return plain if plain.type == kind else plain.view(kind)


@pytest.fixture(scope="module", autouse=True)
def _a_stage_of_ones_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "stage_for_every_type.py").write_text("def same(batch):\n    return batch\n")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


def as_array_records(folder: Path, arrays: Arrays) -> Arrays:
    count = len(next(iter(arrays.values())))
    keys = {"k": pa.array([f"{number:02}" for number in range(count)]), "t": pa.array(range(count), pa.timestamp("us"))}
    out = run(folder, {**arrays, **keys}, [{"group": {"by": "k", "order": "t"}}], format="arrayrecord")
    data = penstock.open(out)
    assert [set(arrays) <= set(record) for record in data] == [True] * count
    table = data[:].combine_chunks()
    assert table["k"].combine_chunks().flatten().to_pylist() != []
    table = table.take(pa.array(np.argsort([keys[0] for keys in table["k"].to_pylist()])))
    return {name: one(table[name]).flatten() for name in arrays}


def exported_to_hdf5(folder: Path, arrays: Arrays) -> Arrays:
    out = run(folder, arrays, [])
    export(out, "hdf5", folder / "rows.h5")
    schema = penstock.open(out)[:].schema
    with h5py.File(folder / "rows.h5") as file:
        return {name: _from_hdf5(file["train"][name], schema.field(name).type) for name in arrays}


def _from_hdf5(values: Any, kind: pa.DataType) -> pa.Array:
    """HDF5 has numbers, in which times and decimals are kept as they are stored, text, and values with offsets."""
    if isinstance(values, h5py.Group):
        edges, is_list = values["offsets"][:].astype("i8"), "values" in values
        flat = values["values" if is_list else "bytes"][:]
        if not is_list:
            return pa.array([flat[low:high].tobytes() for low, high in itertools.pairwise(edges)], kind)
        inner, large = _from_numpy(flat, kind.value_type), pa.types.is_large_list(kind)
        made = (pa.LargeListArray if large else pa.ListArray).from_arrays(
            pa.array(edges, "i8" if large else "i4"), inner
        )
        return made.cast(kind)
    if values.dtype == object:
        return pa.array([text.decode() for text in values]).cast(kind)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values[:].tobytes())])
    return _from_numpy(values[:], kind)


def read_back(folder: Path, arrays: Arrays, ending: str) -> Arrays:
    """What pyarrow reads from a file of each column: Parquet has milliseconds in the place of seconds, for example.

    JSON and UUIDs in files of other tools are read as text and bytes.
    """
    folder.mkdir()
    found = {}
    for name, array in arrays.items():
        file = folder / f"{name}.{ending}"
        try:
            write(file, pa.table({name: array}))
            array = one(pq.read_table(file)[name])
        except (pa.ArrowException, OSError):  # Parquet has no such type
            continue
        is_plain = "foreign" in ending and isinstance(array.type, pa.BaseExtensionType)
        found[name] = array.storage if is_plain else array
    return found


def _only_nulls(array: pa.Array) -> pa.Array:
    if pa.types.is_union(array.type):  # it has nulls only in its children
        return array
    if pa.types.is_run_end_encoded(array.type):
        return pa.RunEndEncodedArray.from_arrays(pa.array([len(array)], pa.int32()), pa.nulls(1, array.type.value_type))
    return pa.nulls(len(array), array.type)


# Columns that decide something.


def as_key(folder: Path, name: str, array: pa.Array) -> None:
    out = run(folder, {name: array}, [{"group": {"by": name, "order": "id", "null_keys": "group"}}])
    table = penstock.open(out)[:]
    keys, ids = _by_value(one(table[name])), table["id"].to_pylist()
    assert len(set(map(repr, keys))) == len(keys)
    found = {number: key for key, numbers in zip(keys, ids, strict=True) for number in numbers}
    assert [found[number] for number in range(len(array))] == _by_value(array)


def _by_value(array: pa.Array) -> list[Any]:
    """Like `exact`, but -0.0 is 0.0, as keys see it."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if pa.types.is_floating(plain.type):
        return [None if each is None else repr(each + 0.0) for each in plain.cast(pa.float64()).to_pylist()]
    return exact(plain)


def as_order(folder: Path, name: str, array: pa.Array) -> None:
    out = run(folder, {name: array, "one": pa.array([1] * len(array))}, [{"group": {"by": "one", "order": name}}])
    (found,) = penstock.open(out)[:]["id"].to_pylist()
    assert found == sorted(range(len(array)), key=_sort_keys(array).__getitem__)


def _sort_keys(array: pa.Array) -> list[Any]:
    """Values ascend, NaN comes behind them, and null last."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    is_float = pa.types.is_floating(plain.type)
    values = plain.cast(pa.float64()).to_pylist() if is_float else exact(plain)
    values = [each.encode() if isinstance(each, str) else each for each in values]
    return [(2,) if each is None else (1,) if each != each else (0, each) for each in values]


def as_split(folder: Path, name: str, array: pa.Array) -> None:
    """Equal values are in one split, and every row is in one."""
    out = run(folder, {name: array}, [{"split": {"by": name, "test": 0.5}}])
    splits = {split: penstock.open(out, split)[:]["id"].to_pylist() for split in ("train", "test")}
    assert sorted(splits["train"] + splits["test"]) == list(range(len(array)))
    values = _by_value(array)
    assert not {repr(values[row]) for row in splits["train"]} & {repr(values[row]) for row in splits["test"]}


def as_number(folder: Path, name: str, array: pa.Array) -> None:
    """Least and greatest are exact; what is not finite is counted."""
    out = run(folder, {name: array}, [{"statistics": [name]}])
    facts = json.loads((out / "artifacts" / "statistics.json").read_text())[name]
    if not pa.types.is_fixed_size_list(array.type):
        values = array.cast(pa.float64()).to_pylist() if pa.types.is_floating(array.type) else array.to_pylist()
        finite = [each for each in values if np.isfinite(each)]
        assert (facts["count"], facts["min"], facts["max"]) == (len(finite), min(finite), max(finite))


def as_scaled(folder: Path, name: str, array: pa.Array) -> None:
    """(value - mean) / std to the last digits, as Python's own fractions make it; what is not finite stays."""
    out = run(folder, {name: array}, [{"normalize": {"columns": [name], "type": "float64"}}])
    found = one(penstock.open(out)[:].sort_by("id")[name])
    if pa.types.is_fixed_size_list(array.type):  # all rows are alike
        assert all(each in (0, np.inf) or each != each for each in flat_numbers(found))
        return
    given = flat_numbers(array)
    finite = [Fraction(each) for each in given if np.isfinite(each)]
    mean, std = statistics.mean(finite), Fraction(statistics.pstdev(finite))
    expected = [float((Fraction(each) - mean) / std) if np.isfinite(each) else each for each in given]
    np.testing.assert_allclose(flat_numbers(found), expected, rtol=1e-12, atol=1e-15)


def flat_numbers(array: pa.Array) -> list[Any]:
    if pa.types.is_fixed_size_list(array.type):
        return flat_numbers(array.flatten())
    return (array.cast(pa.float64()) if pa.types.is_floating(array.type) else array).to_pylist()


DECIDING: dict[str, Callable[[Path, str, pa.Array], None]] = {
    "key": as_key,
    "order": as_order,
    "split": as_split,
    "statistics": as_number,
    "normalize": as_scaled,
}


def test_the_page_has_every_type():
    assert set(page()) == {name for name, _ in COLUMNS.values()}


# Together: one job for all columns that are not refused.

WHOLE = {name: array for name, (_, array) in COLUMNS.items()}
FULL = {name: array.slice(0, VALUES) for name, array in WHOLE.items()}  # without nulls
PLAIN = {name: array for name, array in WHOLE.items() if "nulls inside" not in COLUMNS[name][0]}
EMPTY = {name: array.slice(0, 0) for name, array in PLAIN.items()}
NULLS = {name: _only_nulls(array) for name, array in PLAIN.items()}
TYPICAL = ("uint64", "float16", "timestamp[ns, UTC]", "string_view", "dictionary<int8, string>", "bool", "arrow.json")
TYPICAL += ("decimal128(38, 2)", "list<int32>", "fixed_size_list<float32>[3]")


def some(arrays: Arrays) -> Arrays:
    """A few in a fast run."""
    return {name: array for name, array in arrays.items() if workshop.THOROUGH or COLUMNS[name][0] in TYPICAL}


def most(arrays: Arrays) -> Arrays:
    """In a fast run all that are stored, and some that are refused: each of these costs a job."""
    stored = {name: array for name, array in arrays.items() if on_the_page(name, "stored") != REFUSED}
    return arrays if workshop.THOROUGH else some(arrays) | stored


TOGETHER = {
    "no stage": (mapped(), most(WHOLE), "stored"),
    "no row": (mapped(), some(EMPTY), "stored"),
    "only nulls": (mapped(), some(NULLS), "stored"),
    "filter": (filtered, some(WHOLE), "stored"),
    "select": (renamed, some(WHOLE), "stored"),
    "own stage": (through_a_function, some(WHOLE), "stored"),
    "npy": (mapped(format="npy"), some(WHOLE), "stored"),
    "event": (as_events, some(WHOLE), "event of `group`"),
    "arrayrecord": (as_array_records, some(WHOLE), "`format: arrayrecord`"),
    "hf": (exported_to_hf, some(WHOLE), "export to `hf`"),
    "arrays": (mapped(format="arrays"), some(FULL), "`format: arrays`"),
}


@pytest.mark.core
@pytest.mark.parametrize("way", TOGETHER)
def test_a_column_arrives_as_it_was_or_is_refused_by_name(tmp_path, way):
    take, arrays, column = TOGETHER[way]
    arrived, refused = taken(tmp_path, arrays, take)
    found = outcome(arrays, arrived, refused)
    expected = {name: on_the_page(name, column) for name in arrays}
    differences = {COLUMNS[name][0]: (found[name], expected[name]) for name in arrays if found[name] != expected[name]}
    assert differences == {}, "(what happens, what the page says)"


@pytest.mark.parametrize("ending", ["parquet", "foreign.parquet"] if workshop.THOROUGH else ["foreign.parquet"])
def test_parquet_arrow_and_feather_files_of_one_table_give_the_same(tmp_path, ending):
    arrays = read_back(tmp_path / "read", some(WHOLE), ending)
    found = {}
    others = ("arrow", "feather") if workshop.THOROUGH else ("arrow" if ending == "parquet" else "feather",)
    for each in (ending, *others):
        (tmp_path / each).mkdir()
        found[each] = outcome(arrays, *taken(tmp_path / each, arrays, mapped(ending=each)))
    assert [found[each] for each in others] == [found[ending]] * len(others)
    assert len(arrays) > len(some(WHOLE)) // 2


@pytest.mark.thorough  # a thorough run takes them all
def test_hdf5_gives_what_was_stored_or_refuses_by_name(tmp_path):
    arrived, refused = taken(tmp_path, FULL, exported_to_hdf5)
    outcome(FULL, arrived, refused)
    assert len(arrived) > len(FULL) // 3


WRITING = {"hf": exported_to_hf, "hdf5": exported_to_hdf5, "arrays": mapped(format="arrays"), "event": as_events}


@pytest.mark.parametrize("way", WRITING if workshop.THOROUGH else ["hdf5"])
def test_a_table_without_rows_can_be_written_every_way(tmp_path, way):
    arrived, _ = taken(tmp_path, some(EMPTY), WRITING[way])
    assert arrived
    assert all(len(array) == 0 for array in arrived.values())


@pytest.mark.parametrize("stored", ["safetensors", "arrays"])
def test_a_batch_has_the_numbers_that_were_stored(tmp_path, stored):
    arrays = {name: array for name, array in FULL.items() if _is_of_numbers(array.type) and None not in flat(array)}
    out = run(tmp_path / "in", arrays, [], format=stored)
    with penstock.load(out, batch_size=VALUES, shuffle=False, columns=["id", *arrays], workers=0) as loader:
        batch = next(loader)
    assert batch["id"].tolist() == list(range(VALUES))
    for name, array in arrays.items():
        assert exact(_from_numpy(batch[name], array.type)) == exact(array), COLUMNS[name][0]


def flat(array: pa.Array) -> list[Any]:
    return flat(array.flatten()) if pa.types.is_fixed_size_list(array.type) else exact(array)


def _is_of_numbers(kind: pa.DataType) -> bool:
    is_a = pa.types
    if is_a.is_fixed_size_list(kind) and kind.list_size:
        return _is_of_numbers(kind.value_type)
    is_time = is_a.is_temporal(kind) and not is_a.is_interval(kind)
    return bool(is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_boolean(kind) or is_time)


def test_a_batch_of_what_is_no_number_is_refused_by_name(tmp_path):
    names = [name for name, (kind, _) in COLUMNS.items() if kind in ("string", "list<int32>", "decimal128(38, 2)")]
    out = run(tmp_path / "in", {name: FULL[name] for name in names}, [])
    for name in names:
        with pytest.raises(PenstockError, match=name):
            penstock.load(out, batch_size=VALUES, columns=[name], workers=0)


# One by one: columns of tokens.


def as_tokens(kind: pa.DataType) -> pa.Array:
    return pa.array([[0, 127], [5, 1]], kind)


NUMBERS = [pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
LISTS = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda number: pa.list_(number, 2))
TOKENS = [as_tokens(make(number)) for make in LISTS for number in NUMBERS]
TOKENS += [array for array in FULL.values() if not _is_of_numbers(array.type)]


def test_tokens_reach_maxtext_as_they_were_or_are_refused_by_name(tmp_path):
    exported = 0
    for number, array in enumerate(TOKENS if workshop.THOROUGH else TOKENS[::30]):
        try:
            out = run(tmp_path / str(number), {"tokens": array}, [])
            export(out, "maxtext", tmp_path / f"{number} exported")
        except PenstockError as error:
            assert error.exit_code != 1
            assert "token" in str(error)
            continue
        (file,) = (tmp_path / f"{number} exported").glob("*.arrayrecord")
        assert list(open_reader(str(file)).read_all()) == [plainly_encoded(row) for row in array.to_pylist()]
        exported += 1
    assert exported >= 2


# One by one: columns that decide something.

DECIDES = ("uint64", "float16", "dictionary<int8, string>", "list<int32>")


@pytest.mark.parametrize("way", DECIDING)
def test_a_column_decides_by_its_value_or_is_refused_by_name(tmp_path, way):
    """The function that takes the column asserts what it decides; a refusal must name the column."""
    decided = 0
    for name, (kind, array) in COLUMNS.items():
        if kind not in DECIDES and not workshop.THOROUGH:
            continue
        try:
            DECIDING[way](tmp_path / name, name, FULL[name] if way in ("statistics", "normalize") else array)
            decided += 1
        except PenstockError as error:
            assert error.exit_code != 1
            assert re.search(rf"\b{name}\b", str(error)), str(error)
    assert decided >= 2


def test_unions_and_lists_of_uuids_are_refused_without_rows_and_beside_a_column_that_is_not_there(tmp_path):
    union = next(array for kind, array in COLUMNS.values() if kind == "sparse_union")
    for number, array in enumerate([union, pa.nulls(len(union), pa.list_(pa.uuid()))]):
        with pytest.raises(PenstockError, match="column 'x' has type"):
            run(tmp_path / f"{number} empty", {"x": array.slice(0, 0)}, [])
        with pytest.raises(PenstockError, match="missing"):
            run(tmp_path / f"{number} whole", {"x": array}, [{"select": ["missing"]}])


def test_views_inside_of_lists_and_structs_are_read_and_those_inside_of_maps_are_refused_by_name(tmp_path):
    arrays = {name: array for name, (kind, array) in COLUMNS.items() if "list_view<" in kind and kind[:4] != "list"}
    names = {kind: name for name, (kind, _) in COLUMNS.items() if name in arrays}
    taken_out = {"v": f"{names['struct<a: list_view<item: int8>>']}.a"}
    out = run(tmp_path / "struct", arrays, [{"select": taken_out}])
    assert penstock.open(out)[:]["v"].to_pylist() == [[1, 2], None] * 4 + [None, None]
    lists = next(array for kind, array in COLUMNS.values() if kind == "list<list_view<int8>>")
    for name, array in {"lists": lists, "maps": arrays[names["map<string, list_view<item: int8>>"]]}.items():
        with pytest.raises(PenstockError, match=f"column '{name}'") as caught:
            run(tmp_path / name, {name: array}, ["stage_for_every_type:same"])
        assert caught.value.exit_code != 1


def test_nanoseconds_and_views_go_through_own_stages_filters_and_null_keys(tmp_path):
    times = pa.array([1, None, 3], pa.timestamp("ns"))
    texts = pa.array(["a" * 20, "b", None], pa.string_view())
    own = run(tmp_path / "own", {"t": times, "s": texts}, ["stage_for_every_type:same", {"filter": "id >= 1"}])
    assert exact(one(penstock.open(own)[:]["t"])) == [None, 3]
    grouped = run(tmp_path / "grouped", {"t": times, "s": texts}, [{"filter": "s != b"}, {"group": {"by": "s"}}])
    assert penstock.open(grouped)[:]["s"].to_pylist() == ["a" * 20]
    keyed = run(tmp_path / "keyed", {"t": times, "s": texts}, [{"group": {"by": "s"}}])
    assert sorted(penstock.open(keyed)[:]["s"].to_pylist()) == ["a" * 20, "b"]
    assert json.loads((keyed / "rejected" / "00000.jsonl").read_text())["reason"] == "null key"
