"""Travelling: the user's own modules -> a folder that Ray copies to every node."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

from penstock.base.user_code import load_user_object
from penstock.base.user_code.carried import is_carried
from penstock.base.user_code.modules import is_library, own_modules


def copy_modules(targets: Iterable[str], folder: str) -> bool:
    """Copy the modules of `module:name`, and those that they import from their own folder. Returns whether there are
    any. Other files are not copied."""
    found = False
    for target in targets:
        if is_carried(target) or is_library(target.partition(":")[0]):
            continue
        load_user_object(target)
        for name, each in own_modules(sys.modules[target.partition(":")[0]]):
            if each.__file__:
                found = True
                _copy(name, each.__file__, folder, is_package=hasattr(each, "__path__"))
    return found


def _copy(name: str, file: str, folder: str, is_package: bool) -> None:
    parts = name.split(".") if is_package else name.split(".")[:-1]
    place = os.path.join(folder, *parts)
    os.makedirs(place, exist_ok=True)
    shutil.copyfile(file, os.path.join(place, os.path.basename(file)))
