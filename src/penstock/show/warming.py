"""Warming: compile what load() would compile at its first call, and say what was done and where it is kept."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from penstock.base.errors import ConfigError
from penstock.loader.engine import compiled
from penstock.show.tables import make_list, make_table


def warm_up_facts() -> dict[str, Any]:
    if not compiled():
        raise ConfigError(
            "there is nothing to compile: numba is missing, or PENSTOCK_PLAIN=1 is set",
            where="penstock warm-up",
            next_step="pip install 'penstock[loader]', without PENSTOCK_PLAIN",
        )
    from penstock.loader.compiled.kept import required_folder
    from penstock.loader.compiled.warming import warm_up

    started, folder = time.perf_counter(), required_folder()
    kernels = [asdict(each) for each in warm_up()]
    return {"folder": str(folder), "kernels": kernels, "seconds": time.perf_counter() - started}


def warm_up_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    table = make_table("kernel", "was", ">seconds")
    for each in facts["kernels"]:
        table.add_row(each["kernel"], "compiled" if each["compiled"] else "kept already", f"{each['seconds']:.1f}")
    yield table
    yield ""
    compiled_now = sum(each["compiled"] for each in facts["kernels"])
    yield make_list(
        [
            ("compiled", f"{compiled_now} of {len(facts['kernels'])} kernels, in {facts['seconds']:.1f} s"),
            ("kept in", facts["folder"]),
        ]
    )
