"""Tokenize: text -> the ids of its tokens, exactly as Hugging Face's `tokenizers` gives them, on all cores."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.base.stores.store import Store
from penstock.prepare.budget.room import MustBeAlone, Room
from penstock.prepare.rows.rows import TOO_LARGE_PIECE, Rows, SetAside
from penstock.prepare.stages.interfaces import DEFINITION, AddsTokens, HasEngine, Leaves, Locates, Opens, TakesText
from penstock.prepare.stages.stage import Stage
from penstock.prepare.stages.text.clean import require_text
from penstock.prepare.tokenizers import Encoder, open_once
from penstock.prepare.tokenizers.file import SpecialToken, TokenizerFile, find_tokenizer
from penstock.prepare.tokenizers.proof import (
    Choice,
    Proof,
    Request,
    choose_engine,
    definition,
    make_request,
    needs_no_proof,
    recalled_engine,
)
from penstock.shards.columns import FileFacts, commit_file
from penstock.shards.packed import TOKENIZER, TOKENS

_MOST_THREADS = 4  # as many as one reader can feed


@dataclass(frozen=True, kw_only=True)
class Tokenize(Locates, TakesText):
    """`tokenize: path/to/tokenizer.json`, a folder that holds one, or a hub id. The text becomes a column `tokens`.

    Every document ends with the tokenizer's end token. `add_eos: false` omits it; `eos:` names another token, by text
    or id. With `add_bos: true` every document begins with the begin token; `bos:` names another. `add_bos: template`
    adds it only if the tokenizer's own template does. Special tokens inside the text are read as plain text, unless
    `special_tokens: tokens` is set.
    """

    tokenizer: str
    column: str = "text"
    add_eos: bool = True
    add_bos: bool | Literal["template"] = False
    eos: str | int = ""
    bos: str | int = ""
    special_tokens: Literal["text", "tokens"] = "text"
    engine: Literal["auto", "hf", "gigatoken", "fastokens"] = "auto"

    unit_in, unit_out = "documents", "documents"
    is_tried = False
    counts = TOKENS
    holds_much = True

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options = {"tokenizer": written} if isinstance(written, str) else Stage.options_from_yaml(written)
        for kind in ("eos", "bos"):
            if isinstance(said := options.get(kind), bool):
                raise ConfigError(
                    f"{kind}: it must name a token, by text or id",
                    next_step=f"write `add_{kind}: {str(said).lower()}`",
                )
        return options

    def __post_init__(self) -> None:
        for kind, named, is_added in (("eos", self.eos, self.add_eos), ("bos", self.bos, self.add_bos)):
            if named != "" and is_added is not True:
                shown = is_added if isinstance(is_added, str) else str(is_added).lower()
                raise ConfigError(
                    f"{kind}: {named!r} has no effect, because add_{kind} is {shown}",
                    next_step=f"write `add_{kind}: true` too, or leave {kind} out",
                )

    def located(self, folder: str, output: str, before: Sequence[Stage], made_from: str) -> Stage:  # noqa: ARG002
        file = find_tokenizer(self.tokenizer, folder)
        if self.add_bos == "template":
            begin = file.template_begin()
        else:
            begin = (self._special(file, "bos", self.bos, file.bos),) if self.add_bos else ()
        end = (self._special(file, "eos", self.eos, file.eos),) if self.add_eos else ()
        return Located(**vars(self), file=file, begin=begin, end=end)

    @staticmethod
    def _special(file: TokenizerFile, kind: str, named: str | int, known: SpecialToken | None) -> int:
        found = file.special_token(named) if named != "" else known
        if found is None:
            special = file.special_texts()
            place = "ends" if kind == "eos" else "begins"
            raise ConfigError(
                f"neither the tokenizer nor a file beside it says which token {place} a document",
                where=file.location + (f"; could not fetch {file.not_fetched}" if file.not_fetched else ""),
                next_step=f"name it: `{kind}: '{special[0] if special else '<|endoftext|>'}'`, or say "
                f"`add_{kind}: false`; its special tokens are: {', '.join(special) or 'none'}",
            )
        return found.id

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after - {TOKENS} | {self.column}


@dataclass(frozen=True, kw_only=True)
class Located(Tokenize, HasEngine, Opens, Leaves, AddsTokens):
    """Tokenize with its file found, and with an engine once one was proved on the first documents."""

    file: TokenizerFile
    begin: tuple[int, ...]
    end: tuple[int, ...]
    chosen: Choice | Future[Choice] | None = None  # the future, while it is being proved

    assumed_bytes = 352 << 20  # a tokenizer of 150,000 entries takes 250 MB

    def ready(self, sample: pa.RecordBatch, most_bytes: float, at_once: bool, refused: str) -> Stage:
        """The fastest engine that was proved. A small job is begun meanwhile, if nothing is remembered: the proof takes
        as long as all the rest of it. Little text needs no other than the definition."""
        if needs_no_proof(self.engine, most_bytes):
            return replace(self, chosen=definition(self.engine))
        request = self._request(sample, refused)
        chosen = recalled_engine(request)
        if chosen is None and not at_once:
            return replace(self, chosen=ThreadPoolExecutor(1).submit(choose_engine, request))
        return replace(self, chosen=chosen or choose_engine(request))

    def _request(self, sample: pa.RecordBatch, refused: str = "") -> Request:
        is_read = self.column in sample.schema.names  # as the stage takes it
        texts = sample.column(self.column).drop_null() if is_read else pa.array([], pa.string())
        return make_request(self.file, texts, self.engine, self.special_tokens, refused)

    def made_by(self) -> str:
        return self._choice.made_by or DEFINITION

    def wait(self) -> None:
        if not self._choice.proof:  # it was never loaded
            self._choice.module.Engine(self.file.location, self.special_tokens)

    def unproved_bytes(self) -> int:
        return 0 if isinstance(self.chosen, Future) else self._choice.unproved_bytes

    def prove(self, sample: pa.RecordBatch) -> Proof:
        return Proof(self._request(sample), self._choice)

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        chosen = self._choice
        tokenizer = open_once(self.file, chosen.engine, threads, self.special_tokens, chosen.places)
        cost = self._choice.module.PIECE_COST
        # A piece that was cut is a little longer than a portion: that much there is room for always.
        least = 2 * self._choice.module.PORTION_BYTES
        return _Encode(
            column=self.column,
            encoder=Encoder(tokenizer, self.file.dtype, self.begin, self.end),
            store=store,
            shared_bytes=max(room.shared // cost, least),
            # The largest power of two that is no more: the room is measured, and a little different every time.
            most_bytes=max(1 << max(0, (room.alone // cost).bit_length() - 1), least),
        )

    def closed(self) -> None:
        open_once.cache_clear()

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_text(schema, self.column)
        if TOKENS in schema.names and self.column != TOKENS:
            raise ConfigError(f"there is already a column {TOKENS!r}, the name of the new column")
        kind = pa.list_(pa.from_numpy_dtype(self.file.dtype))
        return schema.set(schema.get_field_index(self.column), pa.field(TOKENS, kind))

    def added_tokens(self) -> tuple[int, int]:
        return len(self.begin), len(self.end)

    def describe(self) -> dict[str, Any]:
        """The tokenizer by what it holds: where it lies and who runs it decides nothing."""
        return {
            "tokenizer": self.file.digest,
            "vocabulary": self.file.vocabulary_size,
            "column": self.column,
            "begin": list(self.begin),
            "end": list(self.end),
            "special_tokens": self.special_tokens,
        }

    def leave(self, store: Store) -> tuple[FileFacts, ...]:
        """The tokenizer: it tells what the tokens of the dataset mean."""
        return (commit_file(store, TOKENIZER, self.file.read_unchanged()),)

    @property
    def _choice(self) -> Choice:
        """Waits, if it is still being proved."""
        return self.chosen.result() if isinstance(self.chosen, Future) else self.chosen or Choice()

    def threads(self) -> int:
        if isinstance(self.chosen, Future):
            return _MOST_THREADS  # of a small job, which has one process whatever is chosen
        return 1 if self._choice.module.TAKES_TURNS else _MOST_THREADS

    def grows_by(self, threads: int) -> int:
        return int(self._choice.module.GROWTH_BYTES * (1 if self._choice.module.TAKES_TURNS else threads))

    def says(self) -> str:
        return self._choice.why


@dataclass(frozen=True, kw_only=True)
class _Encode(Stage):
    """Tokenize, inside a worker."""

    column: str
    encoder: Encoder
    store: Store
    shared_bytes: int  # of a text in one piece, beside other tasks
    most_bytes: int  # of one when no other task runs

    def __call__(self, rows: Rows) -> Rows:
        number = rows.batch.schema.get_field_index(self.column)
        rows = self._without_too_large(rows, number)
        ids, offsets = self.encoder.encode(rows.batch.column(number), self.store.scratch_folder)
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype("i4")), pa.array(ids))
        names = rows.batch.schema.names
        columns = {TOKENS if name == self.column else name: rows.batch.column(name) for name in names}
        return rows.with_batch(pa.RecordBatch.from_pydict({**columns, TOKENS: lists}))

    def _without_too_large(self, rows: Rows, number: int) -> Rows:
        texts = rows.batch.column(number)
        if texts.nbytes <= min(self.shared_bytes, self.most_bytes):
            return rows
        sizes = self.encoder.tokenizer.largest_pieces(texts)
        large = np.flatnonzero(sizes > self.most_bytes)
        if (sizes[sizes <= self.most_bytes] > self.shared_bytes).any():
            raise MustBeAlone
        if not len(large):
            return rows
        lines = [_too_large(rows, row, int(sizes[row]), self.most_bytes) for row in large.tolist()]
        aside = SetAside(TOO_LARGE_PIECE, len(large), lines)
        return replace(rows.keep(sizes <= self.most_bytes, TOO_LARGE_PIECE), set_aside=(*rows.set_aside, aside))


def _too_large(rows: Rows, row: int, size: int, most: int) -> dict[str, Any]:
    """Line of rejected/ for a document that is too large, without its text."""
    what = f"{size:,} bytes of it have no place to be cut, and memory allows {most:,} in one piece"
    return rows.rejected_line(row, TOO_LARGE_PIECE, detail=what)
