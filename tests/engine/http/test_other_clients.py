"""Third-party clients against `speclsp engine --port`: their recorded requests, and two of the programs themselves.

peers/*.json are requests as each program's own source builds them (repository, commit and path are in the file), with
settings as docs/http-api.md gives them. A check reads the answer as that program reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.engine_process import TcpEngine
from support.waiting import wait_until

from speclsp.lsp.backend.infill_codec import parse_piece, request_body, route
from speclsp.lsp.backend.types import FimRequest
from speclsp.weights import cards

PEERS = Path(__file__).parent / "peers"
CONTEXT_TOKENS = 960  # of tiny: a full context is read soon
EMPTY = "e3b0c442"  # first digits of sha256("")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="spec-") as directory:
        yield Path(directory)


def running(place: Path, model: str, *settings: str) -> Iterator[TcpEngine]:
    (place / model).mkdir()
    with closing(TcpEngine(place / model, *settings, model=model)) as engine:
        wait_until(lambda: engine.http.get("/health").status_code == 200, 60)
        yield engine


@pytest.fixture(scope="module")
def engine(place: Path) -> Iterator[TcpEngine]:
    yield from running(place, "echo")


@pytest.fixture(scope="module")
def tiny(place: Path) -> Iterator[TcpEngine]:
    """A small model trained to complete code."""
    yield from running(place, "tiny", "--set", f"engine.context_tokens={CONTEXT_TOKENS}")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# ── recorded requests ────────────────────────────────────────────────────────────────────────────────────────


def recorded() -> dict[tuple[str, str], dict[str, Any]]:
    """{(program, request's name): request}."""
    requests = {}
    for file in sorted(PEERS.glob("*.json")):
        peer = json.loads(file.read_text())
        assert re.fullmatch(r"[0-9a-f]{40}", peer["commit"])
        for request in peer["requests"]:
            requests[peer["client"], request["name"]] = request
    return requests


RECORDED = recorded()


def send(engine: TcpEngine, request: dict[str, Any]) -> httpx.Response:
    """Sends the request exactly as recorded, the body in the bytes of JSON.stringify and serde_json."""
    headers = {name: value.replace("{token}", engine.token) for name, value in request["headers"].items()}
    written = json.dumps(request["body"], ensure_ascii=False, separators=(",", ":")) if "body" in request else None
    body = None if written is None else written.encode()
    with httpx.Client(base_url=engine.url, timeout=30) as client:
        client.headers.clear()
        return client.request(request["method"], request["path"], headers=headers, content=body)


def expected_text(request: dict[str, Any]) -> str:
    """The echo model's text for the request, which proves that it received the text that the program meant."""
    body = request["body"]
    if "input_prefix" in body:
        return f"E:{digest(body['input_prefix'] + body['prompt'])}:{digest(body['input_suffix'])}"
    return f"E:{digest(body['prompt'])}:{digest(body['suffix']) if 'suffix' in body else EMPTY}"


Read = Callable[[dict[str, Any]], str]


def content(answer: dict[str, Any]) -> str:
    return answer["content"]


def choice(answer: dict[str, Any]) -> str:
    """The text of the only choice of an answer or of a part of it."""
    (only,) = answer["choices"]
    assert only["index"] == 0
    return only["text"] or ""


def streamed(read: Read) -> Callable[[httpx.Response], str]:
    """Joins the texts of lines that begin with `data: `. Programs skip any other line, or end with an error."""

    def text_of(reply: httpx.Response) -> str:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in reply.text.split("\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        assert (lines[-1] == "data: [DONE]") is reply.request.url.path.startswith("/v1/")
        return "".join(read(json.loads(line.removeprefix("data: "))) for line in lines if line != "data: [DONE]")

    return text_of


def whole(read: Read) -> Callable[[httpx.Response], str]:
    def text_of(reply: httpx.Response) -> str:
        assert reply.headers["content-type"] == "application/json"
        assert re.match(r"\{.*\"(content|text)\":\"", reply.text), "llama.vim reads the raw text: no blanks"
        return read(reply.json())

    return text_of


NUMBERS = {f"{part}_{unit}": float for part in ("prompt", "predicted") for unit in ("n", "ms", "per_second")}
TIMINGS = {f"timings/{name}": kind for name, kind in NUMBERS.items()}
COUNTS = {f"usage/{name}_tokens": int for name in ("prompt", "completion", "total")}
ANSWER = {"id": str, "object": str, "created": int, "model": str, **COUNTS}

# For each request: the way to read the text, and the fields that the program reads beside it.
TEXTS: dict[tuple[str, str], tuple[Callable[[httpx.Response], str], dict[str, type]]] = {
    ("llama.vim", "completion"): (whole(content), {**TIMINGS, "tokens_cached": int, "truncated": bool}),
    ("llama.vscode", "openai"): (whole(choice), COUNTS),
    ("minuet-ai.nvim", "filled-in template"): (streamed(choice), {}),
    ("minuet-ai.nvim", "suffix"): (streamed(choice), {}),
    ("minuet-ai.nvim", "not streamed"): (whole(choice), COUNTS),
    ("Continue", "llama.cpp provider"): (streamed(content), {}),
    ("Continue", "openai provider"): (streamed(choice), {}),
    ("Continue", "other files"): (streamed(choice), {}),
    ("twinny", "llamacpp provider"): (streamed(content), {}),
    ("twinny", "lmstudio provider"): (streamed(choice), {}),
    ("twinny", "no limit"): (streamed(content), {}),
    ("Zed", "open_ai_compatible_api"): (whole(choice), ANSWER),
    ("VS Code", "one line"): (streamed(choice), {}),
    ("VS Code", "one line, Electron"): (streamed(choice), {}),
    ("VS Code", "several lines"): (streamed(choice), {}),
    ("VS Code", "after acceptance"): (streamed(choice), {}),
    ("VS Code", "next alternative"): (streamed(choice), {}),
    ("VS Code", "end of a file"): (streamed(choice), {}),
}
# Requests whose answer is no text of one completion, and a fact about it.
OTHERS: dict[tuple[str, str], Callable[[Any], bool]] = {
    ("llama.vim", "warm-up"): lambda answer: answer == {},
    ("llama.vscode", "completion"): lambda answers: len({answer["content"] for answer in answers}) == 3,
    ("llama.vscode", "warm-up"): lambda answer: (answer["content"], answer["tokens_predicted"]) == ("", 0),
    ("llama.vscode", "health"): lambda answer: answer["status"] == "ok",
    ("llama.vscode", "models"): lambda answer: answer["data"][0]["id"] == "echo",
    ("llama.vscode", "props"): lambda answer: answer["default_generation_settings"]["n_ctx"] == 2048,
    ("Continue", "models"): lambda answer: isinstance(answer["data"][0]["max_model_len"], int),
}
CHECKS = [*TEXTS, *OTHERS]


@pytest.mark.parametrize(("client", "name"), TEXTS)
def test_each_program_finds_its_text_and_fields_in_the_answer(engine: TcpEngine, client: str, name: str):
    request, (text_of, fields) = RECORDED[client, name], TEXTS[client, name]
    reply = send(engine, request)
    assert reply.status_code == 200, reply.text
    assert text_of(reply) == expected_text(request)
    for path, kind in fields.items():
        answer = reply.json()
        value = answer[path] if path in answer else answer[path.partition("/")[0]][path.partition("/")[2]]
        assert isinstance(value, (int, float) if kind is float else kind), path


@pytest.mark.parametrize(("client", "name"), OTHERS)
def test_each_program_gets_the_answer_to_its_other_requests(engine: TcpEngine, client: str, name: str):
    reply = send(engine, RECORDED[client, name])
    assert reply.status_code == 200 and OTHERS[client, name](reply.json()), reply.text


def test_every_recorded_request_is_checked_except_chat_which_is_refused_with_a_message(engine: TcpEngine):
    assert RECORDED.keys() - set(CHECKS) == {("llama.vim", "instruct")}
    reply = send(engine, RECORDED["llama.vim", "instruct"])
    assert reply.status_code == 404
    assert "has no chat" in reply.json()["error"]["message"]


@pytest.mark.parametrize(("client", "name"), [key for key in CHECKS if RECORDED[key]["path"] != "/health"])
def test_no_recorded_request_is_answered_without_the_token(engine: TcpEngine, client: str, name: str):
    request = RECORDED[client, name]
    headers = {key: value.replace("{token}", engine.token[:-1]) for key, value in request["headers"].items()}
    reply = send(engine, request | {"headers": headers})
    assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("name", [name for client, name in CHECKS if client == "VS Code"])
def test_vs_code_s_ghost_text_is_filled_in_by_a_real_model_before_its_suffix(tiny: TcpEngine, name: str):
    """As /infill fills in the same text. A line is one line: VS Code sends its end as a stop."""
    request = RECORDED["VS Code", name]
    body = request["body"]
    streamed = [json.loads(line[6:]) for line in send(tiny, request).text.split("\n") if line.startswith("data: {")]
    text = "".join(choice["text"] for event in streamed for choice in event["choices"])
    assert text and "<|" not in text
    assert not any(stop in text for stop in body["stop"])
    if not body["temperature"]:
        infill = {"prompt": body["prompt"], "input_suffix": body["suffix"], "n_predict": body["max_tokens"]}
        assert text == tiny.post("/infill", **infill, stop=body["stop"], top_k=40).json()["content"]


# ── the openai client ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def client(engine: TcpEngine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=engine.token, base_url=engine.url + "/v1", max_retries=0) as client:
        yield client


def test_the_openai_client_streams_several_completions_and_the_counts(client: openai.OpenAI):
    texts, reasons, usage = {0: "", 1: ""}, {}, None
    options = {"include_usage": True}
    for chunk in client.completions.create(model="e", prompt="abc", n=2, stream=True, stream_options=options):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
            assert chunk.usage is None
        usage = chunk.usage or usage
    expected = f"E:{digest('abc')}:{EMPTY}"
    assert texts == {0: expected, 1: expected + ":2"}
    assert reasons == {0: "stop", 1: "stop"}
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 2 * len(expected) + 2)


def test_the_openai_client_stops_at_a_text(client: openai.OpenAI):
    answer = client.completions.create(model="e", prompt="abc", stop=["7816"], user="me")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("E:ba", "stop")
    streamed = client.completions.create(model="e", prompt="abc", stop="7816", stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == "E:ba"


def test_the_openai_client_gets_its_own_kinds_of_error(engine: TcpEngine, client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match="presence_penalty is 1") as error:
        client.completions.create(model="e", prompt="abc", presence_penalty=1)
    assert (error.value.param, error.value.type) == ("presence_penalty", "invalid_request_error")
    with pytest.raises(openai.BadRequestError, match="neither token ids"):
        client.completions.create(model="e", prompt=[1, 2, 3])
    with pytest.raises(openai.NotFoundError, match="has no chat"):
        client.chat.completions.create(model="e", messages=[{"role": "user", "content": "hello"}])
    with (
        openai.OpenAI(api_key="wrong", base_url=engine.url + "/v1", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError, match="token is missing or wrong"),
    ):
        stranger.models.list()


CODE = "def add(a, b):\n    return a"


# Fields that ask for figures or for another form of the answer, with values for each.
FIGURES: dict[str, dict[str, list[Any]]] = {
    "/completion": {
        "round_logprobs": [True], "n_branches": [1, 8], "stream": [True], "return_tokens": [True],
        "response_fields": [["content", "timings/prompt_n"]], "timings_per_token": [True],
        "return_progress": [True], "post_sampling_probs": [False], "verbose": [True], "cache_prompt": [False],
    },
    "/v1/completions": {
        "stream": [True], "stream_options": [{"include_usage": True}],
        "user": ["me"], "model": ["other"], "verbose": [True], "timings_per_token": [True],
    },
}  # fmt: skip
FIGURES["/infill"] = FIGURES["/completion"]
LINES = [CODE, "def add(a, b):\n    retu", "x = [1,", 'name = "é', ""]
SETTINGS = [{}, {"temperature": 0.9, "seed": 7}, {"stop": ["\n"]}, {"ignore_eos": True}, {"temperature": 1e-9}]


def text_of(reply: httpx.Response) -> str:
    """An answer's text, streamed or not."""
    streamed = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    text = ""
    for part in streamed or [reply.json()]:
        choices = part.get("choices", [part])
        for choice in choices:
            text += choice.get("text") or choice.get("content") or ""
    return text


@pytest.mark.parametrize("path", FIGURES)
@settings(max_examples=30)
@given(data=st.data())
def test_no_request_for_figures_changes_the_text(tiny: TcpEngine, path: str, data: st.DataObject):
    line, setting = data.draw(st.sampled_from(LINES)), data.draw(st.sampled_from(SETTINGS))
    names = data.draw(st.lists(st.sampled_from(sorted(FIGURES[path])), min_size=1, max_size=4, unique=True))
    figures = {name: data.draw(st.sampled_from(FIGURES[path][name])) for name in names}
    body = {"prompt": line, "max_tokens": 10} | setting
    plain = text_of(tiny.post(path, **body))
    reply = tiny.post(path, **body, **figures)
    assert reply.status_code == 200, reply.text
    assert text_of(reply) == plain


@pytest.mark.parametrize(
    "request_",
    [
        FimRequest(prefix="def add(a, b):\n", line_prefix="    ret", suffix="\n", max_tokens=8),
        FimRequest(raw_prompt="<|file_sep|>a.py\ndef add(a, b):\n", previous="    return a\n", max_tokens=8),
    ],
    ids=["fill-in-the-middle", "window"],
)
def test_the_language_server_reads_its_logprobs_of_every_streamed_token(tiny: TcpEngine, request_: FimRequest):
    for body in (request_body(request_), request_body(request_) | {"round_logprobs": False}):
        lines = tiny.post(route(request_), **body).text.splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
        pieces = [parse_piece(event) for event in events]
        logprobs = [logprob for piece in pieces for logprob in piece.logprobs]
        text = "".join(piece.text for piece in pieces)
        assert text and events[-1]["stop"]
        if body["round_logprobs"]:
            assert len(logprobs) == sum(len(event["tokens"]) for event in events if not event["stop"])
            assert sum(characters for characters, _ in logprobs) == len(text)
        else:
            assert not logprobs


# ── llm ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_llm_completes_with_a_model_of_its_settings_file(engine: TcpEngine, tmp_path: Path):
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: speclsp\n  model_name: speclsp\n  api_base: {engine.url}/v1\n"
        "  api_key_name: speclsp\n  completion: true\n"
    )
    (tmp_path / "keys.json").write_text(json.dumps({"speclsp": engine.token}))
    command = [sys.executable, "-m", "llm", "prompt", "--no-log", "-m", "speclsp", "abc"]
    for more in ([], ["--no-stream"]):
        ran = subprocess.run(
            [*command, *more],
            env=os.environ | {"LLM_USER_PATH": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ran.stdout.strip(), ran.returncode) == (f"E:{digest('abc')}:{EMPTY}", 0), ran.stderr


# ── llama.cpp's other routes ──────────────────────────────────────────────────────────────────────────────


def test_props_have_llama_cpp_s_shape_and_contain_no_text(engine: TcpEngine):
    assert engine.post("/completion", prompt="SECRET").status_code == 200
    props = engine.http.get("/props").json()
    settings = props["default_generation_settings"]
    assert (settings["n_ctx"], settings["params"]["n_predict"]) == (2048, 64)
    assert (props["total_slots"], props["model_alias"]) == (1, "echo")
    untrue = {"model_path", "chat_template", "bos_token", "eos_token"}  # none has a value here
    assert not untrue & props.keys()
    assert isinstance(props["build_info"], str)
    assert "SECRET" not in json.dumps(props)


def test_the_context_lengths_are_those_of_the_model_and_of_the_settings(tiny: TcpEngine, engine: TcpEngine):
    (model,) = tiny.http.get("/v1/models").json()["data"]
    assert (model["max_model_len"], model["meta"]["n_ctx"]) == (CONTEXT_TOKENS, CONTEXT_TOKENS)
    assert model["meta"]["n_ctx_train"] == cards.load("tiny").context_tokens != CONTEXT_TOKENS
    (echo,) = engine.http.get("/v1/models").json()["data"]
    assert "n_ctx_train" not in echo["meta"], "nothing was trained"


def test_an_unloaded_engine_is_healthy_for_programs_without_a_third_state():
    with (
        tempfile.TemporaryDirectory(prefix="spec-") as directory,
        closing(TcpEngine(Path(directory), "--set", "engine.idle_unload_minutes=0.01")) as engine,
    ):
        wait_until(lambda: engine.http.get("/status").json()["status"] == "asleep", 60)
        health = engine.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert engine.post("/infill", input_prefix="a").json()["content"].startswith("E:")
