"""A draft head: one layer that guesses a model's next tokens from its hidden states (EAGLE-3, arXiv 2503.01840).

    entry n    [embedding of token n; W * hidden states of position n-1 after three layers] ─► layer ─► state
    guess      head's state ─► logits of token n+1 over a vocabulary of common tokens and the prompt's own
    then       [embedding of the guess; the head's own state] ─► the same layer, as often as guesses are wanted

Guesses are a chain, not a tree. The keys and values of entry n depend on the tokens up to n, as the model's own do. So
they are one more layer of the model's cache, and what copies, archives or evicts a text does so with its entries.
The states of the last passes are kept, so that a round computes its entries together with its first guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_int32
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speclsp.engine.model.bfloat16 import Array, Floats
from speclsp.engine.model.int8.native import (
    DOWN,
    LAST,
    NORM_ATTENTION,
    NORM_MLP,
    OUT,
    PASS_ROWS,
    QKV,
    UP,
    NativeDecoder,
    address,
)
from speclsp.engine.model.model_shape import ModelShape
from speclsp.engine.model.superblocks import WeightMatrix

LAYER, INPUT = 0, 1  # "layers" of the head in forward.c: its own, and the products of its input
LINEARS = {"fuse": (INPUT, QKV), "input": (INPUT, OUT), "qkv": (LAYER, QKV), "out": (LAYER, OUT)} | {
    "up": (LAYER, UP),
    "down": (LAYER, DOWN),
}
NORMS = {
    "norm_embedding": (INPUT, NORM_ATTENTION),
    "norm_state": (INPUT, NORM_MLP),
    "norm_attention": (LAYER, NORM_ATTENTION),
    "norm_mlp": (LAYER, NORM_MLP),
    "norm_last": (LAST, 0),
}
STATES = 3  # of a position
STEP_ROWS = 64  # of the head; its input is three times as wide as a row of the model
KEPT_ROWS = 64  # states of a slot that wait for the next guess


def linear_sizes(shape: ModelShape, inner: int) -> dict[str, tuple[int, int]]:
    """[out, in] of each of LINEARS, for a target of that shape; `inner`: the width of the head's own MLP."""
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "fuse": (hidden, STATES * hidden), "input": (hidden, 2 * hidden), "qkv": (queries + 2 * keys, hidden),
        "out": (hidden, queries), "up": (2 * inner, hidden), "down": (hidden, inner),
    }  # fmt: skip


class HiddenStates:
    """The states of the last pass after three layers. The decoder writes them until its reader is detached."""

    def __init__(self, decoder: NativeDecoder, layers: tuple[int, int, int]) -> None:
        self.rows = np.zeros((PASS_ROWS, STATES * decoder.shape.hidden), np.float32)  # by the row of the pass
        decoder.keep_states(self.rows, layers)


class HeadWeights(NamedTuple):
    """A head's tensors: LINEARS [out, in], "qkv_bias" and NORMS, in floats."""

    tensors: Mapping[str, Array]
    layers: tuple[int, int, int]  # of the model: a state is taken after that many
    vocabulary: NDArray[np.int64]  # [V] ids, a multiple of 32

    @property
    def inner(self) -> int:
        """The width of its MLP."""
        return int(self.tensors["down"].shape[1])


class DraftHead:
    """The head of `target`, with the states and entries of each slot: a StateReader and a drafters.StateHead.

    Raises MemoryError.
    """

    def __init__(self, target: NativeDecoder, weights: HeadWeights) -> None:
        self.target, self.width, self.vocab = target, STATES * target.shape.hidden, target.shape.vocab
        self.common, self.known = weights.vocabulary, frozenset(weights.vocabulary.tolist())
        self.model = NativeDecoder(
            target.shape, 2, weights.inner, None, context_tokens=target.context_tokens,
            threads=target.threads, path=target.path,
        )  # fmt: skip
        self.model.share_embedding(target)
        for name, (layer, which) in LINEARS.items():
            bias = weights.tensors.get(f"{name}_bias")
            self.model.set_linear(layer, which, WeightMatrix(weights.tensors[name]), bias)
        for name, (layer, which) in NORMS.items():
            self.model.set_norm(layer, which, weights.tensors[name])
        self.model.set_linear(LAST, 0, WeightMatrix(self.rows_of(self.common)), None)
        self.filled: dict[int, int] = {}  # entries by slot
        self.kept: dict[int, tuple[int, Floats]] = {}  # by slot: the first position, and states from there to the end
        self.result = np.zeros((2, target.shape.hidden), np.float32)
        self.logits = np.zeros(len(self.common), np.float32)
        self.end = 0  # position after the last guess
        self.layers = weights.layers
        self.open()

    def open(self) -> None:
        """Attach it to its model, in place of another reader; the model's cache is emptied."""
        self.target.attach(self)
        self.filled, self.kept = {}, {}
        self.states = HiddenStates(self.target, self.layers)

    def rows_of(self, tokens: NDArray[np.int64]) -> Floats:
        """The embeddings of tokens, [T, hidden]; the model's head has the same."""
        return self.target.embedding_rows(tokens.tolist())

    def vocabulary(self, ids: Sequence[int]) -> tuple[NDArray[np.int64], Floats]:
        added = np.array(sorted(set(ids) - self.known), np.int64)
        return np.concatenate([self.common, added]), self.rows_of(added)

    # ── states and entries ───────────────────────────────────────────────────────────────────────────────────────

    def lacks(self, start: int) -> bool:
        slot = self.target.slot
        return start > 0 and (slot not in self.kept or self.kept[slot][0] >= start)

    def passed(self, rows: int, again: int) -> None:
        slot, new = self.target.slot, self.states.rows[:rows]
        start = len(self.target.ids) - rows
        first, kept = self.kept.get(slot, (start, new[:0]))
        if start == 0:
            first, kept = -1, np.zeros((1, self.width), np.float32)
        elif first > start:
            first, kept = start, new[:0]
        self.filled[slot] = min(self.filled.get(slot, 0), start + again)
        self.kept[slot] = first, np.concatenate([kept[: start - first], new])
        if len(self.kept[slot][1]) > KEPT_ROWS:
            self.fill(slot)

    def restored(self, slot: int, tokens: int) -> None:
        self.filled[slot] = tokens
        self.kept.pop(slot, None)

    def fill(self, slot: int) -> None:
        ids = self.target.slot_ids[slot]
        if slot in self.kept and ids:
            self.enter(slot, ids, guess=False)
            first, kept = self.kept[slot]
            self.kept[slot] = len(ids) - 1, kept[len(ids) - 1 - first :][:1].copy()

    def enter(self, slot: int, ids: Sequence[int], guess: bool) -> None:
        """Compute the entries up to the end of `ids`; with `guess`, the logits after them."""
        first, kept = self.kept[slot]
        at = min(self.filled[slot], len(ids) - guess)
        while at < len(ids):
            part = ids[at : at + STEP_ROWS]
            self.run(slot, part, kept[at - 1 - first :], False, at, guess and at + len(part) == len(ids))
            at += len(part)
        self.filled[slot] = len(ids)

    def run(self, slot: int, ids: Sequence[int], states: Floats, own: bool, start: int, wanted: bool) -> None:
        """One call of forward.c."""
        model, target = self.model, self.target
        target.load_embeddings(ids)
        keys, values = (part[-1] for part in target.kv(slot))
        result, logits = (address(self.result), address(self.logits)) if wanted else (None, None)
        model._library.speclsp_draft(
            model._model, (c_int32 * len(ids))(*ids), address(states), own, len(ids), start,
            address(keys), address(values), target.positions, result, logits,
        )  # fmt: skip

    # ── guesses ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self, ids: Sequence[int]) -> bool:
        return len(self.target.ids) == len(ids) - 1 and not self.lacks(len(ids) - 1)

    def first(self, ids: Sequence[int], added: Floats) -> Floats:
        self.enter(self.target.slot, ids, guess=True)
        self.end = len(ids)
        return self.all_logits(added)

    def then(self, token: int, added: Floats) -> Floats:
        self.run(self.target.slot, [token], self.result[:1], True, self.end, True)
        self.end += 1
        return self.all_logits(added)

    def all_logits(self, added: Floats) -> Floats:
        """The last guess's logits, [V], in the order of `vocabulary`."""
        # einsum: the threads of a BLAS would spin on the cores that the next pass needs
        return np.concatenate([self.logits, np.einsum("ij,j->i", added, self.result[1])])

    def measure(self, repeats: int = 5) -> float:
        """Milliseconds of a guess."""
        _, added = self.vocabulary([])
        ids, times = list(range(1, 33)), []
        self.target.forward(ids[:-1])
        self.first(ids, added)
        for _ in range(repeats):
            began_s = perf_counter()
            self.then(1, added)
            times.append((perf_counter() - began_s) * 1e3)
        return sorted(times)[repeats // 2]
