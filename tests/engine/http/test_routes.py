"""HTTP routes over the Unix socket: shapes, streams, queueing, cancellation. A real process, without a model."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.engine.engine_process import ABC, ANSWER, EngineProcess
from support.waiting import wait_until

ROUND_MS = 20
SLOW_ROUND_MS = 300
LEASE = b"GET /lease HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="spec-") as directory:
        yield Path(directory)


def running(place: Path, round_ms: int) -> Iterator[EngineProcess]:
    engine = EngineProcess(place, round_ms=round_ms)
    with closing(engine):
        yield engine.wait()


@pytest.fixture(scope="module")
def engine(place: Path) -> Iterator[EngineProcess]:
    """Rounds take no time."""
    yield from running(place / "fast", 0)


@pytest.fixture(scope="module")
def slow(place: Path) -> Iterator[EngineProcess]:
    """Rounds take ROUND_MS."""
    yield from running(place / "slow", ROUND_MS)


@pytest.fixture(scope="module")
def crawling(place: Path) -> Iterator[EngineProcess]:
    """Rounds take SLOW_ROUND_MS."""
    yield from running(place / "crawling", SLOW_ROUND_MS)


# Shapes


def test_an_infill_answer_has_every_promised_field(engine: EngineProcess):
    answer = engine.infill()
    assert answer["content"] == ANSWER
    assert answer["tokens"] == [ord(character) for character in ANSWER]
    assert (answer["stop"], answer["stop_type"], answer["model"]) == (True, "eos", "echo")
    timings = answer["timings"]
    assert (timings["prompt_n"], timings["cache_n"], timings["predicted_n"]) == (6, 0, len(ANSWER))
    assert {"prompt_ms", "predicted_ms", "ttft_ms", "queue_ms", "predicted_per_second"} <= timings.keys()
    assert answer["speculation"] == {"rounds": len(ANSWER), "drafted": 0, "accepted": 0, "by_source": {}}
    assert "completions" not in answer


def test_a_stream_gives_each_round_as_it_comes_and_then_the_totals(crawling: EngineProcess):
    arrived, running = [], 0
    for event in crawling.stream(n_predict=5):
        running = crawling.busy()[0] if not arrived else running
        arrived.append(event)
    *rounds, final = arrived
    assert [event["content"] for event in rounds] == list(ANSWER[:5])
    assert [event["tokens"] for event in rounds] == [[ord(character)] for character in ANSWER[:5]]
    assert {event["stop"] for event in rounds} == {False}
    assert rounds[0]["round"].items() >= {"source": "", "drafted": 0, "accepted": 0}.items()
    assert (final["stop"], final["content"], final["stop_type"]) == (True, "", "limit")
    assert final["tokens"] == [ord(character) for character in ANSWER[:5]]
    assert running == 1, "the first round arrives while the others are computed"


def test_several_completions_come_as_a_list_of_different_texts_as_in_llama_cpp(engine: EngineProcess):
    answers = engine.infill(n_cmpl=3)
    assert [answer["content"] for answer in answers] == [ANSWER, ANSWER + ":2", ANSWER + ":3"]
    assert [(answer["index"], answer["stop_type"]) for answer in answers] == [(0, "eos"), (1, "eos"), (2, "eos")]
    same = engine.infill(n_cmpl=3, n_predict=5)
    assert [answer["content"] for answer in same] == [ANSWER[:5]], "the same text is offered once"


def test_stop_texts_end_the_answer_before_them(engine: EngineProcess):
    answer = engine.infill(stop=["bf:", "nowhere"])
    assert (answer["content"], answer["stop_type"]) == ("E:ba7816", "word")


def test_a_time_limit_ends_the_answer_with_its_text_so_far(slow: EngineProcess):
    *rounds, final = slow.stream(t_max_predict_ms=3 * ROUND_MS)
    text = "".join(event["content"] for event in rounds) + final["content"]
    assert final["stop_type"] == "deadline"
    assert ANSWER.startswith(text)
    assert 1 <= len(text) <= 4


def test_health_names_the_models(engine: EngineProcess):
    reply = engine.http.get("/health")
    assert reply.status_code == 200
    assert reply.json().items() >= {"status": "ok", "model": "echo", "device": "cpu", "version": "0.1.0"}.items()


def test_metrics_count_requests_tokens_and_times(engine: EngineProcess):
    before = engine.metric("predicted_tokens_total"), engine.metric('requests_total{stop="eos"}')
    engine.infill()
    assert engine.metric("predicted_tokens_total") == before[0] + len(ANSWER)
    assert engine.metric('requests_total{stop="eos"}') == before[1] + 1
    assert engine.metric("ttft_ms_count") == engine.metric("round_ms_count") > 0
    assert engine.metric("round_ms_sum") > 0
    assert engine.metric("latency_ms_count") > 0
    assert 'speclsp_model_info{device="cpu",draft="",model="echo"' in engine.http.get("/metrics").text


ENDLESS = """
import itertools, sys
from speclsp.config import Config
from speclsp.engine.process import server_process as process
from speclsp.engine.process import shared_engine
from speclsp.engine.api import Piece
from speclsp.engine.api import Result
class Coder:
    model, target, draft, device = "coder", "coder", "", "cpu"
    def truncate(self, request): return request
    def complete(self, request, cancel): return Answer(request, cancel)
class Answer:
    def __init__(self, request, cancel): self.request, self.cancel, self.result = request, cancel, Result()
    def __iter__(self):  # without end, unless it is cancelled
        for text in itertools.chain(self.request.line_prefix.split(","), itertools.repeat("y()\\n")):
            if self.cancel.wait(0.01): break
            self.result.text += text
            self.result.tokens.append(7)
            yield Piece(text=text, tokens=(7,), source="", drafted=0, accepted=0, ms=10.0)
        self.result.stop_type = "cancelled"
process.model_loader = lambda config: lambda progress: Coder()
shared_engine.run_foreground(Config(model="tiny"))
"""


def test_computation_ends_with_the_block_or_at_the_first_line_end_after_the_deadline(place: Path):
    with closing(EngineProcess(place / "coder", program=[sys.executable, "-c", ENDLESS])) as engine:
        engine.wait()
        wait_until(lambda: engine.http.get("/health").status_code == 200)
        answer = engine.infill(prompt="f():\n,    x(),\n,    x()\n", n_indent=4)
        assert (answer["content"], answer["stop_type"]) == ("f():\n    x()\n    x()\n", "limit")
        answer = engine.infill(prompt="a,b,c,d,e,f,g\n,next", t_max_predict_ms=25)
        assert answer["content"].startswith("abcdefg\n"), "the first line is waited for"
        assert set(answer["content"].splitlines()) <= {"abcdefg", "nexty()", "y()"}, "and no half of another shown"
        assert answer["stop_type"] == "deadline"


# Bad input

BAD = [
    (b"", "not JSON"),
    (b'{"prompt": "a\x01"}', "not JSON (Invalid control character at character 13)"),
    (b'"text"', "the body is"),
    (b"[" * 100_000, "not JSON (nested too deeply)"),
    ({}, "input_prefix"),
    ({"input_prefix": 7}, "input_prefix is 7"),
    ({"repeat_penalty": 1.1}, "repeat_penalty is 1.1: expected 1 (the only supported value)"),
    ({"n_probs": 2}, "n_probs is 2: expected 0 (the only supported value)"),
    (b'{"prompt": "a", "top_p": NaN}', "top_p is NaN: expected a number"),
    (b'{"prompt": "a", "n_predict": 1e999}', "n_predict is Infinity: expected a whole number"),
    (b'{"prompt": "a", "seed": -1e999}', "seed is -Infinity: expected a whole number"),
    (b'{"prompt": "a\xff"}', "not JSON (not UTF-8)"),
    ({"n_predict": -2}, "n_predict is -2: expected a whole number, -1 or more"),
    ({"temperature": 101}, "temperature is 101"),
    ({"top_p": "1"}, 'top_p is "1"'),
    ({"stop": [1]}, "stop is a list"),
    ({"n_cmpl": 1000}, "n_cmpl is 1000"),
    ({"stream": "yes"}, 'stream is "yes"'),
    ({"input_extra": [{"text": "x"}, 3]}, "input_extra[1] is 3"),
    ({"input_extra": [{"text": 5}]}, "input_extra[0].text is 5"),
    ({"speculation": []}, "speculation is a list"),
    ({"sampling": "lucky"}, 'sampling is "lucky": expected "coupled" or "rejection"'),
    ({"session": "s" * 300}, "session is"),
]


@pytest.mark.parametrize(("body", "says"), BAD, ids=[says for _, says in BAD])
def test_a_bad_body_is_refused_in_one_sentence_that_names_the_field(engine: EngineProcess, body: Any, says: str):
    if isinstance(body, dict):
        body = json.dumps((ABC | body) if body else body).encode()
    reply = engine.http.post("/infill", content=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert says in error["message"]
    assert len(error["message"]) < 200


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "the body has no prompt"),
        ({"prompt": ["a", "b"]}, "prompt is a list: expected one text (neither token ids nor several prompts)"),
        ({"prompt": "a", "logprobs": 2}, "logprobs is 2: expected null (the only supported value)"),
        ({"prompt": "a", "echo": True}, "echo is true: expected false (the only supported value)"),
        ({"prompt": "a", "stream_options": True}, "stream_options is true"),
    ],
)
def test_a_bad_openai_body_is_refused_likewise(engine: EngineProcess, body: Any, says: str):
    reply = engine.http.post("/v1/completions", json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert says in error["message"]
    assert error["param"] == (says.split()[0] if " is " in says else None), "the field, as OpenAI's errors have it"


def test_a_body_over_16_mib_is_refused_and_one_just_below_is_read(engine: EngineProcess):
    reply = engine.http.post("/infill", content=b'{"prompt": "' + b"x" * (17 * 2**20) + b'"}')
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, 413)
    assert "16 MiB" in reply.json()["error"]["message"]
    assert engine.http.post("/infill", content=b'{"prompt": "' + b"x" * (15 * 2**20) + b'"}').status_code == 200


def test_wrong_addresses_and_methods_get_the_same_kind_of_error(engine: EngineProcess):
    assert engine.http.post("/nowhere", json={}).json()["error"]["code"] == 404
    reply = engine.http.get("/infill")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert reply.json()["error"]["message"] == "/infill does not support GET."


def test_lone_surrogates_go_in_and_come_out(engine: EngineProcess):
    body = b'{"input_prefix": "\\udfff", "prompt": "\\ud800", "input_suffix": "\\ud83d\\ude00", "session": "\\ud800"}'
    content = engine.http.post("/infill", content=body).json()["content"]
    assert content == engine.infill(input_prefix="\udfff\ud800", prompt="", input_suffix="😀")["content"]
    refused = engine.http.post("/infill", content=b'{"prompt": "", "sampling": "\\ud800"}')
    assert refused.json()["error"]["message"].startswith('sampling is "\\ud800"')


# Cancellation and order


@contextmanager
def connected(engine: EngineProcess) -> Iterator[socket.socket]:
    """A connection to the engine's Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(engine.socket))
        yield connection


def received_until_closed(connection: socket.socket) -> bytes:
    received = b""
    while more := connection.recv(65536):
        received += more
    return received


@pytest.mark.parametrize("sent", [b"POST /infill HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", LEASE])
def test_an_incomplete_request_and_a_lease_end_with_the_clients_side(engine: EngineProcess, sent: bytes):
    with connected(engine) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received_until_closed(connection)
    wait_until(lambda: engine.http.get("/health").json()["clients"] == 0)


def test_closing_a_stream_stops_the_work_within_a_round(crawling: EngineProcess):
    cancelled, tokens = crawling.metric('cancelled_total{why="closed"}'), crawling.metric("predicted_tokens_total")
    stream = crawling.stream()
    next(stream)
    stream.close()
    closed = time.monotonic()
    crawling.infill(n_predict=0)
    assert time.monotonic() - closed < SLOW_ROUND_MS / 1000, "the engine is free before the round would have ended"
    assert crawling.metric('cancelled_total{why="closed"}') == cancelled + 1
    assert crawling.metric("predicted_tokens_total") == tokens + 1, "nothing was computed after the close"
