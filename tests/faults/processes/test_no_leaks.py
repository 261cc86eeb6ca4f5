"""Leaks: neither process grows over long work, and both sleep without work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from promises import Measured
from support.faults.typing_storm import Clocked, slope
from support.lsp.editor_client import Editor, Page, echoed
from support.soak import in_soak

from benchmarks.speed import start, typed_hour
from speclsp import config

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
PER_HOUR = 3600  # completions, at one a second
WANTED_KIB = 1024.0  # growth in such an hour
WARM = 0.4  # share of the steps: caches fill to their bounds and the allocator takes its working memory
MAX_PRIVATE_MIB = 350  # of an engine with the 0.5B, outside the mapped file of its weights
IDLE_SHARE = 0.005  # of a core


@dataclass(slots=True)
class Watched:
    """Memory, handles and threads of the processes behind an editor, sampled over time."""

    editor: Editor
    processes: list[psutil.Process] = field(default_factory=list)
    samples: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)  # (steps, KiB of each process)
    handles: list[tuple[int, ...]] = field(default_factory=list)  # file handles and threads of each process

    def __post_init__(self) -> None:
        (engine,) = self.editor.engines()
        self.processes = [self.editor.server, engine]

    def look(self, done: int) -> None:
        """Samples each process after `done` steps."""
        self.samples.append((done, tuple(process.memory_info().rss / 1024 for process in self.processes)))
        self.handles.append(tuple(n for process in self.processes for n in (process.num_fds(), process.num_threads())))

    def grown_kib(self) -> list[float]:
        """Growth of each process per 1,000 steps after the warm-up."""
        steady = self.steady(self.samples)
        return [1000 * slope([(done, kib[number]) for done, kib in steady]) for number in range(len(self.processes))]

    def more_handles(self) -> int:
        """The handles and threads at the end, beyond the maximum after the warm-up."""
        steady = self.steady(self.handles)
        first, last = steady[: len(steady) // 2], steady[-3:]
        most = [max(counts) for counts in zip(*first, strict=True)]
        least = [min(counts) for counts in zip(*last, strict=True)]
        return max(0, max(now - before for before, now in zip(most, least, strict=True)))

    @staticmethod
    def steady(samples: Sequence) -> Sequence:
        return samples[int(WARM * len(samples)) :]


def completions(editor: Clocked, pages: list[Page], count: int) -> Iterator[int]:
    """Requests `count` completions, one in each document at once, each for its own text; yields the number done."""
    for done in range(0, count, len(pages)):
        requests = []
        for number, page in enumerate(pages):
            page.edit(CURSOR, page.text.index("\n", CURSOR), f"x{done + number}")
            requests.append((page, page.ask(CURSOR)))
        for page, msg_id in requests:
            items = editor.items(msg_id, 60)
            if page.uri.startswith("file:///echo"):
                assert items[0]["insertText"] == echoed(page.text[:CURSOR], page.text[CURSOR:])
            del editor.replies[msg_id], editor.came[msg_id]
        editor.arrived.clear()
        editor.notifications.clear()
        yield done + len(pages)


@pytest.mark.promise(25)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("model", "long"), [("echo", 100_000), *in_soak(("tiny", 4800))])
def test_completion_after_completion_neither_process_grows(promise: Measured, soak: bool, model: str, long: int):
    count = long if soak else 240
    with Clocked("--set", "completion.timeout_ms=60000", model=model) as editor:
        editor.initialize({})
        editor.until("ready", timeout_s=60)
        pages = [Page(editor, SOURCE, uri=f"file:///{model}-{number}.py") for number in range(12)]
        watched = Watched(editor)
        for number, done in enumerate(completions(editor, pages, count)):
            if number % max(1, count // 12 // 100) == 0:
                watched.look(done)
        per_hour_kib = [kib * PER_HOUR / 1000 for kib in watched.grown_kib()]
        more = watched.more_handles()
    assert more <= 4
    if soak:  # a short run covers only the allocator's warm-up
        assert max(per_hour_kib) < 8 * WANTED_KIB
    promise.measured(
        f"{model}: {count:,} completions: at one a second the server grows by {per_hour_kib[0] / 1024:.2f} MB an hour "
        f"and the engine by {per_hour_kib[1] / 1024:.2f}; {more} more handles or threads",
        holds=more == 0 and (max(per_hour_kib) < WANTED_KIB or not soak),
    )


@pytest.mark.promise(25)
@pytest.mark.timeout(600)
def test_opened_and_closed_documents_leak_nothing(promise: Measured, soak: bool):
    count = 5000 if soak else 120
    with Clocked("--set", "completion.timeout_ms=60000") as editor:
        editor.begin()
        watched = Watched(editor)
        for number in range(count):
            uri = f"file:///come/and/go/{number}.py"
            page = Page(editor, f"{SOURCE}# {number} {'text of its own ' * 100}\n", uri=uri)
            msg_id = page.ask(CURSOR)
            assert len(editor.items(msg_id, 60)) == 1
            del editor.replies[msg_id], editor.came[msg_id]
            editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
            if number % (count // 60) == 0:
                watched.look(number)
        server_kib, engine_kib = watched.grown_kib()
    if soak:
        assert server_kib < 2000
    promise.measured(
        f"{count:,} documents opened and closed: {server_kib:.0f} KiB grown in the server for 1,000, "
        f"{engine_kib:.0f} in the engine",
        holds=max(server_kib, engine_kib) < 200 or not soak,
    )


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.timeout(900)
def test_an_hour_of_typing_fills_the_engines_caches_up_to_their_bounds(coder_0_5b: Path):
    given = {"models_dir": str(coder_0_5b.parent), "engine.offline": True}
    settings = config.load({"model": coder_0_5b.name, **given})
    assert start.measure_memory(settings, typed_hour.REQUESTS)["private_mib"] <= MAX_PRIVATE_MIB


@pytest.mark.promise(25)
def test_an_idle_editor_uses_almost_no_processor_time(promise: Measured, soak: bool):
    seconds, model = (20, "tiny") if soak else (3, "echo")
    with Clocked("--set", f"engine.idle_unload_minutes={(seconds + 4) / 60}", model=model) as editor:
        editor.initialize({})
        editor.until("ready", timeout_s=60)
        page = Page(editor, SOURCE)
        for number in range(5):
            page.edit(CURSOR, CURSOR, str(number))
            editor.items(page.ask(CURSOR), 20)
        time.sleep(1)
        for state in ("ready", "asleep"):
            editor.until(state, after=len(editor.statuses()) - 1, timeout_s=60)
            server, engine = shares_of_a_core(Watched(editor).processes, seconds)
            assert server + engine < 0.1
            promise.measured(
                f"idle for {seconds} s, {state}: the server {server:.2%} of a core, the engine {engine:.2%}",
                holds=server + engine < IDLE_SHARE,
            )


def shares_of_a_core(processes: Sequence[psutil.Process], seconds: float) -> list[float]:
    """The share of a core that each process uses within some seconds."""
    before, start = [sum(process.cpu_times()[:2]) for process in processes], time.perf_counter()
    time.sleep(seconds)
    spent = [sum(process.cpu_times()[:2]) - cpu_s for process, cpu_s in zip(processes, before, strict=True)]
    return [cpu_s / (time.perf_counter() - start) for cpu_s in spent]
