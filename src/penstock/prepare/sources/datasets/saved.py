"""Saved dataset: a directory that datasets' save_to_disk left -> the Arrow files in it, of one split."""

import json
import os
import re
from typing import Any

from penstock.base.errors import InputError, did_you_mean
from penstock.base.files import ReadFile

_SPLITS, _STATE, _FACTS = "dataset_dict.json", "state.json", "dataset_info.json"
UNNAMED = "train"  # what the `datasets` library calls rows of which nobody said a split
_PART = re.compile(r"([^+\[]+)\[[^\]]*\]")  # `train[:10%]`, as that library names what it saves of a split, too


def is_saved(place: str) -> bool:
    return _has(place, _SPLITS) or (_has(place, _STATE) and _has(place, _FACTS))


def _has(place: str, name: str) -> bool:
    return os.path.isfile(os.path.join(place, name))


def saved_files(place: str, split: str | None) -> list[str]:
    """Its files in the order of their rows. Columns that were hidden when it was saved are in them like the others."""
    if _has(place, _SPLITS):
        place = os.path.join(place, _chosen(_read(place, _SPLITS).get("splits", []), split, place))
        split = None  # a split's own state names it only if it was saved under the same name
    state = _read(place, _STATE)
    _refuse_other(split, state.get("_split"), place)
    if state.get("_indices_data_files"):
        raise InputError(
            "its rows are chosen by a list of indices, as old versions of `datasets` saved them",
            where=os.path.join(place, _STATE),
            next_step="save it again: load_from_disk(...).flatten_indices().save_to_disk(...)",
        )
    names = [each["filename"] for each in state.get("_data_files", [])]
    if not names:
        raise InputError("this dataset has no rows", where=place, next_step="take it out of `input:`")
    return [os.path.join(place, name) for name in names]


def saved_name(place: str) -> str | None:
    """The split that was saved here alone, under the name that the library had for it: maybe `train[:10%]`."""
    return None if _has(place, _SPLITS) else _read(place, _STATE).get("_split")


def _chosen(splits: list[str], split: str | None, place: str) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split is None:
        raise InputError(
            f"this dataset has {len(splits)} splits: {', '.join(splits)}",
            where=place,
            next_step="choose one with `split:`; for several, make each a separate source",
        )
    if split not in splits:
        choice = f"choose one of: {', '.join(splits)}; for several, make each a separate source"
        raise _no_split(split, did_you_mean(split, splits), place, choice)
    return split


def _refuse_other(split: str | None, saved: str | None, place: str) -> None:
    """A dataset that was saved alone has no splits to choose from: `split` may only say whose rows they are.

    Many have no name of a split. `train` is right for those: it is what the library itself makes of data without
    splits, and the default of configs that always name one. Another name may be that of rows which are not here.
    """
    whole = saved or UNNAMED
    if split not in (None, whole, _PART.sub(r"\1", whole)):
        there = f"of split {saved!r}" if saved else "without the name of a split"
        choice = "leave `split:` out to read all of it, or give the folder of that split"
        raise _no_split(split, f" One dataset was saved here, {there}.", place, choice)


def _no_split(split: str, there: str, place: str, choice: str) -> InputError:
    return InputError(f"there is no split {split!r}.{there}", where=place, next_step=choice)


def _read(place: str, name: str) -> dict[str, Any]:
    path = os.path.join(place, name)
    try:
        with ReadFile(path) as file:
            facts: dict[str, Any] = json.loads(file.read())
            return facts
    except (ValueError, RecursionError) as error:
        raise InputError(f"this dataset's own description is not JSON: {error}", where=path) from error
