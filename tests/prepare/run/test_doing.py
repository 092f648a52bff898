"""Doing: whatever happens, no process and no open file of a run is left in the process that called it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import ConfigError
from penstock.base.stores.local import LocalStore
from penstock.prepare.rows import kept
from penstock.prepare.run.doing import Doing
from penstock.prepare.run.holding import hold_output
from penstock.prepare.stages.interfaces import HasEngine


class Comparison:
    """A comparison at work."""

    has_ended = False

    def trouble(self, waits: bool) -> str | None:  # noqa: ARG002
        return None

    def end(self) -> None:
        self.has_ended = True


def plan_of(*stages: Any) -> Any:
    return SimpleNamespace(survey=SimpleNamespace(stages=stages, sample=None), proof_bytes=1)


def start(plan: Any, make: Any) -> Any:
    nothing: Any = None
    return Doing.start(plan, nothing, nothing, (), nothing, nothing, make)


def test_a_comparison_ends_if_the_engine_of_the_run_cannot_be_opened():
    comparison = Comparison()
    given = {name: lambda *_: None for name in HasEngine.__abstractmethods__}
    given |= {"unproved_bytes": lambda _: 1, "prove": lambda *_: comparison}

    def refuse(opening: Any) -> Any:  # noqa: ARG001
        raise ConfigError("no Ray cluster answers")

    with pytest.raises(ConfigError), start(plan_of(type("Compared", (HasEngine,), given)()), refuse):
        pass
    assert comparison.has_ended


def test_files_that_the_driver_keeps_open_are_closed_when_the_run_ends(tmp_path):
    """Or the next run of this process would read what was damaged and has been replaced."""
    store, plan = LocalStore(str(tmp_path)), plan_of()
    plan.job = "0123456789abcdef"
    with hold_output(plan, store):
        store.commit_bytes("spill", b"rows")
        opened = kept.keep_open(store, "spill", "digest")
    assert opened
    assert opened.file.closed
