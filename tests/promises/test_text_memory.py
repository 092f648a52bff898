"""Promise 1, of text: hashing, matching, tokenizing and packing stay within `memory:`, in a cgroup that kills."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.promises import text_making, workshop
from tests.promises.test_memory_is_a_contract import _watched_run, cgroup

MEGABYTES = 400 if workshop.THOROUGH else 12
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


METHODS = ["wrapped", "best_fit", "none"] if workshop.THOROUGH else ["best_fit"]


@pytest.mark.parametrize("method", METHODS)
def test_a_text_job_survives_a_cgroup_that_kills_at_the_budget(corpus, tmp_path, method):
    stages = text_making.stages(pack={"length": 1024, "method": method}, dedup={"remember": "seen"})
    keys = {"stages": stages, "memory": f"{BUDGET_MB}MB", "slice_size": "1MB", "workers": 2}
    job = text_making.write_job(tmp_path / "job.yaml", corpus, **keys)
    with cgroup(BUDGET_MB * 10**6) as (enter, kills):
        done = subprocess.run(
            workshop.command(job), preexec_fn=enter, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert kills() == 0
    assert not workshop.events_named(tmp_path / "out", "retry")


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


def test_what_is_too_large_to_be_tokenized_depends_on_no_number_of_workers(tmp_path):
    """Words without end cannot be cut: of 1.6 MB there is room for one when no other task runs, of 6 MB never."""
    texts = [f"{number} " + "x" * size for number, size in enumerate([1_600_000] * 2 + [6_000_000] + [200] * 20)]
    data = text_making.write_documents(tmp_path / "data", texts[:2], texts[2:], group=1)
    written, asked = {}, {}
    for workers in (1, 8):
        keys = {"memory": "1200MB", "slice_size": "200kB", "workers": workers}
        job = text_making.write_job(tmp_path / f"{workers}" / "job.yaml", data, **keys)
        peak, _ = _watched_run(job)
        assert peak <= 1_200_000_000
        output = job.parent / "out"
        written[workers] = workshop.bytes_of(output)
        asked[workers] = workshop.events_named(output, "alone")
        (large,) = text_making.rejected_of(output)
        assert large["reason"] == "too large to be tokenized in this memory"
        assert (large["file"], large["position"]) == ("1.parquet", 1)
    assert written[1] == written[8]
    assert not asked[1]
    assert asked[8]
