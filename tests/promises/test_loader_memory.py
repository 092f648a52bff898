"""Promise 1, of a loader: its process stays within `memory=` while it loads and while it gives batches."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.promises.test_memory_is_a_contract import watching
from tests.promises.workshop import THOROUGH
from tests.shards.making import write_dataset

ROOT = Path(__file__).parents[2]
TEXTS = 3_000_000 if THOROUGH else 1_000_000
KEYS = 10_000


def distinct_texts(count: int) -> pa.Array:
    """`10.10.10.10`, `10.10.10.11` and so on: addresses, no two alike."""
    letters = np.full((count, 11), ord("."), "u1")
    for place, divisor in ((0, 90**3), (3, 90**2), (6, 90), (9, 1)):
        part = np.arange(count) // divisor % 90 + 10
        letters[:, place], letters[:, place + 1] = part // 10 + ord("0"), part % 10 + ord("0")
    offsets = pa.py_buffer(np.arange(count + 1, dtype="i4") * 11)
    return pa.StringArray.from_buffers(count, offsets, pa.py_buffer(letters))


def write_texts(path: Path, word: str, count: int = TEXTS) -> Path:
    """Events of one text each, in one shard: as they are, or by a dictionary that has each once."""
    texts = distinct_texts(count)
    if word == "dictionary":
        texts = pa.DictionaryArray.from_arrays(pa.array(np.arange(count, dtype="i4")), texts)
    offsets = pa.array(np.arange(0, count + 1, count // KEYS, dtype="i4"))
    events = pa.ListArray.from_arrays(offsets, texts)
    write_dataset(path, {"train": [[pa.record_batch({"text": events})]]})
    return path


def write_records(path: Path, count: int) -> Path:
    """Records of one event each."""
    events = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype="i4")), pa.array(np.zeros(count, "i1")))
    write_dataset(path, {"train": [[pa.record_batch({"number": events})]]})
    return path


def load_watched(path: Path, memory: str, batches: int = 20, **options: Any) -> tuple[int, str, str]:
    """A program that loads some batches: the most memory that its process had, what it printed, and what it raised."""
    program = f"""
        import penstock
        with penstock.load({str(path)!r}, batch_size=8, memory={memory!r}, workers=1, **{options!r}) as loader:
            for _ in range({batches}):
                next(loader)
            print(loader.stats().counts)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with watching(process) as peak:
        printed, raised = process.communicate(timeout=300)
    print(f"measured {peak[0] / 1e6:.0f} MB of {memory}", printed, raised)
    return peak[0], printed, raised


@pytest.fixture(scope="module")
def base_bytes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """What such a program takes with next to no data, its kernels compiled before."""
    path = write_texts(tmp_path_factory.mktemp("few"), "string", KEYS)
    for _ in range(2):
        peak, printed, raised = load_watched(path, "2GB", length=64, fields={"text": {"category": ["a"]}})
        assert printed, raised
    return peak


KINDS = {"category": {"category": ["10.10.10.10", "11.10.10.10", "none of them"]}, "ip": "ip"}
CASES = [("string", "category")]
CASES += [("dictionary", "category"), ("string", "ip"), ("dictionary", "ip")] if THOROUGH else []


@pytest.mark.thorough
@pytest.mark.parametrize(("word", "kind"), CASES)
def test_millions_of_distinct_texts_stay_within_memory(tmp_path, base_bytes, word, kind):
    """The loader may have 3 MB more than without them: less than 4 bytes for each category, or 17 for each address."""
    path, allowed = write_texts(tmp_path / word, word), base_bytes + 3 * 10**6
    peak, printed, raised = load_watched(path, str(allowed), length=256, fields={"text": KINDS[kind]})
    assert printed, raised
    assert peak <= allowed, f"measured {peak / 1e6:.0f} MB, allowed {allowed / 1e6:.0f} MB"


@pytest.mark.thorough  # 40 million records take a while to write: `make promises`
def test_what_is_held_of_every_record_is_refused_with_the_numbers(tmp_path, base_bytes):
    path, allowed = write_records(tmp_path / "records", 40_000_000), base_bytes + 20 * 10**6
    options = {"length": 32, "fill": "one_key", "fields": {"number": "int"}}
    peak, _, raised = load_watched(path, str(allowed), **options)
    assert "fill='one_key' needs 40 MB for 40,000,000 records" in raised
    assert peak <= allowed, f"measured {peak / 1e6:.0f} MB, allowed {allowed / 1e6:.0f} MB"
    peak, printed, raised = load_watched(path, str(allowed), **{**options, "fill": "packed"})
    assert printed, raised
    assert peak <= allowed, f"measured {peak / 1e6:.0f} MB, allowed {allowed / 1e6:.0f} MB"
