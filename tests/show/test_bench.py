"""penstock bench: how fast batches come and why one would wait, as people and as programs read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.cli import main
from tests.show.desk import document, give
from tests.show.prepared import (
    TOKENS_IN_A_ROW,
    make_arrays,
    make_pings,
    make_requests,
    make_rows,
    make_uneven_rows,
    prepare,
)

SHORT = ["--seconds", "0.1", "--batch-size", "8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def pings(folder) -> str:
    return str(make_pings(folder / "pings"))


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def first_words(printed: str) -> list[str]:
    return [line.split("  ")[0] for line in printed.splitlines()]


def test_alone_and_against_a_consumer_stand_side_by_side_with_a_verdict_each(pings, capfd):
    assert main(["bench", pings, *SHORT, "--length", "64", "--step-ms", "5"]) == 0
    lines = capfd.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("measured"))
    table = lines[head : lines.index("", head)]
    assert table[0].split() == ["measured", "alone", "5", "ms", "per", "step"]
    assert len({len(line) for line in table}) == 1, "numbers end in one column"
    assert len(table[0]) <= 80
    assert [line.partition(":")[0] for line in lines[-3:]] == ["alone", "", "5 ms per step"]
    assert "feeds steps of" in lines[-3]
    assert "input-bound" in lines[-1]


def test_without_a_step_only_the_loader_is_measured(pings, capfd):
    assert main(["bench", pings, *SHORT, "--length", "64", "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert [run["step_ms"] for run in facts["runs"]] == [None]


@pytest.mark.proof
def test_json_is_one_document_with_everything_that_was_measured(pings):
    done = give("bench", pings, *SHORT, "--step-ms", "3", "--fill", "one_key", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    facts = document(done.stdout)
    options = {name: facts[name] for name in ("kind", "unit", "batch_size", "length", "fill", "workers", "split")}
    assert options == {
        "kind": "events",
        "unit": "tokens",
        "batch_size": 8,
        "length": 1024,
        "fill": "one_key",
        "workers": "1",
        "split": "train",
    }
    alone, against = facts["runs"]
    for run in (alone, against):
        assert run["tokens_per_second"] == pytest.approx(run["tokens"] / run["seconds"])
        assert run["next_ms"]["p50"] <= run["next_ms"]["p95"] <= run["next_ms"]["p99"]
        assert run["stage_ms"].keys() == {"order", "read", "encode", "map"}
        assert run["threads"] == 1
        assert 0 < run["padding"] < 1
        assert run["draws_unused"] == 0
        assert run["memory_bytes"] > 10**6
        assert run["verified_bytes"] > 0
        assert run["verdict"]
    assert against["step_ms"] == 3
    assert against["interval_ms"] >= 3


def test_packed_rows_tell_how_many_draws_went_unused(pings, capfd):
    assert main(["bench", pings, *SHORT, "--length", "64", "--json"]) == 0
    run = document(capfd.readouterr().out)["runs"][0]
    assert run["coverage"] == pytest.approx(1 - run["draws_unused"] / run["draws"])
    assert run["counts"]["events"] > 0


def test_at_least_one_batch_is_measured_however_short_the_time(pings, capfd):
    assert main(["bench", pings, "--seconds", "0.000001", "--workers", "0", "--json"]) == 0
    assert document(capfd.readouterr().out)["runs"][0]["batches"] == 1


def test_columns_held_in_memory_are_verified_before_the_first_batch(pings, capfd):
    assert main(["bench", pings, *SHORT, "--cache", "memory", "--memory", "2GB", "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert facts["memory_allowed_bytes"] == 2 * 10**9
    assert facts["runs"][0]["verified_bytes"] == 0


@pytest.mark.proof
def test_arrays_have_rows_and_neither_length_nor_padding(folder, capfd):
    arrays = str(make_arrays(folder / "arrays"))
    assert main(["bench", arrays, *SHORT, "--columns", "x, label"]) == 0
    names = first_words(capfd.readouterr().out)
    assert {"rows/s", "rows/CPU-second"} <= set(names)
    assert not {"padding", "coverage, draws used"} & set(names)
    assert main(["bench", arrays, *SHORT]) == 0  # all columns but text
    assert main(["bench", arrays, *SHORT, "--columns", "x, name"]) == 2
    assert "columns=['x', 'label']" in capfd.readouterr().err


@pytest.mark.proof
def test_rows_of_tokens_have_the_length_they_were_made_with(folder, capfd):
    rows = str(make_rows(folder / "rows"))
    assert main(["bench", rows, *SHORT, "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert (facts["kind"], facts["length"], facts["fill"]) == ("rows", TOKENS_IN_A_ROW - 1, None)
    uneven = str(make_uneven_rows(folder / "uneven"))
    assert main(["bench", uneven, *SHORT, "--json"]) == 0
    assert document(capfd.readouterr().out)["length"] == 1024


@pytest.mark.proof
def test_rows_that_are_cut_are_cut_on_request_and_counted(folder, capfd):
    rows = str(make_rows(folder / "cut"))
    assert main(["bench", rows, *SHORT, "--length", "20"]) == 2
    assert "its rows have 33" in capfd.readouterr().err
    assert main(["bench", rows, *SHORT, "--length", "20", "--overflow", "truncate", "--json"]) == 0
    run = document(capfd.readouterr().out)["runs"][0]
    assert run["tokens_truncated"] >= 12 * 8 * run["batches"]
    assert main(["bench", rows, *SHORT, "--length", "20", "--overflow", "truncate"]) == 0
    assert "tokens truncated" in first_words(capfd.readouterr().out)
    assert main(["bench", rows, *SHORT, "--overflow", "drop"]) == 2
    assert "overflow='drop'" in capfd.readouterr().err


def test_rows_of_tokens_are_measured_whole_however_long(folder, capfd):
    wide = pa.array(np.arange(50 * 1500).reshape(50, 1500).tolist(), pa.list_(pa.int32(), 1500))
    rows = str(prepare(folder / "wide", {"tokens": wide}, []))
    assert main(["bench", rows, *SHORT, "--json"]) == 0
    assert document(capfd.readouterr().out)["length"] == 1499


def test_a_split_of_a_file_by_itself_is_refused(folder, capfd):
    files = make_pings(folder / "by_itself", format="arrayrecord") / "train.arrayrecord"
    assert main(["bench", str(files), *SHORT, "--length", "64", "--split", "test"]) == 2
    assert "split 'test' was asked for" in capfd.readouterr().err
    assert main(["inspect", str(files), "--tokens", "--split", "test"]) == 2
    assert main(["inspect", str(files), "--split", "test"]) == 2
    assert main(["inspect", str(files), "--split", "train"]) == 0


def test_events_that_are_no_pings_are_told_by_their_fields(folder, capfd):
    requests = str(make_requests(folder / "requests"))
    assert main(["bench", requests, *SHORT, "--length", "64"]) == 2
    assert "`fields` must say how" in capfd.readouterr().err
    fields = "who: ip, at: time, port: int, proto: {category: [tcp, udp]}"
    assert main(["bench", requests, *SHORT, "--length", "64", "--fields", fields, "--json"]) == 0
    assert document(capfd.readouterr().out)["runs"][0]["counts"]["categories_other"] > 0


def test_records_without_tokens_are_measured_by_their_windows(folder, capfd):
    requests = str(make_requests(folder / "windows"))
    for window, length in (("last", 20), ("5", 20), ("random", None)):
        options = ["--window", window, *(["--length", str(length)] if length else [])]
        assert main(["bench", requests, *SHORT, *options, "--columns", "port, at", "--json"]) == 0
        facts = document(capfd.readouterr().out)
        assert (facts["kind"], facts["unit"], facts["length"]) == ("raw", "events", length or 1024)
        assert facts["runs"][0]["tokens"] > 0
    assert main(["bench", requests, *SHORT, "--window", "last", "--length", "20"]) == 0
    printed = capfd.readouterr().out
    assert "8 rows x 20 events (raw)" in printed
    assert {"events/s", "events/CPU-second"} <= set(first_words(printed))
    assert main(["bench", requests, *SHORT, "--window", "first"]) == 2
    assert "window='first'" in capfd.readouterr().err


def test_columns_with_nulls_are_measured_on_request(folder, capfd):
    columns = {"x": pa.array([None if each % 3 else each for each in range(60)])}
    path = str(prepare(folder / "nulls", columns, []))
    assert main(["bench", path, *SHORT]) == 2
    assert "nulls=['x']" in capfd.readouterr().err
    assert main(["bench", path, *SHORT, "--nulls", "x", "--json"]) == 0
    assert document(capfd.readouterr().out)["kind"] == "arrays"


def test_values_that_a_field_cannot_hold_are_shown(pings, capfd):
    """Every tenth ping failed: its rtt is -1."""
    assert main(["bench", pings, *SHORT, "--length", "64"]) == 0
    lines = capfd.readouterr().out.splitlines()
    (negative,) = [line.split() for line in lines if line.startswith("  values negative")]
    assert int(negative[-1].replace(",", "")) > 0
    assert not [line for line in lines if "values too large" in line], "only what there was"


@pytest.mark.proof
def test_augment_is_asked_for_and_shown(folder, pings, capfd):
    for option, expected in (([], True), (["--augment"], True), (["--no-augment"], False)):
        assert main(["bench", pings, *SHORT, "--length", "64", *option, "--json"]) == 0
        assert document(capfd.readouterr().out)["augment"] is expected
    assert main(["bench", str(make_rows(folder / "no_events")), *SHORT, "--no-augment"]) == 2
    assert "augment=False is an option for events" in capfd.readouterr().err


@pytest.mark.proof
def test_arrayrecord_files_are_measured_with_a_word_on_what_is_faster(folder, capfd):
    files = make_pings(folder / "old", format="arrayrecord") / "train.arrayrecord"
    assert main(["bench", str(files), *SHORT, "--length", "64", "--step-ms", "1", "--json"]) == 0
    printed = capfd.readouterr()
    (warning,) = document(printed.out)["warnings"]
    assert "saves at least the first: prepare the events" in warning
    assert "UserWarning" not in printed.err


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--seconds", "0"], 2, "--seconds 0 is not a time to measure"),
        (["--step-ms", "-1"], 2, "--step-ms -1 is not a time to measure"),
        (["--workers", "many"], 2, "where: --workers many"),
        (["--memory", "lots"], 2, "'lots' is not a size"),
        (["--memory", "1MB"], 3, "do not fit"),
        (["--fill", "half"], 2, "'packed' or 'one_key'"),
        (["--cache", "tape"], 2, "'memory' or 'disk'"),
        (["--split", "tset"], 5, "there is no split 'tset'"),
        (["--fields", "src_addr"], 2, "--fields 'dst: ip"),
        (["--fields", "src_addr: {ip"], 2, "it is not YAML"),
        (["--fields", "src_addr: tiem"], 2, "Did you mean 'time'?"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(options, code, told, pings, capfd):
    assert main(["bench", pings, *options]) == code
    printed = capfd.readouterr()
    assert told in printed.err
    assert printed.out == ""


def test_a_damaged_block_ends_the_measurement_with_its_name(folder, capfd):
    damaged = make_pings(folder / "damaged")
    shard = next((damaged / "train").iterdir())
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert main(["bench", str(damaged), *SHORT, "--seconds", "2"]) == 6
    assert shard.name in capfd.readouterr().err
