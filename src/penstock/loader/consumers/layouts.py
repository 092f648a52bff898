"""Layouts: tensors of a batch with documents="varlen" -> the batch of a trainer, in its names and conventions.

Two views of the rows serve all trainers, and both train the same pairs of a context and its next token:

- *shifted*: `length` tokens per row; the label of a token is the next one.
- *whole*: the `length` + 1 tokens of a row; the label of a token is itself, and the trainer shifts. A last token that
  continues no document, or is padding, is a sequence of its own.

A label that does not count is -100. Nothing here waits for a device: no shape depends on the values of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError

try:
    import torch
except ImportError as error:
    raise ConfigError("to_torch needs PyTorch, which is not installed here", next_step="pip install torch") from error

IGNORED = -100
_NEEDED = ("inputs", "targets", "targets_segmentation", "position_ids", "seq_idx", "cu_seqlens")
_WHERE = "loader.to_torch(layout=...)"


@dataclass(frozen=True)
class View:
    """The tokens of a batch, all int64 [rows, tokens per row], and its sequences."""

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    numbers: torch.Tensor  # int32: that of each token's sequence
    edges: torch.Tensor  # int32: where sequences begin in the flattened tokens, then the end, repeated
    most: int  # sequences per row that there is room for

    @property
    def longest(self) -> int:
        """Upper bound for the length of a sequence, always the same."""
        return int(self.tokens.shape[1])

    def lengths(self) -> torch.Tensor:
        """Tokens of each sequence, int32 [rows, most], and zeros."""
        begins = (self.positions == 0).long()
        lengths = torch.zeros((len(begins), self.most), dtype=torch.int32, device=begins.device)
        return lengths.scatter_add_(1, begins.cumsum(1) - 1, torch.ones_like(begins, dtype=torch.int32))


def shifted(batch: Mapping[str, torch.Tensor]) -> View:
    labels = batch["targets"].long().masked_fill(batch["targets_segmentation"] == 0, IGNORED)
    most = (len(batch["cu_seqlens"]) - 1) // len(labels)
    tokens, positions = batch["inputs"].long(), batch["position_ids"].long()
    return View(tokens, labels, positions, batch["seq_idx"], batch["cu_seqlens"], most)


def whole(batch: Mapping[str, torch.Tensor]) -> View:
    view = shifted(batch)
    continues = batch["targets_segmentation"][:, -1:] != 0
    tokens = torch.cat([view.tokens, batch["targets"][:, -1:].long()], 1)
    positions = torch.cat([view.positions, (view.positions[:, -1:] + 1) * continues], 1)
    labels = torch.nn.functional.pad(view.labels, (1, 0), value=IGNORED)
    numbers = ((positions == 0).flatten().cumsum(0) - 1).view_as(positions).int()
    return View(tokens, labels, positions, numbers, _whole_edges(view, continues.flatten()), view.most + 1)


def _whole_edges(view: View, continues: torch.Tensor) -> torch.Tensor:
    """Edges of rows that have one token more each. It begins a sequence if it does not continue one."""
    rows, length = view.tokens.shape
    end = rows * (length + 1)
    moved = torch.where(view.edges < rows * length, view.edges + view.edges // length, end)
    last = torch.arange(1, rows + 1, device=moved.device, dtype=moved.dtype) * (length + 1) - 1
    return torch.cat([moved, torch.where(continues, end, last)]).sort().values.int()


# Trainers.


def _for_transformers(view: View) -> dict[str, Any]:
    return {
        "input_ids": view.tokens.view(1, -1),
        "labels": view.labels.view(1, -1),
        "position_ids": view.positions.view(1, -1),
        "cu_seq_lens_q": view.edges,
        "cu_seq_lens_k": view.edges,
        "max_length_q": view.longest,
        "max_length_k": view.longest,
        "seq_idx": view.numbers.view(1, -1),
    }


def _for_trl(view: View) -> list[dict[str, Any]]:
    """One example per row, as TRL's collator takes them."""
    rows = zip(view.tokens.tolist(), view.labels.tolist(), view.lengths().tolist(), strict=True)
    return [
        {"input_ids": tokens, "labels": labels, "seq_lengths": [each for each in lengths if each]}
        for tokens, labels, lengths in rows
    ]


def _for_torchtitan(view: View) -> tuple[dict[str, Any], torch.Tensor]:
    return {"input": view.tokens, "positions": view.positions}, view.labels


def _for_megatron(view: View) -> dict[str, Any]:
    counts = view.labels != IGNORED
    return {
        "tokens": view.tokens.view(1, -1),
        "labels": (view.labels * counts).view(1, -1),  # 0 where the mask is 0: it must be a token
        "loss_mask": counts.float().view(1, -1),
        "position_ids": view.positions.view(1, -1),
        "cu_seqlens": view.edges,
        "max_seqlen": view.longest,
    }


def _for_olmo(view: View) -> dict[str, Any]:
    return {
        "input_ids": view.tokens,
        "label_mask": view.labels != IGNORED,
        "doc_lens": view.lengths(),
        "max_doc_lens": [view.longest] * len(view.tokens),
    }


@dataclass(frozen=True)
class Layout:
    """A trainer's batch: which view of the rows it takes, and its form."""

    view: Callable[[Mapping[str, torch.Tensor]], View]
    form: Callable[[View], Any]

    def __call__(self, batch: Mapping[str, torch.Tensor]) -> Any:
        if missing := [name for name in _NEEDED if name not in batch]:
            raise ConfigError(
                f"a layout is made of {', '.join(_NEEDED)}; this batch lacks {', '.join(missing)}",
                where=_WHERE,
                next_step="keep them in what the functions of map() return",
            )
        return self.form(self.view(batch))


LAYOUTS = {
    "transformers": Layout(whole, _for_transformers),
    "trl": Layout(whole, _for_trl),
    "torchtitan": Layout(shifted, _for_torchtitan),
    "megatron": Layout(shifted, _for_megatron),
    "olmo": Layout(whole, _for_olmo),
}


def find_layout(name: str, documents: str | None) -> Layout:
    """The layout of that name, if the loader's batches have what it is made of."""
    if name not in LAYOUTS:
        raise ConfigError(
            f"there is no layout {name!r}", where=_WHERE, next_step=f"one of {', '.join(map(repr, LAYOUTS))}"
        )
    if documents != "varlen":
        raise ConfigError(
            f"layout={name!r} needs the documents of a batch, and this loader has none",
            where=_WHERE,
            next_step="penstock.load(..., documents='varlen')",
        )
    return LAYOUTS[name]
