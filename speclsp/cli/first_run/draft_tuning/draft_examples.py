"""Texts for a draft head: places in a directory's own files, with the target's answers there.

    scan, ignore files, secret files ─► files ─┬─► four fifths: learned  ─► place ─► prompt ─► the target's answer
                                               └─► one fifth: held out   ─► place ─► request for the judge

The head must guess what the target writes, and not what the file has: so the file's own next tokens are no labels.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from speclsp.cli import complete
from speclsp.cli.first_run import tune
from speclsp.cli.first_run.draft_tuning.head_learning import Text
from speclsp.config import Config
from speclsp.engine.api import Request
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import NGramDrafter
from speclsp.engine.decoding.generate import Limits, generate
from speclsp.engine.loading.torch_checkpoint import tensor
from speclsp.engine.model.int8.hidden_states import StateRecorder
from speclsp.errors import InputError
from speclsp.lsp.index import scan
from speclsp.lsp.index.scan import WorkspaceScan
from speclsp.lsp.syntax.grammars import LANGUAGE_ID_OF_SUFFIX
from speclsp.lsp.visibility import eligibility

ANSWER_TOKENS = 48
PROMPT_TOKENS = 192, 64  # before and after the cursor: a shorter prompt than the product's costs less to learn
MIN_FILES = 5
SCAN_S = 30.0  # of processor time
HELD_OUT_SHARE = 5  # one file in so many


def own_files(directory: Path, config: Config) -> tuple[list[str], list[str]]:
    """(learned, held-out) files: paths in `directory` of code that a model may read.

    Ignore files of the whole git work tree count, also those above `directory`.

    Raises:
        InputError: there is no such directory, or too little code in it.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory.")
    top = directory.resolve()
    root = next((parent for parent in (top, *top.parents) if (parent / ".git").exists()), top)
    rules = WorkspaceScan(root.as_posix(), config.completion.disabled_globs)
    listed = WorkspaceScan(top.as_posix(), config.completion.disabled_globs).files("", SCAN_S)
    paths = [
        file.path
        for file in listed
        if tune.usable(top / file.path)
        and rules.file_at((top / file.path).relative_to(root).as_posix())
        and is_allowed(top / file.path, file.size, config, root)
    ]
    if len(paths) < MIN_FILES:
        raise InputError(
            f"{directory} has {len(paths)} files of code that a model may read, and a head needs {MIN_FILES}: "
            "name a larger directory."
        )
    paths.sort(key=lambda path: hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest())
    held_out = len(paths) // HELD_OUT_SHARE
    return paths[held_out:], paths[:held_out]


def is_allowed(path: Path, size: int, config: Config, root: Path) -> bool:
    """True if the settings allow suggestions in the file, and a person wrote it."""
    language = LANGUAGE_ID_OF_SUFFIX.get(path.suffix.lower(), "")
    if eligibility.exclusion(path.as_uri(), language, size, config, root.as_uri())[0]:
        return False
    try:
        return scan.is_code(complete.read_text(path, config.context.max_file_bytes), path.name)
    except InputError:
        return False


def requests(directory: Path, paths: list[str], config: Config, seed: int) -> Iterator[tuple[str, Request]]:
    """(path, request) at a place of each file in turn, again and again; the same ones for the same seed.

    Ends after a turn in which no file has a place.
    """
    turn, count = 0, 1
    while count:
        count = 0
        for path in paths:
            request = tune.hole_in(directory / path, config, random.Random(f"{seed} {turn} {path}"))
            if request is not None:
                count += 1
                yield path, replace(request, max_tokens=ANSWER_TOKENS)
        turn += 1


def answered(engine: CompletionEngine, recorder: StateRecorder, prompt: Sequence[int], cancel: threading.Event) -> Text:
    """The target's greedy answer after a prompt, and the states of all tokens but the last; shorter if cancelled."""
    limits = Limits(max_tokens=ANSWER_TOKENS, stop_tokens=engine.prompter.stop_tokens)
    engine.target_decoder.forget()
    arguments = (engine.policy, prompt, limits, Sampler(Sampling()), cancel)
    answer = [token for step in generate(engine.target_decoder, [NGramDrafter()], *arguments) for token in step.tokens]
    ids, states = recorder.text()
    return Text([*prompt, *answer][: len(ids) + 1], tensor(states), len(prompt))
