"""Promise 1, of text: hashing, matching, tokenizing and packing stay within `memory:`, in a cgroup that kills."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.prepare.plan.plan import Plan
from tests.promises import text_making, workshop
from tests.promises.test_memory_is_a_contract import _watched_run, cgroup

MEGABYTES = 200 if workshop.THOROUGH else 12
BUDGET_MB = 400


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Megabytes of distinct documents of 200 bytes to 20 kB, a fifth of them twice, in row groups of a whole file."""
    folder = tmp_path_factory.mktemp("corpus")
    chance = np.random.default_rng(1)
    words = np.array(text_making.WORDS)
    for number in range(2):
        texts: list[str] = []
        size = 0
        while size < MEGABYTES * 500_000:
            if texts and chance.random() < 0.2:
                texts.append(texts[int(chance.integers(len(texts)))])
            else:
                texts.append(" ".join(chance.choice(words, int(40 * 100 ** chance.random()))))
            size += len(texts[-1].encode())
        pq.write_table(pa.table({"text": texts}), folder / f"{number}.parquet", row_group_size=10**9)
    return folder


def _assert_survives(job: Path, budget_mb: int = BUDGET_MB) -> None:
    with cgroup(budget_mb * 10**6) as (enter, kills):
        done = subprocess.run(
            workshop.command(job), preexec_fn=enter, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert kills() == 0
    assert not workshop.events_named(job.parent / "out", "retry")


METHODS = ["wrapped", "best_fit", "none"] if workshop.THOROUGH else ["best_fit"]


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_a_text_job_survives_a_cgroup_that_kills_at_the_budget(corpus, tmp_path, method):
    stages = text_making.stages(pack={"length": 1024, "method": method}, dedup={"remember": "seen"})
    keys = {"stages": stages, "memory": f"{BUDGET_MB}MB", "slice_size": "1MB", "workers": 2}
    job = text_making.write_job(tmp_path / "job.yaml", corpus, **keys)
    _assert_survives(job)


@pytest.mark.thorough
def test_a_line_that_memory_cannot_hold_is_set_aside_by_name_in_a_cgroup_that_kills_at_the_budget(tmp_path):
    """It is passed over, not read: of 200 MB there would be no place for one copy."""
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "a.jsonl").open("w") as file:
        for number in range(2000):
            print(json.dumps({"text": f"{number} " + "water flows " * 20}), file=file)
            if number == 1500:
                file.write('{"text": "')
                for _ in range(200):
                    file.write("x" * 10**6)
                print('"}', file=file)
    keys = {"memory": f"{BUDGET_MB}MB", "slice_size": "100kB", "workers": 2, "on_bad_input": "set_aside"}
    job = text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", **keys)
    _assert_survives(job)
    (large,) = text_making.rejected_of(tmp_path / "out")
    assert (large["reason"], large["line"]) == ("record too large for this memory", 1502)
    assert text_making.steps_of(tmp_path / "out")["read"]["given"] == 2000


def test_a_text_job_stays_below_its_projection(corpus, tmp_path):
    keys = {"stages": text_making.stages(pack={"length": 1024}), "memory": "500MB", "slice_size": "1MB", "workers": 2}
    peak, run = _watched_run(text_making.write_job(tmp_path / "job.yaml", corpus, **keys))
    told = f"measured {peak / 1e6:.0f} MB, projected {run['projected_memory_bytes'] / 1e6:.0f} MB"
    print(told)
    assert peak <= run["projected_memory_bytes"] <= 500_000_000, told


def test_a_budget_that_cannot_hold_the_tokenizer_is_refused_with_one_that_can(corpus, tmp_path):
    keys = {"stages": text_making.stages(pack={"length": 1024}), "slice_size": "1MB"}
    refused = workshop.run(text_making.write_job(tmp_path / "job.yaml", corpus, memory="70MB", **keys))
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_what_is_too_large_to_be_tokenized_depends_on_no_number_of_workers(tmp_path):
    """Words without end cannot be cut. Of 400 kB there is room for one when no other task runs, of 1 MB never."""
    texts = [f"{number} " + "x" * size for number, size in enumerate([200] * 20 + [400_000] * 2 + [1_000_000])]
    data = text_making.write_documents(tmp_path / "data", texts[:20], texts[20:], group=1)
    written, rooms = {}, set()
    for workers in (1, 8):
        keys = {"memory": "1200MB", "slice_size": "100kB", "workers": workers}
        plan = penstock.plan(text_making.write_job(tmp_path / f"{workers}" / "job.yaml", data, **keys))
        rooms.add(plan.passes[2].settings.room.alone)
        penstock.run(plan if workers == 1 else _with_shared_room(plan, 25_000_000))
        output = Path(plan.config.output_path)
        written[workers] = workshop.bytes_of(output)
        assert bool(workshop.events_named(output, "alone")) == (workers == 8)
        assert not workshop.events_named(output, "retry")
        (large,) = text_making.rejected_of(output)
        assert large["reason"] == "too large to be tokenized in this memory"
        assert (large["file"], large["position"]) == ("1.parquet", 2)
    assert rooms == {150_000_000}
    assert written[1] == written[8]


PLACES = [("first", 0), *([("first", 2), ("last", 0), ("last", 2)] if workshop.THOROUGH else [])]


@pytest.mark.thorough
@pytest.mark.parametrize(("place", "workers"), PLACES)
def test_a_text_in_one_piece_that_little_memory_has_room_for_is_tokenized(tmp_path, place, workers):
    """With `hf`, 250,000 letters without a break are less than two portions, and more than an eighth of the memory."""
    texts = [f"{number} " + "water flows " * 20 for number in range(200 if workers else 20)]
    large = "".join(np.random.default_rng(1).choice(list("jkqvwxz"), 250_000))
    texts = [large, *texts] if place == "first" else [*texts, large]
    data = text_making.write_documents(tmp_path / "data", texts, group=10)
    job = text_making.write_job(tmp_path / "job.yaml", data, memory="300MB", workers=workers, task_timeout=60)
    done = workshop.run(job)
    assert done.returncode == 0, done.stdout + done.stderr
    assert text_making.rows_of(tmp_path / "out") == text_making.expected([texts])
    assert len(workshop.events_named(tmp_path / "out", "alone")) <= 1


def _with_shared_room(plan: Plan, size: int) -> Plan:
    """As if there were so many workers that this is all that each has beside the others."""
    passes = [
        replace(each, settings=replace(each.settings, room=replace(each.settings.room, shared=size)))
        for each in plan.passes
    ]
    return replace(plan, passes=tuple(passes))


NEW_WORDS = {
    "letters": (b"abcdefghijklmnopqrstuvwxyz", 9),
    "base64": (b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 77),
    "hashes": (b"0123456789abcdef", 65),
}


@pytest.mark.thorough  # a minute of text that brings a new word with every word
@pytest.mark.parametrize(("engine", "budget_mb"), [("gigatoken", 340), ("fastokens", 600)])
@pytest.mark.parametrize("kind", NEW_WORDS)
def test_text_of_new_words_survives_a_cgroup_that_kills_at_the_budget(tmp_path, kind, engine, budget_mb):
    """The fast engines remember every word. 40 MB of random letters made gigatoken's tables double four times."""
    pytest.importorskip(engine)
    letters, length = NEW_WORDS[kind]
    chance = np.random.default_rng(1)
    texts = np.frombuffer(letters, "u1")[chance.integers(0, len(letters), (2000, 20_000))]
    texts[:, ::length] = ord(" " if kind == "letters" else "\n")
    table = pa.table({"text": [row.tobytes().decode() for row in texts]})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "a.parquet", row_group_size=200)
    stages = text_making.stages(tokenize={"engine": engine})
    keys = {"stages": stages, "memory": f"{budget_mb}MB", "slice_size": "4MB", "workers": 2}
    _assert_survives(text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", **keys), budget_mb)


@pytest.mark.thorough  # half a minute
@pytest.mark.parametrize("workers", [0, 2])
def test_one_document_of_a_sixth_of_the_memory_survives_a_cgroup_that_kills_at_the_budget(tmp_path, workers):
    """A token for every two bytes, among small documents: held in memory, its tokens would take twice the document."""
    letters = np.random.default_rng(1).integers(ord("a"), ord("z") + 1, 2 * 95_000_000, dtype="u1")
    letters[1::2] = ord(" ")
    texts = ["water " * 20, letters.tobytes().decode() + "a", *(f"{number} flows " * 9 for number in range(300))]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "data" / "a.parquet")
    stages = text_making.stages(tokenize={"engine": "gigatoken"})[2:]  # to clean or compare it takes more copies
    keys = {"stages": stages, "memory": "1100MB", "workers": workers}
    job = text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", **keys)
    _assert_survives(job, 1100)
    assert text_making.steps_of(tmp_path / "out")["tokenize"]["given"] == len(texts)
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert 95_000_000 * 2 < run["peak_memory_bytes"] <= 1_100_000_000  # what `workers: 0` says of itself, too
