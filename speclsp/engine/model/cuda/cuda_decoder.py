"""A decoder on a GPU: passes of a few fixed widths over a flat KV cache, each one a CUDA graph.

    header  start │ slot │ token token token …        one small copy to the device holds every input of a pass
    pass    embed ─► [ add_norm ─ qkv ─ rope_write ─ attend ─ out ─ add_norm ─ up ─ silu_mul ─ down ] x layers ─► logits

Positions, masks, RoPE rows and cache positions all follow from `start`, on the device. So a graph serves every length,
and rewinding is writing a smaller number. Entries that a pass writes beyond its own tokens (padding, rejected guesses)
are overwritten by the next pass before any row can read them.

A target's passes have one width, for any number of guesses; a plain step is a verification of none. So a row always
comes from the same kernels in the same shapes. That makes greedy speculative decoding equal to plain decoding, bit for
bit, given the same cached prompt. Prefill has wider passes of its own. A pass that would delay a cancellation is cut
into groups of layers.

A pass that is not captured runs eagerly, by the same functions. On a CPU all passes do; the tests use that.
Shapes: T new tokens, M rows of a pass; the rest as in ops.py.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from speclsp.engine.model.cuda.graphs import OWNERS, graphs_for, on
from speclsp.engine.model.cuda.memory_plan import PREFILL_WIDTHS, capacity_for
from speclsp.engine.model.cuda.ops import TORCH, Ops, choose
from speclsp.engine.model.cuda.uplink import Uplink, event_now
from speclsp.engine.model.decoder import Layer, Linear, Norm, activate
from speclsp.engine.model.draws import Draw
from speclsp.engine.model.kv_cache import SLOTS, CachedModel, Cancelled
from speclsp.engine.model.model_shape import ModelShape

TARGET_WIDTHS = (16,)  # rows of every target pass; verifying more rows takes several passes
NF4_TARGET_WIDTHS = (8,)  # the most rows that bitsandbytes multiplies without unpacking the weights
DRAFT_WIDTHS = (1, 2, 4)  # a step; the first step of a round; the tokens that a plain round leaves to compute
GROUP_MS = 4.0  # longest group of layers in prefill; two may be running when a cancellation comes


class CudaDecoder(CachedModel):
    """A causal LM and the tokens its KV cache holds, with the interface of decoder.Decoder.

    Args:
        context_tokens: the most tokens a slot can hold.
        widths: rows that a pass with logits may have, ascending; one for a target.
        device: "cpu" runs the same functions eagerly.
    """

    first_pass_tokens = 2  # a fused round computes the text's last two: so does a plain one, with the same bits

    def __init__(
        self,
        shape: ModelShape,
        layers: Sequence[Layer],
        embedding: Tensor,
        norm: Norm,
        head: Linear,
        *,
        context_tokens: int,
        widths: Sequence[int] = TARGET_WIDTHS,
        device: str = "cuda",
        dtype: torch.dtype = torch.bfloat16,
        slots: int = SLOTS,
        ops: Ops | None = None,
    ) -> None:
        super().__init__(context_tokens, PREFILL_WIDTHS[-1], slots)
        self.shape, self.layers, self.embedding, self.norm, self.head = shape, list(layers), embedding, norm, head
        self.widths = tuple(widths)
        self.device, self.dtype = device, dtype
        self.graphs = graphs_for(device)
        self.owner = next(OWNERS)  # in the keys of graphs, which a draft shares with its target
        self.groups = [(0, len(self.layers))]  # of layers, in a prefill pass
        self.scale = shape.attention_scale or shape.head_dim**-0.5
        capacity = capacity_for(context_tokens)
        kv = (len(self.layers), slots, shape.kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(kv, dtype=dtype, device=device)
        self.values = torch.zeros(kv, dtype=dtype, device=device)
        angle = torch.outer(torch.arange(capacity, dtype=torch.float32), torch.from_numpy(shape.inv_freq))
        angle = torch.cat([angle, angle], dim=1)  # [L, D_rotary]
        self.cos, self.sin = angle.cos().to(device), angle.sin().to(device)
        self.header = torch.zeros(3 + PREFILL_WIDTHS[-1], dtype=torch.int64, device=device)
        self.start, self.current, self.seed = self.header[:1], self.header[1:2], self.header[2:3]
        self.tokens = self.header[3:]
        self.uplink = Uplink(self.header)
        scaled = shape.logits_scale != 1.0
        self.logits = torch.empty(
            (self.widths[-1], shape.vocab), dtype=torch.float32 if scaled else dtype, device=device
        )
        self.chosen = torch.zeros((2, self.widths[-1]), dtype=torch.int64, device=device)  # tokens, bits of logprobs
        self.on_host = torch.zeros(self.chosen.shape, dtype=torch.int64, pin_memory=self.chosen.is_cuda)
        self.banned: frozenset[int] = frozenset()
        self.bias = torch.zeros(shape.vocab, device=device)  # -inf where banned
        self.x = torch.empty((PREFILL_WIDTHS[-1], shape.hidden), dtype=dtype, device=device)  # between groups
        self.last_group: Any = None  # an event: the end of the newest group of layers
        self.ops = ops or ops_for(device)

    # ── interface for kv_cache.py, generate.py and drafters.py ───────────────────────────────────────────────

    @torch.no_grad()  # not inference mode: constraints write into the logits
    def forward(self, new: Sequence[int]) -> Tensor:
        """Append `new`; their logits, [T, vocab], on the device: the decoder's type, float32 if they are scaled."""
        most = self.widths[-1]
        with on(self.device):
            parts = [self._forward(new[at : at + most]) for at in range(0, len(new), most)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.inference_mode()
    def choose(
        self, new: Sequence[int], wanted: int, draw: Draw | None, banned: Sequence[int]
    ) -> list[tuple[int, float]] | None:
        if len(new) > self.widths[-1]:
            return None
        self.ban(banned)
        mode, seed = (None, 0) if draw is None else (draw._replace(seed=0), draw.seed)
        width = self._send(new, self.widths, seed)
        with on(self.device):
            key = (self.owner, "choose", width, mode, bool(self.banned))
            self.graphs.run(key, partial(self._choose, width, mode))
            self.on_host.copy_(self.chosen, non_blocking=True)
        if (event := event_now(self.chosen)) is not None:
            event.synchronize()
        self.ids.extend(new)
        tokens, bits = self.on_host[:, len(new) - wanted : len(new)]
        return list(zip(tokens.tolist(), bits.int().view(torch.float32).tolist(), strict=True))

    def ban(self, banned: Sequence[int]) -> None:
        """Ban these tokens, and no others, in `bias`."""
        if self.banned != frozenset(banned):
            self.banned = frozenset(banned)
            self.bias.zero_()
            self.bias[list(banned)] = -torch.inf

    @torch.inference_mode()
    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        """Append `new`, at most PREFILL_WIDTHS[-1] tokens, without logits.

        Raises:
            Cancelled: between two groups of layers; the cache holds nothing of `new`.
        """
        width = self._send(new, (*self.widths, *PREFILL_WIDTHS))
        groups = self.groups if width in PREFILL_WIDTHS else [(0, len(self.layers))]
        for first, last in groups:
            if first and cancel is not None and cancel.is_set():
                raise Cancelled
            with on(self.device):
                self.graphs.run((self.owner, "extend", width, first, last), partial(self._extend, width, first, last))
            previous, self.last_group = self.last_group, event_now(self.header)
            if previous is not None:  # submitted work cannot be cancelled: at most one group and the one after it
                previous.synchronize()
        self.ids.extend(new)

    @torch.inference_mode()
    def copy(self, source: int, target: int, tokens: int) -> None:
        self.keys[:, target, :, :tokens] = self.keys[:, source, :, :tokens]
        self.values[:, target, :, :tokens] = self.values[:, source, :, :tokens]

    @torch.inference_mode()
    def free_slot(self, slot: int) -> None:
        """Zero the slot, whose memory stays: attention multiplies what is beyond a text by 0, and NaN would remain."""
        for part in (self.keys, self.values):
            part[:, slot].zero_()

    def split_layers(self, pass_ms: float, most_ms: float = GROUP_MS) -> None:
        """Cut the widest prefill pass, which takes `pass_ms`, into groups of layers that take at most `most_ms`."""
        layers = len(self.layers)
        size = max(1, min(layers, int(layers * most_ms / max(pass_ms, 1e-6))))
        self.groups = [(first, min(first + size, layers)) for first in range(0, layers, size)]

    # ── passes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, new: Sequence[int], widths: Sequence[int], seed: int = 0) -> int:
        """Write the header for a pass over `new`; the pass's width, the first of `widths` that is large enough."""
        start, t = len(self.ids), len(new)
        if start + t > self.context_tokens:
            raise ValueError(f"{start + t} tokens do not fit a KV cache of {self.context_tokens}")
        width = next(width for width in widths if width >= t)
        self.uplink.send([start, self.slot, seed, *new, *[0] * (width - t)])
        return width

    def _forward(self, new: Sequence[int]) -> Tensor:
        width = self._send(new, self.widths)
        self.graphs.run((self.owner, "forward", width), partial(self._step, width))
        self.ids.extend(new)
        return self.logits[: len(new)].clone()

    def _step(self, width: int) -> None:
        self.logits[:width] = self.logits_of(self.tokens[:width], self.start, self.current)

    def _choose(self, width: int, mode: Draw | None) -> None:
        logits = self.logits_of(self.tokens[:width], self.start, self.current)
        positions = self.start + torch.arange(1, width + 1, device=self.device)
        choice, logprob = choose(logits, self.bias if self.banned else None, mode, self.seed, positions)
        self.chosen[0, :width] = choice
        self.chosen[1, :width] = logprob.view(torch.int32)

    def _extend(self, width: int, first: int, last: int) -> None:
        x = self.x[:width] if first else self.embed(self.tokens[:width])
        x, delta = self.run_layers(x, first, last, self.start, self.current)
        if last < len(self.layers):
            self.x[:width] = x + delta

    def logits_of(self, tokens: Tensor, start: Tensor, slot: Tensor, last_only: bool = False) -> Tensor:
        """A pass over `tokens` [M] at `start` of `slot`, all on the device: [M, vocab] or the last row's."""
        x, delta = self.run_layers(self.embed(tokens), 0, len(self.layers), start, slot)
        if last_only:
            x, delta = x[-1:], delta[-1:]
        logits = self.head(self._add_norm(x, delta, self.norm)[1])[:, : self.shape.vocab]
        return logits if self.shape.logits_scale == 1.0 else logits.float() * self.shape.logits_scale

    def embed(self, tokens: Tensor) -> Tensor:
        """The input of the first layer, [M, hidden]."""
        x = self.embedding[tokens].to(self.dtype)
        return x if self.shape.embed_scale == 1.0 else x * self.shape.embed_scale

    def run_layers(self, x: Tensor, first: int, last: int, start: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Layers `first` to `last`: the residual stream [M, hidden], and the term still to be added to it."""
        shape, delta = self.shape, None
        for layer, keys, values in zip(
            self.layers[first:last], self.keys[first:last], self.values[first:last], strict=True
        ):
            x, normed = self._add_norm(x, delta, layer.norm_attention)
            qkv = layer.qkv(normed).view(len(x), shape.heads + 2 * shape.kv_heads, shape.head_dim)
            q, k, v = torch.split(qkv, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
            if layer.norm_q is not None and layer.norm_k is not None:
                q = F.rms_norm(q, (shape.head_dim,), layer.norm_q.weight, shape.eps)
                k = F.rms_norm(k, (shape.head_dim,), layer.norm_k.weight, shape.eps)
            q = self.ops.rope_write(q, k, v, self.cos, self.sin, start, slot, keys, values)
            delta = self._scaled(layer.out(self.ops.attend(q, keys, values, start, slot, self.scale)))
            x, normed = self._add_norm(x, delta, layer.norm_mlp)
            delta = self._scaled(self._mlp(layer, normed))
        assert delta is not None
        return x, delta

    def _add_norm(self, x: Tensor, delta: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
        if not self.shape.layer_norm:
            return self.ops.add_norm(x, delta, norm.weight, self.shape.eps)
        x = x if delta is None else x + delta
        return x, F.layer_norm(x, (x.shape[-1],), norm.weight, norm.bias, self.shape.eps)

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        up = layer.up(x)
        if self.shape.gated and self.shape.activation == "silu":
            return layer.down(self.ops.silu_mul(up))
        if not self.shape.gated:
            return layer.down(activate(up, self.shape.activation))
        gate, up = up.chunk(2, dim=-1)
        return layer.down(activate(gate, self.shape.activation) * up)

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.shape.residual_scale == 1.0 else x * self.shape.residual_scale


def ops_for(device: str) -> Ops:
    """The device's operations. Triton is imported only here, when it is used."""
    if not device.startswith("cuda") or find_spec("triton") is None:
        return TORCH
    from speclsp.engine.model.cuda import kernels

    return kernels.TRITON
