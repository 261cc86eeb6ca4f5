"""A draft head as autograd sees it: the layer of int8/draft_head.py, and its loss over an unrolled chain of guesses.

    entry n    [embedding of token n; W * states of position n-1] ─► layer ─► state ─► logits of token n+1
    step 0     at chosen positions, over the entries of the whole text
    step k     k tokens later: the head's own state of step k-1 in place of the target's

Each step learns the target's distribution over the head's vocabulary at its position (cross-entropy). So the head
learns from its own states, as it guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from speclsp.engine.loading import checkpoint, model_config
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.loading.torch_checkpoint import tensor
from speclsp.engine.model.int8.draft_head import NORMS, linear_sizes
from speclsp.engine.model.model_shape import ModelShape
from speclsp.errors import InputError

VOCABULARY = 8192  # tokens; 94 % of unseen code with those of the prompt
INNER = 2432  # width of the MLP: 12.4 M weights for the 0.5B
FIRST_SCALE = 0.3  # of the logits: those of random states would be as sure as the target's, and all wrong
DISCOUNT = 0.8  # of the loss of each step after the first: its guess is verified less often
COMPARED_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class HeadTarget:
    """The parts of the target that a head reads."""

    shape: ModelShape
    embedding: Tensor  # [tokens, hidden]
    norm: Tensor  # [hidden], the last one
    vocabulary: Tensor  # [V] ids
    teacher: Tensor  # [tokens, hidden], the target's own head; the embedding where they are one matrix

    def on(self, device: str) -> HeadTarget:
        """The same parts on a device."""
        embedding = self.embedding.to(device)
        teacher = embedding if self.teacher is self.embedding else self.teacher.to(device)
        return HeadTarget(self.shape, embedding, self.norm.to(device), self.vocabulary.to(device), teacher)


class HeadLayer(nn.Module):
    """The tensors of a head, under the names of its file. `inner`: the width of its own MLP."""

    def __init__(self, target: HeadTarget, inner: int, seed: int = 0) -> None:
        super().__init__()
        self.shape, self.target = target.shape, target
        hidden, generator = target.shape.hidden, torch.Generator().manual_seed(seed)
        sizes = linear_sizes(target.shape, inner)
        values = {name: torch.randn(size, generator=generator) * size[1] ** -0.5 for name, size in sizes.items()}
        values["fuse"] *= 0.1  # it begins with the last state, which the target's own head reads
        values["fuse"][:, -hidden:] += torch.eye(hidden)
        values["qkv_bias"] = torch.zeros(sizes["qkv"][0])
        values |= {name: torch.ones(hidden) for name in NORMS} | {"norm_last": target.norm.float() * FIRST_SCALE}
        self.weight = nn.ParameterDict({name: nn.Parameter(value) for name, value in values.items()})

    def on(self, device: str) -> HeadLayer:
        """The layer itself, with its target on a device."""
        self.target = self.target.on(device)
        return self.to(device)

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.weight["fuse"].device

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by the names of the file, on the CPU."""
        return {name: value.detach().cpu() for name, value in self.weight.items()}

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
        angle = torch.outer(positions.float(), torch.from_numpy(self.shape.inv_freq).to(x.device))
        cos, sin = (torch.cat([part, part], dim=-1) * self.shape.rope_scale for part in (angle.cos(), angle.sin()))
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
        positions = torch.arange(len(ids), device=ids.device)
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


def losses(
    head: HeadLayer, rows: tuple[Tensor, Tensor], ids: Tensor, states: Tensor, at: Tensor, steps: int
) -> tuple[Tensor, list[float]]:
    """The loss of chains at positions `at`, and for each step the share of guesses that are the target's first choice.

    Args:
        rows: the rows of the head's vocabulary in the embedding and in the target's own head, [V, hidden] float32.
        states: [T, STATES * hidden], of each token's own position; the last one of a position is the target's output.
    """
    before = torch.cat([states.new_zeros(1, states.shape[1]), states[:-1]])
    hidden, loss, agreed = head.shape.hidden, states.new_zeros(()), []
    for step, own in enumerate(head.chain(ids, before, at, steps)):
        with torch.no_grad():
            last = F.rms_norm(states[at + step, -hidden:], (hidden,), head.target.norm.float(), head.shape.eps)
            teacher = (last @ rows[1].T).softmax(dim=-1)
        logits = head.norm(own, "norm_last") @ rows[0].T
        loss = loss + DISCOUNT**step * F.cross_entropy(logits, teacher)
        agreed.append(float((logits.argmax(-1) == teacher.argmax(-1)).float().mean()))
    return loss, agreed


def new_head(directory: Path, lora: Lora | None, vocabulary: Tensor, inner: int, seed: int) -> HeadLayer:
    """An untrained head for the model in a directory. Raises InputError, WeightsError."""
    config = model_config.read_config(directory)
    inner = max(inner, -(-3 * config.hidden_size // 128) * 32)  # forward.c's rows hold three hidden states
    with checkpoint.open_tensors(directory, lora) as get:
        embedding, own = tensor(get("model.embed_tokens.weight")).bfloat16(), get("lm_head.weight", optional=True)
        teacher = embedding if own is None else tensor(own).bfloat16()  # a GGUF has them apart, each rounded
        first, second = (part[:COMPARED_TOKENS].float() for part in (embedding, teacher))
        if float(F.cosine_similarity(first, second).mean()) < 0.9:
            raise InputError(f"{directory.name} has a head of its own (lm_head): a draft head reads the embedding's.")
        shape = model_config.read_shape(config, config.vocab_size)
        target = HeadTarget(shape, embedding, tensor(get("model.norm.weight")), vocabulary, teacher)
    return HeadLayer(target, inner, seed)
