"""`speclsp verify`: recent requests are replayed plainly and speculatively, and every difference is reported."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as law
from hypothesis import strategies as st
from support.engine.engine_process import ANSWER, EngineProcess
from support.engine.tcp_engine import TcpEngine
from support.waiting import wait_until

from speclsp import config
from speclsp.cli import entry
from speclsp.config import Config
from speclsp.engine.api import Request, Result
from speclsp.engine.decoding.echo import EchoCompleter
from speclsp.engine.http import replay
from speclsp.engine.http.request_log import MAX_REQUESTS, DeliveredCompletion, RecentRequests

HOLES = (
    ("class Stack:\n    def __init__(self):\n        self._items = []\n\n", "    def push(self, item):", "\n"),
    ("def read(path):\n    with open(path) as f:\n", "        return f.", "\n\n\ndef write(path, data):\n    pass\n"),
    ("import os\nimport sys\n\n\ndef main():\n", "    if len(sys.argv) != 2:", "\n\nif __name__ == '__main__':\n"),
    ("for name in names:\n    if name not in seen:\n", "        se", "\n        yield name\n"),
)
CANARY = "kanarienvogel"

# An engine whose speculation changes the text from the sixth token on.
WRONG = """
import sys
from speclsp.config import Config
from speclsp.engine.decoding import echo
from speclsp.engine.process import server_process as process

class Wrong(echo.EchoCompletion):
    def __init__(self, request, *more):
        super().__init__(request, *more)
        if request.speculate:
            self.answer = self.answer[:5] + "-" * (len(self.answer) - 5)

echo.EchoCompletion = Wrong
sys.exit(process.main(Config(model="echo"), sys.argv[1]))
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """A real process with the tiny model loaded."""
    socket = tmp_path_factory.mktemp("t") / "e.sock"
    program = [sys.executable, "-m", "speclsp", "engine", "--model", "tiny", "--socket", str(socket)]
    process = EngineProcess(
        socket, "--set", "engine.context_tokens=512", "--set", "engine.threads=1", program=program
    ).wait()
    wait_until(lambda: process.http.get("/health").json()["status"] == "ok", 60)
    twenty(process)
    yield process
    process.close()


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[EngineProcess]:
    process = EngineProcess(tmp_path / "e.sock").wait()
    yield process
    process.close()


def hole(number: int, **fields: Any) -> dict[str, Any]:
    """The body of an /infill."""
    prefix, line, suffix = HOLES[number % len(HOLES)]
    words = {"input_prefix": prefix, "prompt": line, "input_suffix": suffix, "filename": f"src/{number}.py"}
    return words | {"n_predict": 12} | fields


def twenty(engine: EngineProcess) -> None:
    """Completions of each kind that a client can request."""
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"temperature": 0.9, "seed": 7, "top_p": 0.9},
        {"ignore_eos": True},
        {"stop": ["self"]},
        {"session": "an-editor", "previous": "self._items.append(item)\n"},
        {"speculation": {"enabled": False}},
        {"speculation": {"gamma": 3}},
    )
    for number in range(15):
        engine.infill(**hole(number, **kinds[number % len(kinds)]))
    engine.infill(**hole(15, n_cmpl=3, temperature=0.8))  # three completions
    for number in (17, 18):  # read only in part, as an editor does
        for count, _event in enumerate(engine.stream(**hole(number, n_predict=96, ignore_eos=True))):
            if count == 2:
                break
    wait_until(lambda: engine.busy() == (0, 0))


def verified(engine: EngineProcess, last: int = MAX_REQUESTS) -> list[dict[str, Any]]:
    """The lines of POST /verify, without the end."""
    lines = []
    with engine.http.stream("POST", "/verify", json={"last": last}, timeout=120) as reply:
        assert reply.status_code == 200, reply.read()
        lines = [json.loads(line[5:]) for line in reply.iter_lines() if line.startswith("data:")]
    assert lines[-1] == {"end": True}, lines[-1]
    return lines[:-1]


# ── real processes ────────────────────────────────────────────────────────────────────────────────────────


def test_twenty_completions_of_every_kind_are_identical_plain_and_speculative(tiny: EngineProcess, capsys: Any):
    assert entry.main(["verify", "--set", f"engine.socket={tiny.socket}", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["identical"] == report["compared"] == len(report["requests"]) == 20, report
    assert report["skipped"] == {}
    assert report["drafted"] > 0 and report["accepted"] > 0, "nothing was speculated: this shows nothing"
    cut = [line for line in report["requests"] if line["stop_type"] == "cancelled"]
    assert len(cut) == 2 and all(line["tokens"] == line["given"] for line in cut), "compared as far as they went"


def test_the_readable_report_names_the_requests_and_the_time(echo: EngineProcess, capsys: Any):
    echo.infill(**hole(0))
    assert entry.main(["verify", "--set", f"engine.socket={echo.socket}"]) == 0
    output = capsys.readouterr().out
    assert "src/0.py" in output and re.search(r"\b(\d+) of \1 identical", output), output
    assert "\x1b" not in output, "no colour in a pipe"


def test_rejection_sampling_promises_only_the_distribution_and_is_not_compared(tiny: EngineProcess):
    tiny.infill(**hole(0, temperature=0.9, sampling="rejection"))
    (line,) = verified(tiny, last=1)
    assert line["skipped"] == replay.REJECTION


def test_replays_are_neither_counted_nor_logged_as_requests(tiny: EngineProcess):
    names = ("requests_total", "predicted_tokens_total", "cancelled_total", "prompt_tokens_total", "latency_ms_count")
    before, first = [tiny.metric(name) for name in names], verified(tiny, last=5)
    assert [tiny.metric(name) for name in names] == before
    again = verified(tiny, last=5)
    assert [line["at_s"] for line in again] == [line["at_s"] for line in first], "the same requests, not the replays"


def test_an_editor_can_type_during_a_replay(tiny: EngineProcess):
    lines: list[dict[str, Any]] = []
    replaying = threading.Thread(target=lambda: lines.extend(verified(tiny, last=8)))
    replaying.start()
    answered = 0
    while replaying.is_alive() and answered < 200:
        assert tiny.infill(**hole(answered, session="typing", n_predict=4))["stop_type"] in ("limit", "eos", "word")
        answered += 1
    replaying.join(120)
    assert answered > 3, "the replays kept their turns to themselves"
    assert len(lines) == 8 and all(line["identical"] for line in lines if "skipped" not in line), lines


def test_a_disconnect_ends_the_replay(tiny: EngineProcess):
    with tiny.http.stream("POST", "/verify", json={}) as reply:
        next(reply.iter_lines())
    wait_until(lambda: tiny.busy() == (0, 0))
    assert verified(tiny, last=1)[0]["identical"], "and others can verify"


def test_speculation_that_changes_the_text_is_found_and_named(tmp_path: Path, capsys: Any):
    socket = tmp_path / "e.sock"
    wrong = EngineProcess(socket, program=[sys.executable, "-c", WRONG, str(socket)]).wait()
    try:
        assert wrong.infill()["content"] == ANSWER[:5] + "-" * (len(ANSWER) - 5)
        assert entry.main(["verify", "--set", f"engine.socket={socket}"]) == 1
        output = capsys.readouterr().out
        assert "DIFFERENT at token 6: speculative from plain" in output and "0 of 1 identical" in output, output
    finally:
        wrong.close()


def test_a_replay_sends_neither_text_nor_tokens(echo: EngineProcess):
    echo.infill(prompt=CANARY)
    with echo.http.stream("POST", "/verify", json={}) as reply:
        body = reply.read().decode()
    assert CANARY not in body and ANSWER[:4] not in body
    assert '"identical":true' in body


def test_verify_is_refused_on_the_tcp_port(tmp_path_factory: pytest.TempPathFactory):
    process = TcpEngine(tmp_path_factory.mktemp("p"))
    try:
        assert process.post("/infill", prompt="a", filename=CANARY).status_code == 200
        refused = process.post("/verify")
        assert refused.status_code == 404 and "Unix socket" in refused.text and CANARY not in refused.text
    finally:
        process.close()


@pytest.mark.parametrize("body", [b"[]", b'{"last": 0}', b'{"last": 33}', b'{"last": "all"}', b"{"])
def test_an_invalid_body_is_refused(echo: EngineProcess, body: bytes):
    reply = echo.http.post("/verify", content=body)
    assert reply.status_code == 400, reply.text


def test_without_an_engine_or_without_requests_verify_fails_with_a_message(echo: EngineProcess, capsys: Any):
    assert entry.main(["verify"]) == 2
    assert "no engine runs" in capsys.readouterr().err
    assert entry.main(["verify", "--set", f"engine.socket={echo.socket}"]) == 2
    assert "this engine has completed no requests yet" in capsys.readouterr().err
    assert entry.main(["verify", "--set", "remote.url=https://team.example/v1"]) == 2
    assert "team.example" in capsys.readouterr().err


def test_an_engine_that_ends_during_a_replay_is_reported_with_the_fix(tmp_path: Path, capsys: Any):
    with socket.socket(socket.AF_UNIX) as listening:
        path = tmp_path / "e.sock"
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen()
        closing = threading.Thread(target=lambda: listening.accept()[0].close())
        closing.start()
        assert entry.main(["verify", "--set", f"engine.socket={path}"]) == 2
        closing.join(10)
    output = capsys.readouterr().err
    assert "does not answer or has ended" in output and "speclsp engine status" in output


# ── recent requests in memory ──────────────────────────────────────────────────────────────────────────────────────


def kept(text: str = "a", tokens: tuple[int, ...] = (1, 2, 3), **more: Any) -> DeliveredCompletion:
    facts: dict[str, Any] = {"stop_type": "eos", "prompt_tokens": 5, "draft_only": False}
    facts |= {"made_by": ("echo", "echo", "cpu")} | more
    return DeliveredCompletion(request=Request(prefix=text), tokens=tokens, **facts)


@law(st.lists(st.integers(0, 9000), max_size=80))
def test_the_newest_requests_are_kept_within_bounds_of_number_and_bytes(sizes: list[int]):
    recent = RecentRequests(max_bytes=20_000)
    for place, size in enumerate(sizes):
        recent.add(kept("x" * size, at_s=float(place)))
    newest = recent.last(MAX_REQUESTS)
    assert len(newest) <= MAX_REQUESTS and recent.bytes == sum(request.size_bytes for request in newest) <= 20_000
    assert [request.at_s for request in newest] == [
        float(place) for place in range(len(sizes) - len(newest), len(sizes))
    ]


def test_a_request_too_large_to_keep_does_not_evict_the_others():
    recent = RecentRequests(max_bytes=20_000)
    recent.add(kept())
    recent.add(kept("x" * 30_000))
    assert recent.last(MAX_REQUESTS) == [kept(at_s=recent.last(1)[0].at_s)]


# ── comparison of answers ─────────────────────────────────────────────────────────────────────────────────────────


def lines(one: DeliveredCompletion, *results: Result, completer: Any = None) -> list[dict[str, Any]]:
    """The report of replaying `one` where the engine generates `results` in turn."""
    waiting = list(results)
    return list(replay.verify([one], lambda request, needed: waiting.pop(0), lambda: completer))


def made(*tokens: int, stop: str = "eos", **more: Any) -> Result:
    return Result(tokens=list(tokens), stop_type=stop, prompt_tokens=5, rounds=1, **more)


@law(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6), st.booleans())
def test_the_report_says_identical_exactly_for_equal_answers(then: list[int], now: list[int], whole: bool):
    delivered = kept(tokens=tuple(then), stop_type="eos" if whole else "deadline")
    (line,) = lines(delivered, made(*now), made(*now))
    same = then == now if whole else then == now[: len(then)]
    assert line["identical"] is same
    (line,) = lines(replace(delivered, tokens=tuple(now)), made(*now), made(*then))
    compared = (now, then) if whole else (now, then[: len(now)])
    assert line["identical"] is (compared[0] == compared[1])


def test_the_first_difference_is_reported_with_its_position_and_kind():
    (line,) = lines(kept(), made(1, 2, 3), made(1, 9, 3))
    assert (line["differs"], line["differs_at"]) == ("speculative from plain", 1)
    (line,) = lines(kept(), made(1, 2), made(1, 2))
    assert (line["differs"], line["differs_at"]) == ("plain from what was given", 2)
    (line,) = lines(kept(), made(1, 2, 3, stop="limit"), made(1, 2, 3, stop="limit"))
    assert line["identical"] is False, "it ended otherwise"


def test_answers_that_may_rightly_differ_are_skipped():
    alone = made(1, 2, 3, draft_only=True)
    assert lines(kept(draft_only=True))[0]["skipped"] == replay.DRAFT_ALONE
    assert lines(kept(), alone, alone)[0]["skipped"] == replay.DRAFT_ALONE
    assert lines(kept(prompt_tokens=9), made(1, 2, 3), made(1, 2, 3))[0]["skipped"] == replay.OTHER_PROMPT
    other = kept(made_by=("echo", "a larger one", "cpu"))
    assert lines(other, completer=EchoCompleter(Config()))[0]["skipped"] == replay.OTHER_MODEL


def test_on_a_gpu_speculation_must_equal_plain_and_a_difference_from_the_old_answer_is_a_remark():
    delivered = kept(made_by=("echo", "echo", "cuda:0"))
    (line,) = lines(delivered, made(1, 2, 4), made(1, 2, 4))
    assert line["identical"] is True and line["rounded_otherwise_at"] == 2
    (line,) = lines(delivered, made(1, 2, 4), made(1, 2, 3))
    assert line["identical"] is False


def test_nothing_is_written_to_disk(echo: EngineProcess):
    echo.infill(prompt=CANARY)
    assert len(verified(echo)) == 1
    written = [path for path in config.state_dir().rglob("*") if path.is_file()]
    assert not [path for path in written if CANARY.encode() in path.read_bytes()]
