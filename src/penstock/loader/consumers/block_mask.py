"""Block mask: a batch of tokens -> the mask with which FlexAttention stays within documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask


def block_mask(batch: Mapping[str, Any], block_size: int = 128) -> BlockMask:
    """The `BlockMask` of a batch of tokens: causal, within documents; padding sees nothing and is not seen.

    It is for queries and keys of shape [rows, heads, length, ...], on the device of the batch.

    Args:
        batch: Batch of a loader, as arrays or as tensors of `to_torch()`; with documents="varlen" or without.
        block_size: Tokens of a block. Default: 128.

    Returns:
        A mask for `torch.nn.attention.flex_attention.flex_attention(..., block_mask=mask)`.
    """
    try:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask
    except ImportError as error:
        raise ConfigError(
            "block_mask needs PyTorch, which is not installed here", next_step="pip install torch"
        ) from error
    if "inputs_segmentation" not in batch:
        raise ConfigError(
            f"a block mask is made of inputs_segmentation, and this batch has {', '.join(batch)}",
            where="penstock.block_mask",
            next_step="give a batch of tokens, before a layout or map() takes inputs_segmentation away",
        )
    segments = torch.as_tensor(batch["inputs_segmentation"])

    def sees(row: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
        own = segments[row, query]
        return (query >= key) & (own == segments[row, key]) & (own != 0)

    rows, length = segments.shape
    return create_block_mask(sees, rows, None, length, length, device=segments.device, BLOCK_SIZE=block_size)
