"""An engine is used where it was proved equal, and the line says which one and why."""

from __future__ import annotations

import importlib.metadata
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.cache import PROOFS, cache_folder, keep
from penstock.base.errors import ConfigError
from penstock.prepare.tokenizers import comparison, proof, remembered
from penstock.prepare.tokenizers.file import TokenizerFile, find_tokenizer
from penstock.prepare.tokenizers.proof import Choice, Proof, choose_engine, make_request, recalled_engine
from tests.prepare.tokenizers.making import ENGINES, TEXT, save

SAMPLE = pa.array([*TEXT, None] * 60)
HF = f"Hugging Face tokenizers {importlib.metadata.version('tokenizers')}"

pytestmark = pytest.mark.skipif(len(ENGINES) < 2, reason="needs gigatoken and fastokens")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))


def choose(file: TokenizerFile, sample: pa.Array, wanted: str = "auto", refused: str = "") -> Choice:
    return choose_engine(make_request(file, sample, wanted, refused=refused))


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
    choice = choose(saved("qwen", tmp_path), SAMPLE)
    version = importlib.metadata.version("gigatoken")
    assert choice.engine == "gigatoken"
    assert choice.places
    assert choice.why.startswith(f"tokenize: gigatoken {version}, equal to {HF} on ")
    assert choice.why.endswith(" hard texts and 100 documents")


@pytest.mark.proof
def test_an_engine_that_differs_is_passed_over(tmp_path: Path) -> None:
    choice = choose(saved("odd tokens", tmp_path), SAMPLE)  # gigatoken does not know of single words
    assert choice.engine == "fastokens"
    assert not choice.places


def test_one_that_was_asked_for_and_differs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gigatoken \S+ differs on '.*fox") as raised:
        choose(saved("odd tokens", tmp_path), SAMPLE, wanted="gigatoken")
    assert raised.value.next_step == "leave `engine` out: then the fastest engine with equal ids is used"


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["word piece", "unigram"])
def test_what_no_fast_engine_loads_is_left_to_hugging_face(tmp_path: Path, kind: str) -> None:
    choice = choose(saved(kind, tmp_path), SAMPLE)
    assert choice.engine == "hf"
    assert choice.why.startswith(f"tokenize: {HF}; gigatoken ")
    assert choice.why.count("cannot do it (") == 2


def test_hugging_face_can_be_asked_for(tmp_path: Path) -> None:
    choice = choose(saved("gpt2", tmp_path), pa.array([], pa.string()), wanted="hf")
    assert (choice.engine, bool(choice.places), choice.why) == ("hf", True, f"tokenize: {HF}; as asked")


@pytest.mark.proof
def test_an_engine_that_crashes_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved("gpt2", tmp_path)
    replace_library(monkeypatch, tmp_path, "gigatoken", "gigatoken_rs.py", "import os\nos.abort()\n")
    assert choose(file, SAMPLE).engine == "fastokens"
    with pytest.raises(ConfigError, match="ended its process by SIGABRT"):
        choose(file, SAMPLE, wanted="gigatoken")


def test_an_engine_that_hangs_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved("gpt2", tmp_path)
    replace_library(monkeypatch, tmp_path, "gigatoken", "gigatoken_rs.py", "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(proof, "_SECONDS", 1.0)
    with pytest.raises(ConfigError, match="took longer than 1 s"):
        choose(file, SAMPLE, wanted="gigatoken")


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
        choose(file, SAMPLE, wanted="hf")
    assert advice in (raised.value.next_step or "")


def forbid_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a comparison that is begun fails the test."""
    monkeypatch.setattr(comparison, "Child", lambda *_, **__: pytest.fail("a comparison was begun"))


def test_what_was_proved_is_remembered_and_the_documents_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved("qwen", tmp_path)
    first = choose(file, SAMPLE)
    forbid_processes(monkeypatch)
    again = choose(file, SAMPLE)
    assert (again.engine, again.places, again.made_by) == (first.engine, first.places, first.made_by)
    assert (first.unproved_bytes, again.unproved_bytes) == (0, 0)
    assert again.why.endswith(" hard texts")
    assert choose(file, pa.array(["Another text."])).unproved_bytes > 1 << 20


@pytest.mark.proof
def test_another_tokenizer_other_options_other_libraries_and_other_code_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, documents = saved("qwen", tmp_path), pa.array(TEXT)
    choose(file, documents)
    request = make_request(file, documents)
    assert recalled_engine(request)
    assert not recalled_engine(replace(request, special_tokens="tokens"))
    assert not recalled_engine(replace(request, file=replace(file, digest="another")))
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "processor", lambda: "another")
        assert not recalled_engine(request)
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "_own_code", lambda: "another")
        assert not recalled_engine(request)
    with monkeypatch.context() as patch:
        versions = {"gigatoken": "0.10.1"}
        real = importlib.metadata.version
        patch.setattr(importlib.metadata, "version", lambda name: versions.get(name) or real(name))
        assert not recalled_engine(request)
    assert recalled_engine(request)


def test_a_library_that_was_replaced_is_compared_whatever_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gigatoken"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("gigatoken", None)
    before = remembered._library("gigatoken")
    assert before != remembered._library("fastokens")
    (package / "gigatoken_rs.py").write_text("other")
    assert remembered._library("gigatoken") != before


def test_a_refusal_is_remembered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved("odd tokens", tmp_path)  # gigatoken does not know of single words
    with pytest.raises(ConfigError, match="differs on"):
        choose(file, SAMPLE, wanted="gigatoken")
    forbid_processes(monkeypatch)
    with pytest.raises(ConfigError, match="differs on"):
        choose(file, SAMPLE, wanted="gigatoken")


@pytest.mark.parametrize("damage", [b"", b"{}", b"0" * 32 + b"{}", b"\xff\x00"])
def test_a_damaged_proof_is_made_again(tmp_path: Path, damage: bytes) -> None:
    file = saved("gpt2", tmp_path)
    first = choose(file, SAMPLE, wanted="hf")
    kept = list((tmp_path / "cache" / "proofs").iterdir())
    assert len(kept) == 2  # of the hard texts, and of the documents
    whole = {each.name: each.read_bytes() for each in kept}
    for each in kept:
        each.write_bytes(damage)
    assert choose(file, SAMPLE, wanted="hf") == first
    assert len(list((tmp_path / "cache" / "proofs").iterdir())) == len(whole)
    assert recalled_engine(make_request(file, SAMPLE, "hf"))


@pytest.mark.parametrize("content", [b"[]", b'{"equal": true}', b"no JSON", b'"text"'])
def test_a_whole_file_with_something_else_is_no_proof(content: bytes) -> None:
    keep(cache_folder(PROOFS) / ("ab" * 16), content)
    assert remembered.recall("ab" * 16) is None


@pytest.mark.proof
def test_a_cache_that_cannot_be_used_costs_a_comparison(tmp_path: Path) -> None:
    file = saved("gpt2", tmp_path)
    (tmp_path / "cache").write_text("not a folder")
    assert choose(file, SAMPLE, wanted="hf").places
    assert not recalled_engine(make_request(file, SAMPLE, "hf"))
    (tmp_path / "cache").unlink()
    choose(file, SAMPLE, wanted="hf")
    (tmp_path / "cache").chmod(0o777)  # others may have written to it
    assert not recalled_engine(make_request(file, SAMPLE, "hf"))


@pytest.mark.proof
def test_jobs_that_prove_at_once_leave_whole_files(tmp_path: Path) -> None:
    file = saved("gpt2", tmp_path)
    with ThreadPoolExecutor(3) as pool:
        choices = list(pool.map(lambda _: choose(file, SAMPLE, wanted="hf"), range(3)))
    assert len(set(choices)) == 1
    assert len(list((tmp_path / "cache" / "proofs").iterdir())) == 2
    assert recalled_engine(make_request(file, SAMPLE, "hf"))


def test_that_a_comparison_was_stopped_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved("gpt2", tmp_path)
    with monkeypatch.context() as patch:
        replace_library(patch, tmp_path, "tokenizers", "__init__.py", "import time\ntime.sleep(600)\n")
        patch.setattr(proof, "_SECONDS", 1.0)
        with pytest.raises(ConfigError, match="took longer"):
            choose(file, SAMPLE, wanted="hf")
    assert choose(file, SAMPLE, wanted="hf").engine == "hf"


def test_a_proof_on_documents_of_the_job_goes_on_beside_it(tmp_path: Path) -> None:
    file, others = saved("qwen", tmp_path), pa.array(["Some other text of another job."])
    choose(file, SAMPLE)
    request = make_request(file, others)
    running = Proof(request, choose_engine(request))
    assert running.trouble(waits=False) is None  # it has just begun
    assert running.trouble(waits=True) == ""
    assert running.trouble(waits=False) == ""
    running.end()
    assert choose_engine(request).unproved_bytes == 0  # it is remembered by now


def test_a_proof_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    file = saved("qwen", tmp_path)
    choose(file, SAMPLE)
    request = make_request(file, pa.array(["Some other text of another job."]))
    running = Proof(request, choose_engine(request))
    child = running._comparison._child
    running.end()
    assert child.wait(0) is not None
    assert choose_engine(request).unproved_bytes > 0


def test_after_a_refusal_everything_is_compared_with_the_definition_alone(tmp_path: Path) -> None:
    file = saved("qwen", tmp_path)
    choose(file, SAMPLE)
    choice = choose(file, SAMPLE, refused="gigatoken 0.10.0 differs on 'a'")
    assert (choice.engine, bool(choice.places), choice.unproved_bytes) == ("hf", True, 0)
    assert choice.why == f"tokenize: {HF}; gigatoken 0.10.0 differs on 'a'"
    with pytest.raises(ConfigError, match=r"gigatoken 0\.10\.0 differs on 'a'"):
        choose(file, SAMPLE, wanted="gigatoken", refused="gigatoken 0.10.0 differs on 'a'")
