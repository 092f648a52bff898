"""Roles: the columns of the first rows -> which is the key, the time, the text; and what cannot be told."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.show.asking.proposing.columns import Column

_KEY_WORDS = [
    "id", "uid", "uuid", "guid", "key", "user", "customer", "patient", "session", "device", "account", "client",
    "sensor", "player", "subject", "member", "host", "game", "address", "addr", "ip", "source", "src",
]  # fmt: skip
_TIME_WORDS = ["time", "timestamp", "datetime", "date", "at", "ts", "when", "day", "created", "updated", "started"]
_TEXT_WORDS = [
    "text", "content", "body", "document", "article", "message", "story", "html", "markdown", "abstract", "review",
    "comment",
]  # fmt: skip
_DOCUMENT_CHARACTERS = 200  # text of this mean length is a document, whatever its name
_NAMED_CHARACTERS = 30  # ... and of this, if the name says so


@dataclass(frozen=True)
class Roles:
    """Columns that a job may be about, best guess first."""

    keys: tuple[Column, ...]  # named like a key, and with values that come back
    maybe_keys: tuple[Column, ...]  # values come back, and the name does not tell
    times: tuple[Column, ...]
    texts: tuple[Column, ...]


def roles_of(columns: Sequence[Column]) -> Roles:
    usable = [each for each in columns if not each.cannot_be_stored]
    times = sorted((each for each in usable if _is_time(each)), key=lambda each: (_by_type(each), _rank(each)))
    texts = sorted((each for each in usable if _is_document(each)), key=lambda each: -each.mean_characters)
    others = [each for each in usable if each.can_be_key and each not in times and each not in texts]
    keys = sorted((each for each in others if _is_key(each)), key=_key_rank)
    maybe = [each for each in others if each.repeats and each not in keys]
    return Roles(tuple(keys), tuple(sorted(maybe, key=lambda each: -each.distinct)), tuple(times), tuple(texts))


def _is_key(column: Column) -> bool:
    return bool(column.repeats and any(word in _KEY_WORDS for word in column.words))


def _key_rank(column: Column) -> int:
    """`user_id` before `src`: the earliest of the words, for the last word of the name if it is one."""
    ranks = [_KEY_WORDS.index(word) for word in column.words if word in _KEY_WORDS]
    return min(ranks)


def _is_time(column: Column) -> bool:
    if column.is_time or column.looks_like_time:
        return True
    is_named = any(word in _TIME_WORDS[:7] for word in column.words)
    return is_named and column.is_number and column.distinct > 1


def _by_type(column: Column) -> int:
    return 0 if column.is_time else 1 if column.looks_like_time else 2


def _rank(column: Column) -> int:
    return min((_TIME_WORDS.index(word) for word in column.words if word in _TIME_WORDS), default=len(_TIME_WORDS))


def _is_document(column: Column) -> bool:
    if not column.is_text or column.looks_like_time or column.path != column.name:  # text_column takes no fields
        return False
    is_named = any(word in _TEXT_WORDS for word in column.words)
    return column.mean_characters >= (_NAMED_CHARACTERS if is_named else _DOCUMENT_CHARACTERS)
