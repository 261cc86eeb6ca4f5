"""Writes a trained adapter as models/adapters/NAME.safetensors and its card NAME.toml.

    python -m models.training.export NAME [--work build/training/adapter] [--out models/adapters]

The loader checks that the adapter's weights are those of the model: `weights_sha256` is the sum of the file that they
were published in.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomlkit
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.training import adapter_file, releases
from models.training.adapter_file import AdapterFacts
from models.training.train import WORK
from speclsp import private_files
from speclsp.errors import InputError, SpeclspError
from speclsp.weights import adapters, cards, store

OUT = Path(__file__).resolve().parents[1] / "adapters"
LICENCE = "Apache-2.0"


def data_line() -> str:
    """The training data, in a line."""
    listed = releases.listed()
    languages = sorted({language for package in listed for language in package.languages})
    licences = sorted({package.licence for package in listed})
    return f"{len(listed)} packages ({', '.join(languages)}) under {', '.join(licences)}: models/training/packages.toml"


def write_card(path: Path, weights: str, file: Path) -> None:
    """Write an adapter's card."""
    card = tomlkit.document()
    card["weights"] = weights
    card["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    card["licence"] = LICENCE
    card["data"] = data_line()
    private_files.replace(path, tomlkit.dumps(card).encode(), mode=0o644)


def check_name(name: str) -> None:
    """Raises InputError for a name that no adapter can have."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise InputError(f"{name!r} is no name of an adapter: expected lower-case letters, digits, hyphens and dots.")


def save(tensors: Mapping[str, Tensor], facts: AdapterFacts, weights: str, out: Path) -> Path:
    """Write an adapter and its card into `out`. Returns the adapter's file. Raises SpeclspError."""
    file = out / f"{facts.name}.safetensors"
    adapter_file.write(tensors, facts, file)
    write_card(out / f"{facts.name}.toml", weights, file)
    return file


def export(name: str, work: Path, out: Path, weights: str = "", directory: Path | None = None) -> Path:
    """Write the adapter of a training's last state, and its card. Returns the file. Raises SpeclspError."""
    check_name(name)
    state = work / "state.safetensors"
    try:
        with safe_open(state, "pt") as opened:
            plan = json.loads(opened.metadata()["facts"])["plan"]
            tensors = {key: opened.get_tensor(key) for key in opened.keys() if "#" not in key}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{state} is no training state ({error}): `python -m models.training.train`.") from None
    weights = weights or plan["weights"]
    directory = directory or store.path(cards.load(weights).target)
    if directory is None:
        raise InputError(f"the weights of {weights} are not here: `speclsp models pull {weights}` fetches them.")
    base_sha256 = adapters.sum_of_weights(directory)
    facts = AdapterFacts(name=name, rank=plan["rank"], scale=plan["scale"], weights_sha256=base_sha256)
    return save(tensors, facts, weights, out)


def main(arguments: Sequence[str]) -> int:
    """Exit code 0; 1 with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m models.training.export", description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--work", type=Path, default=WORK, help="of the training (default: build/training/adapter)")
    parser.add_argument("--out", type=Path, default=OUT, help="default: models/adapters")
    options = parser.parse_args(arguments)
    try:
        file = export(options.name, options.work, options.out)
    except (SpeclspError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
