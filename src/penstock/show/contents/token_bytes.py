"""Token bytes: a token of a vocabulary -> the bytes that it stands for, which may be only some of a character's."""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Spell = Callable[[int], bytes]  # no bytes: the token is whole characters, and text by itself
_PLAIN = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that stand for themselves, ByteLevel
_OTHERS = (byte for byte in range(256) if byte not in _PLAIN)
_BYTE_OF = {**{chr(byte): byte for byte in _PLAIN}, **{chr(256 + n): byte for n, byte in enumerate(_OTHERS)}}
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # of ByteFallback


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


def are_characters(data: bytes) -> bool:
    return not any(map(is_stray, stray_shown(data)))


def stray_shown(data: bytes) -> str:
    """As text, in which a byte that belongs to no character is one that `is_stray`."""
    return data.decode("utf-8", "surrogateescape")


def is_stray(character: str) -> bool:
    return "\udc80" <= character <= "\udcff"
