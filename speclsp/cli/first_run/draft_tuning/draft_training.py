"""A draft head for training: new, or with the tensors of the head that the model has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp.engine.loading import checkpoint, model_config
from speclsp.engine.model.int8.draft_head import HeadWeights
from speclsp.engine.model.int8.hidden_states import layers_of
from speclsp.engine.training.head_layer import HeadLayer, HeadShape, HeadTarget
from speclsp.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

VOCABULARY = 8192  # tokens; 94 % of unseen code with those of the prompt
INNER = 2432  # width of the MLP: 12.4 M weights for the 0.5B
COMPARED_TOKENS = 1000


def new_head(
    directory: Path, lora: Any, vocabulary: Tensor, inner: int, seed: int
) -> tuple[HeadLayer, tuple[int, int, int]]:
    """An untrained head for the model in a directory, and the layers it reads. Raises InputError, WeightsError."""
    from torch.nn import functional as F

    config = model_config.read_config(directory)
    inner = max(inner, -(-3 * config.hidden_size // 128) * 32)  # forward.c's rows hold three hidden states
    shape = model_config.read_shape(config, config.vocab_size)
    with checkpoint.open_tensors(directory, lora) as get:
        embedding, teacher = get("model.embed_tokens.weight").bfloat16(), get("lm_head.weight", optional=True)
        teacher = embedding if teacher is None else teacher.bfloat16()  # a GGUF has them apart, each rounded
        if float(F.cosine_similarity(*(part[:COMPARED_TOKENS].float() for part in (embedding, teacher))).mean()) < 0.9:
            raise InputError(f"{directory.name} has a head of its own (lm_head): a draft head reads the embedding's.")
        target = HeadTarget(
            embedding, get("model.norm.weight"), shape.inv_freq, shape.rope_scale, vocabulary, teacher
        )  # fmt: skip
    sizes = HeadShape(
        hidden=shape.hidden, heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim, inner=inner,
        eps=shape.eps,
    )  # fmt: skip
    return HeadLayer(sizes, target, seed), layers_of(config.num_hidden_layers)


def start_from(head: HeadLayer, weights: HeadWeights) -> None:
    """Put the tensors of a trained head of the same sizes into `head`."""
    import torch

    with torch.no_grad():
        for name, value in head.weight.items():
            value.copy_(weights.tensors[name])


def common_tokens(texts: Iterable[Sequence[int]], vocab: int, count: int = VOCABULARY) -> Tensor:
    """The `count` most common tokens of texts, filled up with the lowest ids, which a tokenizer merged first."""
    import torch

    counts = Counter(token for text in texts for token in text)
    chosen = dict.fromkeys([token for token, _ in counts.most_common()] + list(range(vocab)))
    return torch.tensor(sorted(list(chosen)[: min(count, vocab // 32 * 32)]))
