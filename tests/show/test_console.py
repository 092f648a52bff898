"""Console: what comes from data is shown and never obeyed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.text import Text

from penstock.show.console import make_console, show
from penstock.show.tables import make_list, make_table
from tests.show.desk import give

EVIL = "\x1b[31mred\x1b]0;title\u202e"
SHOWN = r"\x1b[31mred\x1b]0;title\u202e"


def test_escape_codes_are_written_out_wherever_they_stand(capsys):
    table = make_table("name", EVIL)
    table.add_row("a", EVIL)
    show({}, lambda _: [table, make_list([(EVIL, "b")]), Text(f"one\n{EVIL}")], as_json=False)
    shown = capsys.readouterr().out
    assert shown.count(SHOWN) == 4
    assert shown.replace("\n", "").isprintable()
    assert "one\n" in shown


def test_colours_of_our_own_stay(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    make_console().print(Text(EVIL, style="green"))
    assert f"\x1b[32m{SHOWN}" in capsys.readouterr().out


@pytest.mark.proof
def test_names_of_files_columns_and_conditions_are_not_obeyed(tmp_path: Path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({EVIL: [1, 2, 3]}), tmp_path / "in" / f"{EVIL}.parquet")
    (tmp_path / "in" / f"bad{EVIL}.parquet").write_bytes(b"junk")
    job = {"input": "in", "output": "out", "workers": 0, "on_bad_input": "set_aside"}
    stages = [{"filter": {"where": f"`{EVIL}` > 1", "keep": True}}]
    (tmp_path / "job.yaml").write_text(json.dumps({**job, "stages": stages}))
    for name, *options in (("plan",), ("run",), ("inspect",), ("inspect", "--rejected")):
        told = give(name, tmp_path / ("out" if name == "inspect" else "job.yaml"), *options)
        assert told.returncode == 0, told.stderr
        assert SHOWN in told.stdout
        assert (told.stdout + told.stderr).replace("\n", "").isprintable()
