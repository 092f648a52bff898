"""A tokenizer is found by path, folder or hub id, and what lies beside it says how texts begin and end."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.base.errors import ConfigError, InputError
from penstock.prepare.tokenizers.file import SpecialToken, TokenizerFile, find_tokenizer
from penstock.prepare.tokenizers.outline import outline_of, without_special_tokens
from tests.prepare.tokenizers.making import END, KINDS, definition, save, tokenizer_json

EOS = SpecialToken(END, 0)
COMMIT = "0123456789" * 4


def beside(folder: Path, name: str, **said: Any) -> None:
    (folder / name).write_text(json.dumps(said))


def test_a_file_a_folder_and_a_relative_path_are_the_same(tmp_path: Path) -> None:
    location = save("gpt2", tmp_path)
    found = [find_tokenizer(name, str(tmp_path.parent)) for name in (location, str(tmp_path), tmp_path.name)]
    assert {os.path.realpath(each.location) for each in found} == {os.path.realpath(location)}
    assert {each.digest for each in found} == {found[0].digest}
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tokenizer_config.json", {"eos_token": END}),
        ("tokenizer_config.json", {"eos_token": {"content": END, "lstrip": False}}),
        ("special_tokens_map.json", {"eos_token": END}),
        ("generation_config.json", {"eos_token_id": 0}),
        ("config.json", {"eos_token_id": [0, 1]}),
    ],
)
def test_the_end_token_is_the_one_that_is_named_beside(tmp_path: Path, name: str, said: dict[str, Any]) -> None:
    save("gpt2", tmp_path)
    assert find_tokenizer(str(tmp_path), "").eos is None
    beside(tmp_path, name, **said)
    found = find_tokenizer(str(tmp_path), "")
    assert found.eos == EOS
    assert found.bos is None


def test_the_first_who_names_a_token_of_the_tokenizer_is_believed(tmp_path: Path) -> None:
    save("gpt2", tmp_path)
    beside(tmp_path, "tokenizer_config.json", eos_token="<nowhere>", bos_token=END)
    beside(tmp_path, "generation_config.json", eos_token_id=1, bos_token_id=2)
    found = find_tokenizer(str(tmp_path), "")
    assert found.bos == EOS
    assert found.eos == SpecialToken("!", 1)


def test_a_token_can_be_named_by_its_text(tmp_path: Path) -> None:
    file = find_tokenizer(save("gpt2", tmp_path), "")
    assert file.special_token("!") == SpecialToken("!", 1)
    with pytest.raises(ConfigError, match="has no token '<eos>'"):
        file.special_token("<eos>")


@pytest.mark.parametrize("kind", KINDS)
def test_the_outline_agrees_with_the_library(kind: str) -> None:
    outline = outline_of(tokenizer_json(kind).encode())
    vocabulary = definition(kind).get_vocab(with_added_tokens=True)
    assert outline.vocabulary_size == max(vocabulary.values()) + 1
    whole = json.loads(tokenizer_json(kind))
    assert outline.rules["pre_tokenizer"] == whole["pre_tokenizer"]
    assert outline.added_tokens == whole["added_tokens"]
    if kind != "unigram":
        assert {token: outline.id_of(token) for token in vocabulary} == vocabulary
        assert [outline.token_of(number) for number in vocabulary.values()] == list(vocabulary)


def test_special_tokens_are_taken_out_and_nothing_else() -> None:
    whole = json.loads(tokenizer_json("odd tokens"))
    without = json.loads(without_special_tokens(tokenizer_json("odd tokens")))
    assert [added["content"] for added in without.pop("added_tokens")] == ["fox", "the end"]
    whole.pop("added_tokens")
    assert without == whole


@pytest.mark.parametrize("name", ["my tokenizer", "tokenizer.json", "a/b/c"])
def test_an_unknown_tokenizer_says_where_it_was_looked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        find_tokenizer(name, str(tmp_path))
    assert str(tmp_path / name) in str(raised.value)
    assert "no hub id" in str(raised.value)


def test_a_folder_without_a_tokenizer_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"holds no tokenizer\.json") as raised:
        find_tokenizer(str(tmp_path), "")
    assert "tokenizer.model" in str(raised.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"model": {"vocab": 3}}'])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=r"not a tokenizer\.json"):
        find_tokenizer(str(tmp_path), "")


def test_a_broken_file_beside_it_is_named(tmp_path: Path) -> None:
    save("gpt2", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError) as raised:
        find_tokenizer(str(tmp_path), "")
    assert "tokenizer_config.json" in str(raised.value)


class Hub(BaseHTTPRequestHandler):
    """A hub that holds one file at one commit."""

    def do_HEAD(self) -> None:
        self.send_response(200 if self._body else 404)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(self._body)))
        if not self._body:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(self._body)

    @property
    def _body(self) -> bytes:
        is_there = self.path == f"/org/name/resolve/{COMMIT}/special_tokens_map.json"
        return json.dumps({"eos_token": END}).encode() if is_there else b""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def cached_tokenizer(folder: Path) -> Path:
    """The cache of the hub as a program leaves it that asked for tokenizer.json alone; the snapshot in it."""
    snapshot = folder / "hub" / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    refs = folder / "hub" / "models--org--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    save("gpt2", snapshot)
    return snapshot


def printed(code: str, cache: Path, **environment: str) -> str:
    """By a process of its own: the library reads where its cache is when it is imported."""
    told = {**os.environ, "HF_HUB_CACHE": str(cache), "NO_PROXY": "127.0.0.1", **environment}
    code = f"from penstock.prepare.tokenizers.file import find_tokenizer\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=told, check=True)
    assert "Retrying" not in done.stderr
    return done.stdout


def test_what_names_the_end_token_is_fetched_where_only_the_tokenizer_is_in_the_cache(tmp_path: Path, hub: str) -> None:
    snapshot = cached_tokenizer(tmp_path)
    beside(snapshot, "config.json", eos_token_id=1)  # it comes after the one that the hub has
    code = "found = find_tokenizer('org/name', '/')\nprint(found.eos.text, [found.not_fetched])"
    assert printed(code, tmp_path / "hub", HF_ENDPOINT=hub, HF_HUB_OFFLINE="0") == f"{END} ['']\n"
    assert printed(code, tmp_path / "hub", HF_HUB_OFFLINE="1") == f"{END} ['']\n"  # what is not there is known too


def test_what_cannot_be_fetched_is_named_and_nothing_behind_it_is_believed(tmp_path: Path) -> None:
    beside(cached_tokenizer(tmp_path), "generation_config.json", eos_token_id=1)
    code = "found = find_tokenizer('org/name', '/')\nprint(found.eos, found.not_fetched)"
    told = printed(code, tmp_path / "hub", HF_HUB_OFFLINE="1")
    assert told.startswith("None tokenizer_config.json of org/name (")
    nobody = printed(code, tmp_path / "hub", HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_OFFLINE="0")
    assert nobody.startswith("None tokenizer_config.json of org/name (127.0.0.1: ")


def test_a_hub_id_is_found_in_the_cache_and_without_it_the_error_names_the_cache(tmp_path: Path) -> None:
    beside(cached_tokenizer(tmp_path), "tokenizer_config.json", eos_token=END)
    code = (
        "print(find_tokenizer('org/name', '/').eos.text)\n"
        "try: find_tokenizer('org/other', '/')\n"
        "except Exception as error: print(error)\n"
    )
    told = printed(code, tmp_path / "hub", HF_HUB_OFFLINE="1")
    assert told.startswith(END)
    assert str(tmp_path / "hub") in told
    assert "the tokenizer 'org/other' is not on this machine, and the hub cannot be reached" in told


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "127.0.0.1: [Errno"),
        ({"HF_ENDPOINT": "https://hub.invalid"}, "hub.invalid"),
        ({"HF_ENDPOINT": "https://hub.invalid", "HTTPS_PROXY": "http://127.0.0.1:9"}, "127.0.0.1: [Errno"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ],
)
@pytest.mark.parametrize("name", ["gpt2", "org/name"])
def test_without_a_network_a_hub_id_is_refused_before_the_library_is_asked(tmp_path, name, environment, reason):
    """The library itself would try five times, and say so on standard error."""
    code = f"try: find_tokenizer({name!r}, '/')\nexcept Exception as error: print(error)"
    told = printed(code, tmp_path / "hub", **{"HF_HUB_OFFLINE": "0", "NO_PROXY": "", **environment})
    assert told.startswith(f"the tokenizer {name!r} is not on this machine, and the hub cannot be reached: {reason}")
    assert f"`hf download {name} tokenizer.json tokenizer_config.json --local-dir tokenizer`" in told


def test_a_hub_that_answers_is_asked_for_the_tokenizer(tmp_path: Path, hub: str) -> None:
    code = "try: find_tokenizer('org/other', '/')\nexcept Exception as error: print(error)"
    told = printed(code, tmp_path / "hub", HF_ENDPOINT=hub, HF_HUB_OFFLINE="0")
    assert told.startswith("there is no tokenizer 'org/other'; looked at")
    assert "the hub (" in told


def test_what_a_template_puts_before_a_text_is_read_without_loading_the_tokenizer(tmp_path: Path) -> None:
    with_template, without = tmp_path / "with", tmp_path / "without"
    with_template.mkdir()
    without.mkdir()
    save("mixed case", with_template)
    save("qwen", without)
    assert find_tokenizer(str(with_template), "").template_begin() == (0,)
    assert find_tokenizer(str(without), "").template_begin() == ()


def test_what_bert_puts_before_a_text_is_read_as_well(tmp_path: Path) -> None:
    save("qwen", tmp_path)
    path = tmp_path / "tokenizer.json"
    rules = json.loads(path.read_text())
    rules["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    path.write_text(json.dumps(rules))
    assert find_tokenizer(str(tmp_path), "").template_begin() == (2,)


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, "u1"), (256, "u1"), (257, "u2"), (65_536, "u2"), (65_537, "i4"), (2**31, "i4")]
)
def test_ids_have_the_smallest_type_that_holds_them_all(size: int, dtype: str) -> None:
    assert TokenizerFile("", "", "", size, None, None).dtype == np.dtype(dtype)
