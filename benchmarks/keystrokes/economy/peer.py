"""Bodies typed with llama.vscode's requests and filters, on our engine and model: the peer of the economy.

The extension asks at every key at which no earlier answer agrees with the text, and shows every answer that its filters
pass. The prompt's chunks are those of benchmarks/quality/llama_vscode: the open files and the file itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks import model_options
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.person import Keyboard, Person
from benchmarks.keystrokes.economy.replay import Counts, Screen, ScreenAt, walk
from benchmarks.quality.cache.generation_cache import GenerationCache, read_text
from benchmarks.quality.llama_vscode.policy import CONTEXT_TOKENS, InfillPrompter, ask
from benchmarks.quality.run_task import TaskRunner
from benchmarks.quality.tasks.tasks import Task
from speclsp.config import Config, cache_dir
from speclsp.lsp.postprocess.plan import Suggestion


def peer(config: Config, bodies: Sequence[Body], persons: Sequence[Person]) -> dict[str, list[Counts]]:
    """The counts of each body, by person. A text that was generated once is in the cache. Raises SpeclspError."""
    tokens = max(config.engine.context_tokens, CONTEXT_TOKENS)
    engine = model_options.engine(replace(config, engine=replace(config.engine, context_tokens=tokens)))
    ours = engine.prompter
    engine.prompter = InfillPrompter(ours.card, ours.tokenizer, ours.vocabulary, CONTEXT_TOKENS)
    with closing(GenerationCache(cache_dir() / "quality" / "said")) as cache:
        runner = TaskRunner(engine, config, cache)
        return {person.name: [walk(body, screen(runner, body), person) for body in bodies] for person in persons}


def screen(runner: TaskRunner, body: Body) -> ScreenAt:
    """The extension's suggestion at each position of a body."""
    import torch

    ends = Keyboard.of(body.text).ends

    def screen_at(position: int, shown: str) -> Screen:
        if shown:
            return Screen(shown)
        question = ask(task_of(body, ends[position]))
        with torch.inference_mode():  # the cache of the prompt before is copied outside of a completion
            generation, _ = runner.say(question.request(), question, warm=True)
        result = read_text(generation, question)
        if result is None:
            return Screen("")
        suggestion = question.to_suggestion(result.text, complete=result.whole)
        return Screen(suggestion.text if isinstance(suggestion, Suggestion) else "")

    return screen_at


def task_of(body: Body, typed: int) -> Task:
    """The document after `typed` characters of a body, in the form that the peer's policy reads."""
    before = body.above + body.text[:typed]
    return Task(
        id=body.id,
        package=body.package,
        root=Path(body.root),
        path=body.path,
        language=body.language,
        text=before + body.below,
        cursor=len(before),
        truth="",
        kind="line_start",
        below="unwritten",
        crosses=(),
        seen=False,
        open_paths=body.open_paths,
    )
