"""`on_metrics` is called with plain numbers, seldom, and breaks nothing."""

from __future__ import annotations

import time
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.events.metrics import Metrics


@pytest.fixture
def job(tmp_path):
    for number in range(4):
        pq.write_table(pa.table({"x": [float(each) for each in range(100)]}), tmp_path / f"in-{number}.parquet")
    stages = [{"filter": {"where": ["x >= 10"]}}]
    paths = {"input": str(tmp_path / "in-*.parquet"), "output": str(tmp_path / "out")}
    return {**paths, "workers": 0, "slice_size": "1kB", "stages": stages}


def test_a_run_ends_with_numbers_of_the_whole_run(job):
    heard = []
    penstock.run(job, on_metrics=heard.append)
    [last] = heard  # it took less than ten seconds
    assert all(name.startswith("penstock/") and isinstance(number, int | float) for name, number in last.items())
    assert last["penstock/share"] == 1.0
    assert (last["penstock/input_rows"], last["penstock/rows_set_aside"], last["penstock/tasks_done"]) == (400, 40, 4)
    assert last["penstock/peak_memory_bytes"] >= last["penstock/memory_bytes"] > 0


def test_a_shorter_interval_brings_speed_and_memory_on_the_way(job):
    heard = []
    penstock.run(job, on_metrics=heard.append, metrics_seconds=1e-6)
    assert len(heard) > 1
    on_the_way = {"penstock/rows_per_second", "penstock/bytes_per_second", "penstock/pass"}
    assert any(on_the_way <= numbers.keys() for numbers in heard)


def test_a_run_that_fails_tells_its_last_numbers(job):
    heard = []

    def stop(event):
        if event["event"] == "task":
            raise KeyboardInterrupt

    with pytest.raises(penstock.Interrupted):
        penstock.run(job, observe=stop, on_metrics=heard.append)
    assert heard[-1]["penstock/share"] < 1


def test_what_on_metrics_raises_is_said_once_and_the_run_goes_on(job):
    calls = []

    def broken(numbers):
        calls.append(numbers)
        raise ConnectionError("no \x1b[31mserver")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        penstock.run(job, on_metrics=broken, metrics_seconds=1e-6)
    [warning] = [each for each in said if "on_metrics" in str(each.message)]
    assert "on_metrics raised ConnectionError: no \\x1b[31mserver" in str(warning.message)
    assert len(calls) > 1
    assert penstock.verify(job["output"]).ok


def test_a_slow_function_is_called_less_often():
    metrics = Metrics(lambda _: time.sleep(0.05), 1e-9, "a test")
    assert metrics.is_due
    metrics.tell({})
    assert not metrics.is_due  # for a hundred times as long as it took


@pytest.mark.parametrize("options", [{"on_metrics": 3}, {"metrics_seconds": 0}, {"metrics_seconds": "10"}])
def test_what_cannot_be_called_is_refused_before_anything_runs(job, tmp_path, options):
    with pytest.raises(penstock.ConfigError):
        penstock.run(job, **options)
    assert not (tmp_path / "out").exists()


def test_a_loader_tells_rates_since_the_last_call_and_its_end(job):
    penstock.run(job)
    heard = []
    with penstock.load(job["output"], batch_size=20, epochs=3, on_metrics=heard.append) as loader:
        assert len(list(loader)) == 54
        assert "on_metrics" not in loader.arguments
    [last] = heard
    assert (last["penstock/loader/step"], last["penstock/loader/batches"]) == (54, 54)
    assert last["penstock/loader/batches_per_second"] > 0
    assert 0 <= last["penstock/loader/wait_share"] <= 1
    often = []
    with penstock.load(job["output"], batch_size=20, on_metrics=often.append, metrics_seconds=1e-6) as loader:
        for _ in range(5):
            next(loader)
    assert [numbers["penstock/loader/batches"] for numbers in often][-1] == 5
    assert len(often) >= 2


@pytest.mark.parametrize("options", [{"on_metrics": 3}, {"metrics_seconds": 0}])
def test_a_loader_refuses_what_cannot_be_called(job, options):
    with pytest.raises(penstock.ConfigError, match=next(iter(options))):
        penstock.load(job["output"], batch_size=20, **options)
