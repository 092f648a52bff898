"""Pickled: a .npz with lists of dicts -> its samples as plain arrays, made in a process of its own. Used by npz.py.

Opening a pickle can run any code that is in it. Here that code has a process to itself: what it breaks there breaks
nothing here, and what comes back is a file of plain arrays, opened without any pickle.

| in the file | becomes |
|---|---|
| `strategic_features` or `features`: dicts of name -> number | `strategic_features`, float32, one row per sample |
| `labels`: dicts of head -> whole number | `labels_HEAD`, int16 |
| `masks`: dicts of head -> list of whole numbers | `masks_HEAD`, int8, one row per sample |
| `samples` or `data`: dicts of these three | all of the above |
| `strategic_feature_names`, `feature_names`: texts | the same |
| `df_pickle`: a pickled pandas DataFrame, dict of columns or list of records | the columns that are asked for, alone |

Started as a Child (base/processes/child.py) with the arguments FILE ANSWER [COLUMNS]: ANSWER is an inherited
descriptor, COLUMNS (JSON) are those of `df_pickle`.
"""

import json
import os
import pickle
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np

from penstock.base.errors import InputError
from penstock.base.processes.child import Child, live_as_child, python_path
from penstock.prepare.sources.reading.input_file import unusable
from penstock.shards.foreign.batch_file import METADATA, write_npz
from penstock.shards.schema import NAME_ARRAYS, FeatureNames

Array = np.ndarray[Any, Any]
Plain = tuple[dict[str, Array], FeatureNames]

FEATURES = "strategic_features"
FRAME = "df_pickle"
WHOLE_NUMBERS = {"labels": "i2", "masks": "i1"}
_NUMBER = (int, float, np.integer, np.floating, np.bool_)
_MOST_EXACT = 2**24  # every whole number up to here is a float32
_TOLD_BYTES = 4096  # of what it wrote before it died


def is_metadata(name: str) -> bool:
    """Whether an array is about the file and not its samples, whatever it holds."""
    return name == METADATA or name.startswith(f"{METADATA}_")


# In the process that reads the file.


@contextmanager
def open_pickles(location: str, columns: Sequence[str] | None = None) -> Iterator[tuple[BinaryIO, FeatureNames]]:
    """(the file's samples as a .npz of plain arrays, the names of its features); or, of `df_pickle`, these columns."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as told:
        code = _run(location, answer.fileno(), told.fileno(), columns)
        yield answer, _names(answer, code, location, told)


def _run(location: str, answer: int, told: int, columns: Sequence[str] | None) -> int:
    child = Child(
        ["-m", "penstock.prepare.sources.batches.pickled"],
        [location, answer, *([] if columns is None else [json.dumps(columns)])],
        inherits=(answer,),
        environment=python_path(),
        stdout=2,  # what a pickle prints is no answer
        stderr=told,
    )
    try:
        return child.process.wait()
    finally:
        child.end()


def _names(answer: Any, code: int, location: str, told: Any) -> FeatureNames:
    """The names it answered; an InputError of its own is raised here, and so is any other end."""
    answer.seek(0)
    with suppress(ValueError, EOFError, KeyError, zipfile.BadZipFile):  # it ended before it had answered
        if code == InputError.exit_code:
            raise InputError(**json.load(answer))
        if code == 0:
            with np.load(answer) as plain:
                names: FeatureNames = json.loads(plain[METADATA].tobytes())
                return names
    death = f"died of signal {-code}" if code < 0 else f"ended with exit code {code} and without an answer"
    told.seek(max(0, told.seek(0, 2) - _TOLD_BYTES))
    lines = told.read().decode(errors="replace").strip().splitlines()
    raise unusable(f"the process that opened its pickles {death}{': ' + lines[-1] if lines else ''}", location)


# In the process that opens the pickles.


def main() -> None:
    _, (location, answer, *columns) = live_as_child()
    with os.fdopen(int(answer), "wb") as file:
        try:
            arrays, names = frame_columns(location, json.loads(columns[0])) if columns else plain_arrays(location)
        except InputError as error:
            facts = {"what": error.what, "where": error.where, "next_step": error.next_step}
            file.write(json.dumps(facts).encode())
            file.close()
            sys.exit(InputError.exit_code)
        arrays[METADATA] = np.frombuffer(json.dumps(names).encode(), "u1")
        write_npz(file, ((name, array.dtype, array.shape, [array]) for name, array in arrays.items()))


def plain_arrays(location: str) -> Plain:
    """Every array of the file that is not metadata or a table, without objects. OPENS THE PICKLES."""
    _refuse_damaged(location)
    with np.load(location, allow_pickle=True) as file:
        names = [name for name in file.files if not is_metadata(name) and name != FRAME]
        return _together((_plain(name, file[name], location) for name in names), location)


def _refuse_damaged(location: str) -> None:
    """A pickle may end before its checksum is looked at."""
    with zipfile.ZipFile(location) as archive:
        if damaged := archive.testzip():
            raise InputError(f"{damaged!r} is damaged: its checksum differs", where=location)


def _together(parts: Iterable[Plain], location: str) -> Plain:
    arrays: dict[str, Array] = {}
    names: FeatureNames = {}
    for more, told in parts:
        for name in arrays.keys() & more.keys():
            raise InputError(f"two arrays of the file become {name!r}", where=location)
        arrays |= more
        names |= told
    return arrays, names


def _plain(name: str, array: Array, location: str) -> Plain:
    if not array.dtype.hasobject:
        return {name: array}, {}
    where = f"{location}, {name!r}"
    samples = array.item() if array.ndim == 0 else list(array)
    if not isinstance(samples, list | tuple):
        raise InputError(f"it holds one {type(samples).__name__}, not a list of samples", where=where)
    if name in NAME_ARRAYS.values():
        return {name: _texts(name, samples, where)}, {}
    if name not in ("samples", "data"):
        return _section(name, samples, where)
    keys = _keys(samples, where)
    return _together((_section(key, [sample[key] for sample in samples], where) for key in keys), location)


def _section(name: str, samples: Sequence[Any], where: str) -> Plain:
    if name in (FEATURES, "features"):
        return _features(samples, where)
    if name in WHOLE_NUMBERS:
        return _whole_numbers(name, samples, where), {}
    raise InputError(
        f"{name!r} is a pickle that is not expected here; expected are {FEATURES}, features, labels and masks, or "
        "samples or data with these inside",
        where=where,
        next_step=f"write the file again without it, or under a name that begins with `{METADATA}_`",
    )


def _keys(samples: Sequence[Any], where: str) -> list[Any]:
    """The keys of the first sample, which all the others have as well, and no more."""
    for number, sample in enumerate(samples):
        if not isinstance(sample, dict):
            raise InputError(f"a sample is {type(sample).__name__}, not a dict", where=f"{where}, sample {number:,}")
        for key in sample.keys() ^ samples[0].keys():
            has, has_not = (number, 0) if key in sample else (0, number)
            raise InputError(
                f"sample {has:,} has {key!r}, sample {has_not:,} has not", where=f"{where}, sample {number:,}"
            )
    return list(samples[0]) if samples else []


def _features(samples: Sequence[Any], where: str) -> Plain:
    keys = _keys(samples, where)
    values = np.empty((len(samples), len(keys)), "f4")
    for number, sample in enumerate(samples):
        row = [sample[key] for key in keys]
        wrong = next((key for key, value in zip(keys, row, strict=True) if not isinstance(value, _NUMBER)), None)
        if wrong is not None:
            what = f"feature {wrong!r} is {_shown(sample[wrong])}, not a number"
            raise InputError(what, where=f"{where}, sample {number:,}")
        try:
            with np.errstate(over="raise"):
                values[number] = np.array(row, "f8")
            _refuse_rounded(keys, row, values[number], f"{where}, sample {number:,}")
        except (FloatingPointError, OverflowError):
            largest = max(keys, key=lambda key: abs(sample[key]))
            what = f"feature {largest!r} is {_shown(sample[largest])}, more than a float32 can hold"
            raise InputError(what, where=f"{where}, sample {number:,}") from None
    return {FEATURES: values}, {FEATURES: [str(key) for key in keys]}


def _refuse_rounded(keys: Sequence[Any], row: Sequence[Any], values: Array, where: str) -> None:
    """A whole number must be the same as a float32."""
    for place in np.flatnonzero(np.abs(values) >= _MOST_EXACT).tolist():
        if isinstance(row[place], int | np.integer) and int(values[place]) != int(row[place]):
            raise InputError(f"feature {keys[place]!r} is {row[place]}, which float32 cannot hold exactly", where=where)


def _whole_numbers(section: str, samples: Sequence[Any], where: str) -> dict[str, Array]:
    """One array per head. A value that the type cannot hold exactly is refused."""
    arrays = {}
    for head in _keys(samples, where):
        shape = () if section == "labels" else np.shape(samples[0][head])
        values = np.empty((len(samples), *shape), WHOLE_NUMBERS[section])
        for number, sample in enumerate(samples):
            reason = _put(values, number, sample[head])
            if reason:
                what = f"{section} {head!r} of a sample is {_shown(sample[head])}, {reason}"
                raise InputError(what, where=f"{where}, sample {number:,}")
        arrays[f"{section}_{head}"] = values
    return arrays


def _put(values: Array, number: int, value: Any) -> str | None:
    """Put a value into its row, or say why it does not fit."""
    try:
        given = np.asarray(value)
    except ValueError as error:  # a list of lists of several lengths
        return str(error)
    if given.shape != values.shape[1:]:
        return f"of shape {given.shape}, where {values.shape[1:]} is expected"
    if given.dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            values[number] = given.astype(values.dtype)
        if np.array_equal(values[number], given):
            return None
    return f"which {values.dtype} cannot hold"


# The table beside the arrays.


def frame_columns(location: str, columns: Sequence[str]) -> Plain:
    """Read the named columns from the pickled table, as far as it has them. OPENS THE PICKLE."""
    where = f"{location}, {FRAME!r}"
    _refuse_damaged(location)
    with np.load(location, allow_pickle=True) as file:
        held = file[FRAME].item()
    try:
        frame = pickle.loads(held) if isinstance(held, bytes) else held
    except ImportError as error:
        raise InputError(
            f"opening it needs a package that cannot be imported: {error}",
            where=where,
            next_step="install the packages that wrote it, such as `pip install pandas`, beside penstock",
        ) from error
    if isinstance(frame, list | tuple):
        found = {name: [record[name] for record in frame] for name in _keys(frame, where) if name in columns}
    elif isinstance(frame, dict) or hasattr(frame, "columns"):  # pandas need not be imported to know its DataFrame
        found = {name: frame[name] for name in columns if name in (frame if isinstance(frame, dict) else frame.columns)}
    else:
        raise InputError(f"it holds a {type(frame).__name__}, not a table with columns", where=where)
    return {name: _column(name, values, where) for name, values in found.items()}, {}


def _column(name: str, values: Any, where: str) -> Array:
    """The values in their own type; Python's values must all be of one."""
    if isinstance(dtype := getattr(values, "dtype", None), np.dtype) and dtype.kind in "biuf":
        return np.asarray(values)
    held = list(values)
    kinds = {type(value) for value in held}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return _texts(name, held, where)
    for word in _words_of(held[0]) if len(kinds) == 1 else ():
        with suppress(OverflowError):
            return np.array(held, word)
    words = ", ".join(sorted(kind.__name__ for kind in kinds)) or "no values"
    raise InputError(
        f"column {name!r} holds {words}, but a column holds 64-bit numbers, bools or text, of one type",
        where=where,
        next_step="write the file again, or do not use that column",
    )


def _words_of(value: Any) -> tuple[str, ...]:
    """The types of numpy that can hold a number and others of its kind."""
    if isinstance(value, np.generic):
        return (value.dtype.str,) if value.dtype.kind in "biuf" else ()
    return {bool: ("?",), int: ("i8", "u8"), float: ("f8",)}.get(type(value), ())


def _texts(name: str, values: Sequence[Any], where: str) -> Array:
    for number, value in enumerate(values):
        if not isinstance(value, str) or value.endswith("\0"):
            raise InputError(
                f"{name!r} holds {_shown(value)}, where text without a NUL at its end is expected",
                where=f"{where}, value {number:,}",
            )
    return np.array([str(value) for value in values])


def _shown(value: Any) -> str:
    return repr(value)[:80]


if __name__ == "__main__":
    main()
