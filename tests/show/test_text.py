"""What run, plan and inspect show of a text job: tokens accounted for, passes in words, rows decoded."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tokenizers import Tokenizer, decoders, models

import penstock
from penstock.cli import main
from penstock.show.decoded import Decoder, row_tables, visible
from penstock.show.doctor import doctor_facts
from tests.show.desk import document

TOKENIZER = Path(__file__).parents[2] / "examples" / "text" / "tokenizer"
DOCUMENTS = [
    "The ferry to Small Aster leaves at seven.",
    "  The ferry to Small Aster leaves at seven.",
    "Fog.",
    "Café Renée opens when the ferry is seen, 灯台, and closes after it.",
    "One\0two\x1b[31m three\u202e four, and the lamp turns once in twelve seconds.",
    "Bread on Small Aster is baked twice a week.\nThe oven is older than the church.",
]
STAGES: list[Any] = [
    "clean",
    {"filter": "characters(text) >= 10"},
    "dedup",
    {"tokenize": {"tokenizer": str(TOKENIZER), "engine": "hf"}},
    {"filter": "length(tokens) >= 8"},
]


def make_text_job(folder: Path, pack: Any, documents: list[str] | None = None) -> Path:
    folder.mkdir(parents=True)
    lines = [json.dumps({"text": each}) + "\n" for each in (DOCUMENTS if documents is None else documents)]
    (folder / "a.jsonl").write_text("".join(lines))
    (folder / "b.jsonl").write_text(json.dumps({"text": "There are forty goats and one dog."}) + "\n")
    job = {
        "input": ["a.jsonl", "b.jsonl"],
        "output": "out",
        "stages": [*STAGES, {"pack": pack}],
        "workers": 0,
        "memory": "1GB",
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return folder / "job.yaml"


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    path = make_text_job(tmp_path_factory.mktemp("text") / "job", 24)
    penstock.run(path)
    return path


@pytest.fixture
def dataset(job) -> str:
    return str(job.parent / "out")


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def looked(capfd: Any, *arguments: str) -> Any:
    capfd.readouterr()
    assert main(["inspect", *arguments, "--json"]) == 0
    return document(capfd.readouterr().out)


def printed(capfd: Any, *arguments: str) -> str:
    capfd.readouterr()
    assert main(list(arguments)) == 0
    return str(capfd.readouterr().out)


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def tokens_of(steps: list[Any]) -> list[tuple[str, int, int, dict[str, int]]]:
    return [(step["step"], step["taken"], step["given"], step["set_aside"]) for step in steps]


def test_a_run_accounts_for_tokens_beside_documents(tmp_path, capfd):
    path = make_text_job(tmp_path / "job", {"length": 16, "method": "best_fit", "overflow": "truncate"})
    assert main(["run", str(path), "--json"]) == 0
    told = capfd.readouterr()
    facts = document(told.out)
    made, short, packed = tokens_of(facts["tokens"])
    assert made[0] == "tokenize"
    assert made[1] == made[2] == short[1]
    assert packed == ("pack", short[2], packed[2], {"truncated": short[2] - packed[2]})
    assert all(step["balances"] for step in facts["tokens"])
    assert "penstock: tokenize: Hugging Face tokenizers" in told.err

    lines = words(printed(capfd, "run", str(path)))
    assert ["tokenize", "tokens", f"{made[1]}", f"{made[2]}", "0"] in lines
    assert ["pack", "tokens", str(packed[1]), str(packed[2]), str(packed[1] - packed[2]), "truncated"] in lines


def test_a_plan_says_what_each_pass_of_a_text_job_reads_and_leaves(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = make_text_job(tmp_path / "job", 24)
    shown = printed(capfd, "plan", str(path))
    lines = {line.split("  ")[0]: re.split(r"\s{2,}", line) for line in shown.splitlines()}
    assert lines["pass"][1:] == ["0 hash", "1 match", "2 map", "3 pack"]
    assert lines["stages"][1:] == ["clean, filter, dedup", "dedup", "clean, filter, dedup, tokenize, filter", "pack"]
    assert lines["reads"][1:] == [
        "1 slice of the input",
        "the keys of pass 0",
        "1 slice of the input",
        "the tokens of pass 2",
    ]
    assert [each.partition(" of ")[2] for each in lines["writes"][1:]] == [
        "keys",
        "duplicate marks",
        "tokens",
        "output",
    ]
    assert "documents, in 1 slice" in lines["input"][1]
    assert lines["note"][1].startswith("tokenize: Hugging Face tokenizers")
    assert "pass 0 hashes them" in shown
    assert not (tmp_path / "job" / "out").exists()


def test_a_plan_as_json_has_threads_beside_workers(tmp_path, capfd):
    path = make_text_job(tmp_path / "job", 24)
    facts = document(printed(capfd, "plan", str(path), "--json"))
    assert facts["input"]["unit"] == "documents"
    assert [each["threads"] >= 1 for each in facts["passes"]] == [True] * 4
    assert facts["settings"]["threads"] == max(each["threads"] for each in facts["passes"])


def test_inspect_tells_what_became_of_documents_and_tokens(dataset, capfd):
    facts = looked(capfd, dataset)
    text = facts["text"]
    assert text["documents"] == {
        "in": 7,
        "out": 5,
        "set_aside": {"characters(text) >= 10": 1, "duplicate": 1},
    }
    assert text["tokens"]["in"] == text["tokens"]["out"] + text["tokens"]["set_aside"]["tail"]
    assert text["rows"] == {"count": facts["splits"]["train"]["records"], "length": 24, "method": "wrapped", "fill": 1}
    assert [(each["name"], each["documents"]) for each in text["sources"]] == [("a.jsonl", 4), ("b.jsonl", 1)]
    assert sum(each["share"] for each in text["sources"]) == pytest.approx(1)
    assert sum(each["documents"] for each in text["lengths"]) == 5
    assert text["lengths"][0] == {"least": 8, "most": 15, "documents": 2}
    assert all(each["most"] == 2 * each["least"] - 1 for each in text["lengths"])

    shown = printed(capfd, "inspect", dataset)
    assert "7 in = 5 out + 1 (characters(text) >= 10) + 1 (duplicate)" in shown
    assert ["8", "to", "15", "2", "█" * 30] in words(shown)


def test_how_full_rows_are_is_told_of_documents_that_stay_whole(tmp_path, capfd):
    penstock.run(make_text_job(tmp_path / "job", {"length": 64, "method": "best_fit"}))
    facts = looked(capfd, str(tmp_path / "job" / "out"))["text"]
    assert facts["rows"]["fill"] == facts["tokens"]["out"] / (64 * facts["rows"]["count"])
    assert 0 < facts["rows"]["fill"] < 1


def test_every_token_of_a_row_is_shown_with_its_text(dataset, capfd):
    facts = looked(capfd, dataset, "--records", "99")["records"]
    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    assert facts["decoded_by"] == "artifacts/tokenizer.json"
    assert facts["documents"][0][0]["begins_here"]
    assert [each["begins_here"] for each in facts["documents"][1]] == [False, True]
    for record, documents in zip(facts["first"], facts["documents"], strict=True):
        pieces = [piece for each in documents for piece in each["pieces"]]
        assert [token for piece in pieces for token in piece["tokens"]] == record["tokens"]
        assert {each["start"] for each in documents} == {0, *record["documents"]}
        whole = tokenizer.decode(record["tokens"], skip_special_tokens=False)
        assert "".join(piece["text"] for piece in pieces).replace("\ufffd", "") == whole.replace("\ufffd", "")
    assert {piece["text"] for each in facts["documents"] for one in each for piece in one["pieces"]} >= {"灯", "é"}


def test_nothing_that_stands_in_a_text_moves_the_cursor(dataset, capfd):
    shown = printed(capfd, "inspect", dataset, "--records", "99")
    assert "␀" in shown
    assert "␛" in shown
    assert "\\u202e" in shown
    assert not set(shown) & {"\0", "\x1b", "\u202e"}
    assert visible("a\tb\r\n\x7f") == "a␉b␍␊\n\\u007f"


def test_tokens_alternate_in_colour_on_a_terminal_and_stand_between_bars_elsewhere():
    decoder = Decoder(decode=lambda ids: "".join(f"<{each}>" for each in ids), special=frozenset({9}))
    row = {"start": 0, "begins_here": True, "tokens": [1, 2, 9], "pieces": decoder.pieces([1, 2, 9])}

    def drawn(**options: Any) -> str:
        out = io.StringIO()
        console = Console(file=out, width=80, **options)
        for part in row_tables("train[0]", [row]):
            console.print(part)
        return out.getvalue()

    colours = drawn(force_terminal=True, color_system="standard", no_color=False)
    assert "\x1b[30;46m<1>\x1b[0m\x1b[30;43m<2>\x1b[0m\x1b[1;37;41m<9>\x1b[0m" in colours
    assert "│<1>│<2>│<9>│" in drawn()


def test_a_long_row_is_shown_as_far_as_a_screen_goes_and_the_rest_counted(tmp_path, capfd):
    penstock.run(make_text_job(tmp_path / "job", 400, [" ".join(map(str, range(300)))]))
    assert "\n... and 144 tokens more; --json has all" in printed(capfd, "inspect", str(tmp_path / "job" / "out"))


def test_a_word_keeps_the_blank_that_a_decoder_cuts_off_by_itself():
    tokenizer = Tokenizer(models.WordLevel({"▁the": 0, "▁lamp": 1, "s": 2}, "s"))
    tokenizer.decoder = decoders.Metaspace()
    pieces = Decoder(tokenizer.decode, frozenset()).pieces([0, 1, 2, 0])
    assert [each["text"] for each in pieces] == ["the", " lamp", "s", " the"]


def test_without_the_library_tokens_are_numbers(dataset, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    facts = looked(capfd, dataset, "--records", "1")["records"]
    assert facts["decoded_by"] is None
    shown = printed(capfd, "inspect", dataset, "--records", "1")
    assert " ".join(map(str, facts["first"][0]["tokens"][:10])) in shown
    assert "pip install 'penstock[text]'" in shown


def test_a_batch_of_packed_rows_is_shown_decoded(dataset, capfd):
    facts = looked(capfd, dataset, "--tokens", "--batch-size", "2", "--rows", "2")
    for row in facts["rows"]:
        for segment in row["segments"]:
            assert [token for piece in segment["pieces"] for token in piece["tokens"]] == segment["tokens"]
    assert "│" in printed(capfd, "inspect", dataset, "--tokens", "--batch-size", "2")


def test_a_tokenizer_that_is_not_the_one_that_was_written_is_not_trusted(tmp_path, capfd):
    penstock.run(make_text_job(tmp_path / "job", 24))
    (tmp_path / "job" / "out" / "artifacts" / "tokenizer.json").write_text("{}")
    assert main(["inspect", str(tmp_path / "job" / "out")]) == 6
    assert "artifacts/tokenizer.json" in capfd.readouterr().err


def test_a_corpus_of_which_nothing_is_left_is_shown_like_any_other(tmp_path, capfd):
    path = make_text_job(tmp_path / "job", {"length": 4000})
    assert main(["run", str(path)]) == 0
    facts = looked(capfd, str(tmp_path / "job" / "out"))
    assert facts["text"]["rows"]["fill"] is None
    assert facts["text"]["tokens"]["out"] == 0
    assert "0 rows of 4,000 tokens, wrapped\n" in printed(capfd, "inspect", str(tmp_path / "job" / "out"))


def test_doctor_says_which_libraries_for_text_are_there():
    (text,) = (check for check in doctor_facts(".")["checks"] if check["name"] == "libraries for text")
    assert re.search(r"tokenizers \d", text["found"])
    assert text["status"] == "ok"


def test_the_preset_text_is_the_job_that_its_plan_prints(tmp_path, capfd, monkeypatch):
    make_text_job(tmp_path / "job", 24)
    monkeypatch.chdir(tmp_path)
    options = ["--input", "job/a.jsonl", "--output", "rows", "--workers", "0", "--memory", "1GB"]
    options += ["--set", f"tokenizer={TOKENIZER}", "--set", "length=16", "--set", "min_characters=10"]
    (tmp_path / "kept.yaml").write_text(printed(capfd, "plan", "text", *options).partition("As a job file:\n\n")[2])
    assert main(["run", "text", *options]) == 0
    assert "This job is done already" in printed(capfd, "run", "kept.yaml")
    assert main(["run", "text", *options[:4]]) == 2
    assert "preset text needs --set tokenizer=TOKENIZER" in capfd.readouterr().err
