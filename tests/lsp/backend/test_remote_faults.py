"""The remote backend against servers of every kind and state: detection, requests, faults, TLS and proxies."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from support.lsp.faulty_http_server import (
    Behaviour,
    Connection,
    FaultyServer,
    HttpRequest,
    body_of,
    choice,
    comments,
    drips,
    good,
    listing,
    refuses,
    stuck,
)
from support.rows import rows

from speclsp.cli.first_run import doctor
from speclsp.config import parse
from speclsp.errors import EngineError
from speclsp.lsp.backend.remote import detection, remote
from speclsp.lsp.backend.remote import remote_http as http
from speclsp.lsp.backend.remote.remote import RemoteBackend
from speclsp.lsp.backend.types import FimRequest, Status

ROWS = rows(__file__)

ASK = FimRequest(
    prefix="a\n", line_prefix="b", suffix="c", path="f.py", extra=(("g.py", "d"),), deadline_ms=2000, session="w1"
)


class Far:
    """A RemoteBackend for a URL, and its reported statuses. `async with` waits until the first detection is over."""

    def __init__(self, url: str, own_url: str = "", **settings: object) -> None:
        config, problems = parse({"remote": {"url": url, **settings.pop("remote", {})}, **settings})
        assert problems == []
        self.statuses: list[Status] = []
        self.remote = RemoteBackend(config, self.statuses.append, own_url)

    async def __aenter__(self) -> Far:
        self.remote.start()
        await self.until(lambda status: status.state != "starting")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.remote.close()

    @property
    def status(self) -> Status:
        return self.remote.status

    async def until(self, true: Callable[[Status], bool]) -> Status:
        async def poll() -> None:
            while not true(self.status):
                await asyncio.sleep(0.005)

        await asyncio.wait_for(poll(), 20)
        return self.status

    async def text(self, request: FimRequest = ASK) -> str:
        async with aclosing(self.remote.stream(request)) as pieces:
            return "".join([piece.text async for piece in pieces])


@asynccontextmanager
async def using(server: FaultyServer, ending: str = "", **settings: object) -> AsyncIterator[tuple[FaultyServer, Far]]:
    """A listening server, and a client of it whose first detection is over."""
    with server:
        async with Far(server.url + ending, **settings) as backend:
            yield server, backend


def tells(found: object, status: int = 200) -> Behaviour:
    async def behave(request: HttpRequest, connection: Connection) -> None:
        await connection.whole(status, json.dumps(found).encode())

    return behave


async def infilled(request: HttpRequest, connection: Connection) -> None:
    """The /infill of llama.cpp: 400 without a prompt."""
    if "input_prefix" not in request.body:
        await connection.whole(400, b'{"error": {"message": "\\"input_prefix\\" is required"}}')
        return
    await connection.head()
    await connection.event({"content": "x", "tokens": [1], "stop": False})
    await connection.event({"content": "", "stop": True, "stop_type": "eos", "timings": {"prompt_n": 3}})
    await connection.end()


# ── detection ─────────────────────────────────────────────────────────────────────────────────────────────────────────


CODER = "Qwen/Qwen2.5-Coder-7B-Instruct-AWQ"
OLLAMA = {
    "/v1/models": listing(["llama3.3:latest", "qwen2.5-coder:7b"], "library"),
    "/api/version": tells({"version": "0.9.0"}),
    "/api/show": tells({"capabilities": ["completion", "insert"]}),
    "/v1/completions": good,
}
SERVERS: dict[str, tuple[dict[str, Behaviour], tuple[str, str, str]]] = {
    "vLLM": ({"/v1/models": listing([CODER], "vllm"), "/v1/completions": good}, ("vllm", "template", CODER)),
    "SGLang": ({"/v1/models": listing([CODER], "sglang"), "/v1/completions": good}, ("sglang", "template", CODER)),
    "llama.cpp": (
        {
            "/health": tells({"status": "ok"}),
            "/v1/models": listing(["/m/qwen2.5-coder-7b-q8_0.gguf"], "llamacpp"),
            "/infill": infilled,
        },
        ("llama.cpp", "infill", "/m/qwen2.5-coder-7b-q8_0.gguf"),
    ),
    "llama.cpp without markers": (
        {
            "/v1/models": listing(["/m/starcoder2-3b.gguf"], "llamacpp"),
            "/health": tells({"status": "ok"}),
            "/infill": refuses(501, "Infill is not supported by this model"),
            "/v1/completions": good,
        },
        ("llama.cpp", "template", "/m/starcoder2-3b.gguf"),
    ),
    "llama.cpp behind a router": (
        {
            "/v1/models": listing(["qwen2.5-coder-1.5b"], "llamacpp"),
            "/health": body_of("text/plain", b"OK"),
            "/infill": refuses(401, "unauthorized"),
            "/v1/completions": good,
        },
        ("llama.cpp", "template", "qwen2.5-coder-1.5b"),
    ),
    "Ollama": (OLLAMA, ("ollama", "suffix", "qwen2.5-coder:7b")),
    "speclsp": (
        {"/v1/models": listing(["tiny"], "speclsp"), "/health": tells({"status": "asleep"}), "/infill": infilled},
        ("speclsp", "infill", "tiny"),
    ),
    "a gateway": ({"/v1/models": listing([CODER], "acme"), "/v1/completions": good}, ("", "template", CODER)),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_each_kind_of_server_is_detected_without_generating_a_token(name: str):
    answers, expected = SERVERS[name]
    async with using(FaultyServer(paths=answers)) as (server, backend):
        assert backend.status.state == "ready", backend.status.message
        detected = backend.remote.server
        assert (detected.kind, detected.style, detected.model) == expected
        assert not any(request.body and request.path.endswith("completions") for request in server.requests)
        assert await backend.text() == ("x" if detected.style == "infill" else "a + b")
        request = server.requests[-1]
        assert request.headers["x-session-id"] == "w1"
        assert request.headers["accept-encoding"] == "identity"
        if detected.style == "infill":
            own_fields = {"session", "previous"} & set(request.body)
            assert bool(own_fields) == (detected.kind == "speclsp"), "no other server knows these fields"
            assert [request.body[name] for name in ("input_prefix", "prompt", "input_suffix")] == ["a\n", "b", "c"]
        elif detected.style == "suffix":
            assert (request.body["prompt"], request.body["suffix"]) == ("a\nb", "c")
        else:
            assert "a\nb" in request.body["prompt"] and "suffix" not in request.body
            assert len(request.body["stop"]) <= 4 or detected.accepts_extra_fields
            assert ("skip_special_tokens" in request.body) == detected.accepts_extra_fields


@pytest.mark.parametrize(("ending", "completions"), ROWS["the_url_may_end_at_any_part_of_the_path"])
async def test_the_url_may_end_at_any_part_of_the_path(ending: str, completions: str):
    paths = {completions.replace("/completions", "/models"): listing([CODER], "vllm"), completions: good}
    async with using(FaultyServer(paths=paths), ending) as (_, backend):
        assert await backend.text() == "a + b", backend.status.message


async def test_a_gateway_without_a_model_list_is_used_when_the_settings_name_the_model():
    with FaultyServer(paths={"/v1/completions": good}) as server:
        async with Far(server.url) as backend:
            assert "HTTP 404" in backend.status.message
        async with Far(server.url, remote={"model": "company-coder"}, model="starcoder2-3b") as backend:
            assert await backend.text() == "a + b"
            assert server.requests[-1].body["model"] == "company-coder"
            assert server.requests[-1].body["prompt"].startswith("<repo_name>repo\n<file_sep>g.py\nd\n<file_sep>f.py\n")


@pytest.mark.promise(36)
@pytest.mark.parametrize(
    ("answers", "settings", "words"),
    [
        ({"/v1/models": listing(["acme/wonder"], "vllm")}, {}, ["'acme/wonder'", "set model"]),
        ({"/v1/models": listing([CODER], "vllm")}, {"remote": {"model": "coder"}}, ["no model 'coder'", CODER]),
        ({"/v1/models": listing([], "vllm")}, {}, ["lists no models"]),
        ({"/v1/models": tells([1])}, {}, ["lists no models"]),
        ({**OLLAMA, "/api/show": tells({"capabilities": ["completion"]})}, {}, ["Ollama's", "qwen2.5-coder"]),
        (
            {"/v1/models": listing(["tiny"], "speclsp"), "/health": tells({"message": "loading, 40%"}, 503)},
            {},
            ["HTTP 503", "loading, 40%", "Next try at"],
        ),
    ],
)
async def test_an_unusable_server_is_reported_with_reason_and_fix(
    answers: dict[str, Behaviour], settings: dict[str, Any], words: list[str]
):
    async with using(FaultyServer(paths=answers), **settings) as (_, backend):
        assert backend.status.state == "error"
        assert all(word in backend.status.message for word in words), backend.status.message
        with pytest.raises(EngineError):
            await backend.text()


@pytest.mark.parametrize(("url", "words"), ROWS["an_unusable_address_is_reported_with_the_reason"])
async def test_an_unusable_address_is_reported_with_the_reason(url: str, words: str):
    async with Far(url) as backend:
        assert backend.status.state == "error"
        assert words in backend.status.message
        assert "me:secret" not in str(backend.statuses)


async def test_a_key_stored_after_a_refusal_is_used_at_the_next_detection():
    with FaultyServer(paths={"/v1/models": listing([CODER], "vllm"), "/v1/completions": good}) as server:
        answer = server.everywhere

        async def locked(request: HttpRequest, connection: Connection) -> None:
            is_authorized = request.headers.get("authorization") == "Bearer sk-new"
            await (answer if is_authorized else refuses(401))(request, connection)

        server.everywhere = locked
        remote.api_keys.store(server.url, "sk-old")
        async with Far(server.url) as backend:
            assert "HTTP 401" in backend.status.message
            remote.api_keys.store(server.url, "sk-new")
            await backend.until(lambda status: status.state == "ready")
            assert await backend.text()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_control_characters_are_removed_from_a_servers_texts():
    evil = "Qwen2.5-Coder-7B\x1b]0;\x07\u202e\u200b" + "x" * 5000
    async with using(FaultyServer(models=[evil])) as (server, backend):
        assert backend.status.target.startswith("Qwen2.5-Coder-7B") and backend.status.target.isprintable()
        assert len(backend.status.target) <= remote.MAX_MESSAGE
        assert backend.remote.server.model == evil, "as it wants to be asked"
        server.always = refuses(400, f"no {evil} here")
        with pytest.raises(EngineError, match="HTTP 400") as raised:
            await backend.text()
        assert str(raised.value).isprintable() and backend.status.message.isprintable()


async def test_an_unforeseen_exception_is_reported_and_detection_runs_again(monkeypatch: pytest.MonkeyPatch):
    with FaultyServer() as server:
        detect = detection.detect

        async def failing_detect(*_: object) -> detection.Server:
            monkeypatch.setattr(detection, "detect", detect)
            raise KeyError("choices")

        monkeypatch.setattr(detection, "detect", failing_detect)
        async with Far(server.url) as backend:
            assert backend.status.state == "error" and "cannot be understood (KeyError)" in backend.status.message
            await backend.until(lambda status: status.state == "ready")


async def test_an_answer_that_is_not_streamed_is_read():
    async with using(FaultyServer(always=tells(choice("whole", "stop")))) as (_, backend):
        assert await backend.text() == "whole"


async def test_a_connection_is_reused_after_a_complete_answer():
    async with using(FaultyServer()) as (server, backend):
        for _ in range(5):
            assert await backend.text() == "a + b"
        assert server.connections == 1


@pytest.mark.promise(36)
@pytest.mark.parametrize("behaviour", [drips(0.01), comments, stuck], ids=["drips", "comments", "stuck"])
async def test_every_answer_is_bounded_in_time_and_size(behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "SLACK_S", 0.3)
    async with using(FaultyServer(always=behaviour)) as (server, backend):
        with pytest.raises(EngineError, match=r"has not|no end"):
            await backend.text(FimRequest(prefix="a", deadline_ms=500, max_tokens=10_000))
        server.wait(lambda: server.completions()[-1].closed_at is not None)


def test_doctor_checks_the_server_instead_of_local_models():
    with FaultyServer() as server:
        flags = {"remote.url": server.url}
        checks = list(doctor.checks(flags))
        assert checks[-1].name == "remote" and checks[-1].status == doctor.OK
        assert "vllm at 127.0.0.1" in checks[-1].found and "'a + b'" in checks[-1].found
        assert "by template: " in checks[-1].found and " ms" in checks[-1].found
        assert not {"model", "weights", "completion"} & {check.name for check in checks}
        server.always = refuses(403, "not you")
        (check,) = [check for check in doctor.checks(flags) if check.name == "remote"]
        assert check.status == doctor.FAIL and "not you" in check.found and check.fix
        assert "Next try" not in check.found  # doctor checks once


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tls(ca: trustme.CA, name: str = "localhost", **how: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name, **how).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.mark.promise(36)
async def test_only_a_certificate_of_a_known_authority_that_is_valid_for_the_host_is_accepted(
    ca: trustme.CA, tmp_path: Path
):
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "empty.pem").write_text("nothing\n")
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    expired = {"not_before": past, "not_after": past + datetime.timedelta(days=1)}
    for context, ca_file, words in (
        (tls(ca), "ca.pem", ""),
        (tls(ca), "", "remote.ca_file"),
        (tls(ca, **expired), "ca.pem", "has expired"),
        (tls(ca, "elsewhere.example"), "ca.pem", "mismatch"),
        (tls(ca), "empty.pem", "holds no certificates"),
        (tls(ca), "none.pem", "No such file"),
        (None, "", "no connection to localhost"),
    ):
        with FaultyServer(context) as server:
            url = server.url.replace("127.0.0.1", "localhost").replace("http:", "https:")
            async with Far(url, remote={"ca_file": str(tmp_path / ca_file) if ca_file else ""}) as backend:
                assert words in backend.status.message
                assert backend.status.state == ("error" if words else "ready")
            assert bool(server.requests) == (not words), "nothing was sent to a server that is not trusted"


async def test_a_proxy_is_used_for_other_machines_only(monkeypatch: pytest.MonkeyPatch):
    with FaultyServer() as server, FaultyServer() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with Far(server.url) as backend:
            assert await backend.text() == "a + b"
        assert proxy.requests == []
        async with Far("https://coder.example") as backend:
            assert "Proxy" in backend.status.message
        assert proxy.requests[0].method == "CONNECT"
