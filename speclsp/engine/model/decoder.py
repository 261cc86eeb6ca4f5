"""A decoder's forward pass over a flat KV cache, in which no row's result depends on its neighbours.

    ids ─► embed ─► [ norm ─ qkv ─ rope ─ attend ─ o ─ norm ─ mlp ] x layers ─► norm ─► head ─► logits

Speculative decoding is lossless only if position n gets the same logits in a pass of one row as in a pass of eight.
Floating point does not guarantee that: a sum depends on how a kernel splits it. Three rules guarantee it here:

  - attention runs in slices of exactly ROWS queries against key blocks of exactly BLOCK keys; a sum over blocks is
    taken block by block, so that masked blocks add exact zeros;
  - linears either do not depend on the row count (int8: integer sums) or run in slices of exactly ROWS rows;
  - SiLU and GELU run on whole rows whose length is a multiple of the vector width, never split between threads.

Then a token's logits are a function of the tokens before it only: not of the pass they came in, of cached tokens, or
of a draft. Rows that pad a slice are computed and dropped.

Shapes: the batch is always one sequence and has no dimension here. T new tokens, H query heads, J key-value heads,
G = H/J, D the head's width, B blocks of keys. KV per layer is [blocks, J, BLOCK, D], twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.kv_cache import MAX_SLOTS, SLOTS, CachedModel
from speclsp.engine.model.model_shape import PREFILL_TOKENS, ROWS, ModelShape

BLOCK = 128  # keys in a block

Linear = Callable[[Tensor], Tensor]  # [T, in] -> [T, out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A norm's weights; RMSNorm has no bias."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer's weights. `qkv` is q, k and v in one linear; `up` is gate and up in one when gated."""

    norm_attention: Norm
    qkv: Linear
    out: Linear
    norm_mlp: Norm
    up: Linear
    down: Linear
    norm_q: Norm | None = None  # Qwen3: per head, before RoPE
    norm_k: Norm | None = None


class Decoder(CachedModel):
    """A causal LM and the tokens its KV cache holds; `ids` and the cache never disagree.

    Args:
        context_tokens: the most tokens the cache can hold.
        slots: texts kept; a slot's memory is allocated on first use.
    """

    def __init__(
        self,
        shape: ModelShape,
        layers: Sequence[Layer],
        embedding: Tensor,  # [vocab or more, hidden]
        norm: Norm,
        head: Linear,
        *,
        context_tokens: int,
        dtype: torch.dtype = torch.float32,
        slots: int = SLOTS,
    ) -> None:
        super().__init__(context_tokens, PREFILL_TOKENS, slots, MAX_SLOTS)
        self.shape, self.layers, self.embedding, self.norm, self.head = shape, list(layers), embedding, norm, head
        self.dtype = dtype
        blocks = blocks_for(context_tokens)
        self.kv_shape = (len(self.layers), blocks, shape.kv_heads, BLOCK, shape.head_dim)
        self._kv: dict[int, tuple[Tensor, Tensor]] = {}  # by slot: keys and values
        angle = torch.outer(torch.arange(blocks * BLOCK, dtype=torch.float32), torch.from_numpy(shape.inv_freq))
        angle = torch.cat([angle, angle], dim=1)  # [positions, D]
        self.cos = angle.cos().to(dtype)
        self.sin = angle.sin().to(dtype)
        self.scale = shape.attention_scale or shape.head_dim**-0.5

    # ── interface for generate.py and drafters.py ────────────────────────────────────────────────────────────

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        self._hidden(new)

    @torch.inference_mode()
    def copy(self, source: int, target: int, tokens: int) -> None:
        blocks = -(-tokens // BLOCK)
        for from_, to in zip(self.kv(source), self.kv(target), strict=True):
            to[:, :blocks] = from_[:, :blocks]

    def kv(self, slot: int) -> tuple[Tensor, Tensor]:
        """A slot's keys and values, each [layers, blocks, J, BLOCK, D]."""
        if slot not in self._kv:
            keys, values = (torch.zeros(self.kv_shape, dtype=self.dtype) for _ in range(2))
            self._kv[slot] = keys, values
        return self._kv[slot]

    def free_slot(self, slot: int) -> None:
        self._kv.pop(slot, None)

    @torch.inference_mode()
    def forward(self, new: Sequence[int]) -> Floats:
        """Append `new`; their logits, [T, vocab]."""
        logits: Floats = self._logits(self._hidden(new))[: len(new)].numpy()
        return logits

    # ── the forward ──────────────────────────────────────────────────────────────────────────────────────────

    @torch.inference_mode()
    def _hidden(self, new: Sequence[int]) -> Tensor:
        """Append `new`; their last hidden states, normed, padded to a multiple of ROWS: [>= T, hidden]."""
        shape, start, t = self.shape, len(self.ids), len(new)
        if start + t > self.context_tokens:
            raise ValueError(f"{start + t} tokens do not fit a KV cache of {self.context_tokens}")
        pad = -t % ROWS
        tokens = torch.tensor([*new, *[0] * pad])
        x = self.embedding[tokens].to(self.dtype)  # [T+pad, hidden]
        if shape.embed_scale != 1.0:
            x = x * shape.embed_scale
        cos, sin = self.cos[start : start + t + pad, None], self.sin[start : start + t + pad, None]  # [T+pad, 1, D]
        position = torch.arange(start, start + t)
        slot = (position // BLOCK, position % BLOCK)
        masks = [self._mask(start + row) for row in range(0, t + pad, ROWS)]
        for keys, values, layer in zip(*self.kv(self.slot), self.layers, strict=True):
            q, k, v = self._qkv(layer, self._normed(x, layer.norm_attention), cos, sin)
            keys[slot[0], :, slot[1]] = k[:t]
            values[slot[0], :, slot[1]] = v[:t]
            slices = [
                attend(q[i * ROWS : (i + 1) * ROWS], keys[:blocks], values[:blocks], mask, self.scale)
                for i, (blocks, mask) in enumerate(masks)
            ]
            x = x + layer.out(slices[0] if len(slices) == 1 else torch.cat(slices)) * shape.residual_scale
            x = x + self._mlp(layer, self._normed(x, layer.norm_mlp)) * shape.residual_scale
        self.ids.extend(new)
        return self._normed(x, self.norm)

    def _logits(self, hidden: Tensor) -> Tensor:
        """[T, hidden] -> [T, vocab] float32."""
        logits = self.head(hidden)[:, : self.shape.vocab].float()
        return logits if self.shape.logits_scale == 1.0 else logits * self.shape.logits_scale

    def _qkv(self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[T, hidden] -> q [T, H, D], k [T, J, D], v [T, J, D], q and k rotated."""
        shape = self.shape
        qkv = layer.qkv(x).view(x.shape[0], shape.heads + 2 * shape.kv_heads, shape.head_dim)
        q, k, v = torch.split(qkv, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        if layer.norm_q is not None and layer.norm_k is not None:
            q, k = self._normed(q, layer.norm_q), self._normed(k, layer.norm_k)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        up = layer.up(x)
        if not self.shape.gated:
            return layer.down(activate(up, self.shape.activation))
        gate, up = up.chunk(2, dim=-1)
        return layer.down(activate(gate, self.shape.activation) * up)

    def _normed(self, x: Tensor, norm: Norm) -> Tensor:
        if self.shape.layer_norm:
            return F.layer_norm(x, (x.shape[-1],), norm.weight, norm.bias, self.shape.eps)
        return F.rms_norm(x, (x.shape[-1],), norm.weight, self.shape.eps)

    def _mask(self, first: int) -> tuple[int, Tensor]:
        """For ROWS queries from position `first` on: (key blocks needed, mask [ROWS, BLOCK * blocks] of 0/-inf)."""
        blocks = min(-(-(first + ROWS) // BLOCK), self.kv_shape[1])
        key = torch.arange(blocks * BLOCK)
        query = torch.arange(first, first + ROWS)
        hidden = key[None, :] > query[:, None]
        return blocks, torch.zeros(hidden.shape, dtype=self.dtype).masked_fill_(hidden, -torch.inf)


def blocks_for(context_tokens: int) -> int:
    """Blocks of a slot: the context, and the padding of the last slice."""
    return -(-(context_tokens + ROWS) // BLOCK)


def attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Grouped-query attention of one slice: [R, H, D] over B blocks [B, J, BLOCK, D] -> [R, H * D].

    Every matrix product has a shape that does not depend on how many keys there are ([G*R, D] x [D, BLOCK] and
    [G*R, BLOCK] x [BLOCK, D]), and the blocks are added up first to last.
    """
    rows, heads, width = q.shape
    blocks, kv_heads = keys.shape[:2]
    group = heads // kv_heads
    q = (q * scale).view(rows, kv_heads, group, width).permute(1, 2, 0, 3).reshape(1, kv_heads, group * rows, width)
    q = q.expand(blocks, -1, -1, -1).reshape(blocks * kv_heads, group * rows, width)
    scores = torch.bmm(q, keys.reshape(blocks * kv_heads, BLOCK, width).transpose(1, 2))  # [B*J, G*R, BLOCK]
    scores = scores.view(blocks, kv_heads, group, rows, BLOCK).permute(1, 2, 3, 0, 4)
    scores = scores.reshape(kv_heads, group, rows, blocks * BLOCK) + mask
    p = scores.softmax(dim=-1).view(kv_heads, group * rows, blocks, BLOCK)
    p = p.permute(2, 0, 1, 3).reshape(blocks * kv_heads, group * rows, BLOCK)
    parts = torch.bmm(p, values.reshape(blocks * kv_heads, BLOCK, width)).view(blocks, kv_heads, group, rows, width)
    out = parts[0]
    for part in parts[1:]:
        out = out + part
    return out.permute(2, 0, 1, 3).reshape(rows, heads * width)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of [T, heads, D] (RoFormer, arXiv 2104.09864; halves rotated, as in Llama)."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


SINGLE_THREAD_ELEMENTS = 32768  # torch gives an elementwise op on fewer elements to one thread


def activate(x: Tensor, name: str) -> Tensor:
    """The activation, in pieces of few rows: see the module's third rule."""
    act = ACTIVATIONS[name]
    step = max(1, SINGLE_THREAD_ELEMENTS // x.shape[-1])
    if x.device.type != "cpu" or x.shape[0] <= step:
        return act(x)
    return torch.cat([act(rows) for rows in torch.split(x, step)])


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
