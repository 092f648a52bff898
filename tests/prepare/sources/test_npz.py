"""Npz: every sample arrives once, in order, as it was written; a pickle is not opened unless it is trusted."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as generated

from penstock.base.errors import FileError, InputError
from penstock.base.faults import Sweep, sweeping
from penstock.base.stores import open_store
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import File, FileSurvey, Reading, SourceOptions, UnreadablePart, npz, read_segment
from penstock.prepare.sources.batches import contents
from penstock.shards.foreign.batch_file import BatchFileWriter
from penstock.shards.schema import schema_from_arrow
from tests.shards.making import FIXED, bits, make_batch

SAVES = [np.savez, np.savez_compressed]
NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?"]
SHAPES = [pa.list_(pa.float16(), 3), pa.list_(pa.list_(pa.int8(), 8), 8), pa.list_(pa.bool_(), 2)]
HELD = [*FIXED, *SHAPES, pa.decimal128(38, 10), pa.binary(3)]


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    monkeypatch.setattr(contents, "_said", set())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("npz")


def survey(path: Path, trust: bool = False) -> FileSurvey:
    return npz.SOURCE.survey(File(0, path.name, str(path), "npz"), SourceOptions(trust_pickle=trust), 1 << 30)


def read(
    path: Path,
    columns: list[str] | None = None,
    rows_at_once: int = 1000,
    trust: bool = False,
    like: Path | None = None,
) -> list[Rows]:
    """All rows; `like` is the first file of the job, where that is another."""
    surveyed = survey(path, trust)
    schema = survey(like, trust).schema if like else surveyed.schema
    names = tuple(columns or schema.names)
    reading = Reading(schema, names, False, rows_at_once, 1 << 20, ("npz",), (SourceOptions(trust_pickle=trust),))
    (segment,) = surveyed.pieces
    answer = list(npz.SOURCE.read(segment, reading))
    for rows in answer:
        rows.batch.validate(full=True)
        assert len(rows) == len(rows.ordinals) <= rows_at_once
        assert rows.batch.schema.types == [schema.field(name).type for name in names]
    return answer


def column(answer: list[Rows], name: str) -> list[Any]:
    return [value for rows in answer for value in bits(rows.batch[name])]


def values(answer: list[Rows], name: str) -> list[Any]:
    return [value for rows in answer for value in rows.batch[name].to_pylist()]


def samples(count: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {
        "strategic_features": rng.normal(size=(count, 6)).astype("f4"),
        "labels_action": rng.integers(-1, 5, count).astype("i2"),
        "masks_action": rng.integers(0, 2, (count, 4)).astype("i1"),
    }


# Arrays.


@given(data=st.data(), compressed=st.booleans(), count=st.integers(0, 12), rows_at_once=st.integers(1, 14))
def test_arrays_of_any_number_and_shape_come_back_bit_by_bit(folder, data, compressed, count, rows_at_once):
    dtype = np.dtype(data.draw(st.sampled_from(NUMBERS))).newbyteorder(data.draw(st.sampled_from("<>")))
    shape = (count, *data.draw(st.lists(st.integers(1, 3), max_size=3)))
    array = data.draw(generated.arrays(dtype, shape))
    order = data.draw(st.sampled_from("CF"))
    path = folder / "arrays.npz"
    SAVES[compressed](path, **samples(count), x=np.asarray(array, order=order))
    answer = read(path, rows_at_once=rows_at_once)
    native = array.astype(dtype.newbyteorder("="))
    expected = native.view(f"u{dtype.itemsize}") if dtype.kind == "f" else native
    assert column(answer, "x") == expected.tolist()
    assert column(answer, "strategic_features") == samples(count)["strategic_features"].view("u4").tolist()
    assert [ordinal for rows in answer for ordinal in rows.ordinals] == list(range(count))
    assert {rows.paths[0] for rows in answer} <= {"arrays.npz"}


def test_columns_have_the_types_of_the_arrays(tmp_path):
    path = tmp_path / "a.npz"
    board = np.zeros((2, 8, 8), "i1")
    np.savez(
        path, **samples(2), board=board, game=np.array(["a", "bé"]), code=np.array([b"x", b"y"]), won=[True, False]
    )
    surveyed = survey(path)
    assert surveyed.schema == pa.schema(
        {
            "strategic_features": pa.list_(pa.float32(), 6),
            "labels_action": pa.int16(),
            "masks_action": pa.list_(pa.int8(), 4),
            "board": pa.list_(pa.list_(pa.int8(), 8), 8),
            "game": pa.string(),
            "code": pa.string(),
            "won": pa.bool_(),
        }
    )
    (piece,) = surveyed.pieces
    assert (piece.first, piece.last, piece.ordinal, piece.rows) == (0, 1, 0, 2)
    assert piece.bytes == path.stat().st_size
    assert values(read(path), "game") == ["a", "bé"]
    assert values(read(path), "code") == ["x", "y"]


@pytest.mark.parametrize("save", SAVES)
def test_a_label_of_minus_one_a_nan_and_a_mask_of_zeros_are_preserved(tmp_path, save):
    features = np.array([[0x7FC12345, 0xFFC00001]], "u4").view("f4")
    save(tmp_path / "a.npz", features=features, labels_a=np.array([-1], "i2"), masks_a=np.zeros((1, 3), "i1"))
    answer = read(tmp_path / "a.npz")
    assert column(answer, "features") == [[0x7FC12345, 0xFFC00001]]
    assert values(answer, "labels_a") == [-1]
    assert values(answer, "masks_a") == [[0, 0, 0]]


def test_columns_come_in_the_order_asked_for(tmp_path):
    np.savez(tmp_path / "a.npz", **samples(5))
    (rows,) = read(tmp_path / "a.npz", columns=["masks_action", "labels_action"])
    assert rows.batch.schema.names == ["masks_action", "labels_action"]


def test_what_has_no_row_a_sample_is_left_out_and_said_once(tmp_path):
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, **samples(5), metadata_ids=np.arange(5), scale=np.float32(3), sizes=np.arange(2))
    with pytest.warns(UserWarning, match="'scale' does not have one row per sample and is left out"):
        assert survey(tmp_path / "a.npz").schema.names == list(samples(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        survey(tmp_path / "b.npz")


def test_labels_of_another_length_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", **{**samples(5), "labels_action": np.zeros(4, "i2")})
    with pytest.raises(InputError, match="array 'labels_action' has 4 rows, 'strategic_features' has 5"):
        survey(tmp_path / "a.npz")


def test_text_that_is_not_utf8_is_set_aside(tmp_path):
    np.savez(tmp_path / "a.npz", **samples(3), name=np.array([b"ok", b"\xff", b"fine"]))
    (rows,) = read(tmp_path / "a.npz")
    assert rows.batch["name"].to_pylist() == ["ok", "fine"]
    assert rows.ordinals.tolist() == [0, 2]
    assert [(aside.reason, aside.count) for aside in rows.set_aside] == [("text is not UTF-8", 1)]


@pytest.mark.parametrize(
    "array",
    [
        *(np.zeros(3, kind) for kind in ("c8", "M8[s]", "m8[ns]", np.longdouble, [("a", "i4"), ("b", "f4")], "V4")),
        np.zeros((3, 0)),
        np.array([["a"]] * 3),
    ],
    ids=lambda array: str(array.dtype),
)
def test_an_array_that_no_column_can_hold_is_refused_by_name(tmp_path, array):
    np.savez(tmp_path / "a.npz", **samples(3), odd=array)
    with pytest.raises(InputError, match="array 'odd' holds"):
        survey(tmp_path / "a.npz")


def test_another_type_than_the_first_files_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **samples(3))
    np.savez(tmp_path / "b.npz", **{**samples(3), "labels_action": np.zeros(3, "i8")})
    with pytest.raises(InputError, match="column 'labels_action' is int64, not int16 as in the first file"):
        read(tmp_path / "b.npz", like=tmp_path / "a.npz")


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("order", "CF")
def test_memory_is_that_of_a_few_rows_whatever_the_files_size(tmp_path, save, order):
    save(tmp_path / "a.npz", features=np.zeros((40_000, 200), "f4", order), labels_a=np.zeros(40_000, "i2"))  # 32 MB
    tracemalloc.start()
    try:
        surveyed = survey(tmp_path / "a.npz")
        names = tuple(surveyed.schema.names)
        reading = Reading(surveyed.schema, names, False, 500, 1 << 20, ("npz",), (SourceOptions(),))
        assert sum(len(rows) for rows in npz.SOURCE.read(surveyed.pieces[0], reading)) == 40_000
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()


# Batch files of our own.


@pytest.mark.proof
@given(
    count=st.integers(1, 40), batch_size=st.integers(1, 50), rows_at_once=st.integers(1, 50), seed=st.integers(0, 99)
)
def test_rows_of_a_batch_file_come_back_with_the_positions_they_had(
    tmp_path_factory, count, batch_size, rows_at_once, seed
):
    root = tmp_path_factory.mktemp("own")
    batch = make_batch(count, seed, nulls=0, types=HELD)
    texts = pa.array([["", "naïve", "\U0001f600", "a\0b"][number % 4] for number in range(count)])
    batch = batch.append_column("text", texts).append_column("metadata_like", texts.dictionary_encode())
    rng = np.random.default_rng(seed)
    ordinals = np.cumsum(rng.choice([1, 1, 1, 5], count))
    paths = np.sort(rng.choice(["a.txt", "b/ö.txt"], count))
    writer = BatchFileWriter(open_store(str(root)), 0, schema_from_arrow(batch.schema, "here"), batch_size)
    for path in ("a.txt", "b/ö.txt"):
        chosen = paths == path
        writer.write(batch.filter(pa.array(chosen)), path, ordinals[chosen])
    answer = [rows for file in writer.commit().files for rows in read(root / file.file, rows_at_once=rows_at_once)]
    assert [path for rows in answer for path in [rows.paths[0]] * len(rows)] == paths.tolist()
    assert [ordinal for rows in answer for ordinal in rows.ordinals] == ordinals.tolist()
    for name, kind in zip(batch.schema.names, batch.schema.types, strict=True):
        assert column(answer, name) == bits(batch[name])
        assert answer[0].batch[name].type == kind


def own_file(folder: Path) -> Path:
    batch = make_batch(9, 1, nulls=0, types=[pa.int16(), pa.list_(pa.float32(), 3), pa.bool_()])
    batch = batch.append_column("text", pa.array(list("abcdefghi")))
    writer = BatchFileWriter(open_store(str(folder)), 0, schema_from_arrow(batch.schema, "here"), 100)
    writer.write(batch, "a.txt", np.arange(9))
    writer.commit()
    return folder / "batch_0000.npz"


def everything(path: Path) -> list[Any]:
    answer = read(path, rows_at_once=4)
    names = answer[0].batch.schema.names
    return [
        *names,
        *[[rows.paths[0], rows.ordinals.tolist(), [bits(rows.batch[name]) for name in names]] for rows in answer],
    ]


def savez_compressed_file(folder: Path) -> Path:
    np.savez_compressed(folder / "a.npz", **samples(9))
    return folder / "a.npz"


@pytest.mark.proof
@pytest.mark.parametrize("make", [own_file, savez_compressed_file])
def test_a_flipped_byte_is_told_or_changes_nothing(tmp_path, make):
    path = make(tmp_path)
    whole, expected = path.read_bytes(), everything(path)
    told = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        try:
            assert everything(path) == expected, f"byte {place}"
        except (InputError, UnreadablePart):
            told += 1
    assert told > len(whole) // 2


def test_damaged_metadata_is_not_taken_for_someone_elses(tmp_path):
    """Or a file would lose the positions of its rows without a word."""
    batch = pa.RecordBatch.from_pydict({"x": np.arange(1000)})
    writer = BatchFileWriter(open_store(str(tmp_path)), 0, schema_from_arrow(batch.schema, "here"), 1000)
    writer.write(batch, "a.txt", np.arange(0, 2000, 2))
    writer.commit()
    whole = (tmp_path / "batch_0000.npz").read_bytes()
    for old, new in ((b'{"penstock"', b'{"penstork"'), (b"'|u1'", b"'|i1'")):
        assert old in whole
        (tmp_path / "batch_0000.npz").write_bytes(whole.replace(old, new))
        with pytest.raises(InputError, match="its metadata cannot be read: Bad CRC-32"):
            survey(tmp_path / "batch_0000.npz")


def test_a_batch_file_of_another_version_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), metadata=np.frombuffer(b'{"penstock": 2}', "u1"))
    with pytest.raises(InputError, match="has version 2, this penstock reads version 1"):
        survey(tmp_path / "a.npz")


@pytest.mark.parametrize("save", SAVES)
def test_a_failing_disk_is_not_taken_for_a_damaged_file(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, **samples(5000))
    surveyed = survey(path)
    reading = Reading(surveyed.schema, ("labels_action",), False, 10, 1 << 20, ("npz",), (SourceOptions(),))
    watched = Sweep()
    with sweeping(watched):
        list(npz.SOURCE.read(surveyed.pieces[0], reading))
    for number in range(len(watched.operations)):
        with pytest.raises(FileError) as caught, sweeping(Sweep(fail_at=number, error=errno.EIO)):
            list(npz.SOURCE.read(surveyed.pieces[0], reading))
        assert caught.value.where == str(path)


def test_a_part_known_to_be_unreadable_is_passed_over(tmp_path):
    np.savez(tmp_path / "a.npz", **samples(5))
    surveyed = survey(tmp_path / "a.npz")
    reading = Reading(surveyed.schema, ("labels_action",), False, 10, 1 << 20, ("npz",), (SourceOptions(),))
    assert list(read_segment(surveyed.pieces[0], reading, frozenset({0}))) == []


def test_a_flipped_byte_in_an_array_is_told_by_the_arrays_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **samples(1000))
    whole = path.read_bytes()
    place = whole.index(samples(1000)["strategic_features"].tobytes()) + 10_000
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(UnreadablePart, match=re.escape("Bad CRC-32 for file 'strategic_features.npy'")) as caught:
        read(path, rows_at_once=7)
    assert (caught.value.part, caught.value.ordinal, caught.value.rows) == (0, 0, 1000)


@pytest.mark.parametrize("make", [own_file, savez_compressed_file])
def test_a_file_that_breaks_off_is_refused_by_name_at_the_survey(tmp_path, make):
    path = make(tmp_path)
    whole = path.read_bytes()
    for kept in range(0, len(whole), 7):
        path.write_bytes(whole[:kept])
        with pytest.raises(InputError, match=r"not a readable \.npz file") as caught:
            survey(path)
        assert str(path) in str(caught.value)


def test_files_of_other_kinds_are_refused_with_the_reason(tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("no zip at all")
    with pytest.raises(InputError, match=r"not a readable \.npz file: File is not a zip file"):
        survey(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InputError, match=re.escape("'readme.txt' is not a readable .npy array")):
        survey(path)
    np.savez(path, scale=3)
    with pytest.raises(InputError, match="none of its arrays has one row per sample"):
        survey(path)


# Pickles.


class Trap:
    """Opening its pickle makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def objects(*values: Any) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def old_samples(count: int = 4) -> dict[str, np.ndarray[Any, Any]]:
    keys = ["gold", "pieces", "check"]
    return {
        "strategic_features": objects(
            *[dict(zip(keys[:: (-1) ** n], [n, 0.5, np.nan][:: (-1) ** n], strict=True)) for n in range(count)]
        ),
        "labels": objects(*[{"action": n - 1, "target": np.int64(n)} for n in range(count)]),
        "masks": objects(*[{"action": [0, 0, 0], "target": np.array([n % 2, 1], "?")} for n in range(count)]),
    }


def test_a_pickle_is_never_opened_without_trust(tmp_path):
    path, sprung = tmp_path / "a.npz", tmp_path / "sprung"
    np.savez(path, **{**old_samples(1), "labels": objects(Trap(sprung))})
    with pytest.raises(InputError, match="opening a pickle can run any code") as caught:
        survey(path)
    assert str(path) in str(caught.value)
    assert "trust_pickle: true" in str(caught.value)
    schema = pa.schema({"labels": pa.int16()})
    reading = Reading(schema, ("labels",), False, 10, 1 << 20, ("npz",), (SourceOptions(),))
    np.savez(tmp_path / "b.npz", **samples(1))
    (segment,) = survey(tmp_path / "b.npz").pieces
    os.replace(path, tmp_path / "b.npz")
    with pytest.raises(InputError, match="opening a pickle can run any code"):
        list(npz.SOURCE.read(segment, reading))
    assert not sprung.exists()


@pytest.mark.proof
@pytest.mark.parametrize("trust", [False, True])
def test_a_pickled_metadata_is_left_out_and_never_opened(tmp_path, trust):
    sprung = tmp_path / "sprung"
    trap = objects(Trap(sprung))
    np.savez(tmp_path / "a.npz", **samples(3), metadata=trap, metadata_games=trap)
    with pytest.warns(UserWarning, match="'metadata' is a pickle.* left out, unopened"):
        answer = read(tmp_path / "a.npz", trust=trust)
    assert values(answer, "labels_action") == samples(3)["labels_action"].tolist()
    if trust:
        np.savez(tmp_path / "b.npz", **old_samples(3), metadata=trap)
        with pytest.warns(UserWarning, match="trust_pickle is on"):
            assert values(read(tmp_path / "b.npz", trust=True), "labels_action") == [-1, 0, 1]
    assert not sprung.exists()


def test_a_trusted_pickle_is_opened_in_another_process_after_a_warning(tmp_path):
    class Told:
        def __reduce__(self) -> Any:
            return exec, (f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))",)

    np.savez(tmp_path / "a.npz", **old_samples(2), samples=objects(Told()))
    with pytest.warns(UserWarning, match="can run any code"), pytest.raises(InputError, match="sample is NoneType"):
        survey(tmp_path / "a.npz", trust=True)
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def in_one(old: dict[str, np.ndarray[Any, Any]]) -> list[dict[str, Any]]:
    return [dict(zip(old, each, strict=True)) for each in zip(*old.values(), strict=True)]


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore:trust_pickle")
@pytest.mark.parametrize(
    "stored",
    [
        old_samples(),
        {name: np.array(list(array), object) for name, array in old_samples().items()},
        {"samples": objects(*in_one(old_samples()))},
        {"features" if "features" in name else name: array for name, array in old_samples().items()},
    ],
)
def test_lists_of_dicts_become_the_arrays_of_today(tmp_path, stored):
    np.savez_compressed(tmp_path / "a.npz", **stored, turn=np.arange(4))
    answer = read(tmp_path / "a.npz", trust=True, rows_at_once=3)
    assert survey(tmp_path / "a.npz", trust=True).schema == pa.schema(
        {
            "strategic_features": pa.list_(pa.float32(), 3),
            "labels_action": pa.int16(),
            "labels_target": pa.int16(),
            "masks_action": pa.list_(pa.int8(), 3),
            "masks_target": pa.list_(pa.int8(), 2),
            "turn": pa.int64(),
        }
    )
    features = np.array(values(answer, "strategic_features"))
    np.testing.assert_array_equal(features, [[n, 0.5, np.nan] for n in range(4)])
    assert values(answer, "labels_action") == [-1, 0, 1, 2]
    assert values(answer, "labels_target") == values(answer, "turn") == [0, 1, 2, 3]
    assert values(answer, "masks_action") == [[0, 0, 0]] * 4
    assert values(answer, "masks_target") == [[0, 1], [1, 1], [0, 1], [1, 1]]


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore:trust_pickle")
def test_a_list_inside_an_array_of_no_dimension_is_read_too(tmp_path):
    held = np.empty((), object)
    held[()] = in_one(old_samples())
    np.savez(tmp_path / "a.npz", data=held)
    assert values(read(tmp_path / "a.npz", trust=True), "labels_target") == [0, 1, 2, 3]


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore:trust_pickle")
def test_features_of_a_later_file_are_put_in_the_order_of_the_first(tmp_path):
    np.savez(tmp_path / "a.npz", features=objects({"gold": 1, "pieces": 2}))
    np.savez(tmp_path / "b.npz", features=objects({"pieces": 20, "gold": 10}))
    np.savez(tmp_path / "c.npz", features=objects({"pieces": 20, "silver": 10}))
    answer = read(tmp_path / "b.npz", trust=True, like=tmp_path / "a.npz")
    assert values(answer, "strategic_features") == [[10, 20]]
    with pytest.raises(
        InputError, match="it has feature 'silver', which the first file has not; it lacks feature 'gold'"
    ):
        read(tmp_path / "c.npz", trust=True, like=tmp_path / "a.npz")


def changed(section: str, sample: int, key: str, value: Any) -> dict[str, np.ndarray[Any, Any]]:
    old = old_samples()
    if value is KeyError:
        del old[section][sample][key]
    else:
        old[section][sample][key] = value
    return old


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore:trust_pickle")
@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (changed("labels", 2, "action", KeyError), "sample 0 has 'action', sample 2 has not"),
        (changed("labels", 2, "extra", 1), "sample 2 has 'extra', sample 0 has not"),
        (changed("strategic_features", 2, "extra", 1), "sample 2 has 'extra', sample 0 has not"),
        (changed("labels", 2, "action", 40_000), "labels 'action' of a sample is 40000, which int16 cannot hold"),
        (changed("labels", 2, "action", 2**70), f"is {2**70}, which int16 cannot hold"),
        (changed("labels", 2, "action", 1.5), "is 1.5, which int16 cannot hold"),
        (changed("labels", 2, "action", "1"), "is '1', which int16 cannot hold"),
        (changed("labels", 2, "action", np.nan), "is nan, which int16 cannot hold"),
        (
            changed("masks", 2, "action", [1, 1]),
            r"masks 'action' of a sample is \[1, 1\], of shape \(2,\), where \(3,\)",
        ),
        (changed("masks", 2, "action", [1, 1, 128]), "which int8 cannot hold"),
        (changed("strategic_features", 2, "gold", 1e39), r"feature 'gold' is 1e\+39, more than a float32 can hold"),
        (changed("strategic_features", 2, "gold", "7"), "feature 'gold' is '7', not a number"),
        (changed("strategic_features", 2, "gold", None), "feature 'gold' is None, not a number"),
        ({**old_samples(), "others": objects(1, "a")}, "'others' is a pickle that is not expected here"),
        ({**old_samples(), "labels": objects(3)}, "a sample is int, not a dict"),
        ({**old_samples(), "labels": old_samples(3)["labels"]}, "has 3 rows, 'strategic_features' has 4"),
        ({**old_samples(), "samples": objects(*in_one(old_samples()))}, "two arrays of the file become"),
    ],
)
def test_a_sample_that_does_not_fit_is_told_with_file_sample_and_key(tmp_path, stored, reason):
    np.savez(tmp_path / "a.npz", **stored)
    with pytest.raises(InputError, match=reason) as caught:
        survey(tmp_path / "a.npz", trust=True)
    assert str(tmp_path / "a.npz") in str(caught.value)
    if "sample " in reason or "feature " in reason or "cannot hold" in reason:
        assert str(caught.value.where).endswith(", sample 0" if "not a dict" in reason else ", sample 2")


class Ends:
    """Opening its pickle ends the process, or fails."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> Any:
        return exec, (self.code,)


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore:trust_pickle")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", "died of signal 11"),
        ("import os; os._exit(0)", "ended with exit code 0 and without an answer"),
        ("import os; os._exit(4)", "ended with exit code 4 and without an answer"),
        ("print('hello'); raise ValueError('no such thing')", "exit code 1 .*: ValueError: no such thing"),
        ("import nowhere", "exit code 1 .*: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_pickle_that_ends_its_process_is_told_by_the_files_name(tmp_path, code, reason):
    np.savez(tmp_path / "a.npz", labels=objects(Ends(code)))
    with pytest.raises(InputError, match=reason) as caught:
        survey(tmp_path / "a.npz", trust=True)
    assert caught.value.where == str(tmp_path / "a.npz")


@pytest.mark.filterwarnings("ignore:trust_pickle")
def test_a_flipped_byte_in_a_pickle_is_told_before_it_is_opened(tmp_path):
    path, sprung = tmp_path / "a.npz", tmp_path / "sprung"
    np.savez(path, **old_samples(500), samples=objects(Trap(sprung)))
    whole = path.read_bytes()
    place = whole.index(b"gold")
    path.write_bytes(whole[:place] + b"bold" + whole[place + 4 :])
    with pytest.raises(InputError, match=r"'strategic_features\.npy' is damaged"):
        survey(path, trust=True)
    assert not sprung.exists()


def test_the_process_of_a_pickle_dies_with_its_parent(tmp_path):
    told = tmp_path / "pid"
    code = f"import os, time; f = open({str(told)!r}, 'w'); f.write(str(os.getpid())); f.close(); time.sleep(100)"
    np.savez(tmp_path / "a.npz", labels=objects(Ends(code)))
    module = "penstock.prepare.sources.batches.pickled"
    script = f"import sys; from {module} import open_pickles; open_pickles(sys.argv[1]).__enter__()"
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "a.npz")])
    try:
        wait_until(lambda: told.exists() and told.read_text() != "")
        child = int(told.read_text())
        assert is_alive(child)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not is_alive(child))


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(happened: Any) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
