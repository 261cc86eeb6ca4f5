"""`speclsp` with a time stamp at each stage of a request, in the language server and in its engine.

    python -m benchmarks.speed.waterfall.timed_process lsp --stdio ...

Each stamp is one line of JSON in a file of $SPECLSP_STAMPS: [name, key, seconds, thread, processor seconds]. The first
seconds are those of the system's monotonic clock, so stamps of two processes and of the editor compare. The others are
of the thread. A key identifies the request: the editor's id in the language server, the checksum of the HTTP body in
the engine. The stamp "body" connects the two.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

FOLDER = "SPECLSP_STAMPS"
MODULE = "benchmarks.speed.waterfall.timed_process"
REPLY = re.compile(rb'"id": ?(\d+)')

Key = int | str | list[object] | None

current: ContextVar[Key] = ContextVar("current", default=None)  # the key of the task's request


class Stamps:
    """Writes stamps, unbuffered: the process may end without a warning."""

    def __init__(self) -> None:
        self.fd = os.open(Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, name: str, key: Key) -> None:
        row = [name, key, perf_counter(), threading.get_native_id(), thread_time()]
        os.write(self.fd, json.dumps(row).encode() + b"\n")


def around(owner: Any, name: str, before: Callable[..., None], after: Callable[..., None]) -> None:
    """Replace a function: `before` gets its arguments, `after` its result and its arguments."""
    function = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = function(*args, **kwargs)
        after(result, *args)
        return result

    setattr(owner, name, timed)


def nothing(*_: object) -> None:
    """No stamp on this side of the function."""


def message_key(message: Any) -> Key:
    """The key of a change or a request; None for other messages."""
    params = message.get("params") if isinstance(message, dict) else None
    if isinstance(params, dict) and message.get("method") == "textDocument/didChange":
        return [params["textDocument"]["uri"], params["textDocument"]["version"]]
    is_request = isinstance(message, dict) and message.get("method") == "textDocument/inlineCompletion"
    return message["id"] if is_request else None


def time_language_server(stamp: Stamps) -> None:
    """Stamps from the arrival of a message to the reply."""
    from speclsp.lsp.backend import own_engine
    from speclsp.lsp.backend.engine_http import EngineHttp
    from speclsp.lsp.completion.pipeline import Pipeline
    from speclsp.lsp.completion.session import Session
    from speclsp.lsp.completion.stream import Stream
    from speclsp.lsp.protocol.language_server import SpecProtocol
    from speclsp.lsp.protocol.stdio import MessageWriter

    def received(_: object, message: Any) -> None:
        if (key := message_key(message)) is not None:
            stamp("received", key)

    def handled(_: object, __: object, message: Any) -> None:
        if (key := message_key(message)) is not None:
            stamp("handled", key)

    answer, post_events = Pipeline.answer, EngineHttp.post_events

    async def timed_answer(self: Pipeline, job: Any) -> Any:
        current.set(job.trace.request)
        stamp("turn", job.trace.request)
        return await answer(self, job)

    async def timed_post_events(
        self: EngineHttp, path: str, body: Any, deadline_ms: int, is_last: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        key = current.get()
        if key is not None:
            stamp("posted", key)
            stamp("body", [key, zlib.crc32(json.dumps(body).encode())])
        async for event in post_events(self, path, body, deadline_ms, is_last):
            yield event

    def stream_ended(stream: Any, *_: object) -> None:
        if not stream.stop and (key := current.get()) is not None:
            stamp("stream ended", key)

    def answered(_: object, __: object, job: Any, *___: object) -> None:
        stamp("answered", job.trace.request)

    def replied(_: object, body: bytes, *__: object) -> None:
        if (match := REPLY.search(body)) and b'"method"' not in body[:80]:
            stamp("replied", int(match[1]))

    around(SpecProtocol, "receive", received, handled)
    around(Pipeline, "_plan", nothing, lambda *_: stamp("parsed", current.get()))
    around(Pipeline, "_build_context", nothing, lambda *_: stamp("context built", current.get()))
    around(Stream, "_end", stream_ended, nothing)
    around(Session, "_end", nothing, answered)
    around(MessageWriter, "write", replied, nothing)
    Pipeline.answer = timed_answer  # type: ignore[method-assign]
    EngineHttp.post_events = timed_post_events  # type: ignore[method-assign]
    own_engine.subprocess = TimedSubprocess()  # type: ignore[assignment, attr-defined]


class TimedSubprocess:
    """The module `subprocess`, which starts the engine as this module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """As subprocess's own."""
        return subprocess.Popen([MODULE if word == "speclsp" else word for word in command], **options)


def time_engine(stamp: Stamps) -> None:
    """Stamps from the arrival of the HTTP body to each round."""
    from speclsp.engine.http import llamacpp_api
    from speclsp.engine.scheduling.scheduled_job import ScheduledJob
    from speclsp.engine.scheduling.scheduler import Scheduler

    keys: dict[int, Key] = {}  # by the identity of the request: the thread may begin it before `submit` returns

    def body_read(body: bytes, *_: object) -> None:
        current.set(zlib.crc32(body))
        stamp("body read", current.get())

    def submitted(_: object, request: Any, *__: object) -> None:
        keys[id(request)] = current.get()
        stamp("submitted", current.get())

    def key_of(job: ScheduledJob) -> Key:
        return keys.get(id(job.request))

    def round_ended(job: ScheduledJob, piece: Any) -> None:
        if piece.tokens or piece.text:
            stamp("round", key_of(job))

    around(llamacpp_api, "infill", body_read, nothing)
    around(Scheduler, "submit", submitted, nothing)
    begun, made = (lambda *args, name=name: stamp(name, key_of(args[-3])) for name in ("begun", "tokens made"))
    around(ScheduledJob, "begin", begun, made)
    around(ScheduledJob, "report", round_ended, nothing)


if __name__ == "__main__":
    from speclsp.cli import entry

    (time_engine if sys.argv[1] == "engine" else time_language_server)(Stamps())
    raise SystemExit(entry.main(sys.argv[1:]))
