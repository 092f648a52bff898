"""Words of `penstock inspect` that are read once."""

import datetime
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cli import main


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    start = datetime.datetime(2024, 6, 1, 12, tzinfo=datetime.UTC)
    times = pa.array([start] * 5000, pa.timestamp("us", "Europe/Berlin"))
    pq.write_table(pa.table({"user": range(5000), "at": times, "value": [1.0] * 5000}), folder / "in.parquet")
    stages = [{"filter": "user > 9"}, {"group": {"by": "user", "order": "at"}}]
    penstock.run({"input": str(folder / "in.parquet"), "output": str(folder / "out"), "stages": stages, "workers": 0})
    return str(folder / "out")


@pytest.fixture
def told(output, capfd):
    assert main(["inspect", output]) == 0
    return capfd.readouterr().out


def test_a_small_share_does_not_read_as_nothing(told):
    assert "under 0.1%" in told
    assert "0.0%" not in told


def test_times_with_a_zone_are_said_to_be_in_utc(told):
    assert "Times of at (Europe/Berlin) are stored and shown in UTC." in told


def test_the_reason_of_a_filter_reads_as_why_rows_were_set_aside(told):
    assert "not: user > 9" in told


def test_a_loader_says_which_argument_it_needs(output):
    with pytest.raises(penstock.ConfigError, match=r"load\(\) needs length= for events"):
        penstock.load(output, batch_size=2)
    with pytest.raises(penstock.ConfigError, match=r"`fields` must say how"):
        penstock.load(output, batch_size=2, length=64)
    with pytest.raises(penstock.ConfigError, match="'value' has type float64, and the encoding int takes integers"):
        penstock.load(output, batch_size=2, length=64, fields={"value": {"int": 2}})


def test_rows_that_were_set_aside_are_shown_with_the_place_they_have_in_the_input(tmp_path, capfd):
    lines = ['{"value": 1}', '{"value": "no number"}', '{"value": 3}', '{"value": 4}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    job = {"input": str(tmp_path / "in.jsonl"), "output": str(tmp_path / "out"), "on_bad_input": "set_aside"}
    penstock.run({**job, "stages": [{"filter": {"where": "value < 4", "keep": True}}], "workers": 0})
    assert main(["inspect", job["output"], "--rejected"]) == 0
    told = capfd.readouterr().out
    assert "\nin.jsonl, position 1\n" in told
    assert "in.jsonl, position 3\n" in told
    assert re.search(r"line +2\n", told)
    assert "1 row: not: value < 4" in told
    assert "the byte where the slice of the file starts" in told


def test_items_that_were_set_aside_are_shown_by_their_number_alone(tmp_path, capfd):
    def halved(number):
        return {"half": 1 / (number - 3)}

    job = {"input": {"items": 10, "function": halved}, "output": str(tmp_path / "out"), "workers": 0}
    penstock.run(job, progress=False)
    assert main(["inspect", job["output"], "--rejected"]) == 0
    told = capfd.readouterr().out
    assert "\nitem 3\n" in told
    assert "position" not in told
    assert main(["inspect", job["output"]]) == 0
    assert re.search(r"made from +10 items\n", capfd.readouterr().out)


def test_a_dataset_without_rejected_rows_says_so(output, capfd):
    assert main(["inspect", output, "--rejected"]) == 0
    assert "Only their number was kept" in capfd.readouterr().out
