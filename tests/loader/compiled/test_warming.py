"""After `penstock warm-up`, load() compiles nothing, whatever the kind of data."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from tests.loader.making import FIELDS

PROGRAM = """
import json, sys, penstock
for path, options in json.loads(sys.argv[1]):
    for cache in (None, "disk"):
        with penstock.load(path, batch_size=8, cache=cache, **options) as loader:
            next(loader)
from penstock.loader.compiled import jit, warming
assert "numba.np.linalg" not in sys.modules, "numba prepared to compile"
print(json.dumps({each.__name__: sum(each.stats.cache_misses.values()) for each in jit.KERNELS}))
"""


@pytest.mark.proof
def test_a_load_after_warm_up_compiles_nothing(datasets):
    result = CliRunner().invoke(app, ["warm-up", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    asked = [
        (datasets.pings, {"length": 100}),
        (datasets.pings, {"length": 100, "fill": "one_key"}),
        (datasets.events, {"length": 80, "fields": FIELDS}),
        (datasets.rows, {}),
        (datasets.ragged_rows, {"length": 60}),
        (datasets.kept_rows, {}),
        (datasets.kept_ragged_rows, {"length": 60}),
        (datasets.arrays, {"columns": ["features"]}),
        (datasets.visits, {"length": 20, "encode": "raw", "window": "random", "nulls": ["seconds"]}),
        (
            datasets.visits,
            {"length": 20, "encode": "raw", "window": {"sliding": 9}, "layout": "offsets", "nulls": ["seconds"]},
        ),
        ([str(datasets.rows), str(datasets.rows)], {"epochs": 1, "shuffle": False}),
    ]
    given = json.dumps([(path if isinstance(path, list) else str(path), options) for path, options in asked])
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, given], check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    compiled = json.loads(ran.stdout)
    assert len(compiled) == len(facts["kernels"]) - 1  # two kernels of one name
    assert not any(compiled.values())
    assert "compiling" not in ran.stderr


def test_warm_up_says_what_it_did_and_where_it_is_kept():
    result = CliRunner().invoke(app, ["warm-up"])
    assert "kept already" in result.stdout
    assert "kept in" in result.stdout


def test_warm_up_without_kernels_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("PENSTOCK_PLAIN", "1")
    result = subprocess.run(
        [sys.executable, "-m", "penstock", "warm-up"], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert result.returncode == 2
    assert "nothing to compile" in result.stderr
