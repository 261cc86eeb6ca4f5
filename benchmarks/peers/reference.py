"""References of a comparison: a model's weights in bf16, and each prompt's greedy continuation by transformers.

A narrower number format is faster and may choose other tokens. So the tables state beside each time how many of these
tokens an engine repeats. The reference is not timed. Its tokens are kept beside the peers for the next run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results_file
from benchmarks.peers.driver_process import DRIVERS, PeerProcess, peers_dir
from benchmarks.peers.figures import Way
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


def bf16_way(folder: Path, prompts: Sequence[tuple[list[int], int]], count: int, threads: int) -> Way:
    """Answers without times: `count` tokens after each prompt (cold), and after it and the token typed next (warm).

    `folder`: the model, as `bf16_folder` gives it. Raises PeerError.
    """
    file = peers_dir() / "reference" / f"{folder.name}.json"
    known: dict[str, list[int]] = json.loads(file.read_text()) if file.is_file() else {}
    runs = [(hole, kind, ids) for hole, (cold, typed) in enumerate(prompts) for kind, ids in both(cold, typed)]
    missing = [ids for _, _, ids in runs if key(ids, count) not in known]
    if missing:
        job = {"model": str(folder), "draft": "", "threads": threads, "modes": {"plain": {}}}
        log, driver = peers_dir() / "logs" / "bf16.log", DRIVERS / "transformers_driver.py"
        with PeerProcess("bf16 reference", driver, job, Path(sys.executable), log) as process:
            for ids in missing:
                known[key(ids, count)] = process.ask(ids, count, "plain", cold=False)["tokens"]
        results_file.save(known, file)
    way = Way("bf16", "reference", {})
    for hole, kind, ids in runs:
        way.runs[kind].append({"hole": hole, "tokens": known[key(ids, count)]})
    return way


def both(ids: list[int], typed: int) -> tuple[tuple[str, list[int]], tuple[str, list[int]]]:
    """The two prompts of a hole, by the kind of run."""
    return ("cold", ids), ("warm", [*ids, typed])


def key(ids: Sequence[int], count: int) -> str:
    """The name of a continuation: a hash of its prompt and length."""
    return hashlib.sha256(json.dumps([list(ids), count]).encode()).hexdigest()[:16]
