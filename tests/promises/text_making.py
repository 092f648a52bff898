"""What the promise tests of text share: documents, a small real tokenizer, jobs over them, what they must become.

`expected` says in plain Python what a job makes of documents: that is the definition the tests hold datasets against.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers
import yaml

import penstock

EOS = "<|end|>"
LENGTH = 64
_PLENTY = """
    the a of and to in is it water flows through pipes turbine gate river Straße naïve été ½ año 水 力 発電 ダム
    поток вода سد ماء 수력 발전 ไฟฟ้า 👩\u200d👩\u200d👧 🏞️ x=1; def f(x): {} [] -> 3.14159 1,000,000
    http://a.b/c?d=e don't it's e\u0301 \u212b
"""
WORDS = _PLENTY.split()
SPACES = (" ", " ", " ", "\n", "\n\n", "\t", "  ", "\r\n", "\u00a0", "\u3000", "")


def document(chance: random.Random, words: int) -> str:
    return "".join(chance.choice(WORDS) + chance.choice(SPACES) for _ in range(words))


def documents(count: int, seed: int, longest: int = 120) -> list[str]:
    """Of many lengths and languages. A third of them repeats an earlier one, some but for outer white space."""
    chance = random.Random(seed)
    found: list[str] = []
    for _ in range(count):
        kind = chance.random()
        if found and kind < 0.2:
            found.append(chance.choice(found))
        elif found and kind < 0.33:
            found.append(f" \n\u2003{chance.choice(found).strip()}\t\u00a0")
        elif kind < 0.36:
            found.append(chance.choice(["", " ", "\n\t", "\u3000"]))
        elif kind < 0.39:
            found.append(f"a{chance.random()}\0b\0\0{EOS}c")  # NULs, and what looks like a special token
        else:
            found.append(document(chance, 1 + int(longest * chance.random() ** 3)))
    return found


@lru_cache
def _tokenizer_json() -> str:
    """A byte-level BPE, trained here: real, exact on any text, and small."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[EOS],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(documents(400, 99), trainer)
    return str(made.to_str())


def write_tokenizer(folder: Path, **changed: Any) -> Path:
    """A directory like those of the hub: tokenizer.json, and which token ends a text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps({**json.loads(_tokenizer_json()), **changed}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": EOS}))
    return folder


@lru_cache
def tokenizer() -> tokenizers.Tokenizer:
    loaded = tokenizers.Tokenizer.from_str(_tokenizer_json())
    loaded.encode_special_tokens = True  # special tokens that stand in a text are text
    return loaded


def end() -> int:
    return int(tokenizer().token_to_id(EOS))


def ids_of(text: str) -> list[int]:
    """Of one document, as `tokenizers` alone gives them."""
    return [*tokenizer().encode(text, add_special_tokens=False).ids, end()]


def write_documents(folder: Path, *files: Sequence[str | None], group: int = 25) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, texts in enumerate(files):
        table = pa.table({"id": pa.array(range(len(texts)), pa.int32()), "text": pa.array(texts, pa.string())})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=group)
    return folder


def files_of_documents(files: int = 3, count: int = 70, seed: int = 1) -> list[list[str]]:
    """Some files whose documents repeat each other's."""
    every = documents(files * count, seed)
    return [every[number * count : (number + 1) * count] for number in range(files)]


def stages(tokenizer_folder: Path | str = "tokenizer", **options: dict[str, Any]) -> list[Any]:
    """Those of a text job; `dedup={...}` and so on give one of them options."""
    return [
        {"clean": options.get("clean", {})},
        {"dedup": options.get("dedup", {})},
        {"tokenize": {"tokenizer": str(tokenizer_folder), "engine": "hf", **options.get("tokenize", {})}},
        {"pack": {"length": LENGTH, **options.get("pack", {})}},
    ]


def write_job(path: Path, data: Path | str, **keys: Any) -> Path:
    """A job over documents, its tokenizer beside it, cut finely enough to have a slice for each row group or two."""
    job = {"input": str(data), "output": "out", "stages": stages(), "slice_size": "6kB", "memory": "2GB", "workers": 0}
    write_tokenizer(path.parent / "tokenizer")
    path.write_text(yaml.safe_dump({**job, **keys}))
    return path


def cleaned(texts: Iterable[str | None]) -> list[str]:
    """What `clean` leaves."""
    return [text.strip() for text in texts if text and text.strip()]


def unique(texts: Iterable[str], seen: Iterable[str] = ()) -> list[str]:
    """What `dedup` leaves: the first of equal ones, none that was seen."""
    known = set(seen)
    return [text for text in texts if not (text in known or known.add(text))]  # type: ignore[func-returns-value]


def wrapped(documents_ids: Iterable[Sequence[int]], length: int = LENGTH) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of tokens, and where in each documents start: one long concatenation, cut every `length`."""
    stream: list[int] = []
    starts: list[int] = []
    for ids in documents_ids:
        starts.append(len(stream))
        stream += ids
    rows = len(stream) // length
    begins: list[list[int]] = [[] for _ in range(rows + 1)]
    for start in starts:
        begins[min(start // length, rows)].append(start % length)
    return [stream[row * length : (row + 1) * length] for row in range(rows)], begins[:rows]


def expected(files: Iterable[Iterable[str | None]], seen: Iterable[str] = ()) -> list[list[int]]:
    """The rows of the default job over these files."""
    left = unique(cleaned(text for texts in files for text in texts), seen)
    return wrapped(map(ids_of, left))[0]


def rows_of(output: Path, split: str = "train") -> list[list[int]]:
    return [record["tokens"] for record in records_of(output, split)]


def records_of(output: Path, split: str = "train") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = penstock.open(output, split)[:].to_pylist()
    return found


def documents_in(records: Iterable[dict[str, Any]]) -> Iterator[list[int]]:
    """The documents of packed rows again: those of a row one by one, one that goes on in the next put together."""
    current: list[int] | None = None
    for record in records:
        tokens = list(record["tokens"])
        bounds = [*record["documents"], len(tokens)]
        if current is not None:
            current += tokens[: bounds[0]]
        for first, last in itertools.pairwise(bounds):
            if current is not None:
                yield current
            current = tokens[first:last]
    if current is not None:
        yield current


def account_of(output: Path, kind: str = "account") -> list[dict[str, Any]]:
    """Of documents or of tokens; each step must balance."""
    account: list[dict[str, Any]] = json.loads((output / "manifest.json").read_text())[kind]
    for step in account:
        assert step["taken"] == step["given"] + sum(step["set_aside"].values()), step
    return account


def steps_of(output: Path, kind: str = "account") -> dict[str, dict[str, Any]]:
    """The same by the name of the step."""
    return {step["step"]: step for step in account_of(output, kind)}


def rejected_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((output / "rejected").glob("*.jsonl")) for line in path.open()]


def decoded(tokens: Sequence[int]) -> str:
    return str(tokenizer().decode(list(tokens), skip_special_tokens=False))


def as_array(ids: Iterable[Sequence[int]]) -> np.ndarray[Any, Any]:
    """All of them behind each other."""
    return np.array([token for each in ids for token in each], "i8")
