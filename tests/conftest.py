"""For all tests: how long the generated ones look (a thorough run looks longer), and whether one may skip itself."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", max_examples=50, derandomize=True, deadline=None)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("thorough" if os.environ.get("PENSTOCK_THOROUGH") else "same")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Where CI says so, a test that skips itself has failed: what it proves would go unproved there for ever."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if os.environ.get("PENSTOCK_NO_SKIPS") and report.skipped:
        report.outcome = "failed"
