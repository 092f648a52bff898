"""Promise 3: whatever can be refused is refused before an earlier result is touched, with --redo and without."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import PenstockError
from penstock.base.stores import open_store
from penstock.cli import main
from tests.promises import arrays_making, text_making, workshop

# What a look at a folder may change: who holds it, and what was said.
FLEETING = (".penstock/lock", ".penstock/events.jsonl")


def _bytes_of(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    hashes = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {name: hashed for name, hashed in hashes.items() if not name.endswith((*FLEETING, "job.yaml"))}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished dataset of text with rejected rows, artifacts, remembered keys and an export."""
    folder = tmp_path_factory.mktemp("made")
    text_making.write_documents(folder / "data", *text_making.files_of_documents(2, 40))
    penstock.run(_write_job(folder))
    text_making.write_documents(folder / "other", *text_making.files_of_documents(1, 40, seed=2))
    text_making.write_documents(folder / "damaged", ["a"])
    (folder / "damaged" / "0.parquet").write_bytes(b"PAR1 and nothing else")
    text_making.write_tokenizer(folder / "odd", normalizer={"type": "Lowercase"})
    (folder / "broken.py").write_text("raise RuntimeError('no such device')\n")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("mine")
    assert {"rejected", "artifacts", "train"} <= {path.name for path in (folder / "out").iterdir()}
    return folder


def _write_job(folder: Path, **keys: Any) -> Path:
    job = {"stages": STAGES, "export": {"to": "hf", "path": "exported"}, "workers": "auto", "memory": "8GB"}
    return text_making.write_job(folder / "job.yaml", "data", **{**job, **keys})


STAGES = text_making.stages(dedup={"remember": "seen", "keep": True})
REFUSED: dict[str, dict[str, Any]] = {
    "an engine that is not equal": {"stages": text_making.stages("odd", tokenize={"engine": "gigatoken"})},
    "a tokenizer that is not there": {"stages": text_making.stages("nowhere/tokenizer.json")},
    "memory that is too small": {"memory": "20MB", "workers": 0},
    "input that is not there": {"input": "nothing/*.parquet"},
    "a damaged file": {"input": "damaged"},
    "code that raises when it is imported": {"stages": ["broken:stage", *STAGES]},
    "a column that is not there": {"stages": [{"filter": "lenght > 3"}, *STAGES]},
    "an option that is not there": {"stages": [{"dedup": {"colunm": "text"}}]},
    "an export of columns that are not there": {"export": {"to": "hf", "path": "exported", "columns": ["nope"]}},
    "an export to a foreign folder": {"export": {"to": "hf", "path": "foreign"}},
}
# What is refused last of all: by the proof of an engine, the survey of the input, and for the sake of the export.
FEW = ("an engine that is not equal", "a damaged file", "an export of columns that are not there")


@pytest.mark.parametrize("redo", [True, False] if workshop.THOROUGH else [True])
@pytest.mark.parametrize("why", REFUSED if workshop.THOROUGH else FEW)
def test_a_job_that_is_refused_leaves_every_byte_of_the_earlier_result(made, why, redo):
    before = _bytes_of(made)
    job = _write_job(made, **REFUSED[why])
    try:
        penstock.run(job, redo=redo)
        assert not redo, "it was not refused"  # else it is the finished job, which may be asked for in many words
    except PenstockError as error:
        assert error.exit_code != 1, error
    assert _bytes_of(made) == before
    assert penstock.verify(made / "out").ok


def test_other_input_is_refused_without_redo_and_leaves_every_byte(made):
    before = _bytes_of(made)
    with pytest.raises(PenstockError, match="was made from something else"):
        penstock.run(_write_job(made, input="other"))
    assert _bytes_of(made) == before


@pytest.mark.parametrize("folder", ["out", "seen"])
def test_a_folder_that_another_run_holds_leaves_every_byte_of_the_earlier_result(made, folder):
    before = _bytes_of(made)
    held = open_store(str(made / folder)).hold(b"process 7 on a machine")
    with held, pytest.raises(PenstockError, match=r"another run holds .* process 7 on a machine"):
        penstock.run(_write_job(made), redo=True)
    assert _bytes_of(made) == before
    assert penstock.verify(made / "out").ok


# Where batch files are kept, there are two results: they, and what they are merged into.

MERGE_REFUSED: dict[str, dict[str, Any]] = {
    "a column that is not there": {"stages": [{"split": {"by": "gamer", "test": 0.4}}]},
    "a foreign output": {"output": "foreign"},
    "memory that is too small": {"memory": "20MB"},
    "code that raises when it is imported": {"stages": ["broken:stage"]},
}


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("merged")
    arrays_making.write_games(folder / "games", {}, {}, {})
    penstock.run(_write_arrays_job(folder))
    (folder / "broken.py").write_text("raise RuntimeError('no such device')\n")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("mine")
    return folder


def _write_arrays_job(folder: Path, **keys: Any) -> Path:
    stages = [{"split": {"by": "game_id", "test": 0.4}}]
    return arrays_making.write_job(
        folder / "job.yaml", folder / "games", **{"intermediate_dir": "between", "stages": stages, **keys}
    )


@pytest.mark.parametrize("why", MERGE_REFUSED if workshop.THOROUGH else ["a column that is not there"])
@pytest.mark.parametrize("command", ["run", "merge"] if workshop.THOROUGH else ["run"])
def test_a_merge_that_is_refused_leaves_every_byte_of_the_batches_and_of_the_arrays(merged, command, why, capfd):
    before = _bytes_of(merged)
    job = _write_arrays_job(merged, **MERGE_REFUSED[why])
    words = ["run", str(job), "--redo"] if command == "run" else ["merge", "--config", str(job), "--redo"]
    assert main(words) not in (0, 1), capfd.readouterr().err
    assert _bytes_of(merged) == before
    assert not penstock.verify(merged / "out").problems


def test_batch_files_are_not_made_anew_while_a_run_merges_them(merged):
    before = _bytes_of(merged)
    with open_store(str(merged / "between")).hold(b"process 7 on a machine", shared=True):
        with pytest.raises(PenstockError, match=r"another run holds .* process 7 on a machine"):
            penstock.run(_write_arrays_job(merged), redo=True)
        penstock.run(_write_arrays_job(merged, output="second", intermediate_dir=None, input={"npz": "between"}))
    assert {name: each for name, each in _bytes_of(merged).items() if not name.startswith("second")} == before


# Exports and job files.

EXPORT_REFUSED = {
    "a split that is not there": ("--to", "hf", "--overwrite", "--split", "trian"),
    "a size that is none": ("--to", "hf", "--overwrite", "--shard-size", "many"),
    "a format that is not there": ("--to", "hdf6", "--overwrite"),
    "no permission": ("--to", "hf"),
    "a foreign folder": ("--to", "hf", "--overwrite", "--output", "foreign"),
    "a file where a folder must be": ("--to", "hdf5", "--overwrite", "--output", "exported/export.json/x"),
}


@pytest.mark.parametrize("why", EXPORT_REFUSED if workshop.THOROUGH else ["a split that is not there"])
def test_an_export_that_is_refused_leaves_every_byte_of_the_earlier_one(made, why, monkeypatch):
    monkeypatch.chdir(made)
    before = _bytes_of(made)
    place = () if "--output" in EXPORT_REFUSED[why] else ("--output", "exported")
    assert main(["export", "out", *EXPORT_REFUSED[why], *place]) not in (0, 1)
    assert _bytes_of(made) == before


def test_a_job_file_that_is_there_is_not_written_again(tmp_path):
    (tmp_path / "job.yaml").write_text("input: mine\n")
    assert main(["init", str(tmp_path / "job.yaml")]) == 5
    assert (tmp_path / "job.yaml").read_text() == "input: mine\n"
