"""Promise 2, of engines: one that is wrong about a document of the job leaves nothing in the dataset, whenever it is
found out, and whatever is killed meanwhile.

The engine is a library of its own that stands in the way of gigatoken, in real processes. It is right about everything
but one word, which no hard text has: so it is proved, and found out only by documents of a later job. That takes some
seconds there, so that tasks are done before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.base.stores import open_store
from penstock.prepare.ledger import read_rows
from tests.promises import text_making, workshop

WORD = "zzyzx"
LIBRARY = f"""
import os
import sys
import time

import awkward
import numpy as np
import tokenizers
from awkward.contents import ListOffsetArray, NumpyArray
from awkward.index import Index64

class Wrong:
    def __init__(self, text):
        self.right = tokenizers.Tokenizer.from_str(text)
        self.right.encode_special_tokens = True

    def encode_batch(self, texts, parallel):
        texts = awkward.to_list(texts)
        texts = [each.decode() if isinstance(each, bytes) else each for each in texts]
        ids = [each.ids for each in self.right.encode_batch(texts, add_special_tokens=False)]
        ids = [[*of[1:], of[0]] if {WORD!r} in text else of for text, of in zip(texts, ids)]
        ends = np.cumsum([0, *map(len, ids)])
        flat = np.array([each for of in ids for each in of], "u4")
        return awkward.Array(ListOffsetArray(Index64(ends), NumpyArray(flat)))

def load_hf_json(text):
    if "comparison.py" in sys.argv[0]:
        time.sleep(float(os.environ.get("SECONDS_LATE", "0")))
    return Wrong(text)
"""
RUN = """
import json, os, signal, sys
from dataclasses import replace
import penstock
from penstock.base import cache
from penstock.base.errors import FileError
from penstock.prepare.tokenizers import comparison, remembered

job, kill_at, how = sys.argv[1:]
begun, told, real = [0], [], comparison.Comparison.__init__

def counted(self, question):
    begun[0] += 1
    real(self, question)

def refuses(file, data):
    raise FileError("the disk is full")

def observe(event):
    name = event["event"] + ("-" + event["kind"] if event["event"] == "pass" else "")
    if event["event"] != "sample":
        told.append({**event, "event": name})
    if kill_at == f"{name} {sum(each['event'] == 'start' for each in told)}":
        os.kill(os.getpid(), signal.SIGKILL)

comparison.Comparison.__init__ = counted
if how == "not kept":
    remembered.keep = refuses
if how == "no room beside the tasks":
    job = penstock.plan(job)
    assert job.proof_bytes
    allowed = job.projected_memory - 1
    job = replace(job, means=replace(job.means, budget=replace(job.means.budget, allowed=allowed)))
penstock.run(job, observe=observe, progress=False)
print(json.dumps({"comparisons": begun[0], "events": told}))
"""


@dataclass(frozen=True)
class Place:
    """A folder with the library, a cache, and a tokenizer that the library was proved for."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        path = [str(self.folder / "library"), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PENSTOCK_CACHE_DIR": str(self.folder / "cache"),
        }

    def job(self, name: str, texts: list[str], **keys: Any) -> Path:
        data = text_making.write_documents(self.folder / name / "data", texts)
        options = {"stages": text_making.stages(tokenize={"engine": "auto"}), **keys}
        return text_making.write_job(self.folder / name / "job.yaml", data, **options)

    def start(self, job: Path, kill_at: str = "", how: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", RUN, str(job), kill_at, how]
        late = {"SECONDS_LATE": "4"} if WORD in "".join(texts_of(job)) else {}
        return subprocess.run(
            command, env={**self.environment, **late}, capture_output=True, text=True, timeout=300, check=False
        )

    def run(self, job: Path, how: str = "") -> dict[str, Any]:
        done = self.start(job, how=how)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def texts_of(job: Path) -> list[str]:
    return [text or "" for text in pq.read_table(job.parent / "data" / "0.parquet")["text"].to_pylist()]


def right_texts(seed: int) -> list[str]:
    return text_making.documents(140, seed)


def wrong_texts(seed: int) -> list[str]:
    """One of the first has the word that the library is wrong about."""
    texts = text_making.documents(140, seed)
    texts[10] = f"this is {WORD} and nothing else"
    return texts


@pytest.fixture
def place(tmp_path: Path) -> Place:
    package = tmp_path / "library" / "gigatoken"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "gigatoken_rs.py").write_text(LIBRARY)
    place = Place(tmp_path)
    job = place.job("first", right_texts(1))
    assert place.run(job)["comparisons"] == 1
    assert engines_of(job) == {"gigatoken"}
    return place


def engines_of(job: Path) -> set[str]:
    """Who has made what tasks left from tokens on, for the ledger."""
    rows = read_rows(open_store(job.parent / "out")).values()
    return {row.engine.rpartition(" (proof ")[0].partition(" 0.")[0] for row in rows if row.engine}


def changes_of(answer: dict[str, Any]) -> list[str]:
    return [change for event in answer["events"] if event["event"] == "start" for change in event["changes"]]


def notes_of(answer: dict[str, Any]) -> list[str]:
    return [note for event in answer["events"] if event["event"].startswith("pass-") for note in event["notes"]]


def assert_right(job: Path, texts: list[str]) -> None:
    output = job.parent / "out"
    assert text_making.rows_of(output) == text_making.expected([texts])
    assert engines_of(job) == {"Hugging Face tokenizers"}


def test_a_proof_is_remembered_and_only_the_documents_of_another_job_are_compared(place: Place) -> None:
    job = place.job("second", right_texts(2))
    answer = place.run(job)
    assert answer["comparisons"] == 1
    assert "on 4" in notes_of(answer)[0]
    assert notes_of(answer)[0].endswith(" hard texts")
    assert engines_of(job) == {"gigatoken"}
    assert text_making.rows_of(job.parent / "out") == text_making.expected([right_texts(2)])
    for again in ("again", "and-again"):
        job = place.job(again, right_texts(2))
        assert place.run(job)["comparisons"] == 0  # the same documents
        assert engines_of(job) == {"gigatoken"}


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_wrong_engine_has_made_is_made_again(place: Place, workers: int) -> None:
    texts = wrong_texts(3)
    job = place.job("second", texts, workers=workers)
    answer = place.run(job)
    assert_right(job, texts)
    (change,) = changes_of(answer)
    assert change.startswith("engine: gigatoken ")
    assert " -> Hugging Face tokenizers " in change
    assert any(f"differs on 'this is {WORD} and" in note for note in notes_of(answer))
    third = place.job("third", right_texts(4))
    place.run(third)
    assert engines_of(third) <= {"Hugging Face tokenizers", "fastokens"}  # the proof is a refusal by now


@pytest.mark.parametrize("kill_at", ["pass-pack 1", "start 2", "task 2", "pass-pack 2"])
def test_a_run_that_is_killed_keeps_nothing_that_a_wrong_engine_made(place: Place, kill_at: str) -> None:
    texts = wrong_texts(3)
    job = place.job("second", texts)
    assert place.start(job, kill_at).returncode == -signal.SIGKILL
    assert not (job.parent / "out" / "manifest.json").exists()
    place.run(job)
    assert text_making.rows_of(job.parent / "out") == text_making.expected([texts])
    assert "gigatoken" not in engines_of(job)


def test_where_nothing_can_be_remembered_the_job_still_ends_and_is_right(place: Place) -> None:
    texts = wrong_texts(3)
    job = place.job("second", texts)
    answer = place.run(job, how="not kept")
    assert_right(job, texts)
    assert answer["comparisons"] == 2  # the one that found it, and one of the definition with itself


@pytest.mark.parametrize("workers", [0, 1])
def test_where_memory_has_no_room_beside_the_tasks_documents_are_compared_first(place: Place, workers: int) -> None:
    texts = wrong_texts(3)
    job = place.job("second", texts, workers=workers)
    answer = place.run(job, how="no room beside the tasks")
    assert_right(job, texts)
    assert [event["event"] for event in answer["events"]].count("start") == 1  # before any task
    assert changes_of(answer) == []


def test_an_engine_that_was_asked_for_and_is_wrong_is_an_error(place: Place) -> None:
    stages = text_making.stages(tokenize={"engine": "gigatoken"})
    job = place.job("second", wrong_texts(3), stages=stages)
    for _ in range(2):  # found out while it ran, and remembered
        done = place.start(job)
        assert done.returncode != 0
        assert f"differs on 'this is {WORD} and" in done.stderr
        assert "leave `engine` out" in done.stderr
        assert not (job.parent / "out" / "manifest.json").exists()


def test_an_earlier_result_is_not_touched_before_the_engine_is_proved(place: Place) -> None:
    job = place.job("second", right_texts(2))
    place.run(job)
    before = workshop.bytes_of(job.parent / "out")
    stages = text_making.stages(tokenize={"engine": "gigatoken"})
    place.job("second", wrong_texts(3), stages=stages)
    done = workshop.run(job, "--redo", environment=place.environment)
    assert done.returncode != 0
    assert workshop.bytes_of(job.parent / "out") == before
