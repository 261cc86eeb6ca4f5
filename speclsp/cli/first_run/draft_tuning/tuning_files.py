"""Files and conditions of one tuning: a local model, one process at a time, the lowest priority, and signals.

    <state>/draft-tuning/<model>/features-00000.safetensors, ...   texts to learn from; they hold code
                                 state.safetensors                 the training
    <state>/heads/head-of-<model>.safetensors                      the head that is kept

Only this user can read them (mode 0600). A file is written in one step. Everything but the head is deleted after the
verdict.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speclsp import config
from speclsp.cli import complete
from speclsp.config import Config
from speclsp.errors import InputError, WeightsError
from speclsp.weights import store, store_messages
from speclsp.weights.cards import Card


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

    def clear(self) -> None:
        """Delete texts, state and candidate."""
        shutil.rmtree(self.work, ignore_errors=True)


def tunable_card(settings: Config) -> tuple[Card, Path]:
    """The model whose head is tuned, and its weights. Raises InputError or WeightsError where there is none."""
    if settings.remote.url:
        raise InputError(
            f"remote.url = {settings.remote.url!r} is set, so a server completes and its draft cannot be tuned here: "
            'add --set remote.url="" to tune the local model.'
        )
    if settings.model == "echo":
        raise InputError('model = "echo" has no draft to tune; name another (`speclsp models list`).')
    if not settings.engine.speculative_decoding:
        raise InputError("engine.speculative_decoding is off, so a tuned draft would not be used: turn it on.")
    card, _ = complete.choose_card(settings)
    directory = store.path(card.target, settings.models_dir)
    if directory is None:
        raise WeightsError(store_messages.not_here(card.target))
    return card, directory


def run_idle() -> None:
    """Give this process the lowest priority, of the processor and, where the system has one, of the disk."""
    import psutil

    if hasattr(os, "nice"):
        os.nice(19)
    with contextlib.suppress(AttributeError, OSError, psutil.Error):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


@contextlib.contextmanager
def alone(files: TuningFiles) -> Iterator[None]:
    """Hold the lock of this tuning. Raises InputError: another process holds it."""
    from filelock import FileLock, Timeout

    files.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(files.lock, timeout=0):
            yield
    except Timeout:
        raise InputError("another `speclsp tune --draft` runs for this model: wait for its end, or stop it.") from None


@contextlib.contextmanager
def stoppable() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one ends the process as usual."""
    cancel = threading.Event()
    former: dict[int, Any] = {}

    def on_signal(number: int, frame: object) -> None:
        cancel.set()
        signal.signal(number, former[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        former[number] = signal.signal(number, on_signal)
    try:
        yield cancel
    finally:
        for which, handler in former.items():
            signal.signal(which, handler)
