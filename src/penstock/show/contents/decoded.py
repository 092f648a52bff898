"""Decoded: the tokens of a row -> the text of each, document by document, in alternating colours."""

import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any

from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from penstock.base.errors import printable
from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.shards.manifest import Manifest, read_artifact
from penstock.shards.packed import TOKENIZER

Facts = dict[str, Any]
_MOST_TOKENS = 256  # of a row on a screen
_STYLES = ("black on cyan", "black on yellow")  # a background shows blanks, too
_SPECIAL = "bold white on red"
Spell = Callable[[int], bytes]  # no bytes: the token is whole characters, and text by itself
_PLAIN = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that stand for themselves, ByteLevel
_OTHERS = (byte for byte in range(256) if byte not in _PLAIN)
_BYTE_OF = {**{chr(byte): byte for byte in _PLAIN}, **{chr(256 + n): byte for n, byte in enumerate(_OTHERS)}}
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # of ByteFallback
_JOINERS = "\u200c\u200d"  # invisible, and a part of how words and pictures are spelled


@dataclass(frozen=True)
class Decoder:
    """The tokenizer that a job left."""

    decode: Callable[[list[int]], str]
    special: frozenset[int]
    spell: Spell = lambda _: b""

    def pieces(self, tokens: Sequence[int]) -> list[Facts]:
        """The text of each token; tokens that share a character make one piece. One with bytes that are no character,
        because a row was cut inside of it, has its bytes, too.
        """
        pieces: list[Facts] = []
        before: list[int] = []
        for held, data in by_characters(tokens, self.spell):
            whole = not any(map(is_stray, stray_shown(data)))
            text = self._added(before, held) if whole else data.decode("utf-8", "replace")
            stray = {} if whole else {"bytes": data.hex()}
            pieces.append({"text": text, "tokens": held, "special": held[-1] in self.special, **stray})
            before = held
        return pieces

    def _added(self, before: list[int], held: list[int]) -> str:
        """Text that `held` adds behind `before`: by itself, a word may lose the blank before it."""
        known, whole = self.decode(before), self.decode([*before, *held])
        return whole.removeprefix(known) if whole.startswith(known) else self.decode(held)


def open_decoder(store: Store, manifest: Manifest) -> Decoder | None:
    """None where a job left no tokenizer, or the library that reads it is not installed: then tokens are numbers."""
    data = read_artifact(store, manifest, TOKENIZER)
    if data is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    tokenizer = Tokenizer.from_str(data.decode())
    added = tokenizer.get_added_tokens_decoder()
    return Decoder(
        decode=lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False)),
        special=frozenset(number for number, token in added.items() if token.special),
        spell=speller(tokenizer),
    )


def document_facts(record: Mapping[str, Any], decoder: Decoder | None, kept: Sequence[str] = ()) -> list[Facts]:
    """The documents of a packed row, with the columns kept beside; the first may have begun in the row before."""
    tokens, begins = record["tokens"], set(record["documents"])
    edges = [*sorted({0, *begins} - {len(tokens)}), len(tokens)]
    return [
        {
            "start": low,
            "begins_here": low in begins,
            "tokens": tokens[low:high],
            **({"columns": {name: record[name][low:high] for name in kept}} if kept else {}),
            **({"pieces": decoder.pieces(tokens[low:high])} if decoder else {}),
        }
        for low, high in pairwise(edges)
    ]


# For people.


def row_tables(
    name: str, documents: Sequence[Facts], short: Callable[[list[Any]], str] = str
) -> Iterator[RenderableType]:
    """`short` says values of a kept column in one line."""
    total = sum(len(each["tokens"]) for each in documents)
    yield Text.assemble("\n", (name, "bold"), f": {counted(total, 'token')}, {counted(len(documents), 'document')}")
    left = _MOST_TOKENS
    for each in documents:
        if left <= 0:
            break
        whence = "" if each["begins_here"] else ", from the row before"
        kept = "".join(f"; {printable(column)} {short(values)}" for column, values in each.get("columns", {}).items())
        yield Text(f"at {each['start']:,}, {counted(len(each['tokens']), 'token')}{whence}{kept}:", style="dim")
        yield ColoredTokens(each, left)
        left -= len(each["tokens"])
    if total > _MOST_TOKENS:
        yield Text(f"... and {counted(total - _MOST_TOKENS, 'token')} more; --json has all", style="dim")


class ColoredTokens:
    """Some tokens side by side, every other one in another colour; bars between them where there are no colours."""

    def __init__(self, document: Facts, most: int | None = None) -> None:
        self._pieces, self._ids = document.get("pieces"), document["tokens"][:most]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._pieces is None:
            yield Text(" ".join(map(str, self._ids)))
            return
        bar = "│" if console.no_color or console.color_system is None else ""
        yield from _lines([Text(bar), *(each.append(bar) for each in self._texts())], options.max_width)

    def _texts(self) -> Iterator[Text]:
        shown = 0
        for number, piece in enumerate(self._pieces or ()):
            if shown >= len(self._ids):
                return
            style = _SPECIAL if piece["special"] else _STYLES[number % len(_STYLES)]
            text = stray_shown(bytes.fromhex(piece["bytes"])) if "bytes" in piece else piece["text"]
            runs = groupby(text, is_stray)
            yield Text.assemble(*((visible("".join(run)), f"dim {style}" if stray else style) for stray, run in runs))
            shown += len(piece["tokens"])


def _lines(pieces: Sequence[Text], width: int) -> Iterator[Text]:
    """Side by side, in lines that end between two of them: those of rich end at a blank, and lose it."""
    line = Text(no_wrap=True, overflow="ignore")
    for piece in pieces:
        for number, part in enumerate(piece.split("\n", allow_blank=True)):
            for fold in part.divide([*accumulate(map(len, chop_cells(part.plain, width)))][:-1]):
                if number or line.cell_len + fold.cell_len > width:
                    yield line
                    line = line.blank_copy()
                line.append_text(fold)
    yield line


def visible(text: str) -> str:
    """A text in which nothing is hidden, and nothing moves the cursor but the newline behind a mark for it."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character == "\n":
        return "\N{SYMBOL FOR LINE FEED}\n"
    if is_stray(character):
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character < " ":
        return chr(ord("\N{SYMBOL FOR NULL}") + ord(character))
    if character in _JOINERS or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp"):
        return character
    return f"\\u{ord(character):04x}"


def speller(tokenizer: Any) -> Spell:
    """A function that spells tokens like the tokenizer's own decoder, for the two decoders that know of bytes."""
    steps, added = repr(tokenizer.decoder), tokenizer.get_added_tokens_decoder()

    def spell(token: int) -> bytes:
        word = (None if token in added else tokenizer.id_to_token(token)) or ""
        if "ByteLevel(" in steps:
            return bytes(_BYTE_OF[each] for each in word) if _BYTE_OF.keys() >= set(word) else b""
        found = _BYTE.fullmatch(word) if "ByteFallback(" in steps else None
        return bytes.fromhex(found[1]) if found else b""

    return spell


def by_characters(tokens: Sequence[int], spell: Spell) -> Iterator[tuple[list[int], bytes]]:
    """The tokens with their bytes, one by one; those that share characters together."""
    held: list[int] = []
    data = b""
    for token in tokens:
        spelled = spell(token)
        if held and not (_ends_inside(data) and 0x80 <= (spelled or b"\0")[0] < 0xC0):
            yield held, data
            held, data = [], b""
        held, data = [*held, token], data + spelled
    if held:
        yield held, data


def _ends_inside(data: bytes) -> bool:
    """Whether the last character is incomplete, so that the next bytes may complete it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return bool(decoder.getstate()[0])


def stray_shown(data: bytes) -> str:
    """The bytes as text. A byte that belongs to no character is marked, see `is_stray`."""
    return data.decode("utf-8", "surrogateescape")


def is_stray(character: str) -> bool:
    return "\udc80" <= character <= "\udcff"
