"""Pickled: a .npz with lists of dicts -> its samples as plain arrays, made in a process of its own. Used by npz.py.

Opening a pickle can run any code that is in it. Here that code has a process to itself: what it breaks there breaks
nothing here, and what comes back is a file of plain arrays, opened without any pickle.

| in the file | becomes |
|---|---|
| `strategic_features` or `features`: dicts of name -> number | `strategic_features`, float32, a row a sample |
| `labels`: dicts of head -> whole number | `labels_HEAD`, int16 |
| `masks`: dicts of head -> list of whole numbers | `masks_HEAD`, int8, a row a sample |
| `samples` or `data`: dicts of these three | all of the above |

Started as `python -m penstock.prepare.sources.pickled FILE ANSWER`, ANSWER an inherited descriptor. It never outlives
its parent: its standard input is a pipe whose other end only the parent holds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np

from penstock.base.errors import InputError
from penstock.shards.batch_file import METADATA, write_npz

Array = np.ndarray[Any, Any]
Names = list[str] | None  # of the values in a row of features

Plain = tuple[dict[str, Array], Names]

FEATURES = "strategic_features"
WHOLE_NUMBERS = {"labels": "i2", "masks": "i1"}
_NUMBER = (int, float, np.integer, np.floating, np.bool_)
_TOLD_BYTES = 4096  # of what it wrote before it died


def is_metadata(name: str) -> bool:
    """Whether an array is about the file and not its samples, whatever it holds."""
    return name == METADATA or name.startswith(f"{METADATA}_")


# In the process that reads the file.


@contextmanager
def open_pickles(location: str) -> Iterator[tuple[BinaryIO, Names]]:
    """(the file's samples as a .npz of plain arrays, the names of its features)."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as told:
        code = _run(location, answer.fileno(), told.fileno())
        yield answer, _names(answer, code, location, told)


def _run(location: str, answer: int, told: int) -> int:
    ours = os.path.dirname(os.path.dirname(sys.modules["penstock"].__file__ or ""))
    path = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        # -P: a queue.py in the working directory must not stand in for Python's own.
        [sys.executable, "-P", "-m", "penstock.prepare.sources.pickled", location, str(answer)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=2,  # what a pickle prints is no answer
        stderr=told,
        pass_fds=(answer,),
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        with suppress(ProcessLookupError):  # with whatever it started
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _names(answer: Any, code: int, location: str, told: Any) -> Names:
    """What it answered; an InputError of its own is raised here, and so is any other end."""
    answer.seek(0)
    with suppress(ValueError, EOFError, KeyError, zipfile.BadZipFile):  # it ended before it had answered
        if code == InputError.exit_code:
            raise InputError(**json.load(answer))
        if code == 0:
            with np.load(answer) as plain:
                names: Names = json.loads(plain[METADATA].tobytes())
                return names
    death = f"died of signal {-code}" if code < 0 else f"ended with exit code {code} and without an answer"
    told.seek(max(0, told.seek(0, 2) - _TOLD_BYTES))
    lines = told.read().decode(errors="replace").strip().splitlines()
    raise InputError(
        f"the process that opened its pickles {death}{': ' + lines[-1] if lines else ''}",
        where=location,
        next_step="replace the file, or set `on_bad_input: set_aside` to go on without it",
    )


# In the process that opens the pickles.


def main() -> None:
    location, answer = sys.argv[1], int(sys.argv[2])
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    with os.fdopen(answer, "wb") as file:
        try:
            arrays, names = plain_arrays(location)
        except InputError as error:
            facts = {"what": error.what, "where": error.where, "next_step": error.next_step}
            file.write(json.dumps(facts).encode())
            file.close()
            sys.exit(InputError.exit_code)
        arrays[METADATA] = np.frombuffer(json.dumps(names).encode(), "u1")
        write_npz(file, ((name, array.dtype, array.shape, [array]) for name, array in arrays.items()))


def _die_with_the_parent() -> None:
    os.read(0, 1)  # returns when the parent's end is closed, however it ended
    os.killpg(0, signal.SIGKILL)


def plain_arrays(location: str) -> Plain:
    """Every array of the file that is not metadata, without objects. OPENS THE PICKLES."""
    with zipfile.ZipFile(location) as archive:  # a pickle may end before its checksum is looked at
        if damaged := archive.testzip():
            raise InputError(f"{damaged!r} is not what was written: its checksum differs", where=location)
    with np.load(location, allow_pickle=True) as file:
        names = [name for name in file.files if not is_metadata(name)]
        return _together((_plain(name, file[name], location) for name in names), location)


def _together(parts: Iterable[Plain], location: str) -> Plain:
    arrays: dict[str, Array] = {}
    names: Names = None
    for more, told in parts:
        for name in arrays.keys() & more.keys():
            raise InputError(f"two arrays of the file become {name!r}", where=location)
        arrays |= more
        names = told or names
    return arrays, names


def _plain(name: str, array: Array, location: str) -> Plain:
    if not array.dtype.hasobject:
        return {name: array}, None
    where = f"{location}, {name!r}"
    samples = array.item() if array.ndim == 0 else list(array)
    if not isinstance(samples, list | tuple):
        raise InputError(f"it holds one {type(samples).__name__}, not a list of samples", where=where)
    if name not in ("samples", "data"):
        return _section(name, samples, where)
    keys = _keys(samples, where)
    return _together((_section(key, [sample[key] for sample in samples], where) for key in keys), location)


def _section(name: str, samples: Sequence[Any], where: str) -> Plain:
    if name in (FEATURES, "features"):
        return _features(samples, where)
    if name in WHOLE_NUMBERS:
        return _whole_numbers(name, samples, where), None
    raise InputError(
        f"{name!r} is a pickle of no known use; known are {FEATURES}, features, labels and masks, or samples or data "
        "with these inside",
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
        except (FloatingPointError, OverflowError):
            largest = max(keys, key=lambda key: abs(sample[key]))
            what = f"feature {largest!r} is {_shown(sample[largest])}, more than a float32 can hold"
            raise InputError(what, where=f"{where}, sample {number:,}") from None
    return {FEATURES: values}, [str(key) for key in keys]


def _whole_numbers(section: str, samples: Sequence[Any], where: str) -> dict[str, Array]:
    """An array a head; a value that its type cannot hold exactly is refused."""
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


def _shown(value: Any) -> str:
    return repr(value)[:80]


if __name__ == "__main__":
    main()
