"""An engine is used where it was proved equal, and the line says which one and why."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.errors import ConfigError
from penstock.prepare.tokenizers import proof
from penstock.prepare.tokenizers.file import TokenizerFile, find_tokenizer
from penstock.prepare.tokenizers.proof import choose_engine
from tests.prepare.tokenizers.making import ENGINES, TEXT, save

SAMPLE = pa.array([*TEXT, None] * 60)
HF = f"Hugging Face tokenizers {importlib.metadata.version('tokenizers')}"

pytestmark = pytest.mark.skipif(len(ENGINES) < 2, reason="needs gigatoken and fastokens")


def saved(kind: str, folder: Path) -> TokenizerFile:
    return find_tokenizer(save(kind, folder), "")


def replace_library(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, module: str, code: str) -> None:
    """Put a library in the way of the one that is installed, for processes that are started from now on."""
    package = folder / "instead" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / module).write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder / "instead"))


def test_an_equal_engine_is_taken(tmp_path: Path) -> None:
    choice = choose_engine(saved("qwen", tmp_path), SAMPLE)
    version = importlib.metadata.version("gigatoken")
    assert choice.engine == "gigatoken"
    assert choice.places
    assert choice.why.startswith(f"tokenize: gigatoken {version}, equal to {HF} on ")
    assert choice.why.endswith(" hard texts and 100 documents")


@pytest.mark.proof
def test_an_engine_that_differs_is_passed_over(tmp_path: Path) -> None:
    choice = choose_engine(saved("odd tokens", tmp_path), SAMPLE)  # gigatoken does not know of single words
    assert choice.engine == "fastokens"
    assert not choice.places


def test_one_that_was_asked_for_and_differs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gigatoken \S+ differs on '.*fox") as raised:
        choose_engine(saved("odd tokens", tmp_path), SAMPLE, wanted="gigatoken")
    assert raised.value.next_step == "leave `engine` out: then the fastest engine with equal ids is used"


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["word piece", "unigram"])
def test_what_no_fast_engine_loads_is_left_to_hugging_face(tmp_path: Path, kind: str) -> None:
    choice = choose_engine(saved(kind, tmp_path), SAMPLE)
    assert choice.engine == "hf"
    assert choice.why.startswith(f"tokenize: {HF}; gigatoken ")
    assert choice.why.count("cannot do it (") == 2


def test_hugging_face_can_be_asked_for(tmp_path: Path) -> None:
    choice = choose_engine(saved("gpt2", tmp_path), pa.array([], pa.string()), wanted="hf")
    assert (choice.engine, bool(choice.places), choice.why) == ("hf", True, f"tokenize: {HF}; as asked")


@pytest.mark.proof
def test_an_engine_that_crashes_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved("gpt2", tmp_path)
    replace_library(monkeypatch, tmp_path, "gigatoken", "gigatoken_rs.py", "import os\nos.abort()\n")
    assert choose_engine(file, SAMPLE).engine == "fastokens"
    with pytest.raises(ConfigError, match="ended its process by SIGABRT"):
        choose_engine(file, SAMPLE, wanted="gigatoken")


def test_an_engine_that_hangs_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved("gpt2", tmp_path)
    replace_library(monkeypatch, tmp_path, "gigatoken", "gigatoken_rs.py", "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(proof, "_SECONDS", 1.0)
    with pytest.raises(ConfigError, match="took longer than 1 s"):
        choose_engine(file, SAMPLE, wanted="gigatoken")


def test_the_sample_is_bounded_by_bytes_whatever_its_characters_take() -> None:
    texts = proof._some_documents(pa.array(["漢字" * 5000] * 300))
    assert len(texts) == 100
    assert 250_000 < sum(len(text.encode()) for text in texts) <= 256 << 10
    assert proof._some_documents(pa.array(["é" * 5000])) == ["é" * 4096]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("code", "said", "advice"),
    [
        ("import os\nos.kill(os.getpid(), 9)\n", "ran out of memory while it was compared", "more memory"),
        ("raise MemoryError\n", "has not enough memory", "more memory"),
        ("import time\ntime.sleep(600)\n", "took longer than 1 s", "less to do"),
    ],
)
def test_that_the_definition_was_stopped_says_nothing_about_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str, advice: str
) -> None:
    file = saved("gpt2", tmp_path)
    replace_library(monkeypatch, tmp_path, "tokenizers", "__init__.py", code)
    monkeypatch.setattr(proof, "_SECONDS", 1.0 if "sleep" in code else 60.0)
    with pytest.raises(ConfigError, match=said) as raised:
        choose_engine(file, SAMPLE, wanted="hf")
    assert advice in (raised.value.next_step or "")
