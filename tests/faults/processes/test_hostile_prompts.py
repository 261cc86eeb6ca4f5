"""Hostile prompts: megabytes of text in every field hold up no liveness answer, and take no memory for long."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from promises import Measured
from support.engine.engine_process import EngineProcess
from support.waiting import wait_until

PAIR = "tiny"
USUAL = 7000  # characters: a full context
MIB = 2**20
MAX_GROWN_MIB = 100
WANTED_HEALTH_S = 2.0
PATIENCE_S = 5.0  # after that, an editor takes the engine for hung
FIELDS = ("input_prefix", "input_suffix", "previous", "extra", "filename")


@pytest.fixture
def engine(isolated: Path, soak: bool) -> Iterator[EngineProcess]:
    short = () if soak else ("--set", "engine.context_tokens=512")  # each prompt fills the context
    with closing(EngineProcess(isolated / "e", *short, model=PAIR)) as engine:
        engine.wait()
        wait_until(lambda: engine.http.get("/health").status_code == 200, 120)
        engine.http.timeout = 600
        yield engine


def source(characters: int, seed: int) -> str:
    """Code that no other seed makes."""
    dice, parts, made = random.Random(seed), [], 0
    while made < characters:
        name = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz_", k=8))
        parts.append(f"def {name}(a, b):\n    return a + b * {dice.randrange(10**6)}\n\n")
        made += len(parts[-1])
    return "".join(parts)[:characters]


def hostile_bodies(number: int, most_bytes: int) -> Iterator[tuple[str, bytes]]:
    """(path, body): a large text in each field, one word of a text's length, many values, one deep value."""
    text = source(most_bytes, number)
    words = " ".join("".join(random.Random(number).choices("qxzjkvw", k=250)) for _ in range(200))
    plain: dict[str, Any] = {"prompt": "x = ", "n_predict": 2}
    for prompt in (text, "a" * most_bytes, " " * most_bytes, words, "<|fim_prefix|>" * (most_bytes // 14)):
        yield "/completion", json.dumps(plain | {"prompt": prompt}).encode()
    yield "/v1/completions", json.dumps({"prompt": text, "suffix": text[::-1], "max_tokens": 2}).encode()
    for field in FIELDS:
        large = {"input_extra": [{"filename": "a.py", "text": text}] * 2} if field == "extra" else {field: text}
        yield "/infill", json.dumps(plain | large).encode()
    yield "/completion", json.dumps(plain | {"stop": [text[:60_000] + str(n) for n in range(64)]}).encode()
    yield "/completion", json.dumps(plain | {"response_fields": ["/" * most_bytes]}).encode()
    yield "/completion", b'{"prompt": "", "stop": [' + b"[]," * (most_bytes // 3) + b"0]}"
    yield "/completion", b"[" * most_bytes
    yield "/completion", b"{" + b",".join(b'"%d":0' % n for n in range(most_bytes // 10)) + b"}"


@contextmanager
def health_asked(engine: EngineProcess) -> Iterator[list[float]]:
    """Asks for /health all the time on a connection of its own; yields the seconds that each answer took."""
    took_s: list[float] = []
    done = threading.Event()

    def ask() -> None:
        transport = httpx.HTTPTransport(uds=str(engine.socket))
        with httpx.Client(transport=transport, base_url="http://engine", timeout=600) as client:
            while not done.wait(0.02):
                began_s = time.monotonic()
                client.get("/health")
                took_s.append(time.monotonic() - began_s)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield took_s
    finally:
        done.set()
        asking.join()


@pytest.mark.promise(25)
@pytest.mark.timeout(3600)
def test_large_prompts_stop_no_liveness_answer_and_their_memory_is_given_back(
    engine: EngineProcess, soak: bool, promise: Measured
):
    """The start is an engine whose slots are full; in the soak, 12 usual prompts fill the KV cache's archive, too."""
    for number in range(12 if soak else 4):
        engine.http.post("/completion", json={"prompt": source(USUAL, -1 - number), "n_predict": 2})
    process = psutil.Process(engine.process.pid)
    start_mib = process.memory_info().rss // MIB
    sizes = [15 * MIB // 2, 4 * MIB, MIB] * 4 if soak else [MIB // 16]
    refused = served = 0
    with health_asked(engine) as took_s:
        for number, most_bytes in enumerate(sizes):
            for path, body in hostile_bodies(number, most_bytes):
                status = engine.http.post(path, content=body).status_code
                assert status in (200, 400), (path, body[:60])
                served, refused = served + (status == 200), refused + (status == 400)
    wait_until(lambda: process.memory_info().rss // MIB - start_mib <= MAX_GROWN_MIB, 10)
    grown_mib = process.memory_info().rss // MIB - start_mib
    assert (served, refused) == (13 * len(sizes), 3 * len(sizes))
    assert max(took_s) < PATIENCE_S
    promise.measured(
        f"{served + refused} hostile prompts of up to {max(sizes) / MIB:.2g} MiB: /health answered after "
        f"{max(took_s):.2f} s at most; {grown_mib} MiB more in memory",
        holds=grown_mib <= MAX_GROWN_MIB and max(took_s) <= WANTED_HEALTH_S,
    )
