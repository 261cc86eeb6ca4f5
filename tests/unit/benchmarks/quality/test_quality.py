"""`python -m benchmarks quality`: the product's own pipeline, the generation cache, and the figures written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import model_options
from benchmarks.__main__ import main
from benchmarks.quality import quality, run_task, variants
from benchmarks.quality.cache import generation_cache
from benchmarks.quality.cache.generation_cache import Generation, GenerationCache, read_text
from benchmarks.quality.run_task import TaskRunner
from benchmarks.quality.tasks.tasks import Task
from benchmarks.quality.variants import BASE, FULL
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Extra, Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.errors import EngineError
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion
from speclsp.lsp.reasons import Reason

SHAPES = '''"""Areas."""

from solids import Cone


def base_area(cone: Cone) -> float:
    """Of its base."""
    return 3.14 * cone.radius**2


def volume(cone: Cone) -> float:
    return cone.height * base_area(cone) / 3
'''
SOLIDS = '''"""What has a volume."""


class Cone:
    """Stands on its base."""

    def __init__(self, radius: float, height: float) -> None:
        self.radius = radius
        self.height = height
'''


def tasks(folder: Path) -> list[Task]:
    """Two cursors in a package of two files."""
    folder.mkdir(exist_ok=True)
    for name, text in (("shapes.py", SHAPES), ("solids.py", SOLIDS)):
        (folder / name).write_text(text, encoding="utf-8")
    return [
        at(folder, "0", "3.14 * cone.radius**2", ()),
        at(folder, "1", "cone.height * base_area(cone) / 3", ("height",)),
    ]


def at(folder: Path, name: str, truth: str, crosses: tuple[str, ...]) -> Task:
    """The cursor where `truth` stood."""
    cursor = SHAPES.index(truth)
    text = SHAPES[:cursor] + SHAPES[cursor + len(truth) :]
    return Task(
        id=name, package="shapes", root=folder, path="shapes.py", language="python", text=text, cursor=cursor,
        truth=truth, kind="operator", below="kept", crosses=crosses, seen=False, open_paths=("solids.py",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def tiny() -> CompletionEngine:
    return model_options.engine(Config(model="tiny", engine=EngineConfig(context_tokens=1024)))


class Wanting:
    """A reader who has enough at `end`, or after `max_tokens`."""

    def __init__(self, max_tokens: int, end: str = "\0") -> None:
        self.max_tokens, self.end = max_tokens, end

    def finished(self, text: str) -> bool:
        return self.end in text

    def to_suggestion(self, text: str, *, complete: bool = True) -> Suggestion | NoSuggestion:
        return Suggestion(text, 0, 0) if text else NoSuggestion(Reason.EMPTY)


# ── generated text ───────────────────────────────────────────────────────────────────────────────────────────────


def generation(*texts: str, stop: str = "") -> Generation:
    return Generation(
        tokens=[*range(len(texts))],
        texts=[*texts],
        logprobs=[0.0] * len(texts),
        stop=stop,
        prompt_tokens=1,
        ms=1.0,
        first_ms=1.0,
    )


def test_a_reader_gets_the_generation_up_to_its_own_end():
    whole = generation("a", " b", "\n", "c", stop="eos")
    for wanting, text, ended in (
        (Wanting(9), "a b\nc", True),
        (Wanting(9, "\n"), "a b\n", True),
        (Wanting(2), "a b", False),
        (Wanting(4), "a b\nc", True),
    ):
        found = read_text(whole, wanting)
        assert found is not None
        assert (found.text, found.whole) == (text, ended)


def test_a_generation_that_is_too_short_for_its_reader_is_not_reused():
    assert read_text(generation("a", "b"), Wanting(3)) is None, "its first reader had enough"
    assert read_text(generation("a", "b", stop="limit"), Wanting(3)) is None
    assert read_text(generation("a", "b", stop="limit"), Wanting(2)) is not None


def test_the_cache_key_contains_exactly_what_determines_the_tokens(tiny: CompletionEngine):
    request = Request(prefix="import os\n", line_prefix="print(", suffix=")\n")
    build = tiny.prompter.build

    def key(request: Request, model: str = "a model") -> str:
        return generation_cache.generation_key(model, build(request), request)

    same = (replace(request, max_tokens=32), replace(request, session="another"))
    others = (
        *(replace(request, line_prefix="print(x"), replace(request, suffix=""), replace(request, heal=False)),
        *(replace(request, extra=(Extra(filename="a.py", text="a = 1\n"),)), replace(request, temperature=0.5)),
        *(replace(request, seed=1), replace(request, speculate=False)),
    )
    assert {key(one) for one in same} == {key(request)}
    assert len({key(one) for one in (request, *others)} | {key(request, "another")}) == len(others) + 2


def name(engine: CompletionEngine) -> str:
    return generation_cache.model_key(engine, generation_cache.arithmetic(engine))


@pytest.mark.slow
def test_other_logits_change_the_model_key_and_discard_the_run(
    tiny: CompletionEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One process computed wrong log-probabilities, and its answers entered the shared cache."""
    mine, memory = name(tiny), GenerationCache(tmp_path)
    asking = TaskRunner(tiny, Config(), memory)
    asking.check()
    decoder = tiny.target_decoder
    monkeypatch.setattr(decoder, "forward", lambda new, forward=decoder.forward: forward(new) * (1 + 2**-20))
    assert name(tiny) != mine
    with pytest.raises(EngineError, match="at its start"):
        asking.check()
    monkeypatch.undo()
    assert name(tiny) == mine
    memory.close()


@pytest.mark.slow
def test_a_generation_equals_the_streamed_tokens(tiny: CompletionEngine):
    request = Request(prefix="import os\n\n\n", line_prefix="def ", max_tokens=12)
    made = run_task.generate(tiny, request, Wanting(12))
    running = tiny.complete(replace(request, speculate=False), run_task.threading.Event())
    text = "".join(piece.text for piece in running)
    assert ("".join(made.texts), list(made.tokens)) == (text, running.result.tokens)
    assert len(made.texts) == len(made.tokens) == len(made.logprobs)
    assert all(logprob <= 0.0 for logprob in made.logprobs)
    early = run_task.generate(tiny, request, Wanting(12, end="".join(made.texts)[:3]))
    assert early.stop == "", "its reader had enough"
    assert list(early.tokens) == list(made.tokens)[: len(early.tokens)]


# ── a task in a variant ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def runner(tiny: CompletionEngine, tmp_path: Path) -> Iterator[TaskRunner]:
    config = Config(model="tiny", engine=EngineConfig(context_tokens=1024))
    with closing(GenerationCache(tmp_path / "said")) as memory:
        yield TaskRunner(tiny, config, memory)


def test_full_sends_other_files_and_base_sends_none(runner: TaskRunner, tmp_path: Path):
    task = tasks(tmp_path / "shapes")[1]
    every = variants.variants()
    base, full = runner.row(task, every[BASE]), runner.row(task, every[FULL])
    assert base.extra == ()
    assert {path for _, path, _ in full.extra} == {"solids.py"}, "and never the task's own file, which holds the truth"
    assert full.prompt_tokens > base.prompt_tokens


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_command_writes_its_figures_and_a_second_run_generates_nothing(
    tiny: CompletionEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_options, "engine", lambda settings: tiny)
    monkeypatch.setattr(quality, "tasks_of", lambda name: tasks(tmp_path / "shapes"))
    command = ["quality", "--model", "tiny", "--set", "quick", "--variants", "full,plain"]
    assert main(command) == 0
    file = tmp_path / "results/quality-quick-tiny.json"
    first = json.loads(file.read_text())
    assert (first["bench"], first["tasks"]) == ("quality", {"all": 2, "cross": 1, "single": 1})
    assert list(first["variants"]) == [BASE, FULL, "plain"]
    assert first["plain_differs_from_full_in"] == 0
    for one in first["variants"].values():
        exact = one["of"]["all"]["exact"]
        assert 0.0 <= exact["low"] <= exact["value"] <= exact["high"] <= 1.0
        assert one["made_in_this_run"] + one["known_from_another"] == one["asked"] == 2
    assert main(command) == 0
    again = json.loads(file.read_text())
    assert {one["made_in_this_run"] for one in again["variants"].values()} == {0}
    assert {name: one["of"] for name, one in again["variants"].items()} == {
        name: one["of"] for name, one in first["variants"].items()
    }
    assert "plain" in capsys.readouterr().out


@pytest.mark.slow
def test_a_part_of_a_set_does_not_replace_the_result_of_the_whole(
    tiny: CompletionEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_options, "engine", lambda settings: tiny)
    monkeypatch.setattr(quality, "tasks_of", lambda name: tasks(tmp_path / "shapes"))
    assert main(["quality", "--model", "tiny", "--only", "cross", "--variants", "base"]) == 0
    assert not (tmp_path / "benchmarks").exists()
    file = "quality-quick-cross-1-tiny.json"
    assert json.loads((quality.quality_dir() / "part" / file).read_text())["tasks"]["all"] == 1
    command = ["quality", "--model", "tiny", "--tasks", "1", "--variants", "base", "--keep"]
    assert main([*command, "--set", "context.cross_file_tokens=99"]) == 0
    kept = json.loads((tmp_path / "results/quality-quick-part-1-otherwise-tiny.json").read_text())
    assert (kept["of_tasks"], kept["settings"]["context.cross_file_tokens"]) == (2, 99)
