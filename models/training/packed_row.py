"""Packed sequences: several examples in one row of tokens, without attention from one to another.

    tokens of a row   a a a b b c c c c    positions   0 1 2 0 1 0 1 2 3
    attention         a a a ·  b b · ·  c c c c: a padded batch, causal, for the queries, keys and values alone

Every layer but the attention works on each token for itself, so it gets the row and no padding. The attention gets a
batch of the examples. Its padding is on the right, where causal attention never looks, and is left out afterwards. No
mask is built, so a GPU takes its fast kernel; the examples of a step have similar lengths, so little is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ATTENTION = "speclsp-packed"  # the name that transformers knows it by


@dataclass(frozen=True, slots=True)
class Packing:
    """The places of a row's examples."""

    examples: int
    longest: int  # tokens
    positions: Tensor  # [1, tokens] of each token in its example
    spread: Tensor  # [examples * longest]: the row's token at each place of the batch; padding repeats the first token
    gather: Tensor  # [tokens]: the place in the batch of each of the row's tokens

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> Packing:
        """The packing of examples with these numbers of tokens."""
        longest = max(lengths)
        starts = [sum(lengths[:number]) for number in range(len(lengths))]
        positions = [place for length in lengths for place in range(length)]
        spread = [
            start + place if place < length else 0
            for start, length in zip(starts, lengths, strict=True)
            for place in range(longest)
        ]
        gather = [number * longest + place for number, length in enumerate(lengths) for place in range(length)]
        as_tensors = [torch.tensor(numbers, device=device) for numbers in (positions, spread, gather)]
        return cls(len(lengths), longest, as_tensors[0][None], *as_tensors[1:])

    def apart(self, values: Tensor) -> Tensor:
        """[1, heads, tokens, n] as [examples, heads, longest, n]."""
        _, heads, _, size = values.shape
        batch = values[0].index_select(1, self.spread).view(heads, self.examples, self.longest, size)
        return batch.transpose(0, 1)

    def together(self, values: Tensor) -> Tensor:
        """[examples, longest, heads, n] as [1, tokens, heads, n]."""
        return values.flatten(0, 1).index_select(0, self.gather)[None]


def packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """SDPA of transformers, by the option `packing` for each example by itself. Its signature is theirs."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    packing: Packing | None = options.pop("packing", None)
    if packing is None:
        output, _ = sdpa_attention_forward(module, query, key, value, mask, **options)
        return output, None
    apart = [packing.apart(values) for values in (query, key, value)]
    output, _ = sdpa_attention_forward(module, *apart, None, **options)
    return packing.together(output), None


def enable(model: Any) -> None:
    """Let a decoder of transformers take a `packing`. Without one, it computes what it did with SDPA."""
    from transformers import AttentionInterface

    if model.config._attn_implementation != ATTENTION:
        AttentionInterface.register(ATTENTION, packed_attention)
        model.set_attn_implementation(ATTENTION)
