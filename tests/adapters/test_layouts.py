"""Layouts of trainers: each trains the pairs of `inputs` and `targets`, and its library takes it.

torchtitan is held against its contract: positions that are 0 where a document begins, labels that are shifted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from transformers import LlamaConfig, LlamaForCausalLM

import penstock
from penstock.base.errors import ConfigError
from penstock.loader.consumers.layouts import LAYOUTS
from tests.loader.making import prepare

LENGTH, VOCABULARY = 24, 60
Pairs = list[tuple[tuple[int, ...], int]]  # tokens of a document so far, and the one that follows


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of any length, with documents of one token, at the last input and at the token behind it, and no tokens."""
    rng = np.random.default_rng(2)
    sizes = [LENGTH + 1, LENGTH, LENGTH - 1, 0, 1, LENGTH + 1, LENGTH + 1, *rng.integers(2, LENGTH + 2, 41).tolist()]
    starts: list[list[int]] = [[], [5], [0, 1, 9], [], [0], [0, LENGTH], [7, 8, LENGTH - 1]]
    starts += [sorted(rng.choice(LENGTH, rng.integers(0, 5), replace=False).tolist()) for _ in range(41)]
    tokens = [rng.integers(1, VOCABULARY, size).tolist() for size in sizes]
    columns = {"tokens": pa.array(tokens, pa.list_(pa.int32())), "documents": pa.array(starts, pa.list_(pa.int32()))}
    return prepare(tmp_path_factory.mktemp("rows"), pa.table(columns), [])


@pytest.fixture
def load(rows: Path) -> Iterator[Callable[..., Any]]:
    opened = []

    def load(**options: Any) -> Any:
        given = {"batch_size": 8, "length": LENGTH, "epochs": 1, "shuffle": False, "workers": 0, "documents": "varlen"}
        opened.append(penstock.load(rows, **{**given, **options}))
        return opened[-1]

    yield load
    for loader in opened:
        loader.close()


def pairs_of(batch: dict[str, Any]) -> Pairs:
    """What `inputs`, `targets` and `targets_segmentation` say, of a batch with six arrays."""
    found: Pairs = []
    for row, place in np.argwhere(np.asarray(batch["targets_segmentation"]) != 0).tolist():
        first = place - int(batch["inputs_position"][row, place])
        found.append((tuple(batch["inputs"][row, first : place + 1].tolist()), int(batch["targets"][row, place])))
    return sorted(found)


def in_sequences(tokens: Any, edges: Any, next_tokens: dict[int, int]) -> Pairs:
    """Pairs of flat tokens; `next_tokens` are those that count, by the place of the token that predicts them."""
    flat, starts = torch.as_tensor(tokens).flatten().tolist(), torch.as_tensor(edges).tolist()
    assert (starts[0], starts[-1]) == (0, len(flat))
    assert starts == sorted(starts)
    begin = {place: start for start, end in pairwise(starts) for place in range(start, end)}
    return sorted((tuple(flat[begin[place] : place + 1]), token) for place, token in next_tokens.items())


def unshifted(tokens: Any, edges: Any, labels: Any) -> Pairs:
    """As a trainer that shifts them: the label of a token is predicted by the one before."""
    flat = torch.as_tensor(labels).flatten().tolist()
    assert flat[0] == -100
    return in_sequences(tokens, edges, {place - 1: label for place, label in enumerate(flat) if label != -100})


def already_shifted(tokens: Any, edges: Any, labels: Any) -> Pairs:
    flat = torch.as_tensor(labels).flatten().tolist()
    return in_sequences(tokens, edges, {place: label for place, label in enumerate(flat) if label != -100})


def edges_of(lengths: list[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()]


def trained_by_transformers(batch: Any) -> Pairs:
    return unshifted(batch["input_ids"], batch["cu_seq_lens_q"], batch["labels"])


def trained_by_trl(batch: Any) -> Pairs:
    lengths = [length for example in batch for length in example["seq_lengths"]]
    tokens, labels = ([token for example in batch for token in example[name]] for name in ("input_ids", "labels"))
    return unshifted(tokens, edges_of(lengths), labels)


def trained_by_torchtitan(batch: Any) -> Pairs:
    inputs, labels = batch
    edges = [*(inputs["positions"].flatten() == 0).nonzero().flatten().tolist(), labels.numel()]
    return already_shifted(inputs["input"], edges, labels)


def trained_by_megatron(batch: Any) -> Pairs:
    labels = batch["labels"].masked_fill(batch["loss_mask"] == 0, -100)
    return already_shifted(batch["tokens"], batch["cu_seqlens"], labels)


def trained_by_olmo(batch: Any) -> Pairs:
    """By its contract: it shifts the labels itself, and leaves out lengths of 0."""
    labels = batch["input_ids"].masked_fill(~batch["label_mask"], -100)
    shifted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    lengths = [length for length in batch["doc_lens"].flatten().tolist() if length]
    return already_shifted(batch["input_ids"], edges_of(lengths), shifted)


TRAINED = {
    "transformers": trained_by_transformers,
    "trl": trained_by_trl,
    "torchtitan": trained_by_torchtitan,
    "megatron": trained_by_megatron,
    "olmo": trained_by_olmo,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_trains_the_pairs_of_inputs_and_targets_and_no_others(load, layout):
    batches, plain = load().to_torch(layout=layout), load(documents=None)
    taken = [(TRAINED[layout](next(batches)), pairs_of(plain.batch(k))) for k in range(len(plain))]
    assert len(taken) == 6
    assert all(found == expected for found, expected in taken)
    assert sum(len(expected) for _, expected in taken) > 400


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shapes_are_the_same_in_every_batch_and_lengths_are_ints(load, layout):
    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shape(each) for name, each in value.items() if name != "seq_lengths"}
        if isinstance(value, (list, tuple)):
            return [shape(each) for each in value] if not isinstance(value[0], int) else len(value)
        return value if type(value) is int else (tuple(value.shape), value.dtype)

    shapes = [shape(batch) for batch in load().to_torch(layout=layout)]
    assert all(each == shapes[0] for each in shapes)


def test_names_and_types_are_those_of_the_table(load):
    def kinds(layout: str) -> Any:
        batch = next(load().to_torch(layout=layout))
        return {name: str(getattr(value, "dtype", value)).removeprefix("torch.") for name, value in batch.items()}

    assert kinds("transformers") == {
        **dict.fromkeys(("input_ids", "labels", "position_ids"), "int64"),
        **dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k", "seq_idx"), "int32"),
        **dict.fromkeys(("max_length_q", "max_length_k"), str(LENGTH + 1)),
    }
    assert kinds("megatron") == {
        **dict.fromkeys(("tokens", "labels", "position_ids"), "int64"),
        "loss_mask": "float32",
        "cu_seqlens": "int32",
        "max_seqlen": str(LENGTH),
    }
    assert kinds("olmo") == {
        "input_ids": "int64",
        "label_mask": "bool",
        "doc_lens": "int32",
        "max_doc_lens": str([LENGTH + 1] * 8),
    }
    inputs, labels = next(load().to_torch(layout="torchtitan"))
    assert (list(inputs), labels.shape) == (["input", "positions"], (8, LENGTH))


def test_the_sequences_of_whole_rows_are_their_documents_and_their_padding(load, rows):
    stored = iter(penstock.open(rows))
    for batch in load().to_torch(layout="transformers"):
        expected: list[list[int]] = []
        for record in (next(stored) for _ in range(8)):
            tokens = record["tokens"].tolist()
            edges = sorted({0, *(start for start in record["documents"].tolist() if start < len(tokens)), len(tokens)})
            expected += [tokens[start:end] for start, end in pairwise(edges)]
            missing = LENGTH + 1 - len(tokens)  # padding of the inputs, and a last token that is padding
            expected += [[0] * size for size in (missing - 1, 1) if missing and size]
        edges, numbers = batch["cu_seq_lens_q"].tolist(), batch["seq_idx"][0].tolist()
        found = [batch["input_ids"][0, start:end].tolist() for start, end in pairwise(edges) if start < end]
        assert found == expected
        assert numbers == [number for number, tokens in enumerate(expected) for _ in tokens]
        assert batch["position_ids"][0].tolist() == [place for tokens in expected for place in range(len(tokens))]


# Against the libraries themselves.


def make_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    return LlamaForCausalLM(config).double().eval()


@torch.no_grad()
def test_a_llama_of_transformers_gives_each_document_what_it_gives_it_alone(load):
    model = make_llama()
    for batch in load().to_torch(layout="transformers"):
        packed = model(**batch)
        edges, losses = batch["cu_seq_lens_q"].tolist(), []
        for start, end in pairwise(edges):
            if start == end:
                continue
            alone = model(input_ids=batch["input_ids"][:, start:end]).logits
            torch.testing.assert_close(packed.logits[:, start:end], alone, rtol=0, atol=1e-12)
            labels = batch["labels"][0, start + 1 : end]
            losses += torch.nn.functional.cross_entropy(alone[0, :-1], labels, reduction="none")[labels != -100]
        assert len(losses) == int((batch["labels"] != -100).sum())
        # The library computes the loss of float64 scores in float32.
        torch.testing.assert_close(packed.loss.double(), torch.stack(losses).mean(), rtol=1e-6, atol=0)
        own = model.loss_function(packed.logits, batch["labels"], VOCABULARY, num_items_in_batch=len(losses))
        torch.testing.assert_close(own.double(), torch.stack(losses).mean(), rtol=1e-6, atol=0)


def test_trl_s_collator_makes_of_its_layout_what_the_one_of_transformers_is(load):
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    for examples, expected in zip(load().to_torch(layout="trl"), load().to_torch(layout="transformers"), strict=True):
        found = collate(examples)
        assert set(found) == set(expected)
        for name in ("input_ids", "labels", "position_ids", "seq_idx"):
            assert torch.equal(found[name], expected[name]), name
        edges, more = found["cu_seq_lens_q"], expected["cu_seq_lens_q"]
        assert torch.equal(more[: len(edges)], edges)
        assert set(more[len(edges) :].tolist()) <= {edges[-1].item()}
        assert found["max_length_q"] <= expected["max_length_q"]


def test_megatron_turns_each_sequence_by_its_own_positions(load):
    from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_thd
    from megatron.core.packed_seq_params import PackedSeqParams

    batch = next(load().to_torch(layout="megatron"))
    edges, longest = batch["cu_seqlens"], batch["max_seqlen"]
    packed = PackedSeqParams("thd", edges, edges, max_seqlen_q=longest, max_seqlen_kv=longest)
    angles = torch.rand(longest, 1, 1, 8, dtype=torch.float64)
    vectors = torch.rand(batch["tokens"].numel(), 2, 8, dtype=torch.float64)
    found = _apply_rotary_pos_emb_thd(vectors, packed.cu_seqlens_q, angles, cp_group=OneRank())
    turn = angles[batch["position_ids"][0], 0]
    half = torch.cat([-vectors[..., 4:], vectors[..., :4]], -1)
    torch.testing.assert_close(found, vectors * turn.cos() + half * turn.sin())


class OneRank:
    """A context-parallel group of one process."""

    def size(self) -> int:
        return 1

    def rank(self) -> int:
        return 0


# Attention within documents.


class Attention(torch.nn.Module):
    """One layer with learned positions, so that a place counted from elsewhere shows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, 16), torch.nn.Embedding(LENGTH, 16)
        self.mixed, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, VOCABULARY)
        self.double()

    def forward(self, tokens: torch.Tensor, places: torch.Tensor, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        rows, length = tokens.shape
        mixed = self.mixed(self.tokens(tokens) + self.places(places)).view(rows, length, 3, 2, 8)
        seen = attend(*mixed.permute(2, 0, 3, 1, 4))
        return self.out(seen.transpose(1, 2).reshape(rows, length, 16))


def attend_alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def attend_by_edges(edges: list[int]) -> Callable[..., torch.Tensor]:
    """As kernels for sequences of any length define it: each between two edges of the flattened batch."""

    def attend(*mixed: torch.Tensor) -> torch.Tensor:
        flat = [each.transpose(0, 1).reshape(1, 2, -1, 8) for each in mixed]
        ranges = [(a, b) for a, b in pairwise(edges) if a < b]
        seen = torch.cat([attend_alone(*(each[:, :, a:b] for each in flat)) for a, b in ranges], 2)
        return seen.view(2, len(mixed[0]), -1, 8).transpose(0, 1)

    return attend


@torch.no_grad()
@pytest.mark.parametrize("way", ["block mask", "edges"])
def test_attention_within_documents_gives_each_document_what_it_gets_alone(load, way):
    model, documents = Attention(), 0
    for batch in load().to_torch():
        mask, edges = penstock.block_mask(batch, block_size=16), batch["cu_seqlens"].tolist()
        by_mask = lambda *mixed, mask=mask: flex_attention(*mixed, block_mask=mask)  # noqa: E731
        attend = by_mask if way == "block mask" else attend_by_edges(edges)
        packed = model(batch["inputs"], batch["position_ids"], attend).flatten(0, 1)
        for start, end in pairwise(edges):
            tokens = batch["inputs"].flatten()[start:end]
            if start == end or not batch["inputs_segmentation"].flatten()[start]:
                continue
            alone = model(tokens[None], torch.arange(len(tokens))[None], attend_alone)[0]
            torch.testing.assert_close(packed[start:end], alone, rtol=0, atol=1e-12)
            documents += 1
    assert documents > 80


@pytest.mark.parametrize("documents", ["varlen", None])
def test_the_block_mask_is_causal_within_documents_and_padding_sees_nothing(load, documents):
    batch = load(documents=documents).batch(0)
    mask, segments = penstock.block_mask(batch, block_size=8), batch["inputs_segmentation"]
    row, query, key = torch.meshgrid(*map(torch.arange, (8, LENGTH, LENGTH)), indexing="ij")
    found = mask.mask_mod(row, torch.zeros_like(row), query, key).numpy()
    same = (segments[:, :, None] == segments[:, None, :]) & (segments[:, :, None] > 0)
    assert np.array_equal(found, same & np.tri(LENGTH, dtype=bool))
    blocks = found.reshape(8, 3, 8, 3, 8).any(axis=(2, 4))
    assert np.array_equal(mask.to_dense()[:, 0].numpy() > 0, blocks)
    with pytest.raises(ConfigError, match="a block mask is made of inputs_segmentation, and this batch has inputs"):
        penstock.block_mask({"inputs": batch["inputs"]})


# What is refused.


def test_a_layout_that_cannot_be_is_refused_with_the_next_step(load):
    with pytest.raises(ConfigError, match=r"there is no layout 'trainer'(.|\n)*'transformers', 'trl', 'torchtitan'"):
        load().to_torch(layout="trainer")
    with pytest.raises(ConfigError, match=r"needs the documents of a batch(.|\n)*documents='varlen'"):
        load(documents=None).to_torch(layout="olmo")
    with pytest.raises(ConfigError, match="a layout has the types of its trainer"):
        load().to_torch(layout="olmo", int64=["targets"])
    with pytest.raises(ConfigError, match="this batch lacks seq_idx"):
        next(load().map(without_numbers).to_torch(layout="olmo"))


def without_numbers(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in batch.items() if name != "seq_idx"}


def test_a_state_of_one_layout_goes_on_in_another(load):
    batches = load().to_torch(layout="megatron")
    kept = [next(batches) for _ in range(3)]
    other = load().to_torch(layout="megatron")
    next(other)
    other.load_state_dict(load().to_torch(layout="trl").state_dict() | {"step": 2})
    assert torch.equal(next(other)["tokens"], kept[2]["tokens"])


def test_jax_gives_the_arrays_of_a_rank_and_refuses_global_ones(load):
    import jax

    found = next(load().to_jax())
    assert all(np.array_equal(found[name], array) for name, array in load().batch(0).items())
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with pytest.raises(ConfigError, match="cu_seqlens counts the tokens of one rank"):
        load().to_jax(sharding)


def test_grain_gives_the_very_batches(load):
    found = load().to_grain()[3]
    assert all(np.array_equal(found[name], array) for name, array in load().batch(3).items())
