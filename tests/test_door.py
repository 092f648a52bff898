"""The public door: small, lazy, and only what it says."""

from __future__ import annotations

import subprocess
import sys

import penstock


def _modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sorted(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_penstock_imports_nothing_heavy():
    heavy = {"pyarrow", "numpy", "pydantic", "rich", "typer", "yaml", "xxhash", "grain", "torch", "jax"}
    assert not heavy & _modules_after("import penstock")


def test_the_shards_half_needs_no_arrow_pydantic_or_yaml():
    """It is what the loader stands on, where only numpy and xxhash are installed."""
    seen = _modules_after("import penstock.shards.dataset, penstock.shards.verify")
    assert not {"pyarrow", "pydantic", "yaml", "rich", "typer"} & seen


def test_the_door_fits_on_a_line():
    names = [name for name in penstock.__all__ if name[0].islower()]
    assert names == ["decode", "export", "inspect", "load", "merge", "open", "plan", "run", "stage", "verify"]
    assert all(callable(getattr(penstock, name)) for name in penstock.__all__)
