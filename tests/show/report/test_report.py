"""penstock report: what it says about a dataset, where it writes, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import penstock
from penstock.cli import main
from tests.show.desk import EVENTS, KEYS, document, make_events, make_job
from tests.show.prepared import make_pings, make_rows
from tests.show.report.reading import assert_harmless, read


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Rows through a filter that keeps what it sets aside, into two splits."""
    folder = tmp_path_factory.mktemp("made")
    stages = [{"filter": {"where": ["value >= 100"], "keep": True}}, {"split": {"by": "user", "test": 0.2}}]
    penstock.run(make_job(folder, stages=stages))
    return folder / "out"


@pytest.fixture
def dataset(made, tmp_path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "prepared"))


def change_run(dataset: Path, **facts: object) -> None:
    """Facts of run.json; None removes one."""
    file = dataset / ".penstock" / "run.json"
    run = {**json.loads(file.read_text()), **facts}
    file.write_text(json.dumps({name: value for name, value in run.items() if value is not None}))


def test_the_report_lies_beside_the_dataset_and_says_how_many_records_there_are(dataset, capfd):
    assert main(["report", str(dataset)]) == 0
    place = dataset.parent / "prepared-report.html"
    assert f"wrote {place}" in capfd.readouterr().out
    page = read(place)
    assert_harmless(page)
    for words in ("2,900", "100 set aside", "✓ in = out + set aside", "value >= 100", "part-0.parquet"):
        assert words in page.text
    assert penstock.inspect(dataset)["dataset"] in page.text


def test_python_writes_the_same_file_as_the_command(dataset, tmp_path):
    assert main(["report", str(dataset), "-o", str(tmp_path / "a.html")]) == 0
    assert penstock.report(dataset, output=tmp_path / "b.html") == str(tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_dataset_is_as_it_was(dataset):
    penstock.report(dataset)
    penstock.report(dataset, output=dataset / ".penstock" / "report.html")
    assert penstock.verify(dataset).problems == ()


def test_json_is_one_document_with_all_facts(dataset, capfd):
    assert main(["report", str(dataset), "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert facts["report"] == str(dataset.parent / "prepared-report.html")
    assert [step["given"] for step in facts["account"] if step["step"] == "write"] == [2900]
    assert {each["file"] for each in facts["files"]} == {
        str(file.relative_to(dataset))
        for folder in ("train", "test", "rejected")
        for file in (dataset / folder).iterdir()
    }
    assert facts["rejected"]["examples"][0]["row"] == {"user": 0, "value": 0.0}
    assert facts["run"]["passes"][0]["rows"] == 3000


def test_a_report_is_replaced_and_any_other_file_is_not(dataset, tmp_path):
    place = tmp_path / "report.html"
    penstock.report(dataset, place)
    penstock.report(dataset, place)
    place.write_text("<!doctype html><p>mine</p>")
    with pytest.raises(penstock.OutputError, match="not a report of penstock"):
        penstock.report(dataset, place)
    assert place.read_text() == "<!doctype html><p>mine</p>"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["prepared", "report.html"]


@pytest.mark.parametrize(
    ("place", "words"),
    [("prepared/report.html", "inside the dataset"), ("prepared", "a folder"), ("nowhere/x.html", "no such folder")],
)
def test_places_where_no_report_belongs_are_refused(dataset, tmp_path, place, words):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(penstock.OutputError, match=words):
        penstock.report(dataset, tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_into_the_dataset_does_not_hide_that_a_place_is_inside(dataset, tmp_path):
    (tmp_path / "link").symlink_to(dataset)
    with pytest.raises(penstock.OutputError, match="inside the dataset"):
        penstock.report(dataset, tmp_path / "link" / "report.html")


def test_an_unfinished_dataset_is_refused_with_the_next_step(dataset):
    (dataset / "manifest.json").unlink()
    with pytest.raises(penstock.OutputError, match="3 of 3 tasks are done") as caught:
        penstock.report(dataset)
    assert "run its job again" in str(caught.value.next_step)
    assert not (dataset.parent / "prepared-report.html").exists()


def test_what_is_no_dataset_is_refused(tmp_path):
    with pytest.raises(penstock.OutputError, match="no dataset here"):
        penstock.report(tmp_path)
    with pytest.raises(penstock.OutputError, match="no dataset here"):
        penstock.report(tmp_path / "nowhere" / "prepared")


def test_a_dataset_without_run_json_gets_a_report_that_says_what_is_not_known(dataset):
    (dataset / ".penstock" / "run.json").unlink()
    page = read(penstock.report(dataset))
    assert "the time, the memory and the machine of the run are not known" in page.text
    assert "2,900" in page.text


@pytest.mark.parametrize(
    "text", ["", "[1]", "null", '{"seconds": "x", "passes": 7}', '{"timeline": [[1], "x", [1, {}]]}']
)
def test_a_damaged_run_json_is_no_reason_to_fail(dataset, text):
    (dataset / ".penstock" / "run.json").write_text(text)
    assert_harmless(read(penstock.report(dataset)))


def test_numbers_of_run_json_that_are_none_are_not_known(dataset):
    odd = {
        "seconds": float("inf"),
        "peak_memory_bytes": True,
        "allowed_memory_bytes": "1GB",
        "slowest": [{"task": None}],
    }
    change_run(dataset, **odd)
    page = read(penstock.report(dataset))
    assert_harmless(page)
    assert "not known" in page.text


def test_a_dataset_of_an_older_version_says_what_its_run_did_not_keep(dataset):
    change_run(dataset, timeline=None, slowest=None, passes=[{"kind": "map"}])
    page = read(penstock.report(dataset))
    assert "Memory over time is not known" in page.text
    assert "The time of each pass is not known" in page.text
    assert "The slowest tasks are not known" in page.text


def test_a_resumed_run_is_told(dataset):
    change_run(dataset, tasks_kept=2, tasks_done=1)
    assert "2 of 3 tasks were kept from an earlier run" in read(penstock.report(dataset)).text


def test_damage_is_named_not_drawn(dataset):
    file = next((dataset / "train").iterdir())
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(penstock.IntegrityError, match=re.escape(file.name)):
        penstock.report(dataset)


def test_grouped_events_have_distributions_of_keys_and_times(tmp_path, capfd):
    file = make_events(tmp_path)
    stages = [{"group": {"by": "src_addr", "order": "event_time", "max_record": "64kB"}}]
    job = {"input": str(file), "output": str(tmp_path / "out"), "workers": 0, "stages": stages}
    penstock.run(job)
    assert main(["report", str(tmp_path / "out"), "--json"]) == 0
    found = {each["title"]: each for each in document(capfd.readouterr().out)["distributions"]["shown"]}
    assert sum(each["count"] for each in found["Events per key"]["buckets"]) == KEYS
    records = penstock.open(tmp_path / "out")
    lengths = [len(record["rtt"]) for record in records]
    spans = [(record["event_time"][-1] - record["event_time"][0]) for record in records]
    events, span = found["Events per record"], found["First to last event of a record: event_time"]
    assert (events["least"], events["greatest"]) == (min(lengths), max(lengths))
    assert events["mean"] == pytest.approx(EVENTS / len(records))
    assert events["seen"] == f"all {len(records):,} records"
    assert span["unit"] == "second"
    microseconds = [int(each.astype("timedelta64[us]").astype(int)) for each in spans]
    assert (span["least"], span["greatest"]) == (min(microseconds), max(microseconds))


def test_formats_without_columns_and_a_dataset_without_records_have_a_report(tmp_path):
    page = read(penstock.report(make_pings(tmp_path / "old", format="arrayrecord")))
    assert "Records of format arrayrecord are not measured" in page.text
    assert "Events per key" in page.text
    empty = make_job(tmp_path / "empty", stages=[{"filter": "value < 0"}])
    penstock.run(empty)
    assert_harmless(read(penstock.report(tmp_path / "empty" / "out")))


def test_files_without_a_manifest_are_refused(tmp_path):
    files = make_pings(tmp_path / "old", format="arrayrecord") / "train.arrayrecord"
    with pytest.raises(penstock.OutputError, match="without a manifest") as caught:
        penstock.report(files)
    assert "penstock inspect" in str(caught.value.next_step)


def test_a_benchmark_has_a_report_too(tmp_path, capfd):
    rows, place = make_rows(tmp_path / "rows"), tmp_path / "bench.html"
    asked = ["bench", str(rows), "--seconds", "0.1", "--batch-size", "8", "--step-ms", "3", "--report", str(place)]
    assert main([*asked, "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert facts["report"] == str(place)
    page = read(place)
    assert_harmless(page)
    for run in facts["runs"]:
        assert run["verdict"] in page.text
        assert f"{run['next_ms']['p99']:.2f} ms" in page.text
    for words in ("encode", "p95", "batch size", "3 ms per step", "waiting for a batch"):
        assert words in page.text


def test_a_benchmark_does_not_begin_where_its_report_cannot_be_written(tmp_path, capfd):
    rows = make_rows(tmp_path / "rows")
    (tmp_path / "mine.html").write_text("mine")
    for place in (tmp_path / "mine.html", rows / "bench.html"):
        assert main(["bench", str(rows), "--seconds", "600", "--report", str(place)]) == 5
    assert "not a report of penstock" in capfd.readouterr().err
