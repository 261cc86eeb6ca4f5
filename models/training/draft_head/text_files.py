"""Files of texts that a draft head learns from: prompts with the target's answers, and the states of their tokens.

A safetensors file holds the states of some texts, bfloat16 [T, STATES * hidden], by number; its metadata hold the
tokens. Files are written in one step and numbered, so a run that was stopped goes on after the last whole one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from models.training.draft_head.learning import Text
from speclsp import private_files
from speclsp.errors import InputError, WeightsError


def files(work: Path) -> list[Path]:
    """The files, in their order."""
    return sorted(work.glob("features-*.safetensors"))


def write(work: Path, texts: Sequence[tuple[Text, Mapping[str, Any]]], facts: Mapping[str, str], mode: int) -> Path:
    """Write the next file: texts, each with JSON of its own, and the file's facts. Raises WeightsError."""
    path = work / f"features-{len(files(work)):05d}.safetensors"
    listed = [{"ids": list(text.ids), "prompt": text.prompt, **own} for text, own in texts]
    states = {str(number): text.states.bfloat16().contiguous() for number, (text, _) in enumerate(texts)}
    try:
        work.mkdir(parents=True, exist_ok=True)
        private_files.replace(path, save(states, {**facts, "texts": json.dumps(listed)}), mode=mode)
    except OSError as error:
        raise WeightsError(
            f"{path} cannot be written ({private_files.reason(error)}): make room and run the command again; it goes "
            "on after the last whole file."
        ) from None
    return path


def facts_of(path: Path) -> dict[str, str]:
    """The facts of a file. Raises InputError."""
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata())
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}): remove it and those after it.") from None


def read(path: Path) -> Iterator[tuple[Text, dict[str, Any]]]:
    """The texts of a file, each with its own JSON."""
    with safe_open(path, "pt") as file:
        for number, row in enumerate(json.loads(file.metadata()["texts"])):
            yield Text(row["ids"], file.get_tensor(str(number)), row["prompt"]), row
