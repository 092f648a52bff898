"""`penstock inspect --duplicates` shows near-duplicates beside the documents that stayed, whatever they hold."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cli import main

NAME = "we\x1b[31mird [bold] <b>ü.jsonl"
TEXTS = [f"Report {number}: " + " ".join(f"line{number}x{word}" for word in range(80)) for number in range(5)]
OTHER = TEXTS[0].replace("line0x40", "\x1b[2Jother\x9b")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of pytest-xdist have 80 columns."""
    monkeypatch.setenv("COLUMNS", "120")


def make_input(folder: Path, texts: list[str], name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"title": "t", "body": text}) + "\n" for text in texts))
    return folder


def prepare(source: Path, output: Path, **options: Any) -> Path:
    job = {"input": {"path": str(source), "text_column": "body"}, "output": str(output), "memory": "2GB", "workers": 0}
    penstock.run({**job, "stages": ["clean", "near_dedup"], **options})
    return output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("near")
    return prepare(make_input(folder / "in", [*TEXTS, OTHER, f"{TEXTS[1]} more"]), folder / "out")


def shown(capfd: pytest.CaptureFixture[str], *command: str | Path) -> str:
    assert main(["inspect", *map(str, command)]) == 0
    return capfd.readouterr().out


def pairs_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    return penstock.inspect(path, **{"duplicates": 10, **options})["pairs"]


def test_the_least_similar_pair_comes_first(made):
    first, second = pairs_of(made)
    assert (first["document"]["position"], second["document"]["position"]) == (5, 6)
    assert first["similarity"] < second["similarity"] < 1
    assert (first["survivor"]["text"], first["document"]["text"]) == (TEXTS[0], OTHER)
    assert len(pairs_of(made, duplicates=1)) == 1


def test_the_words_that_differ_are_marked(made, capfd):
    (parts,) = pairs_of(made)[0]["differences"]["regions"]
    assert [part for part in parts if "both" not in part] == [{"survivor": "line0x40", "document": "\x1b[2Jother\x9b"}]
    told = shown(capfd, made, "--duplicates")
    assert "[+line0x40+]" in told
    assert "[-\\x1b[2Jother\\x9b-]" in told


def test_names_and_texts_move_no_cursor(made, capfd):
    told = shown(capfd, made, "--duplicates")
    assert not {"\x1b", "\x9b"} & set(told)
    assert "we\\x1b[31mird [bold] <b>ü.jsonl" in told


@pytest.mark.parametrize(("width", "stands_below"), [("60", True), ("120", False)])
def test_a_narrow_terminal_shows_one_above_the_other(made, capfd, monkeypatch, width, stands_below):
    monkeypatch.setenv("COLUMNS", width)
    lines = shown(capfd, made, "--duplicates", "-n", "1").splitlines()
    assert max(map(len, lines[:-1])) <= int(width)
    (head,) = (line for line in lines if line.startswith("stayed: "))
    assert ("near-duplicate: " in head) is not stands_below


def test_the_summary_says_how_many_there_are(made, capfd):
    told = shown(capfd, made, "--duplicates", "-n", "0")
    assert "7; 2 near-duplicates (28.6%) removed" in told
    assert "threshold  0.8; 20 bands of 6 rows find 99.8% of the pairs at it" in told


def test_the_command_and_python_say_the_same(made, capfd):
    assert json.loads(shown(capfd, made, "--duplicates", "-n", "10", "--json")) == penstock.inspect(made, duplicates=10)


def test_lines_are_counted_where_the_input_is_named(made, tmp_path):
    assert {pair["document"]["line"] for pair in pairs_of(made, inputs=[str(made.parent / "in")])} == {6, 7}
    moved = shutil.copytree(made.parent / "in", tmp_path / "moved")
    assert pairs_of(made, inputs=[str(moved)])[0]["document"]["text"] == OTHER


def test_a_document_that_has_changed_is_not_shown(tmp_path, capfd):
    output = prepare(make_input(tmp_path / "in", [*TEXTS, OTHER]), tmp_path / "out")
    make_input(tmp_path / "in", [*TEXTS, "something else"])
    (pair,) = pairs_of(output)
    assert pair["document"]["problem"] == "the file no longer has this document there"
    assert (pair["document"]["text"], pair["differences"]) == (None, None)
    assert pair["survivor"]["text"] == TEXTS[0]
    assert "the file no longer has this document there" in " ".join(shown(capfd, output, "--duplicates").split())


def test_a_file_that_is_gone_is_named(tmp_path, capfd):
    output = prepare(make_input(tmp_path / "in", [*TEXTS, OTHER]), tmp_path / "out")
    (tmp_path / "in" / NAME).unlink()
    (pair,) = pairs_of(output)
    assert pair["document"]["problem"] == "the file cannot be read: No such file or directory"
    assert "No such file" in shown(capfd, output, "--duplicates")


def test_equal_words_are_said_to_be_equal(tmp_path, capfd):
    texts = [TEXTS[0], TEXTS[0].replace(" ", "\n"), TEXTS[1], TEXTS[1]]
    told = shown(capfd, prepare(make_input(tmp_path / "in", texts), tmp_path / "out"), "--duplicates")
    assert told.count("similarity 1.000") == 2
    assert "The words are equal; white space differs." in told
    assert "The texts are equal." in told


def test_huge_documents_are_cut(tmp_path, capfd):
    words = [f"w{number}" for number in range(1_000_000)]
    texts = [" ".join(words), " ".join([*words[:500_000], "new", *words[500_001:]])]
    output = prepare(make_input(tmp_path / "in", texts), tmp_path / "out")
    (pair,) = pairs_of(output)
    assert (pair["document"]["characters"], len(pair["document"]["text"])) == (len(texts[1]), 10_000)
    told = shown(capfd, output, "--duplicates")
    assert "[+w500000+]" in told
    assert "similarity 0.999" in told
    assert len(told) < 4000


@pytest.mark.parametrize("ending", ["parquet", "jsonl.gz", "csv", "txt", "py"])
def test_documents_of_every_format_are_read_again(tmp_path, ending):
    folder, texts = tmp_path / "in", [*TEXTS, TEXTS[0].replace("line0x40", "other")]
    folder.mkdir()
    if ending == "parquet":
        pq.write_table(pa.table({"body": texts}), folder / "a.parquet")
    elif ending in ("txt", "py"):
        for number, text in enumerate(texts):
            (folder / f"{number}.{ending}").write_text(text)
    elif ending == "csv":
        (folder / "a.csv").write_text("\n".join(["id,body", *(f"1,{text}" for text in texts), ""]))
    else:
        (folder / "a.jsonl.gz").write_bytes(
            gzip.compress("".join(json.dumps({"body": text}) + "\n" for text in texts).encode())
        )
    kind = {"format": "text"} if ending in ("txt", "py") else {"text_column": "body"}
    output = prepare(folder, tmp_path / "out", input={"path": f"{folder}/*.{ending}", **kind})
    (pair,) = pairs_of(output)
    assert (pair["survivor"]["text"], pair["document"]["text"]) == (texts[0], texts[5])


def test_a_dataset_without_near_dedup_is_refused_with_the_next_step(tmp_path, capfd):
    source = make_input(tmp_path / "in", TEXTS)
    penstock.run({"input": {"path": str(source), "text_column": "body"}, "output": str(tmp_path / "out"), "workers": 0})
    assert main(["inspect", str(tmp_path / "out"), "--duplicates"]) == 2
    told = capfd.readouterr().err
    assert "made without near_dedup" in told
    assert "try: add `near_dedup` to the stages of its job, and run it with --redo" in told


def test_options_of_a_batch_are_refused(made, capfd):
    assert main(["inspect", str(made), "--duplicates", "--batch", "3"]) == 2
    assert "--batch" in capfd.readouterr().err


def test_without_content_hashes_no_document_is_shown(tmp_path):
    output = prepare(make_input(tmp_path / "in", [*TEXTS, OTHER]), tmp_path / "out", provenance="origins")
    (pair,) = pairs_of(output)
    assert pair["document"]["problem"] == "the dataset keeps no content hashes, so a document cannot be checked"
    assert pair["document"]["hash"] is None


def test_marked_documents_are_shown_too(tmp_path, capfd):
    stages = ["clean", {"near_dedup": {"act": "mark"}}]
    output = prepare(make_input(tmp_path / "in", [*TEXTS, OTHER]), tmp_path / "out", stages=stages)
    (pair,) = pairs_of(output)
    assert (pair["survivor"]["text"], pair["document"]["text"]) == (TEXTS[0], OTHER)
    assert "1 near-duplicate (16.7%) marked" in shown(capfd, output, "--duplicates")


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data.replace(b"PAR1", b"XXXX")])
def test_damaged_evidence_is_named(tmp_path, capfd, damage):
    output = prepare(make_input(tmp_path / "in", [*TEXTS, OTHER]), tmp_path / "out")
    (file,) = (output / "duplicates").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert main(["inspect", str(output), "--duplicates"]) == 6
    assert "duplicates/00000.parquet" in capfd.readouterr().err


def test_a_dataset_without_near_duplicates_says_so(tmp_path, capfd):
    output = prepare(make_input(tmp_path / "in", TEXTS), tmp_path / "out")
    assert "5; 0 near-duplicates (0.0%) removed" in shown(capfd, output, "--duplicates")


def test_documents_of_a_dataset_are_read_from_the_first_input(tmp_path):
    first = tmp_path / "first"
    source = {"path": str(make_input(tmp_path / "in", [*TEXTS, OTHER])), "text_column": "body"}
    penstock.run({"input": source, "output": str(first), "stages": ["clean"], "workers": 0})
    output = prepare(first, tmp_path / "out", input=str(first))
    (pair,) = pairs_of(output, inputs=[str(tmp_path / "in")])
    assert (pair["survivor"]["text"], pair["document"]["text"]) == (TEXTS[0], OTHER)
    assert pair["document"]["file"] == NAME


@pytest.mark.parametrize("number", [-1, 2.5, "3", True])
def test_what_is_no_number_of_pairs_is_refused(made, number):
    with pytest.raises(penstock.ConfigError, match="not a number of pairs"):
        penstock.inspect(made, duplicates=number)


def test_two_looks_at_once_are_refused(made, capfd):
    assert main(["inspect", str(made), "--duplicates", "--rejected"]) != 0
    assert "one look at a time" in capfd.readouterr().err


def test_the_result_and_every_other_look_say_where_near_duplicates_are_shown(made, capfd):
    for command in ([str(made)], [str(made), "--rejected"]):
        assert "--duplicates" in shown(capfd, *command)


def test_sources_that_lose_much_and_marks_are_in_the_result(tmp_path, capfd):
    source = make_input(tmp_path / "in", [TEXTS[0], f"{TEXTS[0]} more", f"{TEXTS[0]} again"])
    marked = {"stages": [{"near_dedup": {"act": "mark", "warn_above": "20%"}}]}
    out = shown(capfd, prepare(source, tmp_path / "out", **marked))
    assert "2 near-duplicates of 3 documents marked" in out
    assert "source 0: 67% of its documents" in out


def test_bands_that_overlook_pairs_are_named_by_plan_and_run(tmp_path, capfd):
    job = {"input": {"path": str(make_input(tmp_path / "in", TEXTS)), "text_column": "body"}, "memory": "2GB"}
    job |= {"output": str(tmp_path / "out"), "stages": [{"near_dedup": {"rows": 100}}], "workers": 0}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    for command in ("plan", "run"):
        assert main([command, str(tmp_path / "job.yaml")]) == 0
        said = " ".join("".join(capfd.readouterr()).split())
        assert "WARNING: 20 bands of 100 rows find only 0.0% of the pairs at threshold 0.8" in said


def test_a_second_job_names_the_sources_of_the_first(tmp_path, capfd):
    first = prepare(make_input(tmp_path / "a", TEXTS[:3]), tmp_path / "first", stages=["clean"])
    other = make_input(tmp_path / "b", [f"{TEXTS[0]} more", TEXTS[4]], "b.jsonl")
    inputs = [str(first), {"path": str(other), "text_column": "body"}]
    second = prepare(other, tmp_path / "second", input=inputs)
    assert "its folder is not known" in shown(capfd, second, "--duplicates")
    with pytest.raises(penstock.ConfigError, match="come from 2 sources, and 1 folder"):
        penstock.inspect(second, duplicates=1, inputs=[str(other)])
    (pair,) = penstock.inspect(second, duplicates=1, inputs=[str(tmp_path / "a"), str(other)])["pairs"]
    assert (pair["survivor"]["text"], pair["document"]["text"]) == (TEXTS[0], f"{TEXTS[0]} more")
