"""Files of one tuning: texts with hidden states, training state, and the head that is kept.

    <state>/draft-tuning/<model>/features-00000.safetensors, ...   texts to learn from; they hold code
                                 state.safetensors                 the training
    <state>/heads/head-of-<model>.safetensors                      the head that is kept

Only this user can read them (mode 0600). A file is written in one step. Everything but the head is deleted after the
verdict.
"""

from __future__ import annotations

import hashlib
import re
import shutil

from speclsp import config
from speclsp.errors import InputError


class TuningFiles:
    """The files of the tuning of one model. Raises InputError: `model` is not the name of a definition."""

    def __init__(self, model: str) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", model):  # a path would lead out of our directory
            raise InputError(f"{model} is not the name of a model definition, so it has no draft to tune.")
        root = config.state_dir()
        self.name = f"head-of-{model}"
        self.work = root / "draft-tuning" / model
        self.state = self.work / "state.safetensors"
        self.candidate = self.work / f"{self.name}.safetensors"
        self.lock = root / "draft-tuning" / f"{model}.lock"
        self.head = root / "heads" / f"{self.name}.safetensors"

    def clear(self) -> bool:
        """Delete texts, state and candidate. True if there were any."""
        known = self.work.exists()
        shutil.rmtree(self.work, ignore_errors=True)
        return known

    def remove(self) -> list[str]:
        """Delete everything. Returns nouns for the parts that existed."""
        removed = ["the head"] if self.head.exists() else []
        self.head.unlink(missing_ok=True)
        return removed + (["its texts and training state"] if self.clear() else [])


def digest(text: str) -> str:
    """SHA-256 of a text, which orders files the same way on every machine."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
