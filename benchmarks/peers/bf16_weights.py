"""A model's weights in bf16, from which other engines make their own number formats."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.peers.driver_process import peers_dir
from speclsp.engine.loading.checkpoint import open_tensors
from speclsp.engine.loading.torch_checkpoint import tensor
from speclsp.engine.model import gguf_tensors
from speclsp.engine.model.superblocks import KINDS, weight_name
from speclsp.weights import model_directory, store
from speclsp.weights.cards import Weights
from speclsp.weights.untrusted import safetensors_header


def bf16_folder(weights: Weights, models_dir: str = "") -> Path:
    """The model as transformers reads it: our own folder if it has published safetensors, or one beside the peers."""
    from safetensors.torch import save_file

    ours = store.ensure(weights, models_dir=models_dir)
    files = model_directory.weight_files(ours)
    read = {".gguf": gguf_tensors.stored_tensors, ".safetensors": safetensors_header.read}
    names = [name for file in files for name in read[file.suffix](file)]
    blocks = {name for name in names if name.endswith(tuple(kind.suffix for kind in KINDS))}
    if not blocks and files[0].suffix == ".safetensors":
        return ours
    folder, work = peers_dir() / "weights" / weights.name, peers_dir() / "weights" / f"{weights.name}.making"
    if not folder.is_dir():
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(ours, work, ignore=shutil.ignore_patterns("*.safetensors", "*.gguf"))
        with open_tensors(ours) as get:
            published = [weight_name(name) if name in blocks else name for name in names]
            save_file(
                {name: tensor(get(name)).contiguous() for name in published},
                work / "model.safetensors",
                metadata={"format": "pt"},
            )
        work.rename(folder)
    return folder
