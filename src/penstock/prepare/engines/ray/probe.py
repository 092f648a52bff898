"""Probe: facts about a node of the cluster, collected on it. Ray sends the function as code, not by name, so that nodes
without penstock, or with another version, can run it. So this module imports nothing of penstock at its top."""

import importlib
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any


def look_around(
    token: str, files: Sequence[str], code: bytes, path: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Facts about the node that this runs on.

    Args:
        token: File in the output that the driver has just written.
        files: Some files of the input.
        code: Identities of the user's code, by target, as `message_of` packs them.
        path: Folders where the driver finds modules.
        environment: Variables that a worker must have from its start.
    """
    found: dict[str, Any] = {"python": platform.python_version(), "penstock": "", "code": []}
    found["token"] = _read(token)
    found["missing"] = [file for file in files if not os.access(file, os.R_OK)]
    found["environment"] = [name for name, value in environment.items() if os.environ.get(name) != value]
    try:
        found["penstock"] = importlib.import_module("penstock").__dict__["__version__"]
        arriving = importlib.import_module("penstock.prepare.engines.ray.arriving")
    except ImportError as error:
        found["import"] = f"{type(error).__name__}: {error}"
        return found
    found["code"] = arriving.code_problems(code, path)
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
