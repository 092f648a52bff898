"""`penstock inspect` shows the columns that `pack` kept, document by document; names from data move no cursor."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.cli import main
from tests.loader.making import prepare

RED = "\x1b[31m[bold]<script>"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = pa.table(
        {
            "tokens": pa.array([[11, 12, 13], [21, 22], [31, 32, 33]], pa.list_(pa.uint16())),
            "source": pa.array([7, 8, 9], pa.int8()),
            RED: pa.array([[1, 0, 1], [0, 0], [1, 1, 1]], pa.list_(pa.int8())),
        }
    )
    return prepare(tmp_path_factory.mktemp("kept"), table, [{"pack": {"length": 4, "keep": ["source", RED]}}])


def shown(capfd: pytest.CaptureFixture[str], *command: str) -> str:
    assert main(list(command)) == 0
    return capfd.readouterr().out


def test_each_document_of_a_row_has_its_values(rows, capfd):
    told = shown(capfd, "inspect", str(rows))
    assert "at 0, 3 tokens; source 7; " in told
    assert "[1, 0, 1]" in told
    assert "at 3, 1 token; source 8; " in told
    facts = json.loads(shown(capfd, "inspect", str(rows), "--json"))
    assert [each["columns"]["source"] for each in facts["records"]["documents"][0]] == [[7, 7, 7], [8]]


def test_each_segment_of_a_batch_has_its_values(rows, capfd):
    options = ["inspect", str(rows), "--tokens", "--batch-size", "2", "--rows", "2"]
    facts = json.loads(shown(capfd, *options, "--json"))
    found: dict[int, int] = {}
    for row in facts["rows"]:
        for segment in row["segments"]:
            found |= dict(zip(segment["tokens"], segment["columns"]["source"], strict=True))
    assert found == {11: 7, 12: 7, 13: 7, 22: 8, 31: 9, 32: 9, 33: 9}  # 21 is a target of another document alone
    assert "source" in shown(capfd, *options)


@pytest.mark.parametrize("more", [[], ["--tokens", "--batch-size", "2"]])
def test_a_name_is_shown_as_it_is_and_moves_no_cursor(rows, capfd, more):
    told = shown(capfd, "inspect", str(rows), *more)
    assert "\x1b" not in told
    assert "[bold]" in told.replace("\n", "")
