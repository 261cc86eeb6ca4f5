"""The adapters for the models that are loaded: by `engine.adapter`, each for the weights it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speclsp.engine.loading import model_config
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.weights import adapters
from speclsp.weights.adapters import AdapterError, AdapterFile
from speclsp.weights.cards import Weights


def choose(setting: str, models_dir: str, models: Sequence[tuple[Weights, Path]]) -> tuple[list[Lora | None], str]:
    """For each of `models`, weights and their directory, the adapter or None; and why one cannot be used, or "".

    The first of `models` is the target, and the others are its drafts. "auto" takes the first adapter by name whose
    card names the weights and whose file exists. A draft gets one only if the target has one, too: it must agree with
    the target. Any other setting is one adapter, for each model whose weights have its sum. An adapter that cannot be
    used never prevents loading.
    """
    if setting == "none":
        return [None] * len(models), ""
    chosen: list[Lora | None] = []
    problems: list[str] = []
    try:
        named = None if setting == "auto" else adapters.find(setting, models_dir)
    except AdapterError as error:
        return [None] * len(models), str(error)
    for number, (weights, directory) in enumerate(models):
        lora = None
        try:
            file = named or automatic(weights, models_dir)
            if file is not None and (named is not None or not number or chosen[0] is not None):
                lora = fitted(file, weights, directory)
        except AdapterError as error:
            problems.append(str(error))
        chosen.append(lora)
    if named is not None and any(chosen):
        problems = []  # the other model has other weights
    return chosen, " ".join(dict.fromkeys(problems[:1] if named is not None else problems))


def automatic(weights: Weights, models_dir: str) -> AdapterFile | None:
    """The adapter for these weights by its card. Raises AdapterError."""
    for card in adapters.listing(models_dir)[0]:
        if card.belongs_to(weights) and card.file.exists():
            return adapters.read(card)
    return None


def fitted(file: AdapterFile, weights: Weights, directory: Path) -> Lora:
    """The adapter, checked against the model in `directory`. Raises AdapterError."""
    digest = adapters.sum_of_weights(directory)
    if digest != file.weights_sha256:
        raise file.error(f"belongs to weights with the sha256 {file.weights_sha256}, and {weights.name} has {digest}")
    config = model_config.read_config(directory)
    shape = model_config.read_shape(config, vocab=1)
    sizes = {name: size for group in model_config.expected_tensors(config, shape) for name, size, _ in group}
    return Lora(file, sizes, config.num_hidden_layers)
