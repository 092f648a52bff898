"""For all tests: how long the generated ones look (a thorough run looks longer), and whether one may skip itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", max_examples=50, derandomize=True, deadline=None)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("thorough" if os.environ.get("PENSTOCK_THOROUGH") else "same")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; what tests start would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PROMISES = Path(__file__).parent / "promises"


def pytest_configure(config: pytest.Config) -> None:
    """Compile what is not kept on disk yet, before tests start and apart from them.

    A compiler leaves some 200 MB behind in its process, and tests of memory run in the processes that tests share.
    """
    if not hasattr(config, "workerinput") and not _are_kernels_kept():
        subprocess.run([sys.executable, "-m", "penstock", "warm-up"], check=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the proofs of promises, and leave out what only `make promises` runs.

    A test that skips itself would count as failed where CI says so.
    """
    for item in items:
        if _PROMISES in item.path.parents and not item.get_closest_marker("core"):
            item.add_marker("proof")
    if not os.environ.get("PENSTOCK_THOROUGH"):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def _are_kernels_kept() -> bool:
    from penstock.loader.compiled import jit, kept, warming

    assert warming  # it imports every module that has kernels
    return len(list(kept.required_folder().glob("*.code"))) >= len(jit.KERNELS)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Where CI says so, a test that skips itself has failed: what it proves would go unproved there for ever."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if os.environ.get("PENSTOCK_NO_SKIPS") and report.skipped:
        report.outcome = "failed"
