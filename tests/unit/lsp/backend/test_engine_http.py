"""HTTP to the local engine: the body arrives whole however it is cut, and leaving the request closes its connection."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.faults.local_listener import Serve, listening

from speclsp.lsp.backend.engine_http import EngineHttp, ResponseTimeout

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)


def answering(*pieces: bytes) -> Serve:
    """Read one request, then write each piece by itself and hang up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    return serve


async def body_of(address: dict[str, Any]) -> bytes:
    async with EngineHttp(**address).request("POST", "/infill", b"{}", 5.0) as answer:
        return await answer.body()


async def events_of(address: dict[str, Any], deadline_ms: int = 5000) -> list[dict[str, object]]:
    return [event async for event in EngineHttp(**address).post_events("/infill", {}, deadline_ms, lambda _: False)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(body=st.binary(min_size=1, max_size=40), cuts=st.lists(st.integers(0, 120), max_size=6), kind=st.integers(0, 2))
def test_a_body_is_the_same_however_it_is_framed_and_cut(tmp_path, body, cuts, kind):
    plain = b"HTTP/1.1 200 OK\r\n"
    framed = (
        HEAD + chunked(body[:7], body[7:]) + b"0\r\n\r\n",
        plain + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        plain + b"\r\n" + body,
    )[kind]
    edges = [0, *sorted(min(cut, len(framed)) for cut in cuts), len(framed)]
    pieces = [framed[low:high] for low, high in itertools.pairwise(edges)]

    async def work() -> bytes:
        async with listening(answering(*pieces), tmp_path / "s") as address:
            return await body_of(address)

    assert asyncio.run(work()) == body


@pytest.mark.parametrize("leave", [None, EngineHttp.close], ids=["leaving the request", "closing"])
async def test_leaving_a_request_and_closing_the_client_both_hang_up(tmp_path, leave):
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunked(b"data"))
        while await reader.read(100):
            pass
        hung_up.set()
        writer.close()

    async with listening(serve, tmp_path / "s") as address:
        client = EngineHttp(**address)
        async with client.request("POST", "/infill", b"", 5.0):
            if leave is not None:
                await leave(client)
                await asyncio.wait_for(hung_up.wait(), 10)
        await asyncio.wait_for(hung_up.wait(), 10)


@pytest.mark.parametrize("begun", [b"", HEAD, b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_silence_ends_with_a_timeout(tmp_path, monkeypatch, begun):
    monkeypatch.setattr("speclsp.lsp.backend.engine_http.SLACK_S", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await reader.read()
        writer.close()

    async with listening(silent, tmp_path / "s") as address:
        with pytest.raises(ResponseTimeout):
            await events_of(address, deadline_ms=0)
