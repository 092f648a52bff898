"""The end of a run: one row per pass where there are several, one line where there is one."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.show.console import show
from penstock.show.running.pass_table import memory_words, pass_tables


@pytest.fixture
def run_facts(tmp_path):
    def run(*stages):
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0]}), tmp_path / "in.parquet")
        job = {"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0}
        penstock.run({**job, "stages": list(stages)})
        return json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())

    return run


def test_several_passes_are_a_table_of_time_speed_and_memory(run_facts, capsys):
    show(run_facts({"normalize": {"columns": ["x"]}}), pass_tables, as_json=False)
    head, _, fit, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["pass", "time", "rows/s", "MB/s", "start", "peak", "end", "increase"]
    assert fit.startswith("0 fit")
    assert last.startswith("1 map")
    assert fit.count(" MB") >= 3


def test_a_single_pass_is_told_in_the_line_of_memory(run_facts):
    facts = run_facts()
    assert list(pass_tables(facts)) == []
    assert "; start " in memory_words(facts)
    assert ", increase " in memory_words(facts)


def test_a_pass_that_was_kept_whole_says_so(run_facts, capsys):
    facts = run_facts({"normalize": {"columns": ["x"]}})
    facts["passes"][0] |= {"tasks_done": 0, "tasks_kept": 1}
    show(facts, pass_tables, as_json=False)
    assert capsys.readouterr().out.splitlines()[2].split()[:3] == ["0", "fit", "kept"]


def test_a_run_of_an_earlier_version_is_shown_without_it(run_facts):
    facts = run_facts({"normalize": {"columns": ["x"]}})
    older = {**facts, "passes": [{"kind": each["kind"], "workers": 0} for each in facts["passes"]]}
    assert list(pass_tables(older)) == []
    assert memory_words(older).startswith("peak ")
