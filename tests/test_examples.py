"""The examples run as they stand, and give what they say they give."""

from __future__ import annotations

import hashlib
import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

import penstock
from tests.promises import workshop

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name: str, folder: Path, *options: str) -> Path:
    """A copy of the example, run in a folder of its own."""
    copy = shutil.copytree(EXAMPLES / name, folder / name)
    workshop.run_well(copy / "job.yaml", *options)
    return copy


def expected(name: str) -> Any:
    return json.loads((EXAMPLES / name / "expected.json").read_text())


def test_the_rows_example_gives_what_its_expected_file_says(tmp_path):
    output = run_example("rows", tmp_path) / "out"
    seen = {
        "train": penstock.open(output)[:].to_pylist(),
        "test": penstock.open(output, "test")[:].to_pylist(),
        "account": json.loads((output / "manifest.json").read_text())["account"],
        "rejected": [json.loads(line) for line in (output / "rejected" / "00000.jsonl").open()],
        "statistics": json.loads((output / "artifacts" / "statistics.json").read_text()),
    }
    assert seen == expected("rows")


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return run_example("arrays", tmp_path_factory.mktemp("example")) / "prepared"


def test_the_arrays_example_gives_what_its_expected_file_says(arrays):
    files = sorted(path for path in arrays.iterdir() if path.suffix in (".npy", ".npz"))
    statistics = json.loads((arrays / "artifacts" / "normalize.json").read_text())["features"]
    seen = {
        "account": json.loads((arrays / "manifest.json").read_text())["account"],
        "split": json.loads((arrays / "artifacts" / "split.json").read_text()),
        "arrays": {path.name: described(path) for path in files if path.suffix == ".npy"},
        "archives": {path.name: list(np.load(path)) for path in files if path.suffix == ".npz"},
        "first_sample_of_train": {name: plain(value) for name, value in penstock.open(arrays)[0].items()},
        "features_50_to_59_of_train": {key: statistics[key][50:] for key in ("mean", "std", "min", "max")},
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    assert seen == expected("arrays")


def described(path: Path) -> str:
    array = np.load(path)
    return f"{array.dtype}{list(array.shape)}"


def plain(value: Any) -> Any:
    return value if isinstance(value, str) else value.tolist()


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["labels", "masks"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_an_archive_of_the_arrays_example_holds_what_the_single_files_hold(arrays, kind, split):
    archive = np.load(arrays / f"{kind}_{split}.npz")
    assert list(archive) == ["action", "cell", "direction"]
    for head in archive:
        assert np.array_equal(archive[head], np.load(arrays / f"{kind}_{head}_{split}.npy"))


@pytest.mark.proof
def test_the_broken_game_of_the_arrays_example_is_set_aside_by_name(tmp_path, arrays):
    output = run_example("arrays", tmp_path, "--set", "input.files=in*/*.game") / "prepared"
    (rejected,) = [json.loads(line) for path in (output / "rejected").iterdir() for line in path.open()]
    assert (rejected["file"], rejected["reason"]) == ("in-broken/nudge-13.game", "function raised")
    assert rejected["detail"] == "ValueError: move 4, 'c3': the rules do not allow this cell"
    assert rejected["traceback"].startswith("features.py, line 32, in samples: raise ValueError")
    for split in ("train", "val", "test"):
        assert np.array_equal(np.load(output / f"X_{split}.npy"), np.load(arrays / f"X_{split}.npy"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return run_example("text", tmp_path_factory.mktemp("example")) / "prepared"


def test_the_text_example_gives_what_its_expected_file_says(text):
    manifest = json.loads((text / "manifest.json").read_text())
    decode = tokenizer().decode
    rows = penstock.open(text)[:].to_pylist()
    seen = {
        "account": manifest["account"],
        "tokens": manifest["tokens"],
        "schema": manifest["schema"],
        "documents": json.loads((text / "artifacts" / "text.json").read_text()),
        "rows": [[row["documents"], decode(row["tokens"], skip_special_tokens=False)] for row in rows],
        "first_row": rows[0]["tokens"],
    }
    assert seen == expected("text")


def test_the_rows_of_the_text_example_are_its_documents_one_behind_the_other(text):
    rows = penstock.open(text)[:].to_pylist()
    tokens = [token for row in rows for token in row["tokens"]]
    ids = [encoded.ids for encoded in tokenizer().encode_batch(kept_texts())]
    stream = [token for each in ids for token in [*each, 0]]
    assert tokens == stream[: len(tokens)]
    assert len(stream) - len(tokens) == 55, "the tail"
    starts = [64 * number + start for number, row in enumerate(rows) for start in row["documents"]]
    assert starts == list(np.cumsum([0, *(len(each) + 1 for each in ids)])[: len(starts)])


def kept_texts() -> list[str]:
    """What the stages of the job leave of the input, in plain Python."""
    folder = EXAMPLES / "text" / "in"
    texts = [json.loads(line)["body"] for line in (folder / "notes.jsonl").open(encoding="utf-8")]
    texts += [path.read_text(encoding="utf-8") for path in sorted((folder / "letters").iterdir())]
    cleaned = [unicodedata.normalize("NFC", each).strip() for each in texts]
    distinct = dict.fromkeys(each for each in cleaned if len(each) >= 20)
    return [each for each in distinct if len(tokenizer().encode(each).ids) + 1 >= 16]


def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(EXAMPLES / "text" / "tokenizer" / "tokenizer.json"))
