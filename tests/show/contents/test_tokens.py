"""penstock inspect --tokens: a batch as training gets it, its measurements decoded beside their tokens."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.cli import main
from tests.show import prepared
from tests.show.desk import document, give
from tests.show.prepared import DOCUMENTS, TOKENS_IN_A_ROW, make_arrays, make_pings, make_requests, make_rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def pings(folder) -> str:
    return str(make_pings(folder / "pings"))


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def looked(capfd: Any, *arguments: str) -> Any:
    assert main(["inspect", *arguments, "--tokens", "--json"]) == 0
    return document(capfd.readouterr().out)


def measurements(facts: Any) -> list[dict[str, Any]]:
    return [each for row in facts["rows"] for segment in row["segments"] for each in segment["measurements"]]


def test_what_is_shown_is_the_batch_that_load_gives(pings, capfd):
    options = ["--batch", "3", "--rows", "5", "--batch-size", "16", "--length", "100", "--seed", "7"]
    facts = looked(capfd, pings, *options)
    with penstock.load(pings, batch_size=16, length=100, seed=7) as loader:
        batch = loader.batch(3)
    assert len(facts["rows"]) == 5
    for row in facts["rows"]:
        shown = list(chain.from_iterable(segment["tokens"] for segment in row["segments"]))
        filled = np.count_nonzero(batch["inputs_segmentation"][row["row"]])
        assert shown[:filled] == batch["inputs"][row["row"], :filled].tolist()
        assert len(shown) - filled in (0, 1), "and the last target, where the row is full"
        assert row["useful_tokens"] == np.count_nonzero(batch["targets_segmentation"][row["row"]])
    assert facts["padding"] == pytest.approx(np.mean(batch["inputs_segmentation"] == 0))


def test_every_measurement_shown_is_one_of_the_events(pings, capfd):
    events = prepared.pings()
    times = events["event_time"].to_numpy().astype("M8[s]").astype(str)
    names = zip(events["src_addr"].to_pylist(), events["dst_addr"].to_pylist(), times, strict=True)
    known = {(source, destination, time.replace("T", " ")) for source, destination, time in names}
    shown = measurements(looked(capfd, pings, "--rows", "8", "--length", "512"))
    assert {(source, destination) for source, destination, _ in known} >= {
        (each["source"], each["destination"]) for each in shown
    }
    # The first time of a segment is exact, later ones are sums of deltas of whole seconds.
    exact = [each for each in shown if 5 in each["tokens"]]
    assert exact
    assert {(each["source"], each["destination"], each["time"]) for each in exact} <= known


def test_the_tokens_of_a_measurement_decode_to_it(pings, capfd):
    for each in measurements(looked(capfd, pings, "--length", "200")):
        (decoded,) = penstock.decode(each["tokens"])
        assert (decoded["source"], decoded["rtt"]) == (each["source"], each["rtt"])


def test_packed_rows_have_whole_measurements_and_one_key_may_cut_the_last(pings, capfd):
    assert not any("cut" in each for each in measurements(looked(capfd, pings, "--rows", "64", "--length", "64")))
    facts = looked(capfd, pings, "--rows", "64", "--length", "64", "--fill", "one_key")
    assert {len(row["segments"]) for row in facts["rows"]} == {1}
    assert any("cut" in each for each in measurements(facts))
    assert main(["inspect", pings, "--tokens", "--rows", "64", "--length", "64", "--fill", "one_key"]) == 0
    assert "(cut by the end of the row)" in capfd.readouterr().out


def test_people_see_times_addresses_and_values_beside_the_tokens(pings, capfd):
    assert main(["inspect", pings, "--tokens", "--rows", "8"]) == 0
    printed = capfd.readouterr().out
    lines = printed.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("row 7: ") and "useful tokens of 256" in line for line in lines)
    assert ["segment", "measurement", "rtt", "tokens"] in [line.split() for line in lines]
    assert "no time" in printed
    assert "failed" in printed
    assert "-> 192.168.0." in printed
    assert any(prepared.LONG[:-1] in line for line in lines), "an address stays whole on 80 columns"


def test_blocks_stand_apart_without_colors(pings, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    first = measurements(looked(capfd, pings, "--rows", "1"))[0]["tokens"]
    assert main(["inspect", pings, "--tokens", "--rows", "1"]) == 0
    words = [f"  {token}" if 0 < token < 11 else f" {token}" for token in first]
    assert "".join(words).lstrip() in capfd.readouterr().out


def test_rows_of_tokens_are_shown_with_their_documents(folder, capfd):
    rows = str(make_rows(folder / "rows"))
    facts = looked(capfd, rows, "--rows", "2")
    assert (facts["kind"], facts["length"], facts["vocabulary"]) == ("rows", TOKENS_IN_A_ROW - 1, None)
    for row in facts["rows"]:
        assert [segment["start"] for segment in row["segments"]] == DOCUMENTS
        assert sum(len(segment["tokens"]) for segment in row["segments"]) == TOKENS_IN_A_ROW
    assert main(["inspect", rows, "--tokens", "--rows", "1"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "row 0: 30 useful tokens of 32, padding 0.0%, 3 segments" in lines
    starts = [line.split()[:3] for line in lines if line.lstrip()[:2] in ("1 ", "2 ", "3 ")]
    assert starts == [["1", "0", "10"], ["2", "10", "15"], ["3", "25", "8"]]


def test_rows_longer_than_a_screen_are_shown_as_far_as_asked(folder, capfd):
    wide = pa.array(np.arange(50 * 600).reshape(50, 600).tolist(), pa.list_(pa.int32(), 600))
    rows = str(prepared.prepare(folder / "wide", {"tokens": wide}, []))
    facts = looked(capfd, rows, "--batch-size", "4")
    assert (facts["length"], facts["tokens_truncated"]) == (256, 4 * (600 - 257))
    assert main(["inspect", rows, "--tokens", "--batch-size", "4"]) == 0
    assert "1,372 tokens of longer rows are left out" in capfd.readouterr().out
    assert main(["inspect", rows, "--tokens", "--length", "500"]) == 2
    assert "its rows have 600" in capfd.readouterr().err
    cut = looked(capfd, rows, "--batch-size", "4", "--length", "500", "--overflow", "truncate")
    assert (cut["length"], cut["tokens_truncated"]) == (500, 4 * (600 - 501))
    assert looked(capfd, rows, "--batch-size", "4", "--length", "599")["tokens_truncated"] == 0


def test_fields_of_any_kind_are_decoded(folder, capfd):
    requests = str(make_requests(folder / "requests"))
    fields = ["--fields", "who: ip, at: time, port: int, proto: {category: [tcp, udp]}"]
    shown = measurements(looked(capfd, requests, *fields))
    assert {each["port"] for each in shown} <= set(range(8000, 8005))
    assert {each["proto"] for each in shown} == {"tcp", "udp", None}
    assert main(["inspect", requests, "--tokens", *fields, "--rows", "1"]) == 0
    printed = capfd.readouterr().out
    assert "8,00" in printed
    assert "proto tcp" in printed


def test_floats_and_bins_are_shown_as_numbers_and_ranges(pings, capfd):
    fields = ["--fields", "event_time: time, rtt: float16, ip_version: {bins: [4, 5, 5.5]}", "--rows", "1"]
    facts = looked(capfd, pings, *fields)
    assert {tuple(each["ip_version"]) for each in measurements(facts) if "ip_version" in each} <= {(4, 5), (5, 5.5)}
    assert all(isinstance(each["rtt"], float | None) for each in measurements(facts) if "rtt" in each)
    assert main(["inspect", pings, "--tokens", *fields]) == 0
    assert "ip_version 4 to 5" in capfd.readouterr().out


def test_without_augmentation_every_time_is_shown(pings, capfd):
    facts = looked(capfd, pings, "--rows", "8", "--no-augment")
    assert facts["augment"] is False
    assert all(each["time"] for each in measurements(facts))
    assert main(["inspect", pings, "--tokens", "--rows", "8", "--no-augment"]) == 0
    assert "no time" not in capfd.readouterr().out


def test_values_that_a_field_cannot_hold_are_counted_beside_the_batch(pings, capfd):
    assert looked(capfd, pings)["counts"]["values_negative"] > 0
    assert main(["inspect", pings, "--tokens", "--rows", "1"]) == 0
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("not as stored")]
    assert "values negative" in line


def test_arrayrecord_files_are_shown_like_a_dataset(folder, capfd):
    files = str(make_pings(folder / "old", format="arrayrecord") / "train.arrayrecord")
    facts = looked(capfd, files, "--length", "64")
    assert facts["kind"] == "old events"
    assert measurements(facts)


def test_arrayrecord_files_are_decoded_by_the_fields_they_were_loaded_with(folder, capfd):
    files = str(make_pings(folder / "old_fields", format="arrayrecord") / "train.arrayrecord")
    fields = {"rtt": "float11", "ip_version": "int"}
    facts = looked(capfd, files, "--length", "64", "--fields", "rtt: float11, ip_version: int")
    assert {each["ip_version"] for each in measurements(facts)} == {4, 6}
    with penstock.load(files, batch_size=128, length=64, fields=fields) as loader:
        assert facts["vocabulary"]["size"] == loader.vocabulary.size


def test_a_dataset_of_arrays_has_no_tokens_to_show(folder, capfd):
    arrays = str(make_arrays(folder / "arrays"))
    assert main(["inspect", arrays, "--tokens"]) == 2
    assert f"`penstock inspect {arrays}` shows its records" in capfd.readouterr().err
    numbers = str(prepared.prepare(folder / "numbers", {"inputs": pa.array(range(200))}, []))
    assert main(["inspect", numbers, "--tokens"]) == 2
    assert f"`penstock inspect {numbers}` shows its records" in capfd.readouterr().err


def test_options_of_a_batch_without_a_batch_are_refused(pings, capfd):
    assert main(["inspect", pings, "--batch", "1", "--batch-size", "4"]) == 2
    told = capfd.readouterr().err
    assert "--batch, --batch-size" in told
    assert "try: add --tokens" in told
    assert main(["inspect", pings]) == 0


@pytest.mark.proof
def test_json_is_one_document_and_nothing_else(pings):
    done = give("inspect", pings, "--tokens", "--json")
    assert done.returncode == 0, done.stderr
    assert document(done.stdout)["batch_size"] == 128
