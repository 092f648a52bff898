"""Origins of batches: which documents and samples batch k holds, and on which lines they stand."""

from __future__ import annotations

import gzip
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from typer.testing import CliRunner

import penstock
from penstock.base.errors import ConfigError
from penstock.cli import app
from penstock.shards.rereading.documents import NO_HASH
from penstock.shards.rereading.lines import Place, lines_at
from tests.promises import text_making

EXAMPLE = Path(__file__).parents[3] / "examples" / "loss_spike.py"


def _prepare(folder: Path, texts: list[str], method: str = "wrapped", **keys: Any) -> Path:
    """A dataset of these texts; in its file, every fifth line is blank."""
    (folder / "data").mkdir(parents=True)
    lines = [json.dumps({"text": text}) + "\n" * (2 if n % 4 == 3 else 1) for n, text in enumerate(texts)]
    (folder / "data" / "a.jsonl").write_text("".join(lines))
    tokenize = {"tokenizer": str(text_making.write_tokenizer(folder / "tokenizer")), "engine": "hf"}
    job = {
        "input": {"path": str(folder / "data"), "text_column": "text"},
        "output": str(folder / "out"),
        "stages": [{"tokenize": tokenize}, {"pack": {"length": 33, "method": method}}],
        "slice_size": "1kB",
        "memory": "2GB",
        "workers": 0,
    }
    penstock.run({**job, "provenance": True, **keys})
    return folder / "out"


def _texts(count: int = 60) -> list[str]:
    return [text for text in text_making.documents(2 * count, 5) if text.strip()][:count]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _prepare(tmp_path_factory.mktemp("origins"), _texts())


def _line(number: int) -> int:
    """Line of a text in the file: four texts and a blank line, again and again."""
    return number + number // 4 + 1


@pytest.mark.parametrize(
    "options", [{}, {"rank": 1, "world": 2}, {"shuffle": False}, {"length": 20, "overflow": "truncate"}]
)
def test_each_segment_leads_to_the_line_of_its_text(packed, options):
    texts = _texts()
    lines = (packed.parent / "data" / "a.jsonl").read_text().split("\n")
    with penstock.load(packed, batch_size=4, epochs=1, workers=0, seed=3, **options) as loader:
        for k in range(len(loader)):
            batch, seen = loader.batch(k), set()
            for each in loader.origin(k, packed.parent / "data"):
                here = batch["inputs_segmentation"][each.row] == each.segment
                tokens = batch["inputs"][each.row][here].tolist()
                text = json.loads(lines[each.line - 1])["text"]
                ids = text_making.ids_of(text)
                assert text in texts
                assert _line(texts.index(text)) == each.line or texts.count(text) > 1
                assert any(ids[start : start + len(tokens)] == tokens for start in range(len(ids)))
                assert (each.tokens, each.text) == (len(tokens), text_making.decoded(tokens))
                seen.add((each.row, each.segment))
            rows, places = np.nonzero(batch["inputs_segmentation"])
            numbers = batch["inputs_segmentation"][rows, places]
            assert seen == set(zip(rows.tolist(), numbers.tolist(), strict=True))


def test_a_dataset_without_provenance_says_so(tmp_path):
    output = _prepare(tmp_path, _texts(20), provenance=False)
    with penstock.load(output, batch_size=2, workers=0) as loader, pytest.raises(ConfigError, match="provenance: true"):
        loader.origin(0)


def test_datasets_with_and_without_it_can_be_mixed(packed, tmp_path):
    other = _prepare(tmp_path, _texts(20), provenance=False)
    with penstock.load([packed, other], batch_size=4, workers=0) as loader:
        assert loader.batch(0)["inputs"].shape == (4, 32)


def test_samples_have_origins_and_batches_do_not_show_them(tmp_path):
    (tmp_path / "games").mkdir()
    for name in "ab":
        (tmp_path / "games" / f"{name}.game").write_text(name * 6)

    def samples(path):
        for number, letter in enumerate(path.read_text()):
            yield {"features": np.array([ord(letter), number], "f4")}

    job = {"input": {"files": str(tmp_path / "games" / "*"), "function": samples}, "output": str(tmp_path / "out")}
    penstock.run({**job, "provenance": True, "memory": "2GB", "workers": 0})
    with penstock.load(tmp_path / "out", batch_size=4, workers=0, remainder="pad", epochs=1) as loader:
        for k in range(len(loader)):
            batch = loader.batch(k)
            assert set(batch) == {"features", "valid"}
            found = [(f"{chr(int(letter))}.game", int(number)) for letter, number in batch["features"][batch["valid"]]]
            assert [(each.file, each.position) for each in loader.origin(k, tmp_path / "games")] == found


def test_inspect_shows_them(packed):
    asked = ["inspect", str(packed), "--origins", "--batch", "1", "--batch-size", "2"]
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    with penstock.load(packed, batch_size=2, workers=0) as loader:
        assert found["segments"] == [each._asdict() for each in loader.origin(1)]
    shown = CliRunner().invoke(app, [*asked, "--input", str(packed.parent / "data")])
    assert shown.exit_code == 0
    assert "a.jsonl" in shown.stdout
    assert "line" in shown.stdout


def test_the_example_names_the_document_behind_a_spike(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["loss_spike.py", str(tmp_path)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    (written,) = tmp_path.glob("spike-*.jsonl")
    found = [json.loads(line) for line in written.open()]
    assert {each["position"] for each in found} == {120}
    assert "#@!~" in found[0]["text"]
    with penstock.load(tmp_path / "prepared", batch_size=2, exclude=written, shuffle=False, workers=0) as loader:
        assert 120 not in {each.position for k in range(len(loader)) for each in loader.origin(k)}


# The document itself.


def _write(folder: Path, kind: str, texts: list[str]) -> dict[str, Any]:
    """A folder with these texts in files of a kind, and the source that reads it."""
    folder.mkdir(parents=True)
    records = "".join(json.dumps({"id": n, "body": {"a": text}, "text": text}) + "\n" for n, text in enumerate(texts))
    lines = "".join(f"{text}\r\n" for text in texts)
    if kind == "jsonl":
        (folder / "a.jsonl").write_text(records)
    elif kind == "jsonl.gz":
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(records.encode()))
    elif kind.startswith("csv"):
        rows = "".join(f'{n},"{text}",\r\n' + "\n" * (n % 5 == 0) for n, text in enumerate(texts))
        encoding = "latin-1" if kind == "csv, latin-1" else "utf-8"
        (folder / "a.csv").write_bytes(f"id,text,more\n{rows}".encode(encoding))
        return {"path": str(folder), **({"encoding": encoding} if encoding == "latin-1" else {})}
    elif kind == "tsv.gz":
        rows = "".join(f"{n}\t{text}\n" for n, text in enumerate(texts))
        (folder / "a.tsv.gz").write_bytes(gzip.compress(f"id\ttext\n{rows}".encode()))
    elif kind == "parquet":
        text_making.write_documents(folder, texts[:30], texts[30:], group=7)
    elif kind == "lines":
        (folder / "a.txt").write_bytes(lines.encode())
        return {"path": str(folder), "format": "text", "document": "line"}
    else:
        for number, text in enumerate(texts):
            data = text.encode("latin-1" if kind == "latin-1" else "utf-8")
            (folder / f"{number:03d}.txt").write_bytes(data)
        encoding = {"encoding": "latin-1"} if kind == "latin-1" else {}
        return {"path": str(folder), "format": "text", "document": "file", **encoding}
    return {"path": str(folder)}


KINDS = ["jsonl", "jsonl.gz", "parquet", "lines", "files", "latin-1", "csv", "csv, latin-1", "tsv.gz"]


def _prepare_kind(folder: Path, kind: str, **keys: Any) -> tuple[Path, list[str]]:
    texts = [f"  gate {n} of the dam {'é' * (n % 3)} is open " + "water " * (n % 9) for n in range(60)]
    source = _write(folder / "data", kind, texts)
    tokenize = {"tokenizer": str(text_making.write_tokenizer(folder / "tokenizer")), "engine": "hf"}
    stages = ["clean", {"tokenize": tokenize}, {"pack": 33}]
    job = {"input": source, "output": str(folder / "out"), "stages": stages, "slice_size": "1kB", "workers": 0}
    penstock.run({**job, "memory": "2GB", **keys})
    return folder / "out", texts


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_is_read_again_as_its_file_has_it(tmp_path, kind):
    output, texts = _prepare_kind(tmp_path, kind)
    with penstock.load(output, batch_size=4, workers=0) as loader:
        for k in range(3):
            for each in loader.origin(k):
                number = texts.index(each.document)
                assert each.problem is None
                assert each.hash == xxhash.xxh3_64_hexdigest(texts[number].encode())
                assert each.text.removesuffix("<|end|>").strip() in texts[number]
            lines = [each.line for each in loader.origin(k, tmp_path / "data")]
            numbers = [texts.index(each.document) for each in loader.origin(k)]
            if kind in ("jsonl", "jsonl.gz", "lines"):
                assert lines == [number + 1 for number in numbers]
            elif kind in ("csv", "csv, latin-1"):  # a header, and blank lines
                assert lines == [number + 2 + (number + 4) // 5 for number in numbers]
            elif kind == "tsv.gz":
                assert lines == [number + 2 for number in numbers]
            else:
                assert set(lines) <= {None, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_that_was_changed_is_not_shown(tmp_path, kind):
    output, texts = _prepare_kind(tmp_path, kind)
    shutil.rmtree(tmp_path / "data")
    _write(tmp_path / "data", kind, [text.replace("gate", "door") for text in texts])
    with penstock.load(output, batch_size=4, workers=0) as loader:
        for each in (*loader.origin(0), *loader.origin(0, tmp_path / "data")):
            assert (each.document, each.line) == (None, None)
            assert "no longer has this document" in each.problem
            assert each.text  # decoded from the tokens
            assert "door" not in each.text


def test_a_value_of_csv_may_have_newlines_and_any_size(tmp_path):
    texts = [f'gate {n},\n\n "open" ' + "water " * (40_000 if n == 3 else 5) for n in range(8)]
    rows = "".join('"{}",{}\n'.format(text.replace('"', '""'), n) for n, text in enumerate(texts))
    (tmp_path / "a.csv").write_text("text,id\n" + rows)
    tokenize = {"tokenizer": str(text_making.write_tokenizer(tmp_path / "tokenizer")), "engine": "hf"}
    source = {"path": str(tmp_path / "*.csv"), "text_column": "text"}
    stages = [{"tokenize": tokenize}, {"pack": 65}]
    penstock.run({"input": source, "output": str(tmp_path / "out"), "stages": stages, "memory": "2GB", "workers": 0})
    with penstock.load(tmp_path / "out", batch_size=4, workers=0, epochs=1) as loader:
        found = {(each.document, each.line) for k in range(len(loader)) for each in loader.origin(k, tmp_path)}
    assert found <= {(text, 2 + 3 * n) for n, text in enumerate(texts)}
    assert len(found) > 3


def test_an_input_that_is_gone_is_named(tmp_path):
    output, _ = _prepare_kind(tmp_path, "jsonl")
    shutil.rmtree(tmp_path / "data")
    with penstock.load(output, batch_size=4, workers=0) as loader:
        assert {each.problem for each in loader.origin(0)} == {"the file cannot be read: No such file or directory"}
        assert all(each.text for each in loader.origin(0))


def test_without_hashes_nothing_is_shown_as_the_document(tmp_path):
    output, _ = _prepare_kind(tmp_path, "jsonl", provenance="origins")
    with penstock.load(output, batch_size=4, workers=0) as loader:
        found = [*loader.origin(0), *loader.origin(0, tmp_path / "data")]
        assert {(each.document, each.hash) for each in found} == {(None, None)}
        assert {each.problem for each in found} == {NO_HASH}
        assert all(each.line for each in loader.origin(0, tmp_path / "data"))


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "files"])
def test_without_a_document_there_is_always_a_problem(tmp_path, kind):
    output, _ = _prepare_kind(tmp_path, kind, provenance="origins")
    shutil.rmtree(tmp_path / "data")
    _write(tmp_path / "data", kind, ["one"])
    with penstock.load(output, batch_size=4, workers=0) as loader:
        for each in (*loader.origin(0), *loader.origin(0, tmp_path / "data")):
            assert (each.document is None) == (each.problem is not None)


# Several datasets.


def _prepare_two(folder: Path, **keys: Any) -> tuple[list[str], dict[str, list[str]]]:
    """Two datasets whose input files have the same name, but other lines: every text of the second is one later."""
    texts = {name: [f"{name} {n} is open " + "water " * (n % 7) for n in range(40)] for name in ("gate", "door")}
    outputs = []
    for name, blank in (("gate", ""), ("door", "\n")):
        (folder / f"in-{name}").mkdir(parents=True)
        lines = "".join(f"{blank}{json.dumps({'text': text})}\n" for text in texts[name])
        (folder / f"in-{name}" / "a.jsonl").write_text(lines)
        tokenize = {"tokenizer": str(text_making.write_tokenizer(folder / "tokenizer")), "engine": "hf"}
        job = {"input": {"path": str(folder / f"in-{name}")}, "output": str(folder / name), "workers": 0}
        penstock.run({**job, "stages": [{"tokenize": tokenize}, {"pack": 33}], "memory": "2GB", **keys})
        outputs.append(str(folder / name))
    return outputs, texts


@pytest.mark.parametrize("provenance", [True, "origins"])
@pytest.mark.parametrize("named_by", ["path", "name"])
def test_each_dataset_has_its_own_inputs(tmp_path, provenance, named_by):
    outputs, texts = _prepare_two(tmp_path, provenance=provenance)
    names = outputs if named_by == "path" else ["gate", "door"]
    inputs = {name: tmp_path / f"in-{Path(output).name}" for name, output in zip(names, outputs, strict=True)}
    with penstock.load(outputs, batch_size=8, workers=0) as loader:
        found = [each for k in range(4) for each in loader.origin(k, inputs)]
        assert {Path(each.dataset).name for each in found} == {"gate", "door"}
        for each in found:
            name = Path(each.dataset).name
            number = each.line // (1 if name == "gate" else 2) - 1
            assert each.text.removesuffix("<|end|>").strip() in texts[name][number]
            assert each.document == (texts[name][number] if provenance is True else None)
        some = loader.origin(0, {names[1]: inputs[names[1]]})
        assert all(each.line for each in some if each.dataset == outputs[1])
        assert {each.document for each in some} <= {None, *texts["gate"], *texts["door"]}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("in-gate", "does not say which of 2 datasets"),
        (["in-gate", "in-door"], "does not say which of 2 datasets"),
        ({"barn": "in-gate"}, "names a dataset 'barn', which is none of these: .*gate, .*door"),
        ({"gate": ["in-gate", "in-door"]}, "the documents of .*gate come from 1 source, and 2 folders were given"),
        ({"gate": "in-gate", "./gate": "in-door"}, "names the dataset gate twice"),
    ],
)
def test_inputs_that_may_be_of_several_datasets_are_refused(tmp_path, monkeypatch, inputs, words):
    _prepare_two(tmp_path)
    monkeypatch.chdir(tmp_path)
    with (
        penstock.load(["gate", "door"], batch_size=8, workers=0) as loader,
        pytest.raises(ConfigError, match=words),
    ):
        loader.origin(0, inputs)


def test_segments_of_a_dataset_without_origins_are_unknown_and_the_others_are_not(tmp_path):
    outputs, texts = _prepare_two(tmp_path)
    _prepare_two(tmp_path / "without", provenance=False)
    mixed = [outputs[0], str(tmp_path / "without" / "door")]
    with penstock.load(mixed, batch_size=8, workers=0) as loader:
        found, batch = loader.origin(0), loader.batch(0)
    assert len(found) == sum(len(set(row[row > 0])) for row in batch["inputs_segmentation"])
    for each in found:
        if each.dataset == outputs[0]:
            assert each.document in texts["gate"]
        else:
            assert (each.source, each.file, each.position, each.document) == (None,) * 4
            assert each.problem == "this dataset keeps no origins"
            assert each.text


# Lines.


def _numbers(path: Path, *places: tuple[int, int]) -> list[int | None]:
    wanted = [Place(*each) for each in places]
    found = lines_at(str(path), wanted, counts=True)
    return [found[place].number if place in found else None for place in wanted]


def test_lines_are_counted_in_compressed_files_too(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a":1}\n\n{"a":2}\n{"a":3}'))
    assert _numbers(tmp_path / "a.jsonl.gz", (0, 0), (0, 1), (0, 2), (0, 5)) == [1, 3, 4, None]


def test_a_blank_line_of_a_text_is_a_document(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n\nb\n")
    assert _numbers(tmp_path / "a.txt", (0, 0), (0, 1), (0, 2), (2, 2)) == [1, 2, 3, 2]


@pytest.mark.parametrize("first", range(12))
def test_reading_from_a_piece_on_gives_the_lines_of_reading_all(tmp_path, first):
    (tmp_path / "a.txt").write_bytes(b"ab\n\ncd\r\nefg\nh")
    places = [Place(first, first + number) for number in range(5)]
    whole, parts = (lines_at(str(tmp_path / "a.txt"), places, counts) for counts in (True, False))
    assert {place: line.data for place, line in whole.items()} == {place: line.data for place, line in parts.items()}


def test_a_row_of_csv_that_python_cannot_read_is_a_problem_and_not_an_exception(tmp_path):
    output, _ = _prepare_kind(tmp_path, "csv")
    path = tmp_path / "data" / "a.csv"
    path.write_bytes(path.read_bytes().replace(b"gate", b"ga\rte").replace(b'"', b""))
    with penstock.load(output, batch_size=4, workers=0) as loader:
        assert all(each.document is None and each.problem for each in loader.origin(0, tmp_path / "data"))


def test_a_json_array_of_origins_can_be_excluded(packed, tmp_path):
    with penstock.load(packed, batch_size=4, workers=0) as loader:
        found = loader.origin(0)[:2]
    (tmp_path / "dump.json").write_text(json.dumps([each._asdict() for each in found], indent=1))
    with penstock.load(packed, batch_size=4, workers=0, exclude=tmp_path / "dump.json") as loader:
        left = {(each.file, each.position) for each in loader.origin(0)}
    assert not left & {(each.file, each.position) for each in found}
