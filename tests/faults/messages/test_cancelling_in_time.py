"""Cancellation: a cancelled request is answered at once, and the engine is free within a round, also during prefill."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from promises import Measured
from support.engine.engine_process import EngineProcess
from support.faults.typing_storm import CANCELLED, Clocked, quantile, total
from support.lsp.editor_client import Page
from support.soak import in_soak
from support.waiting import wait_until

SOURCE = "def add(a, b):\n    return \n"
CURSOR = len(SOURCE) - 1
ROUND_MS = 40  # as for a model on two cores
SETTINGS = {
    "echo": ("--set", f"echo.round_ms={ROUND_MS}", "--set", "completion.timeout_ms=20000"),
    "tiny": ("--set", "completion.timeout_ms=20000"),
}
LONG = "".join(f"value_{number} = compute({number}, 'name {number}')\n" for number in range(1500))


def cancels_alone(editor: Clocked, page: Page, msg_id: int) -> None:
    """Cancels without an edit: the cursor moved, or the window lost the focus."""
    editor.notify("$/cancelRequest", {"id": msg_id})


def cancels_and_types(editor: Clocked, page: Page, msg_id: int) -> None:
    """VS Code: cancels the older request and sends the edit at once."""
    editor.notify("$/cancelRequest", {"id": msg_id})
    page.type(CURSOR, "z")


def types_and_asks(editor: Clocked, page: Page, msg_id: int) -> None:
    """Neovim: sends the edit and the next request."""
    page.ask(page.type(CURSOR, "z"))


Way = Callable[[Clocked, Page, int], None]


def took_ms(editor: Clocked, way: Way, times: int) -> list[float]:
    """The times from cancelling to the reply in ms, for requests that had no reply yet."""
    dice, times_ms = random.Random(way.__name__), []
    for number in range(times):
        page = Page(editor, f"{SOURCE}# {way.__name__} {number}\n", uri=f"file:///{way.__name__}-{number}.py")
        msg_id = page.ask(CURSOR)
        time.sleep(dice.choice((0.0, 0.002, 0.01, 0.03)))
        answered, start = msg_id in editor.came, time.perf_counter()
        way(editor, page, msg_id)
        reply = editor.reply(msg_id)
        if not answered and "error" in reply:
            assert reply["error"]["code"] == CANCELLED and way is not types_and_asks
        if not answered and (way is types_and_asks or "error" in reply):
            times_ms.append((editor.came[msg_id] - start) * 1000)
        editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    return times_ms


@pytest.mark.promise(9, 10)
@pytest.mark.parametrize("model", ["echo", *in_soak("tiny")])
def test_a_cancelled_request_is_answered_at_once(promise: Measured, soak: bool, model: str):
    times = 150 if soak else 10
    with Clocked(*SETTINGS[model], model=model) as editor:
        editor.initialize({})
        editor.until("ready", timeout_s=60)
        took_ms(editor, cancels_alone, 5)
        waits_ms = [took_ms(editor, way, times) for way in (cancels_alone, cancels_and_types, types_and_asks)]
        assert editor.popups() == []
    assert all(len(ms) > times / 4 for ms in waits_ms), "most had not been answered when they were given up"
    cancelled, superseded = waits_ms[0] + waits_ms[1], waits_ms[2]
    p99_ms = [quantile(ms, 0.99) for ms in (cancelled, superseded)]
    assert max(p99_ms) < 1000
    promise.measured(
        f"{model}: {len(cancelled)} cancelled, answered after {quantile(cancelled, 0.5):.1f} ms (p50) and "
        f"{p99_ms[0]:.1f} (p99); {len(superseded)} superseded, after {quantile(superseded, 0.5):.1f} "
        f"and {p99_ms[1]:.1f}",
        holds=max(p99_ms) <= 50,
    )


@pytest.mark.promise(9)
def test_the_engine_runs_at_most_one_more_round_for_a_cancelled_request(promise: Measured, soak: bool):
    """Counts the engine's rounds, less those that were due before the key."""
    times = 30 if soak else 6
    dice = random.Random(9)
    ways = {"cancelled with a key": cancels_and_types, "cancelled alone": cancels_alone}
    with Clocked(*SETTINGS["echo"]) as editor:
        editor.begin()
        for name, way in ways.items():
            before, due, late_ms = total(editor, "rounds_total"), 0.0, total(editor, "stale_work_ms_sum")
            for number in range(times):
                page = Page(editor, f"{SOURCE}# {number}\n", uri=f"file:///{way.__name__}-{number}.py")
                msg_id, start = page.ask(CURSOR), time.perf_counter()
                time.sleep(dice.uniform(0.05, 0.4))
                due += (time.perf_counter() - start) * 1000 // ROUND_MS
                way(editor, page, msg_id)
                assert editor.reply(msg_id)["error"]["code"] == CANCELLED
                wait_until(lambda: not editor.metrics()["speclsp_running_requests"])
                editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
            wasted = max(0.0, total(editor, "rounds_total") - before - due) / times
            late_ms = (total(editor, "stale_work_ms_sum") - late_ms) / times
            assert wasted < 5
            promise.measured(
                f"{times} {name}: {wasted:.2f} rounds of {ROUND_MS} ms after it on average, the engine free "
                f"{late_ms:.1f} ms after it heard",
                holds=wasted <= 1,
            )


# ── cancelled during prefill ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def engine(isolated: Path) -> Iterator[Callable[..., EngineProcess]]:
    """Starts engines with a model and settings, in a folder of a short name: a Unix socket's path has 103 bytes."""
    with ExitStack() as stack:

        def start(model: str, *settings: str) -> EngineProcess:
            flags = [word for setting in settings for word in ("--set", setting)]
            process = stack.enter_context(closing(EngineProcess(isolated / "s", *flags, model=model)))
            process.wait()
            wait_until(lambda: is_ready(process), 240)
            return process

        yield start


def is_ready(engine: EngineProcess) -> bool:
    """True once the model is loaded. An engine that is too busy to read closes an idle connection, even one in use."""
    try:
        return engine.http.get("/health").json()["status"] == "ok"
    except httpx.TransportError:
        return False


def freed_ms(engine: EngineProcess, prefix: str, after_s: float) -> tuple[float, float]:
    """Sends a request and disconnects during prefill: ms until the engine is free, and the tokens prefilled by then."""
    read, late_ms = engine.metric("prefilled_tokens_total"), engine.metric("stale_work_ms_sum")
    body = {"input_prefix": prefix, "prompt": "", "input_suffix": "\n", "stream": True, "cache_prompt": False}
    http = engine.http
    sent = http.build_request("POST", "/infill", json={**body, "n_predict": 8, "t_max_predict_ms": 100_000})
    with Leaving(engine.socket, sent.read()) as client:
        wait_until(lambda: engine.busy()[0] == 1)
        time.sleep(after_s)
        assert engine.busy()[0] == 1, "the prompt was read before its client left"
        client.leave()
        wait_until(lambda: engine.busy() == (0, 0), 20)
    wait_until(lambda: engine.metric("stale_work_ms_sum") > late_ms, 5)
    return engine.metric("stale_work_ms_sum") - late_ms, engine.metric("prefilled_tokens_total") - read


class Leaving:
    """A client that sends a request and disconnects on demand."""

    def __init__(self, path: Path, body: bytes) -> None:
        self._path, self._body = path, body

    def __enter__(self) -> Leaving:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(self._path))
        head = f"POST /infill HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(self._body)}\r\n\r\n"
        self._socket.sendall(head.encode() + self._body)
        return self

    def __exit__(self, *problem: object) -> None:
        self._socket.close()

    leave = __exit__


@pytest.mark.promise(9)
def test_prefill_of_an_abandoned_prompt_stops(promise: Measured, soak: bool, engine: Callable[..., EngineProcess]):
    tokens = 2048 if soak else 1024
    process = engine("tiny", f"engine.context_tokens={tokens}", "engine.quantization=fp32")  # slow enough to be left
    freed = [freed_ms(process, LONG[number:], 0.0) for number in range(10 if soak else 2)]
    worst_ms = max(ms for ms, _ in freed)
    assert worst_ms < 3000
    promise.measured(
        f"tiny, {len(freed)} prompts left in the middle: free within {worst_ms:.0f} ms", holds=worst_ms <= 150
    )


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.promise(9)
def test_prefill_of_eight_thousand_tokens_is_cancelled_midway(
    promise: Measured, soak: bool, coder_0_5b: Path, engine: Callable[..., EngineProcess]
):
    model = "qwen2.5-coder-0.5b-instruct"
    process = engine(model, f"models_dir={coder_0_5b.parent}", "engine.context_tokens=8192", "engine.offline=true")
    freed = [freed_ms(process, LONG[number:], after_s) for number, after_s in enumerate((1.5, 4.0)[: 2 if soak else 1])]
    worst_ms, read = max(ms for ms, _ in freed), max(tokens for _, tokens in freed)
    assert worst_ms < 5000
    promise.measured(
        f"0.5B, a prompt of 8,000 tokens left after up to {read:,.0f} of them: free within {worst_ms:.0f} ms",
        holds=worst_ms <= 150,
    )
