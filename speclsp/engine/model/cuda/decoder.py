"""A decoder on a GPU: passes of a few fixed widths over a flat KV cache, each one a CUDA graph.

    header  start │ slot │ token token token …        one small copy to the device says all that a pass depends on
    pass    embed ─► [ add_norm ─ qkv ─ rope_write ─ attend ─ out ─ add_norm ─ up ─ silu_mul ─ down ] x layers ─► logits

Positions, masks, RoPE rows and the place in the KV cache all follow from `start`, on the device. So a graph serves
every length, and to rewind is to write a smaller number. What a pass leaves beyond its own tokens (padding, rejected
guesses) is overwritten by the next one before anything can see it.

A target's passes have one width, whatever they verify, and a plain step is a verification of nothing: a row comes from
the same kernels in the same shapes either way, which is what makes greedy speculative decoding equal to plain decoding
bit for bit, given the same cached prompt. Prefill has wider passes of its own, cut into groups of layers where a whole
one would hold up a cancellation.

What is not captured runs eagerly, by the same functions; on a CPU everything does, and that is how they are tested.
Shapes: T new tokens, M rows of a pass; the rest as in ops.py.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from speclsp.engine.model.cuda.ops import CAPACITY_STEP, Ops, ops_for
from speclsp.engine.model.decoder import Layer, Linear, ModelShape, Norm, activate
from speclsp.engine.model.kv_cache import SLOTS, CachedModel, Cancelled
from speclsp.errors import OutOfMemory
from speclsp.weights import cards
from speclsp.weights.cards import Card

TARGET_WIDTHS = (16,)  # rows of every target pass; a verification of more takes several
NF4_TARGET_WIDTHS = (8,)  # bitsandbytes multiplies so many rows without unpacking the weights (ENGINE.md B 2a)
DRAFT_WIDTHS = (1, 2, 4)  # a step, the first step of a round, and what a plain round leaves to catch up with
PREFILL_WIDTHS = (64, 256)
GROUP_MS = 4.0  # longest group of layers in prefill; two may be under way when a cancellation comes
CAPTURE_AT = 3  # a pass is captured when it is used for the third time, unless warming up has done it
LETTERS = 4  # small copies to the device that may be under way

Work = Callable[[], None]
log = logging.getLogger("speclsp.engine.cuda")


class CudaGraphs:
    """What can be captured, by key: replayed where it has been, run where it has not.

    Args:
        recorder: makes what makes a replay of some work; None where nothing can be captured.
    """

    def __init__(self, recorder: Callable[[], Callable[[Work], Work]] | None = None) -> None:
        self.recorder = recorder
        self.record = recorder() if recorder else None
        self.replays: dict[Hashable, Work] = {}
        self.wanted: dict[Hashable, Work] = {}  # asked for, and neither captured nor refused
        self.uses: Counter[Hashable] = Counter()

    def run(self, key: Hashable, work: Work) -> None:
        """Do `work`, which reads and writes the same memory every time."""
        if key in self.replays:
            self.replays[key]()
        else:
            work()
            self.wish(key, work)

    def wish(self, key: Hashable, work: Work) -> None:
        """Count a use of what is not captured; the one numbered CAPTURE_AT captures it."""
        self.wanted[key] = work
        self.uses[key] += 1
        if self.uses[key] == CAPTURE_AT:
            self.capture(key)

    def capture_wanted(self) -> None:
        """Capture all that was asked for so far."""
        for key in list(self.wanted):
            self.capture(key)

    def capture(self, key: Hashable) -> None:
        """Record work whose kernels have all run before. Where the device refuses, it goes on running eagerly."""
        work = self.wanted.pop(key, None)
        if self.record is None or work is None:
            return
        try:
            with torch.inference_mode():
                self.replays[key] = self.record(work)
        except RuntimeError as error:
            log.warning("%s is not captured and stays slower: %s", key, str(error).splitlines()[0])

    def forget(self) -> None:
        """Drop what was captured: it reads and writes memory that is given back."""
        for known in (self.replays, self.wanted, self.uses):
            known.clear()
        if self.record is not None and self.recorder is not None:
            self.record = self.recorder()  # in a memory pool of its own: that of the dropped ones goes with them


def graphs_for(device: str) -> CudaGraphs:
    """CUDA graphs that share one memory pool: no two run at once, and none leaves anything in it."""

    def recorder() -> Callable[[Work], Work]:
        with on(device):
            pool = torch.cuda.graph_pool_handle()

        def record(work: Work) -> Work:
            graph = torch.cuda.CUDAGraph()
            with on(device), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                work()
            return graph.replay

        return record

    return CudaGraphs(recorder if device.startswith("cuda") else None)


def on(device: str) -> AbstractContextManager[Any]:
    """Where kernels go that do not ask their arguments: the current device is each thread's own."""
    return torch.cuda.device(device) if device.startswith("cuda") else nullcontext()


class Uplink:
    """Small letters of integers to a fixed place on the device, without waiting for the one before.

    They are copied from pinned memory, each from another part of it, so that none is overwritten on its way.
    """

    def __init__(self, place: Tensor) -> None:
        self.place = place
        self.outbox = torch.zeros((LETTERS, *place.shape), dtype=place.dtype, pin_memory=place.is_cuda)
        self.sent: list[Any] = [None] * LETTERS  # events
        self.turn = 0

    def send(self, letter: Sequence[int]) -> None:
        """Put `letter` at the start of the place."""
        turn, self.turn = self.turn, (self.turn + 1) % LETTERS
        if self.sent[turn] is not None:
            self.sent[turn].synchronize()
        written = self.outbox[turn, : len(letter)]
        written.copy_(torch.tensor(letter))
        self.place[: len(letter)].copy_(written, non_blocking=True)
        self.sent[turn] = event_now(self.place)


def event_now(place: Tensor) -> Any:
    """An event after all that has been handed to the device so far; None on a CPU, where nothing is left to do."""
    if not place.is_cuda:
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(place.device))
    return event


class CudaDecoder(CachedModel):
    """A causal LM and the tokens its KV cache holds, with the face of decoder.Decoder.

    Args:
        context_tokens: the most tokens a slot can hold.
        widths: rows that a pass with logits may have, ascending; one for a target.
        device: "cpu" runs the same functions eagerly.
    """

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
        self.ops, self.graphs = ops or ops_for(device), graphs_for(device)
        self.groups = [(0, len(self.layers))]  # of layers, in a prefill pass
        self.scale = shape.attention_scale or shape.head_dim**-0.5
        capacity = capacity_for(context_tokens)
        kv = (len(self.layers), slots, shape.kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(kv, dtype=dtype, device=device)
        self.values = torch.zeros(kv, dtype=dtype, device=device)
        angle = torch.outer(torch.arange(capacity, dtype=torch.float32), shape.inv_freq.float().cpu())
        angle = torch.cat([angle, angle], dim=1)  # [L, D_rotary]
        self.cos, self.sin = ((f * shape.rope_scale).to(device) for f in (angle.cos(), angle.sin()))
        self.header = torch.zeros(2 + PREFILL_WIDTHS[-1], dtype=torch.int64, device=device)
        self.start, self.current, self.tokens = self.header[:1], self.header[1:2], self.header[2:]
        self.uplink = Uplink(self.header)
        self.logits = torch.empty((self.widths[-1], shape.vocab), dtype=torch.float32, device=device)
        self.x = torch.empty((PREFILL_WIDTHS[-1], shape.hidden), dtype=dtype, device=device)  # between groups
        self.under_way: Any = None  # an event: the newest group of layers

    # ── what slots.py, generate.py and draft.py use ──────────────────────────────────────────────────────────

    @torch.inference_mode()
    def forward(self, new: Sequence[int]) -> Tensor:
        """Append `new`; their logits, [T, vocab], float32."""
        most = self.widths[-1]
        with on(self.device):
            parts = [self._forward(new[at : at + most]) for at in range(0, len(new), most)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

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
                self.graphs.run((id(self), "extend", width, first, last), partial(self._extend, width, first, last))
            before, self.under_way = self.under_way, event_now(self.header)
            if before is not None:  # what has been handed over cannot be cancelled: one group, and the one that follows
                before.synchronize()
        self.ids.extend(new)

    @torch.inference_mode()
    def copy(self, source: int, target: int, tokens: int) -> None:
        self.keys[:, target, :, :tokens] = self.keys[:, source, :, :tokens]
        self.values[:, target, :, :tokens] = self.values[:, source, :, :tokens]

    @torch.no_grad()
    def keep_slots(self, slots: int) -> None:
        layers, had, *rest = self.keys.shape
        grown = {}
        if slots > had:  # taken first: where there is no room after all, nothing has changed
            grown = {name: self.keys.new_zeros((layers, slots, *rest)) for name in ("keys", "values")}
        super().keep_slots(slots)
        in_use = sorted(self._order)
        old = [slot for slot in in_use if slot < had]
        for name in ("keys", "values"):
            kept = getattr(self, name)[:, old].cpu()  # by way of the host: there is little room on the device
            setattr(self, name, kept[:, :0].to(self.device))
            if self.header.is_cuda:
                torch.cuda.empty_cache()  # or the smaller buffer is cut from the larger one and keeps it
            fresh = (
                grown.pop(name) if grown else torch.zeros((layers, slots, *rest), dtype=self.dtype, device=self.device)
            )
            fresh[:, [in_use.index(slot) for slot in old]] = kept.to(self.device)
            setattr(self, name, fresh)
        number = {slot: at for at, slot in enumerate(in_use)}
        self.held = [self.held[slot] for slot in in_use]
        self.slot = number.get(self.slot, number[self._order[-1]])
        seats = {number[slot]: seat for slot, seat in self.seats.items()}
        self.seats.clear()
        self.seats.update(seats)
        self._order = [number[slot] for slot in self._order]
        self.graphs.forget()

    @torch.no_grad()
    def keep_context(self, tokens: int) -> None:
        layers, slots, heads, had, width = self.keys.shape
        shape = (layers, slots, heads, capacity_for(tokens), width)
        grown = {}
        if shape[3] > had:  # taken first: where there is no room after all, nothing has changed
            grown = {name: self.keys.new_zeros(shape) for name in ("keys", "values")}
        super().keep_context(tokens)
        for name in ("keys", "values"):
            setattr(self, name, None)  # or both are there at once
            setattr(self, name, grown.pop(name) if grown else self.x.new_zeros(shape))
        self.graphs.forget()

    @property
    def kv_mib(self) -> float:
        """What the KV cache takes, in MiB."""
        return 2 * self.keys.numel() * self.keys.element_size() / 2**20

    def divide(self, pass_ms: float, most_ms: float = GROUP_MS) -> None:
        """Cut the widest prefill pass, which takes `pass_ms`, into groups of layers that take at most `most_ms`."""
        layers = len(self.layers)
        size = max(1, min(layers, int(layers * most_ms / max(pass_ms, 1e-6))))
        self.groups = [(first, min(first + size, layers)) for first in range(0, layers, size)]

    # ── passes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, new: Sequence[int], widths: Sequence[int]) -> int:
        """Write the header for a pass over `new`; its width, the first of `widths` that holds them."""
        start, t = len(self.ids), len(new)
        if start + t > self.context_tokens:
            raise ValueError(f"{start + t} tokens do not fit a KV cache of {self.context_tokens}")
        width = next(width for width in widths if width >= t)
        self.uplink.send([start, self.slot, *new, *[0] * (width - t)])
        return width

    def _forward(self, new: Sequence[int]) -> Tensor:
        width = self._send(new, self.widths)
        self.graphs.run((id(self), "forward", width), partial(self._step, width))
        self.ids.extend(new)
        return self.logits[: len(new)].clone()

    def _step(self, width: int) -> None:
        self.logits[:width] = self.logits_of(self.tokens[:width], self.start, self.current)

    def _extend(self, width: int, first: int, last: int) -> None:
        x = self.x[:width] if first else self._embedded(self.tokens[:width])
        x, delta = self._through(x, first, last, self.start, self.current)
        if last < len(self.layers):
            self.x[:width] = x + delta

    def logits_of(self, tokens: Tensor, start: Tensor, slot: Tensor, last_only: bool = False) -> Tensor:
        """A pass over `tokens` [M] at `start` of `slot`, all on the device: [M, vocab] or the last row's, float32."""
        x, delta = self._through(self._embedded(tokens), 0, len(self.layers), start, slot)
        if last_only:
            x, delta = x[-1:], delta[-1:]
        logits = self.head(self._add_norm(x, delta, self.norm)[1])[:, : self.shape.vocab].float()
        return logits if self.shape.logits_scale == 1.0 else logits * self.shape.logits_scale

    def _embedded(self, tokens: Tensor) -> Tensor:
        x = self.embedding[tokens].to(self.dtype)
        return x if self.shape.embed_scale == 1.0 else x * self.shape.embed_scale

    def _through(self, x: Tensor, first: int, last: int, start: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Layers `first` to `last`: the residual stream [M, hidden], and what is still to be added to it."""
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


# ── what fits ────────────────────────────────────────────────────────────────────────────────────────────────

CARD_CONTEXT_TOKENS = 2048  # what a card's memory_mib counts the KV cache for, in one slot
LEAST_CONTEXT_TOKENS = 1024  # a shorter context costs more than a model without a draft
GRAPHS_MIB = 256  # captured graphs, and the attention's parts
DRAFT_BYTES = {"bf16": 2.0, "fp32": 4.0}  # a parameter; in nf4 about 1, as embedding and head keep 16 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How a pair is put on a device, and what it takes there."""

    number_format: str  # of the target
    context_tokens: int
    slots: int
    draft: bool
    need_mib: int = 0


def fit(
    card: Card,
    number_formats: Sequence[str],
    context_tokens: int,
    kv_bytes: int,
    draft_kv_bytes: int,
    free_mib: int,
    device: str,
) -> MemoryPlan:
    """The first plan that fits: fewer slots, then a shorter context, then no draft, then the next number format.

    Args:
        number_formats: the target's, best first.
        kv_bytes: of one token in the target's KV cache.
        draft_kv_bytes: the same of the draft; 0 when there is none.

    Raises:
        OutOfMemory: not even the last; names a pair that fits.
    """
    plans = list(ladder(card, number_formats, context_tokens, kv_bytes, draft_kv_bytes))
    found = next((plan for plan in plans if plan.need_mib <= free_mib), None)
    if found is None:
        need_mib = min(plan.need_mib for plan in plans)
        raise OutOfMemory(card.name, need_mib, free_mib, device, smaller_card(card, free_mib))
    if found != plans[0]:
        log.warning("%s does not fit %d MiB as wanted (%d MiB); %s", card.name, free_mib, plans[0].need_mib, found)
    return found


def ladder(
    card: Card, number_formats: Sequence[str], context_tokens: int, kv_bytes: int, draft_kv_bytes: int
) -> Iterator[MemoryPlan]:
    """All plans for a pair, best first."""
    contexts = [context_tokens]
    while contexts[-1] // 2 >= LEAST_CONTEXT_TOKENS:
        contexts.append(contexts[-1] // 2)
    draft_bytes = DRAFT_BYTES.get(card.draft_quantization, 1.0)
    draft_mib = card.draft.parameters * draft_bytes / 2**20 if card.draft else 0.0
    for number_format in number_formats:
        for draft in (True, False) if draft_kv_bytes else (False,):
            for context in contexts:
                for slots in (SLOTS, 1) if context == context_tokens else (1,):
                    counted = CARD_CONTEXT_TOKENS * (kv_bytes + (draft_kv_bytes or 0))
                    kv = slots * capacity_for(context) * (kv_bytes + (draft_kv_bytes if draft else 0))
                    need = card.memory_mib.get(number_format, 0) + (kv - counted) / 2**20 + GRAPHS_MIB
                    yield MemoryPlan(
                        number_format=number_format,
                        context_tokens=context,
                        slots=slots,
                        draft=draft,
                        need_mib=math.ceil(need - (0.0 if draft else draft_mib)),
                    )


def smaller_card(card: Card, free_mib: int) -> str:
    """The largest pair below `card` that fits in one of its number formats."""
    for name in reversed(cards.names()):
        other = cards.load(name)
        fits = any(0 < mib + GRAPHS_MIB <= free_mib for mib in other.memory_mib.values())
        if fits and 0 < other.target.parameters < card.target.parameters:
            return name
    return cards.WITHOUT_GPU


def capacity_for(context_tokens: int) -> int:
    """Entries of a slot: the context, and what the padding of the widest pass writes beyond it."""
    return -(-(context_tokens + PREFILL_WIDTHS[-1]) // CAPACITY_STEP) * CAPACITY_STEP
