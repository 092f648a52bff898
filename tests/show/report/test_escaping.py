"""Names in a report: file, column, key, split and reason may hold anything, and nothing in them becomes markup."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cli import main
from tests.show.prepared import make_rows
from tests.show.report.reading import assert_harmless, read

IMAGE = '"><img src=x onerror=alert(1)>'
SCRIPT = "</script><script>alert(1)</script>"
CODES = "\x1b[31mred\x07 \u202eevil\u2066 \x00'`&amp;"
LONG = "n" * 10_000
EVERY = (IMAGE, SCRIPT, CODES, LONG, "</style><style>*{display:none}</style>", "<!--", "]]>", "javascript:alert(1)")


@pytest.fixture(scope="module")
def nasty(tmp_path_factory) -> Path:
    """Events whose file, columns, keys and set-aside rows have such names."""
    folder = tmp_path_factory.mktemp("nasty")
    keys = [*EVERY, ""] * 4
    table = pa.table({IMAGE: keys, "at": range(len(keys)), CODES.replace("\x00", ""): ["<b>"] * len(keys)})
    file = folder / f"{IMAGE.replace('/', '')} \x1b[31m\u202e.parquet"
    pq.write_table(table, file)
    output = folder / "<i>out\u202e\x1b[31m"
    stages = [
        {"filter": {"where": [f"`{IMAGE}` != ''", "at != 1"], "keep": True}},
        {"group": {"by": IMAGE, "order": "at"}},
    ]
    penstock.run({"input": str(folder / "*.parquet"), "output": str(output), "workers": 0, "stages": stages})
    return output


def assert_shown(text: str, *names: str) -> None:
    for name in names:
        assert name in text


def test_names_from_data_are_text(nasty, tmp_path):
    page = read(penstock.report(nasty, tmp_path / "report.html"))
    assert_harmless(page)
    assert_shown(page.text, IMAGE, r"\x1b[31m", r"\u202e", SCRIPT)


def test_a_run_json_that_somebody_wrote_is_text(nasty, tmp_path):
    file = nasty / ".penstock" / "run.json"
    run = json.loads(file.read_text())
    for name in EVERY:
        passes = [{"number": 0, "kind": name, "stages": [name], "seconds": 1.0, "rows": 1, "bytes": 1, "tasks": 1}]
        task = {"task": name, "pass": 0, "seconds": 1.0, "rows": 1, "bytes": 1, "attempts": 1, "slice": name}
        unread = [{"what": name, "count": 1, "first": name}]
        facts = {"passes": passes, "slowest": [task], "machine": {name: name}, "versions": {name: name}}
        facts |= {"started": name, "input": [[name], name], "not_read": unread}
        file.write_text(json.dumps({**run, **facts}))
        page = read(penstock.report(nasty, tmp_path / "report.html"))
        assert_harmless(page)
        if len(name) < 100 and name.isprintable():
            assert_shown(page.text, name)
        elif len(name) > 1000:
            assert_shown(page.text, "n… (10,000 characters)")
    file.write_text(json.dumps(run))


def test_a_long_name_is_cut_with_its_length_beside(nasty, tmp_path):
    page = read(penstock.report(nasty, tmp_path / "report.html"))
    assert LONG not in page.text
    assert "n" * 200 + "..." in page.text, "as the summary of the keys has it"
    longest = max(len(value) for name, value in page.attributes if name not in ("d", "content"))
    assert longest < 1000


def test_a_manifest_with_such_splits_and_reasons_is_text(nasty, tmp_path):
    """A plan refuses such names of splits; a manifest that has them is drawn all the same."""
    from penstock.show.report.sections import report_page
    from penstock.show.report.writing import write_report

    facts = write_report(nasty, tmp_path / "report.html")
    for name in EVERY:
        facts["splits"] = {name: {"records": 1, "bytes": 1, "shards": 1}}
        step = {"step": name, "unit": name, "taken": 1, "given": 0, "set_aside": {name: 1}, "made": {name: 1}}
        facts["account"] = [{**step, "balances": True}]
        facts["rejected"]["examples"] = [{"reason": name, "file": name, "position": 1, "row": {name: name}}]
        facts["configuration"], facts["format"] = name, name
        facts["files"] = [{"file": name, "bytes": 1, "digest": name}]
        facts["schema"] = [{"name": name, "type": name}]
        (tmp_path / "report.html").write_text(report_page(facts))
        page = read(tmp_path / "report.html")
        assert_harmless(page)
        if len(name) < 100 and name.isprintable():
            assert page.text.count(name) >= 6


def test_the_path_in_a_benchmark_is_text(tmp_path):
    rows = make_rows(tmp_path / IMAGE)
    assert (
        main(["bench", str(rows), "--seconds", "0.05", "--batch-size", "8", "--report", str(tmp_path / "b.html")]) == 0
    )
    page = read(tmp_path / "b.html")
    assert_harmless(page)
    assert_shown(page.text, IMAGE)


def test_the_policy_allows_the_style_sheet_and_nothing_else(nasty, tmp_path):
    page = read(penstock.report(nasty, tmp_path / "report.html"))
    (policy,) = [value for name, value in page.attributes if name == "content" and value.startswith("default-src")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"].startswith("'sha256-")
    assert "script-src" not in rules
    assert rules.keys() == {"default-src", "style-src", "img-src", "base-uri", "form-action"}
