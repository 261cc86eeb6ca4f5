"""A draft head as autograd sees it: the layer of int8/draft_head.py, and its loss over an unrolled chain of guesses.

    entry n    [embedding of token n; W * states of position n-1] ─► layer ─► state ─► logits of token n+1
    step 0     at chosen positions, over the entries of the whole text
    step k     k tokens later: the head's own state of step k-1 in place of the target's

Each step learns the target's distribution over the head's vocabulary at its position (cross-entropy). So the head
learns from its own states, as it guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STATES = 3
FIRST_SCALE = 0.3  # of the logits: those of random states would be as sure as the target's, and all wrong
DISCOUNT = 0.8  # of the loss of each step after the first: its guess is verified less often


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Sizes of a head: its target's, and the width of its own MLP."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    eps: float


@dataclass(frozen=True, slots=True)
class HeadTarget:
    """The parts of the target that a head reads."""

    embedding: Tensor  # [tokens, hidden]
    norm: Tensor  # [hidden], the last one
    inv_freq: Tensor  # [head_dim / 2]
    rope_scale: float
    vocabulary: Tensor  # [V] ids
    teacher: Tensor  # [tokens, hidden], the target's own head; the embedding where they are one matrix


class HeadLayer(nn.Module):
    """The tensors of a head, under the names of its file."""

    def __init__(self, shape: HeadShape, target: HeadTarget, seed: int = 0) -> None:
        super().__init__()
        self.shape, self.target = shape, target
        hidden, queries = shape.hidden, shape.heads * shape.head_dim
        keys = shape.kv_heads * shape.head_dim
        generator = torch.Generator().manual_seed(seed)
        sizes = {
            "fuse": (hidden, STATES * hidden), "input": (hidden, 2 * hidden), "qkv": (queries + 2 * keys, hidden),
            "out": (hidden, queries), "up": (2 * shape.inner, hidden), "down": (hidden, shape.inner),
        }  # fmt: skip
        values = {name: torch.randn(size, generator=generator) * size[1] ** -0.5 for name, size in sizes.items()}
        values["fuse"] *= 0.1  # it begins with the last state, which the target's own head reads
        values["fuse"][:, -hidden:] += torch.eye(hidden)
        values["qkv_bias"] = torch.zeros(queries + 2 * keys)
        norms = ("norm_embedding", "norm_state", "norm_attention", "norm_mlp")
        values |= {name: torch.ones(hidden) for name in norms} | {"norm_last": target.norm.float() * FIRST_SCALE}
        self.weight = nn.ParameterDict({name: nn.Parameter(value) for name, value in values.items()})

    def norm(self, x: Tensor, name: str) -> Tensor:
        normed: Tensor = F.rms_norm(x, (x.shape[-1],), self.weight[name], self.shape.eps)
        return normed

    def entries(self, ids: Tensor, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """ids [T], fused or own states [T, hidden] -> x [T, hidden], rotated keys and values [kv_heads, T, D]."""
        embedding = self.target.embedding[ids].float()
        pair = torch.cat([self.norm(embedding, "norm_embedding"), self.norm(states, "norm_state")], dim=-1)
        x = F.linear(pair, self.weight["input"])
        queries = self.shape.heads * self.shape.head_dim
        y = F.linear(self.norm(x, "norm_attention"), self.weight["qkv"][queries:], self.weight["qkv_bias"][queries:])
        keys, values = y.view(len(ids), 2, self.shape.kv_heads, self.shape.head_dim).permute(1, 2, 0, 3)
        return x, self.rotated(keys, positions), values

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """[heads, T, D] at those positions."""
        angle = torch.outer(positions.float(), self.target.inv_freq.float())
        cos, sin = (torch.cat([part, part], dim=-1) * self.target.rope_scale for part in (angle.cos(), angle.sin()))
        left, right = x.chunk(2, dim=-1)
        rotated: Tensor = x * cos + torch.cat([-right, left], dim=-1) * sin
        return rotated

    def queries(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [T, hidden] -> rotated and scaled queries [kv_heads, G, T, D]."""
        shape, width = self.shape, self.shape.heads * self.shape.head_dim
        q = F.linear(self.norm(x, "norm_attention"), self.weight["qkv"][:width], self.weight["qkv_bias"][:width])
        q = self.rotated(q.view(len(x), shape.heads, shape.head_dim).transpose(0, 1), positions)
        scaled: Tensor = q.unflatten(0, (shape.kv_heads, -1)) * shape.head_dim**-0.5
        return scaled

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """x [T, hidden] and attended values [kv_heads, G, T, D] -> states [T, hidden]."""
        x = x + F.linear(attended.flatten(0, 1).transpose(0, 1).flatten(1), self.weight["out"])
        gate, up = F.linear(self.norm(x, "norm_mlp"), self.weight["up"]).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.weight["down"])

    def chain(self, ids: Tensor, states: Tensor, at: Tensor, steps: int) -> list[Tensor]:
        """The head's states after tokens at + k, [N, hidden] for each step k.

        Args:
            ids: [T] of a text. states: [T, STATES * hidden], of the position before each token.
            at: [N] positions, at most T - steps.
        """
        positions = torch.arange(len(ids))
        fused = F.linear(states, self.weight["fuse"])
        x, keys, values = self.entries(ids, fused, positions)
        x, outputs, own = x[at], list[Tensor](), list[tuple[Tensor, Tensor]]()
        for step in range(steps):
            if step:
                x, k, v = self.entries(ids[at + step], outputs[-1], at + step)
                own.append((k[:, None], v[:, None]))
            q = self.queries(x, at + step)
            scores = (q @ keys[:, None].transpose(-1, -2)).masked_fill(positions > at[:, None], -torch.inf)
            more = [(q * k).sum(-1, keepdim=True) for k, _ in own]
            p = torch.cat([scores, *more], dim=-1).softmax(dim=-1)
            attended = p[..., : len(ids)] @ values[:, None]
            for number, (_, v) in enumerate(own):
                attended = attended + p[..., len(ids) + number, None] * v
            outputs.append(self.finish(x, attended))
        return outputs

    def logits(self, states: Tensor) -> Tensor:
        """[N, hidden] -> [N, V]."""
        return F.linear(self.norm(states, "norm_last"), self.target.embedding[self.target.vocabulary].float())


def losses(
    head: HeadLayer, rows: tuple[Tensor, Tensor], ids: Tensor, states: Tensor, at: Tensor, steps: int
) -> tuple[Tensor, list[float]]:
    """The loss of chains at positions `at`, and for each step the share of guesses that are the target's first choice.

    Args:
        rows: the rows of the head's vocabulary in the embedding and in the target's own head, [V, hidden] float32.
        states: [T, STATES * hidden], of each token's own position; the last one of a position is the target's output.
    """
    before = torch.cat([torch.zeros(1, states.shape[1]), states[:-1]])
    hidden, loss, agreed = head.shape.hidden, torch.zeros(()), []
    for step, own in enumerate(head.chain(ids, before, at, steps)):
        with torch.no_grad():
            last = F.rms_norm(states[at + step, -hidden:], (hidden,), head.target.norm.float(), head.shape.eps)
            teacher = (last @ rows[1].T).softmax(dim=-1)
        logits = head.norm(own, "norm_last") @ rows[0].T
        loss = loss + DISCOUNT**step * F.cross_entropy(logits, teacher)
        agreed.append(float((logits.argmax(-1) == teacher.argmax(-1)).float().mean()))
    return loss, agreed


def tensors_of(head: HeadLayer) -> Mapping[str, Tensor]:
    """The tensors by the names of the file."""
    return {name: value.detach() for name, value in head.weight.items()}
