"""Arrow arrays of texts, whatever their layout and size, become flat ids and offsets."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.base.errors import InputError
from penstock.prepare.budget.means import MARGIN
from penstock.prepare.tokenizers import Tokenizer, open_tokenizer
from penstock.prepare.tokenizers.cutting import Cutter, places_to_cut
from penstock.prepare.tokenizers.engine import engine_module
from penstock.prepare.tokenizers.file import find_tokenizer
from penstock.prepare.tokenizers.outline import read_outline
from penstock.prepare.tokenizers.proof import choose_engine, make_request
from tests.prepare.tokenizers.making import END, ENGINES, TEXT, defined_ids, lists, save

TEXTS = ["the quick brown fox", "", "naïve 日本語", " ", f"a {END} b"]


def small_portions(location: str, engine: str, threads: int) -> Tokenizer:
    """The same as `open_tokenizer` makes, with limits that short texts reach."""
    cutter = Cutter(places_to_cut(read_outline(location), "text"))
    return Tokenizer(engine_module(engine).Engine(location, "text"), cutter, 64, np.dtype("u2"), threads)


@pytest.mark.parametrize("engine", ["hf", *ENGINES])
def test_arrays_of_any_layout_give_the_same_ids(tmp_path: Path, engine: str) -> None:
    file = find_tokenizer(save("qwen", tmp_path), "")
    expected = defined_ids("qwen", TEXTS)
    with open_tokenizer(file, engine) as tokenizer:
        for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
            assert lists(tokenizer.encode(pa.array(TEXTS).cast(kind))) == expected
        sliced = pa.array(["before", *TEXTS, "behind"]).slice(1, len(TEXTS))
        assert lists(tokenizer.encode(sliced)) == expected
        assert lists(tokenizer.encode(pa.array([], pa.string()))) == []
        assert lists(tokenizer.encode(pa.array([""]))) == [[]]
        assert lists(tokenizer.encode(pa.array(["the", None, "fox"]))) == defined_ids("qwen", ["the", "", "fox"])


@pytest.mark.parametrize("engine", ["hf", *ENGINES])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_large_text_is_encoded_in_pieces(tmp_path: Path, engine: str, threads: int) -> None:
    texts = ["", "\n".join(TEXT) * 20, "", "", "x" * 500, "the end " * 50, ""]
    with small_portions(save("llama", tmp_path), engine, threads) as tokenizer:
        assert lists(tokenizer.encode(pa.array(texts))) == defined_ids("llama", texts)
        largest = tokenizer.largest_pieces(pa.array(texts))
    assert largest[4] == 500  # nowhere to cut
    assert largest[5] < 80
    assert largest.tolist()[::6] == [0, 0]


@pytest.mark.parametrize("engine", ["hf", *ENGINES])
def test_no_token_is_added_and_none_is_cut_off(tmp_path: Path, engine: str) -> None:
    file = find_tokenizer(save("mixed case", tmp_path), "")  # it has a template, a truncation and a padding
    texts = ["the quick brown fox jumps over the lazy dog", "a"]
    with open_tokenizer(file, engine) as tokenizer:
        found = lists(tokenizer.encode(pa.array(texts)))
    assert found == defined_ids("mixed case", texts)
    assert len(found[0]) > 8 > len(found[1])


@pytest.mark.parametrize("engine", ["hf", *ENGINES])
def test_a_special_token_in_the_text_is_text_unless_asked(tmp_path: Path, engine: str) -> None:
    file = find_tokenizer(save("gpt2", tmp_path), "")
    for special_tokens, count in (("text", 0), ("tokens", 1)):
        with open_tokenizer(file, engine, special_tokens=special_tokens) as tokenizer:
            ids, _ = tokenizer.encode(pa.array([f"the {END} end"]))
        assert ids.tolist().count(0) == count  # the first that was put into the vocabulary


def test_ids_come_in_the_smallest_type_that_holds_the_vocabulary(tmp_path: Path) -> None:
    file = find_tokenizer(save("gpt2", tmp_path), "")
    with open_tokenizer(file, "hf") as tokenizer:
        assert tokenizer.encode(pa.array(["the"]))[0].dtype == file.dtype == np.uint16


def test_a_tokenizer_that_was_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    file = find_tokenizer(save("gpt2", tmp_path), "")
    save("llama", tmp_path)
    with pytest.raises(InputError, match="changed while the job was running"):
        open_tokenizer(file, "hf")


@pytest.mark.skipif("gigatoken" not in ENGINES, reason="needs gigatoken")
def test_an_engine_that_has_grown_too_much_is_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.prepare.tokenizers import gigatoken

    location = save("llama", tmp_path)
    with small_portions(location, "gigatoken", threads=2) as tokenizer:
        monkeypatch.setattr(gigatoken, "GROWTH_BYTES", -(1 << 40))  # always too much
        assert lists(tokenizer.encode(pa.array(TEXT * 5))) == defined_ids("llama", TEXT * 5)
        save("gpt2", tmp_path)
        tokenizer.encode(pa.array(["the"]))
        assert lists(tokenizer.encode(pa.array(TEXT))) == defined_ids("gpt2", TEXT)  # so it was


def test_when_its_engine_is_chosen_nobody_holds_a_vocabulary_as_text(tmp_path: Path) -> None:
    file = find_tokenizer(save("gpt2", tmp_path), "")
    outline = weakref.ref(read_outline(file.location))
    assert outline() is read_outline(file.location)  # planning asks several times
    choose_engine(make_request(file, pa.array(["the"])))
    assert outline() is None


GROWING = """
import sys, numpy as np
from penstock.prepare.tokenizers import gigatoken

def held(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

engine = gigatoken.Engine(sys.argv[1], "text")
engine.encode(np.frombuffer(b"the", "u1"), np.array([0, 3]))
start, chance = held("VmRSS"), np.random.default_rng(1)
for _ in range(20):
    text = chance.integers(97, 123, 1 << 20).astype("u1")
    text[::9] = 32
    engine.encode(text, np.array([0, len(text)]))
print(held("VmHWM") - start, gigatoken.GROWTH_BYTES)
"""


@pytest.mark.proof
@pytest.mark.skipif("gigatoken" not in ENGINES or sys.platform != "linux", reason="needs gigatoken and /proc")
def test_an_engine_that_meets_a_new_word_with_every_word_grows_by_what_a_plan_counts_for_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWING, str(save("gpt2", tmp_path))], capture_output=True, text=True, check=True
    )
    grown, counted = map(int, done.stdout.split())
    assert grown < MARGIN * counted
