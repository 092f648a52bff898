"""Origins of batches: which documents and samples batch k holds, and on which lines they stand."""

from __future__ import annotations

import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.cli import app
from penstock.shards.lines import line_of
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


# Lines.


def test_lines_are_counted_in_compressed_files_too(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a":1}\n\n{"a":2}\n{"a":3}'))
    assert [line_of(str(tmp_path / "a.jsonl.gz"), 0, position) for position in range(3)] == [1, 3, 4]


def test_a_blank_line_of_a_text_is_a_document(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n\nb\n")
    assert [line_of(str(tmp_path / "a.txt"), 0, position) for position in range(3)] == [1, 2, 3]
    assert line_of(str(tmp_path / "a.txt"), 2, 2) == 2
    assert line_of(str(tmp_path / "a.parquet"), 0, 2) is None


def test_a_file_that_is_another_by_now_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    with pytest.raises(InputError, match="no record at position 5"):
        line_of(str(tmp_path / "a.jsonl"), 0, 5)
    with pytest.raises(InputError, match="cannot be counted"):
        line_of(str(tmp_path / "b.jsonl"), 0, 5)
