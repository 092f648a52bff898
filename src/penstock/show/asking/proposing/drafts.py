"""Drafts: the kinds of job that can be proposed, each with its lines of the job file. Next: proposal.py."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.base.errors import InputError, printable
from penstock.prepare.sources.registry import SOURCES
from penstock.show.asking.proposing.columns import Column
from penstock.show.asking.proposing.looking import Looked
from penstock.show.asking.proposing.quoting import quoted, quoted_list, quoted_mapping
from penstock.show.asking.proposing.roles import Roles

_MOST_CANDIDATES = 5


@dataclass(frozen=True)
class Draft(ABC):
    """A kind of job, for this input. Its lines stand under `input:` and `stages:`."""

    kind: ClassVar[str]

    looked: Looked
    roles: Roles
    reasons: tuple[str, ...] = field(default=())  # why another kind was not proposed

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Whether the columns look like this kind."""

    @abstractmethod
    def stages(self) -> Iterator[str]:
        """Lines under `stages:`."""

    @abstractmethod
    def questions(self) -> Iterator[str]:
        """Sentences for a person to answer; they become comments."""

    def source(self) -> str:
        source, types = self.looked.source, self.types()
        if isinstance(source, str) and not types:
            return f"input: {quoted(source)}"
        lines = _source_lines(source if isinstance(source, dict) else {"path": source})
        declared = [f"types: {quoted_mapping(types)} # text in the files, read as times"] if types else []
        return "\n  ".join(["input:", *lines, *declared])

    def types(self) -> dict[str, str]:
        """Types of text columns that hold times, where `types:` can declare them."""
        if self.looked.format not in ("csv", "jsonl"):
            return {}
        return {each.name: each.time_type for each in self.looked.columns if each.time_type and each.path == each.name}

    def drops(self, column: Column) -> str:
        """Why the column is left out; nothing if it stays."""
        return column.cannot_be_stored

    def select(self) -> Iterator[str]:
        """A `select` that leaves out columns, or gives them another name; nothing if all can stay."""
        dropped = {each.path: reason for each in self.looked.columns if (reason := self.drops(each))}
        names = {_storable(each, number): each.path for number, each in enumerate(self.looked.columns)}
        if not dropped and all(new == old for new, old in names.items()):
            return
        kept = {new: old for new, old in names.items() if old not in dropped or _is_named_badly(old)}
        if not kept:
            raise InputError(
                f"no column of these files can be stored: {next(iter(dropped.values()))}",
                where=self.looked.some[0].location,
                next_step="write a function that makes arrays of its rows: `input: {path: ..., function: module:name}`",
            )
        for old, reason in dropped.items():
            yield f"# {'renamed' if old in kept.values() else 'left out'}: {quoted(old)}: {printable(reason)}"
            if old not in kept.values():
                yield "#   a stage of your own can make another column of it: docs/how-to/own-stage.md"
        is_same = all(new == old for new, old in kept.items())
        yield f"- select: {quoted_list(kept) if is_same else quoted_mapping(kept)}"


class Documents(Draft):
    kind = "text"

    @property
    def fits(self) -> bool:
        return bool(SOURCES[self.looked.format].documents or self.roles.texts)

    def source(self) -> str:
        source = self.looked.source if isinstance(self.looked.source, dict) else {"path": self.looked.source}
        if SOURCES[self.looked.format].documents:
            option = "document: file # one document per file; or line"
        else:
            option = (
                f"text_column: {quoted(self.roles.texts[0].name)} # only this column is read; stages call it `text`"
            )
        return "\n  ".join(["input:", *_source_lines(source), option])

    def stages(self) -> Iterator[str]:
        yield "- clean # cuts off outer white space and sets empty texts aside"
        yield "# - filter: characters(text) >= 100"
        yield "- dedup # keeps the first of equal texts"
        yield "# - near_dedup # keeps one of texts that are nearly the same"
        yield "- split: {test: 0.01}"
        yield "# Training needs tokens, and tokens need a tokenizer. penstock brings none. To get one:"
        yield "#   pip install tokenizers"
        yield "#   python"
        yield "#   >>> from tokenizers import Tokenizer"
        yield """#   >>> Tokenizer.from_pretrained("gpt2").save("tokenizer.json")"""
        yield """# - tokenize: {tokenizer: tokenizer.json, eos: "<|endoftext|>"} # the token that ends a document"""
        yield "# - pack: {length: 2048, method: wrapped}"

    def questions(self) -> Iterator[str]:
        others = self.roles.texts[1:]
        if others:
            chosen = quoted(self.roles.texts[0].name)
            yield f"which column is the text? {chosen} is the longest; {_lengths(others)}"


class Events(Draft):
    kind = "events"

    @property
    def fits(self) -> bool:
        return bool(self.roles.keys and self.roles.times)

    def drops(self, column: Column) -> str:
        reason = "`group` takes no nested columns; `select: {part: column.field}` takes a part"
        return column.cannot_be_stored or ("" if column.can_be_grouped else reason)

    def stages(self) -> Iterator[str]:
        key, time = self.roles.keys[0], self.roles.times[0]
        yield from self.select()
        yield from _filters(self.looked.columns, self.roles)
        yield f"# One record per {quoted(key.name)}: all its rows, ordered by {quoted(time.name)}."
        yield f"- group: {quoted_mapping({'by': key.name, 'order': time.name})}"
        yield "- split: {by: key, test: 0.1} # every key is in one split only"

    def questions(self) -> Iterator[str]:
        keys, times = self.roles.keys, self.roles.times
        if keys[1:] or self.roles.maybe_keys:
            yield f"group by which column? {_counts([*keys, *self.roles.maybe_keys], self.looked.rows)}"
        if times[1:]:
            yield f"order by which column? {', '.join(quoted(each.name) for each in times[:_MOST_CANDIDATES])}"
        if not times[0].is_time and times[0].name not in self.types():
            order = "as text, character by character" if times[0].is_text else "by number"
            yield f"is {quoted(times[0].name)} the time? Its type is {times[0].type}, so it is ordered {order}"


class PlainRows(Draft):
    kind = "rows"

    @property
    def fits(self) -> bool:
        return True

    def stages(self) -> Iterator[str]:
        yield from self.select()
        yield from _filters(self.looked.columns, self.roles)
        for key in self.roles.keys[:1]:
            together = quoted_mapping({"by": key.name, "test": 0.1})
            yield f"- split: {together} # equal values of {quoted(key.name)} are in one split only"
            return
        yield "- split: {test: 0.1} # {by: column, test: 0.1} keeps equal values of a column in one split"

    def questions(self) -> Iterator[str]:
        candidates = [*self.roles.keys, *self.roles.maybe_keys]
        if not candidates:
            return
        order = {"order": self.roles.times[0].name} if self.roles.times else {}
        group = quoted_mapping({"by": candidates[0].name, **order})
        yield (
            f"group by which column? {_counts(candidates, self.looked.rows)}. "
            f"To group, put this before `split`:   - group: {group}"
        )


class Samples(Draft):
    kind = "arrays"

    @property
    def fits(self) -> bool:
        return self.looked.format == "npz"

    def stages(self) -> Iterator[str]:
        yield "- split: {test: 0.1} # {by: column, test: 0.1} keeps equal values of a column in one split"
        for column in self.looked.columns[:1]:
            yield f"# - normalize: {quoted_list([column.name])} # mean 0, deviation 1, measured on the training samples"

    def questions(self) -> Iterator[str]:
        yield "which samples belong together? `split: {by: column, test: 0.1}` keeps them in one split"


_NOTES = {
    "encoding": " # a guess: the first files are not UTF-8",
    "newlines_in_values": " # some values span lines, between quotes",
}


def _source_lines(source: Mapping[str, str | bool | Sequence[str]]) -> Iterator[str]:
    for key, value in source.items():
        yield f"{key}: {_as_yaml(value)}{_NOTES.get(key, '')}"


def _as_yaml(value: str | bool | Sequence[str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else quoted_list(value)


def _filters(columns: Iterable[Column], roles: Roles) -> Iterator[str]:
    """Conditions as examples; a name with a backtick cannot stand in one."""
    plain = [each for each in columns if not each.cannot_be_stored and each.name.isprintable() and "`" not in each.name]
    numbers = [each for each in plain if each.is_number and each not in (*roles.keys, *roles.maybe_keys, *roles.times)]
    for column in numbers[:1]:
        yield f"# - filter: {quoted(f'`{column.name}` >= 0')}"
    for column in [each for each in plain if each.nulls][:1]:
        yield f"# - filter: {quoted(f'`{column.name}` is not null')}"


def _counts(columns: Sequence[Column], rows: int) -> str:
    shown = [f"{quoted(each.name)} has {each.distinct:,}" for each in columns[:_MOST_CANDIDATES]]
    more = f" ({len(columns) - _MOST_CANDIDATES} more)" if len(columns) > _MOST_CANDIDATES else ""
    return f"{', '.join(shown)} different values in the first {rows:,} rows{more}"


def _lengths(columns: Sequence[Column]) -> str:
    shown = [f"{quoted(each.name)} has {each.mean_characters:,.0f} characters" for each in columns[:_MOST_CANDIDATES]]
    return ", ".join(shown) + " on average"


def _is_named_badly(name: str) -> bool:
    return "/" in name or not name


def _storable(column: Column, number: int) -> str:
    """The name, or one that a file can have."""
    if "/" in column.name:
        return column.name.replace("/", "_")
    return column.name or f"column_{number}"
