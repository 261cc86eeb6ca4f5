"""The check of `remote.url` for `speclsp doctor`: the server's type, and its time for a few tokens."""

from __future__ import annotations

import time
from dataclasses import replace

from speclsp.cli.first_run.doctor_check import FAIL, OK, WARN, DoctorCheck
from speclsp.config import Config
from speclsp.errors import SpeclspError

SLOW_MS = 1500  # a completion slower than this comes too late for most typists


def remote(config: Config) -> DoctorCheck:
    """Check the server at remote.url: its type, and its time for a few tokens."""
    import asyncio

    from speclsp.lsp.backend.blocking import without_retry
    from speclsp.lsp.backend.remote.remote import RemoteBackend
    from speclsp.lsp.backend.types import FimRequest, Status

    ask = FimRequest(path="add.py", prefix="def add(a, b):\n", line_prefix="    return ", suffix="\n", max_tokens=8)

    async def complete_once() -> DoctorCheck:
        changed = asyncio.Event()
        server = RemoteBackend(config, lambda status: changed.set(), config.remote.url)
        server.start()
        try:
            while server.status.state == "starting":
                await changed.wait()
                changed.clear()
            status: Status = server.status
            facts: dict[str, object] = {"server": server.server.kind, "style": server.server.style}
            if status.state == "ready":
                began_s, text = time.monotonic(), ""
                first_ms = 0.0
                async for piece in server.stream(replace(ask, deadline_ms=config.completion.timeout_ms)):
                    first_ms = first_ms or (time.monotonic() - began_s) * 1000
                    text += piece.text
                took_ms = round((time.monotonic() - began_s) * 1000)
                facts |= {"model": status.target, "first_ms": round(first_ms), "whole_ms": took_ms}
                kind = server.server.kind or "a server of unknown kind"
                summary = f"{kind} at {status.remote}, {status.target}, by {server.server.style}: {text!r}"
                slow = took_ms > SLOW_MS
                fix = "choose a smaller model or a nearer server" if slow else ""
                summary += f", first text after {round(first_ms)} ms, complete after {took_ms} ms"
                return DoctorCheck("remote", WARN if slow else OK, summary, fix, facts=facts)
            summary = without_retry(status.message)
            return DoctorCheck("remote", FAIL, summary, "follow the message", facts=facts)
        except SpeclspError as error:
            summary = without_retry(server.status.message) or str(error)
            return DoctorCheck("remote", FAIL, summary, "follow the message")
        finally:
            await server.close()

    return asyncio.run(complete_once())
