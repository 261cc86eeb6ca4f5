"""`python -m benchmarks humaneval-infilling`: the prompts of both ways, a resumed run, and the file of results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import model_options
from benchmarks.__main__ import main
from benchmarks.quality.cache.generation_cache import Generation, GenerationCache
from benchmarks.quality.infilling import columns, tasks
from benchmarks.quality.infilling.columns import ENGINE, PRODUCT, Column
from benchmarks.quality.infilling.sandbox import PASSED, Sandbox
from benchmarks.quality.infilling.tasks import SINGLE
from benchmarks.report import infilling_table
from benchmarks.report.result_files import SMALL
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.errors import EngineError

PROBLEMS = [
    {
        "task_id": f"HumanEval/{number}",
        "prompt": f'def times{number}(x):\n    """{number} times x."""\n',
        "entry_point": f"times{number}",
        "canonical_solution": f"    y = {number} * x\n    return y\n",
        "test": f"def check(candidate):\n    assert candidate(2) == {2 * number}\n",
    }
    for number in range(4)
]
TASKS = tasks.rebuild(PROBLEMS, SINGLE)
CONFIG = Config(model="tiny", engine=EngineConfig(context_tokens=1024))


@pytest.fixture(scope="module")
def tiny() -> CompletionEngine:
    return model_options.engine(CONFIG)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[GenerationCache]:
    opened = GenerationCache(tmp_path)
    yield opened
    opened.close()


def answering(monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]) -> list[Request]:
    """A model that answers `texts`: one generation for each function name in the prompt. Returns the requests."""
    requests = []

    def generate(engine: CompletionEngine, request: Request, reader: object) -> Generation:
        requests.append(request)
        text = next(text for name, text in texts.items() if name in request.prefix + request.line_prefix)
        return Generation(tokens=[1], texts=[text], logprobs=[0.0], stop="eos", prompt_tokens=1, ms=1.0, first_ms=1.0)

    monkeypatch.setattr(columns, "generate", generate)
    return requests


def truths(*wrong: int) -> dict[str, str]:
    """Right answers for the tasks that remove `return y`; other text for the problems in `wrong`."""
    return {f"times{number}": "    return x\n" if number in wrong else "    return y\n" for number in range(4)}


RETURNS = [task for task in TASKS if "return" in task.canonical_solution]


def test_the_engine_gets_the_standard_prompt(tiny: CompletionEngine, cache: GenerationCache):
    seen: list[list[int]] = []

    class Recording(GenerationCache):
        def __init__(self) -> None:
            self.entries: dict[str, Generation] = {}

        def get(self, key: str) -> Generation | None:
            seen.append(list(tiny.prompter.build(request).ids))
            return cache.get(key)

        def put(self, key: str, generation: Generation) -> None:
            cache.put(key, generation)

    task, fim = TASKS[0], tiny.card.fim
    request = Request(prefix=task.prompt, suffix=task.suffix, max_tokens=64, heal=False)
    Column(tiny, CONFIG, Recording(), ENGINE).run([task], SINGLE, lambda number: None)
    encode, marker = tiny.prompter.encode, tiny.prompter.marker
    expected = [*marker(fim.bos), *marker(fim.prefix), *encode(task.prompt), *marker(fim.suffix), *encode(task.suffix),
                *marker(fim.middle)]  # fmt: skip
    assert seen == [expected]


def test_the_product_sees_an_empty_line_where_the_lines_were(
    tiny: CompletionEngine, cache: GenerationCache, monkeypatch: pytest.MonkeyPatch
):
    requests = answering(monkeypatch, truths())
    (row,) = Column(tiny, CONFIG, cache, PRODUCT).run(RETURNS[1:2], SINGLE, lambda number: None)
    (request,) = requests
    assert request.prefix + request.line_prefix == RETURNS[1].prompt
    assert request.suffix == "\n" + RETURNS[1].suffix
    assert (request.filename, request.heal) == ("solution.py", True)
    assert row.exact
    assert row.program.startswith(RETURNS[1].prompt + "    return y\n")
    assert row.program.endswith("\ncheck(times1)")


@pytest.mark.slow
def test_a_stopped_run_continues_where_it_was(tiny: CompletionEngine, cache: GenerationCache):
    first = Column(tiny, CONFIG, cache, ENGINE)
    rows = first.run(TASKS[:2], SINGLE, lambda number: None)
    second = Column(tiny, CONFIG, cache, ENGINE)
    assert second.run(TASKS[:3], SINGLE, lambda number: None)[:2] == rows
    assert (first.new_generations, second.new_generations) == (2, 1)
    assert tiny.prompter is first.ours, "the engine has its own prompter again"


def test_a_model_that_computes_other_numbers_writes_nothing(
    tiny: CompletionEngine, cache: GenerationCache, monkeypatch: pytest.MonkeyPatch
):
    column = Column(tiny, CONFIG, cache, ENGINE)
    monkeypatch.setattr(columns, "arithmetic", lambda engine: "other")
    with pytest.raises(EngineError, match="nothing is written"):
        column.run(TASKS[:1], SINGLE, lambda number: None)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tiny: CompletionEngine, results: Path) -> Any:
    """The command with four tasks, the tiny model and a sandbox that passes every right program."""
    monkeypatch.setattr(tasks, "load", lambda kind: RETURNS)
    monkeypatch.setattr(model_options, "engine", lambda config: tiny)
    monkeypatch.setattr(Sandbox, "choose", classmethod(lambda cls: cls("hooks")))
    right = {f"y = {number} * x\n    return y" for number in range(4)}
    monkeypatch.setattr(Sandbox, "run", lambda self, text: PASSED if any(part in text for part in right) else "failed")

    def run(*flags: str) -> dict[str, Any]:
        common = ["humaneval-infilling", "--model", "tiny", "--kind", "single", "--results", str(results)]
        assert main([*common, *flags]) == 0
        summary: dict[str, Any] = json.loads((results / "humaneval-infilling-tiny.json").read_text("utf-8"))
        return summary

    return run


@pytest.mark.slow
def test_each_run_replaces_its_own_columns(command: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    answering(monkeypatch, truths(2))
    command("--through", "engine")
    answering(monkeypatch, truths())
    summary = command("--through", "product", "--limit", "3")
    single = summary["sets"]["single"]
    assert list(single["columns"]) == ["engine int8", "product int8"]
    engine, product = single["columns"].values()
    assert (engine["tasks"], product["tasks"], engine["exact"]["value"]) == (4, 3, 0.75)
    assert engine["by_task"]["pass_1"].count("1") == 3
    assert single["compared"]["product int8 - engine int8"]["tasks"] == 3
    assert (single["sha256"], single["of_tasks"]) == (tasks.SHA256[SINGLE], 1033)
    capsys.readouterr()
    assert command("--through", "engine", "--limit", "2")["sets"]["single"] == single
    assert "not written" in capsys.readouterr().out


@pytest.mark.slow
def test_a_changed_answer_is_printed_against_the_file(command: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    answering(monkeypatch, truths(0, 1))
    command("--through", "engine", "--no-tests")
    monkeypatch.setattr(columns, "generation_key", lambda *parts: f"new {parts[2].prefix}")
    answering(monkeypatch, truths(3))
    summary = command("--through", "engine", "--no-tests")
    assert "exact: 2 gained and 1 lost against the file" in capsys.readouterr().out
    assert "pass_1" not in summary["sets"]["single"]["columns"]["engine int8"]


@pytest.mark.slow
def test_the_tables_show_our_columns_and_the_published_ones(command: Any, monkeypatch: pytest.MonkeyPatch):
    answering(monkeypatch, truths(2))
    results = {f"humaneval-infilling-{SMALL}": command()}
    tables = infilling_table.markdown(results)
    assert "75.0 %" in tables["infilling"] and "70.3 %" in tables["infilling-published"]
    rows = list(infilling_table.rows(results))
    assert [row[:2] for row in rows[:2]] == [
        ("0.5B int8", "raw engine, standard prompt"), ("0.5B int8", "product"),
    ]  # fmt: skip
    assert {len(row) for row in rows} == {len(infilling_table.HEAD)}
    assert list(infilling_table.rows({})) == []


@pytest.mark.slow
def test_an_adapter_has_columns_of_its_own(command: Any, tiny: CompletionEngine, monkeypatch: pytest.MonkeyPatch):
    answering(monkeypatch, truths(2))
    command("--through", "product")
    monkeypatch.setattr(tiny, "target_format", "int8, adapter small-1 0123abcd")
    results = {f"humaneval-infilling-{SMALL}": command("--through", "product", "--through", "engine")}
    assert [row[:2] for row in infilling_table.rows(results)] == [
        ("0.5B int8, small-1", "raw engine, standard prompt"),
        ("0.5B int8", "product"),
        ("0.5B int8, small-1", "product"),
    ]


def test_a_task_set_that_differs_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path):
    monkeypatch.setattr(tasks, "fetch", lambda: tmp_path)
    monkeypatch.setattr(tasks, "problems", lambda archive: PROBLEMS)
    assert main(["humaneval-infilling", "--kind", "single", "--results", str(tmp_path)]) == 2
    assert "8 rebuilt single-line tasks have the sha256" in capsys.readouterr().err
