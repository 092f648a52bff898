"""Objects of the Python interface say what they are, in a line and in a notebook; names cannot be markup."""

import re
import traceback

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.loader.consumers.ahead import Ahead
from penstock.prepare.rows.rows import Rows

NASTY = "<script><b>\x1b[31m'\"&"


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    pq.write_table(pa.table({NASTY: [1, 2, 3, 4]}), folder / "in.parquet")
    job = {"input": str(folder / "in.parquet"), "output": str(folder / "out"), "workers": 0}
    return {**job, "stages": [{"filter": f"`{NASTY}` < 4"}]}


@pytest.fixture(scope="module")
def shown(job, tmp_path_factory):
    plan = penstock.plan(job)
    manifest = penstock.run(plan)
    exported = penstock.export(job["output"], "hdf5", tmp_path_factory.mktemp("exported") / "x.h5")
    events = penstock.load(grouped(tmp_path_factory.mktemp(f"{NASTY.replace('/', '')}-grouped")), **EVENTS)
    with events, penstock.load(job["output"], batch_size=2, workers=0) as loader:
        next(events)
        objects = [plan, manifest, exported, penstock.verify(job["output"]), penstock.open(job["output"]), loader]
        objects += [events.stats(), events.vocabulary, events.to_maxtext(), Ahead(events, lambda batch: batch, 1)]
        objects += [Rows(pa.record_batch({NASTY: [1]}), 0, (NASTY,), np.array([0]))]
        yield {type(each).__name__: each for each in objects}


EVENTS = {"batch_size": 2, "length": 16, "workers": 0, "fields": {NASTY: "int"}}


def grouped(folder):
    pq.write_table(pa.table({"key": [1, 1, 2, 2], NASTY: [1, 2, 3, 4]}), folder / "in.parquet")
    paths = {"input": str(folder / "in.parquet"), "output": str(folder / "out")}
    penstock.run({**paths, "workers": 0, "stages": [{"group": {"by": "key", "order": NASTY}}]})
    return folder / "out"


PUBLIC = ["Plan", "Manifest", "Dataset", "Loader", "Verification", "Exported", "Stats", "Vocabulary", "Rows"]


@pytest.mark.parametrize("name", [*PUBLIC, "MaxTextBatches", "Ahead"])
def test_an_object_says_what_it_is_in_one_line(shown, name):
    assert name not in PUBLIC or type(shown[name]) is getattr(penstock, name)
    line = repr(shown[name])
    assert line.startswith(f"<{name}: ")
    assert len(line) < 600
    assert line.isprintable()


@pytest.mark.parametrize("name", [*PUBLIC, "MaxTextBatches", "Ahead"])
def test_a_notebook_shows_a_table_in_which_nothing_is_markup_that_came_from_data(shown, name):
    html = shown[name]._repr_html_()
    assert html.startswith(f"<table><caption>{name}</caption><tr><th>")
    assert "<b>" not in html
    assert "<script" not in html.lower()
    assert "\x1b" not in html


def test_statistics_say_the_speed_and_why_the_training_waits(shown):
    assert re.search(r"batches 1 in .*, speed .* tokens/s, .*, verdict no second batch", repr(shown["Stats"]))


def test_an_export_and_a_vocabulary_say_their_sizes(shown):
    assert "rows 3 in train, files 1, " in repr(shown["Exported"])
    assert repr(shown["Vocabulary"]) == r"""<Vocabulary: size 259 tokens, fields <script><b>\x1b[31m'"&: int>"""


def test_rows_and_batches_say_where_they_come_from(shown):
    assert repr(shown["Rows"]).startswith("<Rows: rows 1, columns <script>")
    assert "batches 1 taken, 1 ahead, of <Loader: " in repr(shown["Ahead"])


def test_a_manifest_says_which_steps_set_rows_aside(shown):
    assert "set aside 1 by filter" in repr(shown["Manifest"])


def test_a_loader_counts_its_batches_in_rows(shown):
    assert "batches 2 rows each, at 0 without end" in repr(shown["Loader"])
    assert len(shown["Loader"]) == len(list(shown["Loader"]))  # of one epoch


def test_a_column_that_looks_like_markup_is_shown_as_text(shown):
    assert r"<script><b>\x1b[31m" in repr(shown["Manifest"])
    assert "&lt;script&gt;&lt;b&gt;" in shown["Manifest"]._repr_html_()


def test_errors_can_be_caught_by_name(tmp_path):
    with pytest.raises(penstock.OutputError) as caught:
        penstock.open(tmp_path)
    assert isinstance(caught.value, penstock.PenstockError)
    with pytest.raises(penstock.ConfigError):
        penstock.plan({"input": "x.parquet", "output": "y", "stagess": []})


@pytest.mark.usefixtures("shown")
def test_a_traceback_about_a_column_holds_none_of_its_escape_codes(job, tmp_path):
    wrong = {**job, "output": str(tmp_path / "out"), "stages": [{"filter": "zz > 3"}]}
    for call in (lambda: penstock.open(job["output"], columns=["zz"]), lambda: penstock.run(wrong)):
        with pytest.raises(penstock.ConfigError, match="there is no column 'zz'") as caught:
            call()
        printed = "".join(traceback.format_exception(caught.value))
        assert r"\x1b[31m" in printed
        assert "\x1b" not in printed


@pytest.mark.usefixtures("shown")
def test_what_the_commands_do_can_be_called(job, tmp_path):
    assert len(penstock.inspect(job["output"], records=2)["records"]) == 2
    exported = penstock.export(job["output"], "hdf5", tmp_path / "x.h5")
    assert exported.rows == {"train": 3}
    with pytest.raises(penstock.ConfigError, match="Did you mean 'hdf5'"):
        penstock.export(job["output"], "hdf")


def test_an_output_that_is_a_file_is_told_so(job, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(penstock.FileError, match="`output:` must be a folder, but this is a file") as caught:
        penstock.run({**job, "output": str(tmp_path / "taken")})
    assert caught.value.where == str(tmp_path / "taken")
