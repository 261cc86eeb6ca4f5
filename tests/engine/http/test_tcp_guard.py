"""Access control of the TCP port: web pages, other users and clients that only occupy connections are refused."""

from __future__ import annotations

import asyncio
import gc
import socket
import stat
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from support.engine.engine_process import TcpEngine
from support.waiting import wait_until

from speclsp.engine.http import tcp_guard, token_file
from speclsp.engine.http.responses import json_response
from speclsp.errors import EngineError

PATIENCE_S = 30.0
TOKEN = "t" * 43
BODY = b'{"prompt":"abc"}'
OK = json_response({"status": "ok"})


@pytest.fixture(scope="module")
def engine() -> Iterator[TcpEngine]:
    with tempfile.TemporaryDirectory(prefix="spec-") as directory, closing(TcpEngine(Path(directory))) as engine:
        yield engine


def say(port: int, *lines: str, body: bytes = b"") -> bytes:
    """Sends a request as written and returns all bytes until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        with suppress(ConnectionError):  # the connection was closed before the request
            connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return hear(connection)


def hear(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65536):
            received += more
    return received


def status(response: bytes) -> int:
    return int(response.split(b" ")[1])


# ── web pages, and programs without the token ──────────────────────────────────────────────────────────

POST = "POST /infill HTTP/1.1"
LENGTH = f"Content-Length: {len(BODY)}"
HERE = "Host: 127.0.0.1:{port}"
KEY = "Authorization: Bearer {token}"
END = "Connection: close"
TEXT = "Content-Type: text/plain"  # a type that a page may post without a preflight

# Each probe has one fault. Where the fault is not the token, the right token is sent too.
PROBES: dict[str, tuple[int, list[str]]] = {
    "a form posted from another site": (403, [POST, HERE, KEY, "Origin: https://evil.example", TEXT, LENGTH, END]),
    "a page without an origin": (403, [POST, HERE, KEY, "Origin: null", LENGTH, END]),
    "a page on this very machine": (403, [POST, HERE, KEY, "Origin: http://127.0.0.1:{port}", LENGTH, END]),
    "an image on another site": (403, ["GET /v1/models HTTP/1.1", HERE, KEY, "Sec-Fetch-Site: cross-site", END]),
    "DNS rebinding": (403, [POST, "Host: evil.example:{port}", KEY, LENGTH, END]),
    "a name that begins like an address": (403, [POST, "Host: 127.0.0.1.evil.example", KEY, LENGTH, END]),
    "a name behind an address": (403, [POST, "Host: 127.0.0.1@evil.example", KEY, LENGTH, END]),
    "two names": (400, [POST, HERE, "Host: evil.example", KEY, LENGTH, END]),
    "no name": (403, ["POST /infill HTTP/1.0", KEY, LENGTH]),
    "a preflight": (403, ["OPTIONS /infill HTTP/1.1", HERE, KEY, "Access-Control-Request-Method: POST", END]),
    "no token": (401, [POST, HERE, LENGTH, END]),
    "a wrong token": (401, [POST, HERE, "Authorization: Bearer " + TOKEN, LENGTH, END]),
    "the beginning of the token": (401, [POST, HERE, "Authorization: Bearer {token:.42}", LENGTH, END]),
    "the token and more": (401, [POST, HERE, KEY + "x", LENGTH, END]),
    "an empty token": (401, [POST, HERE, "Authorization: Bearer ", "X-Api-Key: ", LENGTH, END]),
    "the token as a password": (401, [POST, HERE, "Authorization: Basic {token}", LENGTH, END]),
    "the token in the URL": (401, ["POST /infill?token={token}&api_key={token} HTTP/1.1", HERE, LENGTH, END]),
    "the token in a cookie": (401, [POST, HERE, "Cookie: token={token}", LENGTH, END]),
    "an open address's name in another": (401, ["POST /health/../infill HTTP/1.1", HERE, LENGTH, END]),
    "posting to the open address": (401, ["POST /health HTTP/1.1", HERE, LENGTH, END]),
    "ending the engine": (401, ["POST /leave HTTP/1.1", HERE, LENGTH, END]),
    "holding the engine": (401, ["GET /lease HTTP/1.1", HERE, END]),
}  # fmt: skip


@pytest.mark.promise(29)
@pytest.mark.parametrize("name", PROBES)
def test_an_attempt_without_authorization_is_refused(engine: TcpEngine, name: str, promise):
    wanted, lines = PROBES[name]
    answered = engine.http.get("/metrics").text.count("speclsp_requests_total{")
    lines = [line.format(port=engine.port, token=engine.token) for line in lines]
    reply = say(engine.port, *lines, body=BODY if LENGTH in lines else b"")
    head = reply.partition(b"\r\n\r\n")[0].lower()
    assert status(reply) == wanted
    assert b"access-control" not in head
    assert b"set-cookie" not in head
    assert b"connection: close" in head
    assert engine.token.encode() not in reply
    assert engine.http.get("/metrics").text.count("speclsp_requests_total{") == answered, "nothing was completed"
    assert engine.process.poll() is None
    promise.measured(
        f"0 of {len(PROBES)} ways in let anything in: 10 of web pages and {len(PROBES) - 10} more", holds=True
    )


GOOD = {
    "bearer": [POST, HERE, KEY, LENGTH, END],
    "bearer in small letters": [POST, HERE, "authorization: bearer {token}", LENGTH, END],
    "x-api-key": [POST, HERE, "X-Api-Key: {token}", LENGTH, END],
    "an empty key beside the right one": [POST, HERE, "X-Api-Key: ", KEY, LENGTH, END],
    "localhost": [POST, "Host: localhost:{port}", KEY, LENGTH, END],
    "another port, as an SSH tunnel has it": [POST, "Host: localhost:9000", KEY, LENGTH, END],
    "IPv6": [POST, "Host: [::1]:{port}", KEY, LENGTH, END],
    "what node's fetch sends": [POST, HERE, KEY, "Sec-Fetch-Mode: cors", LENGTH, END],
    "a URL typed into a browser": [POST, HERE, KEY, "Sec-Fetch-Site: none", LENGTH, END],
    "in pieces": [POST, HERE, KEY, "Transfer-Encoding: chunked", END],
    "HTTP/1.0 with a name": ["POST /infill HTTP/1.0", HERE, KEY, LENGTH],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_request_with_the_token_is_answered(engine: TcpEngine, name: str):
    lines = [line.format(port=engine.port, token=engine.token) for line in GOOD[name]]
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY) if name == "in pieces" else BODY
    reply = say(engine.port, *lines, body=body)
    assert status(reply) == 200
    assert b'"content":"E:' in reply


values = st.sampled_from([
    b"", TOKEN.encode(), b"Bearer " + TOKEN[:-1].encode(), b"Bearer", b"Bearer \xff", TOKEN[1:].encode(), b"bearer  ",
    b"Basic " + TOKEN.encode(), b"localhost", b"127.0.0.1:1", b"evil.example", b"websocket", b"none", b"null", b"7",
])  # fmt: skip
names = st.sampled_from([
    b"host", b"authorization", b"origin", b"cookie", b"upgrade", b"sec-fetch-site", b"content-length", b"x-token",
    b"transfer-encoding", b"proxy-authorization",
])  # fmt: skip
paths = st.sampled_from(["/infill", "/health", "/health/", "//health", "/v1/models", "http://127.0.0.1/health", ""])


@pytest.mark.promise(29)
@given(
    found=st.lists(st.tuples(names, values), max_size=6), path=paths, method=st.sampled_from(["GET", "POST", "HEAD"])
)
def test_no_headers_without_the_token_reach_any_route_except_health(
    found: list[tuple[bytes, bytes]], path: str, method: str
):
    reached, sent = [], []

    async def app(scope, receive, send) -> None:
        reached.append(scope["path"])
        await OK(scope, receive, send)

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    async def send(message: dict) -> None:
        sent.append(message)

    http_scope = {"type": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "method": method}
    asyncio.run(
        tcp_guard.TcpGuard(app, TOKEN)(http_scope | {"server": ("127.0.0.1", 1), "headers": found}, receive, send)
    )
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert reached in ([], ["/health"])
    assert (sent[0]["status"] == 200) is bool(reached)
    assert not reached or (method != "POST" and {(b"host", b"localhost"), (b"host", b"127.0.0.1:1")} & set(found))


def test_the_same_engine_s_unix_socket_needs_no_token(engine: TcpEngine):
    (socket_path,) = engine.root.glob("run/speclsp/engine-*.sock")
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    transport = httpx.HTTPTransport(uds=str(socket_path))
    with httpx.Client(transport=transport, base_url="http://any-name", timeout=PATIENCE_S) as client:
        assert client.post("/infill", content=BODY).status_code == 200


@pytest.mark.promise(29)
def test_the_port_listens_only_on_loopback(engine: TcpEngine):
    listeners = Path(f"/proc/{engine.process.pid}/net/tcp")
    if listeners.exists():
        rows = [row.split() for row in listeners.read_text().splitlines()[1:]]
        mine = [row[1] for row in rows if row[1].endswith(f":{engine.port:04X}") and row[3] == "0A"]
        assert mine == [f"0100007F:{engine.port:04X}"]
    with closing(tcp_guard.listen("localhost", 0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def naming(host: str) -> Headers:
    return Headers({"host": host})


@pytest.mark.promise(29)
@given(name=st.from_regex(r"[a-zA-Z0-9.:@\[\]-]{1,30}", fullmatch=True))
def test_only_this_machine_s_names_are_hosts(name: str):
    try:
        tcp_guard.check_host(naming(name), "127.0.0.1")
    except HTTPException as refused:
        assert refused.status_code == 403
    else:
        bare = name.rpartition(":")[0] if name.count(":") == 1 else name.partition("]")[0]
        assert bare.lower() == "localhost" or bare.startswith(("127.", "[::1", "[0", "[::"))


@pytest.mark.parametrize(
    ("bound", "let_in", "refused"),
    [
        ("127.0.0.1", ["127.0.0.1", "127.8.8.8:1", "localhost", "[::1]:8012"], ["192.168.1.5", "box", "0.0.0.0", ""]),
        ("192.168.1.5", ["192.168.1.5:8012", "localhost"], ["192.168.1.6", "box.lan"]),
        ("box.lan", ["box.lan:8012", "BOX.LAN"], ["other.lan", "box.lan.evil.example"]),
        ("0.0.0.0", ["192.168.1.5", "10.0.0.1:80", "[fe80::1]:8012"], ["box.lan", "evil.example"]),
        ("::", ["[2001:db8::1]", "10.0.0.1"], ["evil.example"]),
    ],
)
def test_a_configured_address_is_an_allowed_host_too(bound: str, let_in: list[str], refused: list[str]):
    for name in let_in:
        tcp_guard.check_host(naming(name), bound)
    for name in refused:
        with pytest.raises(HTTPException):
            tcp_guard.check_host(naming(name), bound)


# ── clients that only occupy connections ───────────────────────────────────────────────────────────────────────────


class BlockingApp:
    """An application that answers after `go` is set."""

    def __init__(self) -> None:
        self.arrived = 0
        self.go = threading.Event()

    async def __call__(self, scope, receive, send) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message["more_body"]
        self.arrived += 1
        while not self.go.is_set():
            await asyncio.sleep(0.01)
        await OK(scope, receive, send)


@contextmanager
def serving(app: BlockingApp) -> Iterator[int]:
    """The guard before `app`, on a port."""
    listener = tcp_guard.listen("127.0.0.1", 0)
    settings = uvicorn.Config(
        tcp_guard.TcpGuard(app, TOKEN),
        http=tcp_guard.TimedProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        app.go.set()
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()


@pytest.fixture
def app() -> BlockingApp:
    return BlockingApp()


@pytest.mark.parametrize(
    ("lines", "answered"),
    [
        ([""], 0),
        (["POST /infill HTTP/1.1", "X-Slow: "], 0),
        (["POST /infill HTTP/1.1", "Host: localhost", "Content-Length: 99999", "", ""], 0),
        (["GET / HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", "", "GET / HT"], 1),
    ],
    ids=["nothing", "headers", "a body without the token", "a second request"],
)
def test_a_connection_without_an_admitted_request_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch, app: BlockingApp, lines: list[str], answered: int
):
    monkeypatch.setattr(tcp_guard, "IDLE_S", 0.3)
    app.go.set()
    with serving(app) as port, socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall("\r\n".join(lines).encode())
        hear(connection)
    assert app.arrived == answered


def test_a_connection_that_the_client_resets_leaves_nothing(monkeypatch: pytest.MonkeyPatch, app: BlockingApp):
    living: weakref.WeakSet[tcp_guard.TimedProtocol] = weakref.WeakSet()

    class Watched(tcp_guard.TimedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            living.add(self)
            super().connection_made(transport)

    def nothing_lives() -> bool:
        gc.collect()
        return not living

    monkeypatch.setattr(tcp_guard, "TimedProtocol", Watched)
    monkeypatch.setattr(tcp_guard, "IDLE_S", 3600.0)
    app.go.set()
    lines = ["GET / HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", "", ""]
    with serving(app) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            connection.sendall("\r\n".join(lines).encode())
            wait_until(lambda: b"ok" in connection.recv(65536))
            assert len(living) == 1
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
        wait_until(nothing_lives)


def test_a_slow_answer_keeps_its_connection(monkeypatch: pytest.MonkeyPatch, app: BlockingApp):
    monkeypatch.setattr(tcp_guard, "IDLE_S", 1.0)
    lines = [POST, "Host: localhost", f"Authorization: Bearer {TOKEN}", LENGTH, END]
    with serving(app) as port, ThreadPoolExecutor(1) as pool:
        future = pool.submit(say, port, *lines, body=BODY)
        wait_until(lambda: app.arrived == 1)
        time.sleep(1.5)  # longer than any limit
        app.go.set()
        assert status(future.result()) == 200


@pytest.mark.promise(29)
def test_a_connection_above_the_limit_is_refused_until_one_ends(monkeypatch: pytest.MonkeyPatch, app: BlockingApp):
    monkeypatch.setattr(tcp_guard, "MAX_CONNECTIONS", 3)
    lines = ["GET / HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", END]
    with serving(app) as port, ThreadPoolExecutor(3) as pool:
        working = [pool.submit(say, port, *lines) for _ in range(3)]
        wait_until(lambda: app.arrived == 3)
        assert say(port, *lines) == b"", "there is no room"
        app.go.set()
        assert [status(future.result()) for future in working] == [200, 200, 200]
        wait_until(lambda: say(port, *lines) != b"")


# ── the token ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise(29)
def test_concurrent_starts_create_one_token_that_only_its_user_can_read():
    with ThreadPoolExecutor(16) as pool:
        tokens = {future.result() for future in [pool.submit(token_file.token) for _ in range(64)]}
    assert len(tokens) == 1
    assert len(tokens.pop()) >= 43, "256 bits in six to a letter"
    path = token_file.token_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["token"], "nothing is left beside it"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.chmod(0o644), r"open to others \(mode 0644\)"),
        (lambda path: (path.rename(path.with_name("t")), path.symlink_to("t")), "symbolic link"),
        (lambda path: path.write_text(""), "has no 256-bit token"),
        (lambda path: path.write_text("x" * 40 + " y y y y"), "has no 256-bit token"),
    ],
    ids=["readable", "symlink", "empty", "blanks"],
)
def test_a_token_file_that_others_could_have_written_or_read_is_refused(spoil, says: str):
    token_file.token()
    spoil(token_file.token_path())
    with pytest.raises(EngineError, match=says):
        token_file.token()


# ── the port ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unavailable_port_is_refused_with_the_fix():
    with closing(tcp_guard.listen("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} of 127.0.0.1: another program listens there"):
            tcp_guard.listen("127.0.0.1", port)
    with pytest.raises(EngineError, match="not an address of this machine"):
        tcp_guard.listen("192.0.2.1", 0)
    with pytest.raises(EngineError, match="is not an address"):
        tcp_guard.listen("no such name", 0)


def test_a_port_open_to_a_network_gives_a_warning():
    assert [tcp_guard.warning(host) for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3")] == [""] * 5
    for host in ("0.0.0.0", "::", "192.168.1.5", "box.lan", ""):
        assert "not encrypted" in tcp_guard.warning(host)
