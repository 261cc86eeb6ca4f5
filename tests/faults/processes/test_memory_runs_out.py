"""Real memory exhaustion: the system refuses memory to an engine midway through requests, repeatedly.

The limit is the system's own (prlimit), set just above the engine's memory at that moment; the errors are torch's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from promises import Measured
from support.engine.engine_process import EngineProcess, engine_starter
from support.lsp.editor_client import Editor, Page
from support.waiting import wait_until

from speclsp.config import Config
from speclsp.daemon.engine_files import EngineEndpoint, EngineFiles

pytestmark = pytest.mark.skipif(not hasattr(psutil, "RLIMIT_AS"), reason="only Linux limits another process's memory")

LOADED_S = 120.0  # on a busy machine
WINDOWS = 5
NEEDED_MIB = 96  # MiB more that a pass allocates where the test selects it
ROOM_MIB = 32  # MiB that the system would still grant
# A text's keys take 80 MiB in one allocation: more than that room, and than malloc's largest arena, of 64 MiB.
LARGE_CONTEXT_TOKENS = 65536
PROGRAM = """
import sys, time
from pathlib import Path
import torch
from speclsp.config import Config
from speclsp.config import EngineConfig
from speclsp.engine.model import decoder
from speclsp.engine.process import server_process as process
from speclsp.engine.process import shared_engine

WANTED, HELD = Path(sys.argv[1] + ".hungry"), Path(sys.argv[1] + ".held")

def hungry(name, place):
    real = getattr(decoder.Decoder, name)
    def method(self, *given, **named):
        if WANTED.exists() and WANTED.read_text() == place:
            ballast = torch.ones({needed_mib} * 2**18)
        while HELD.exists():
            time.sleep(0.01)
        return real(self, *given, **named)
    setattr(decoder.Decoder, name, method)

hungry("extend", "prefill")
hungry("forward", "verify")
engine = EngineConfig(context_tokens={context_tokens}, threads=1, quantization="fp32")
shared_engine.run_foreground(Config(model="tiny", engine=engine))
"""
Start = Callable[..., EngineProcess]


@pytest.fixture
def start(isolated: Path) -> Iterator[Start]:
    """Starts an engine of the model tiny, whose passes allocate more memory, or wait, on demand."""
    with engine_starter(isolated / "run") as started:

        def start_loaded(context_tokens: int = 1024) -> EngineProcess:
            program = PROGRAM.format(needed_mib=NEEDED_MIB, context_tokens=context_tokens)
            engine = started(program=program).wait()
            engine.http.timeout = LOADED_S
            wait_until(lambda: engine.http.get("/health").json()["status"] == "ok", LOADED_S)
            return engine

        yield start_loaded


@contextmanager
def no_more_memory(engine: EngineProcess, room_mib: int = 0) -> Iterator[None]:
    """Limits the engine to so much more memory than it has."""
    process = psutil.Process(engine.process.pid)
    process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + room_mib * 2**20, -1))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_AS, (-1, -1))


def text(number: int, lines: int = 20) -> str:
    """Source code that shares no prefix with another number's."""
    return f"# file {number}\n" + "".join(f"value_{number}_{n} = {n}\n" for n in range(lines))


def ask(engine: EngineProcess, number: int, **fields: object) -> tuple[int, str, float]:
    """The status code, the text or the error's message, and the duration in seconds."""
    began_s = time.monotonic()
    body = {"input_prefix": text(number), "prompt": "", "input_suffix": "", "n_predict": 12, **fields}
    reply = engine.http.post("/infill", content=json.dumps(body))
    reply_body = reply.json()
    return (
        reply.status_code,
        reply_body["content"] if "content" in reply_body else reply_body["error"]["message"],
        time.monotonic() - began_s,
    )


def resident_mib(engine: EngineProcess) -> float:
    return psutil.Process(engine.process.pid).memory_info().rss / 2**20


@pytest.mark.promise(18)
def test_repeated_memory_exhaustion_costs_one_request_each_time_and_leaks_nothing(
    start: Start, promise: Measured, soak: bool
):
    cycles = 50 if soak else 6  # every second one unloads the model
    engine = start()
    hungry = Path(f"{engine.place}.hungry")
    expected = [ask(engine, number)[1] for number in range(2)]
    started_mib, longest_s, next_s = resident_mib(engine), 0.0, 0.0
    for cycle in range(cycles):
        hungry.write_text(("prefill", "verify")[cycle % 2])
        with no_more_memory(engine, ROOM_MIB):
            status, sentence, seconds = ask(engine, 100 + cycle)
        hungry.unlink()
        assert (status, "not enough memory" in sentence) == (503, True), sentence
        longest_s = max(longest_s, seconds)
        state = ("ok", "asleep")[cycle % 2]
        wait_until(lambda state=state: engine.http.get("/health").json()["status"] == state)
        began_s = time.monotonic()
        status, answer, _ = ask(engine, cycle % 2)
        next_s = max(next_s, time.monotonic() - began_s)
        assert (status, answer) == (200, expected[cycle % 2])
    grown_mib = resident_mib(engine) - started_mib
    assert engine.metric("oom_total") == cycles
    assert engine.process.poll() is None and grown_mib < 32
    assert longest_s < 20 and next_s < 60
    promise.measured(
        f"out of memory {cycles} times: told after {longest_s:.1f} s at most, next completion within {next_s:.1f} s,"
        f" memory {grown_mib:+.0f} MiB, same process",
        holds=longest_s <= 1 and next_s <= 3 and grown_mib <= 32,
    )


@pytest.mark.promise(18)
def test_a_full_cache_fails_one_request_and_the_others_are_answered(start: Start, promise: Measured):
    """Five windows at once, 160 MiB of cache for each text, and no memory for a fourth.

    The first window's pass waits until the other requests are queued. A round yields one token, so no request ends
    before four have started.
    """
    engine = start(LARGE_CONTEXT_TOKENS)
    held = Path(f"{engine.place}.held")
    fields = {"speculation": {"enabled": False}}
    expected = [ask(engine, number, **fields)[:2] for number in range(WINDOWS)]
    with no_more_memory(engine, ROOM_MIB), ThreadPoolExecutor(WINDOWS) as pool:
        held.touch()
        futures = [pool.submit(ask, engine, number, session=f"window {number}", **fields) for number in range(WINDOWS)]
        wait_until(lambda: engine.busy() == (1, WINDOWS - 1))
        held.unlink()
        answers = [future.result()[:2] for future in futures]
    ran_out = int(engine.metric("oom_total"))
    failed = [answer for answer in answers if answer[0] != 200]
    assert 1 <= ran_out == len(failed) < WINDOWS
    assert all("not enough memory" in sentence for _, sentence in failed)
    assert all(answer == wanted for answer, wanted in zip(answers, expected, strict=True) if answer[0] == 200)
    assert [ask(engine, number, **fields)[:2] for number in range(WINDOWS)] == expected
    promise.measured(
        f"{WINDOWS} windows and room for 3: {len(failed)} told of it and {WINDOWS - len(failed)} answered as ever",
        holds=True,
    )


@pytest.mark.promise(18)
def test_an_editor_gets_one_empty_answer_and_a_status_message(start: Start, promise: Measured):
    engine = start()
    hungry, source = Path(f"{engine.place}.hungry"), "def add(a, b):\n    return \n"
    EngineFiles.of(Config(model="tiny")).write(EngineEndpoint(pid=0, socket=str(engine.socket)))
    settings = ("--set", "completion.timeout_ms=30000")
    settings += ("--set", "completion.prefetch_next=false")  # it would exhaust memory by itself and be counted
    with Editor(*settings, model="tiny") as editor:
        editor.begin()
        server, cursor, longest_s = editor.process.pid, len(source) - 1, 0.0
        page = Page(editor, source)
        first = editor.text(page.ask(cursor))
        assert first
        for number in range(2):
            other = Page(editor, text(number) + source, uri=f"file:///hungry{number}.py")
            wait_until(lambda: engine.busy() == (0, 0))  # the last request may outlive its answer by a round
            hungry.write_text("verify")
            with no_more_memory(engine, ROOM_MIB):
                began_s = time.monotonic()
                assert editor.text(other.ask(len(other.text) - 1)) is None
                longest_s = max(longest_s, time.monotonic() - began_s)
            hungry.unlink()
            assert engine.metric("oom_total") > number, "the answer is empty because memory ran out"
        unloaded = "asleep", "memory ran out again; the next request loads the model again"
        assert editor.wait_for(lambda: unloaded in [(it["state"], it["message"]) for it in editor.statuses()], 10)
        page.edit(cursor, cursor, " ")
        page.edit(cursor, cursor + 1, "")
        assert editor.text(page.ask(cursor)) == first
        assert editor.process.pid == server and not [
            message for message in editor.notifications if message["method"].startswith("window/show")
        ]
    assert engine.process.poll() is None
    promise.measured(
        f"behind an editor: 2 empty answers after {longest_s:.1f} s at most, no popup", holds=longest_s <= 1
    )
