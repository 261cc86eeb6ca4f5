"""The adapters for the models that are loaded: by their cards, each for the weights it belongs to."""

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
    card names the weights and whose file exists; "none" takes none. A draft gets one only if the target has one, too:
    it must agree with the target. An adapter that cannot be used never prevents loading.
    """
    known = adapters.listing(models_dir)[0]
    chosen: list[Lora | None] = []
    problems: list[str] = []
    for weights, directory in models:
        lora = None
        if setting != "none" and (not chosen or chosen[0] is not None):
            try:
                card = adapters.of_weights(weights, known)
                lora = fitted(adapters.read(card), weights, directory) if card else None
            except AdapterError as error:
                problems.append(str(error))
        chosen.append(lora)
    return chosen, " ".join(problems)


def fitted(file: AdapterFile, weights: Weights, directory: Path) -> Lora:
    """The adapter, checked against the model in `directory`. Raises AdapterError."""
    digest = adapters.sum_of_weights(directory)
    if digest != file.weights_sha256:
        raise file.error(f"belongs to weights with the sha256 {file.weights_sha256}, and {weights.name} has {digest}")
    config = model_config.read_config(directory)
    shape = model_config.read_shape(config, vocab=1)
    sizes = {name: size for group in model_config.expected_tensors(config, shape) for name, size, _ in group}
    return Lora(file, sizes, config.num_hidden_layers)
