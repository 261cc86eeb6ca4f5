"""The adapter for the target that is loaded: by its card, which names the weights it belongs to."""

from __future__ import annotations

from pathlib import Path

from speclsp.engine.loading import model_config
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.weights import adapters
from speclsp.weights.adapters import AdapterError, AdapterFile
from speclsp.weights.cards import Weights


def choose(setting: str, models_dir: str, weights: Weights, directory: Path) -> tuple[Lora | None, str]:
    """The adapter for a target, or None; and why one cannot be used, or "". `directory`: of the target's weights.

    "auto" takes the first adapter by name whose card names the weights and whose file exists; "none" takes none. An
    adapter that cannot be used never prevents loading.
    """
    if setting == "none":
        return None, ""
    try:
        card = adapters.of_weights(weights, adapters.listing(models_dir)[0])
        return (fitted(adapters.read(card), weights, directory) if card else None), ""
    except AdapterError as error:
        return None, str(error)


def fitted(file: AdapterFile, weights: Weights, directory: Path) -> Lora:
    """The adapter, checked against the model in `directory`. Raises AdapterError."""
    digest = adapters.sum_of_weights(directory)
    if digest != file.weights_sha256:
        raise file.error(f"belongs to weights with the sha256 {file.weights_sha256}, and {weights.name} has {digest}")
    config = model_config.read_config(directory)
    shape = model_config.read_shape(config, vocab=1)
    sizes = {name: size for group in model_config.expected_tensors(config, shape) for name, size, _ in group}
    return Lora(file, sizes, config.num_hidden_layers)
