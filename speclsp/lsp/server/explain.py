"""speclsp/explain: the last suggestion, or the last nothing, with all that is known of how it came about.

on a request's end: its Trace is kept, nothing else       asked, or 250 ms later for `speclsp explain`: it is told

Numbers, names and reasons, never a piece of a document: what is kept has none. Names and paths go to the user who asks
and into a file that only that user can read, never into a log. What this needs is imported when it is needed: the
editor has its answer to `initialize` by then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from speclsp import __version__
from speclsp.errors import InputError, SpeclspError
from speclsp.lsp.reasons import CUTS, PASSING, meaning
from speclsp.lsp.server import request_context

if TYPE_CHECKING:
    from speclsp.lsp.completion.trace import Trace
    from speclsp.lsp.server.server import CompletionServer

EXPLAIN = "speclsp/explain"
PAUSE_S = 0.25  # between two writings of the file
NOT_LOOKED_AT = f"not among the {request_context.OTHERS} used last"
DOCUMENTS = 64  # whose last outcome is remembered
OPEN = 64  # documents that are asked why they are kept back, four times a second while somebody types

log = logging.getLogger("speclsp.explain")


class ExplainRecorder:
    """The last outcomes of one editor."""

    def __init__(self, ls: CompletionServer) -> None:
        self._ls = ls
        self._last: Trace | None = None
        self._by_uri: OrderedDict[str, Trace] = OrderedDict()
        self._due: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._ended = self._swept = False

    def ended(self, trace: Trace) -> None:
        """A request has its answer. One that a newer took over says nothing about its place."""
        if trace.outcome in PASSING:
            return
        self._last = self._by_uri[trace.about.uri] = trace
        self._by_uri.move_to_end(trace.about.uri)
        if len(self._by_uri) > DOCUMENTS:
            self._by_uri.popitem(last=False)
        self.changed()

    def refused(self, uri: str, line: int, column: int, reason: str) -> None:
        """A request was answered before it came to the session."""
        from speclsp.lsp.completion.trace import RequestInfo, Trace, digest

        now_ms = time.monotonic() * 1000
        trace = Trace(document=digest(uri), language="", version=0, characters=0, wanted=1, at_ms=now_ms)
        trace.line, trace.column, trace.outcome = line, column, reason
        trace.about = RequestInfo(uri=uri, status=self._ls.backend.status if self._ls.backend is not None else None)
        self.ended(trace)

    def changed(self) -> None:
        """There is something new to tell; soon."""
        if self._due is None and not self._ended and self._ls.beginning is not None:
            self._due = asyncio.get_running_loop().call_later(PAUSE_S, self._write)

    def _write(self) -> None:
        if self._writing is not None and not self._writing.done():  # a slow disk
            self._due = asyncio.get_running_loop().call_later(PAUSE_S, self._write)
            return
        self._due = None
        self._writing = asyncio.create_task(self._write_in_thread(self.told()))

    async def _write_in_thread(self, told: Mapping[str, Any]) -> None:
        from speclsp.observability import explanation as explaining

        with suppress(asyncio.CancelledError):
            try:
                await asyncio.to_thread(explaining.write, told)
                if not self._swept:
                    self._swept = True
                    await asyncio.to_thread(explaining.running)  # what killed servers left goes
            except (OSError, SpeclspError) as error:
                log.debug("no explanation is left for others: %s", type(error).__name__)

    def end(self) -> None:
        """The server ends."""
        self._ended = True
        if self._writing is not None:
            from speclsp.observability import explanation as explaining

            explaining.remove()

    def told(self, uri: str | None = None) -> dict[str, Any]:
        """The last explanation, of one document if `uri` is given."""
        ls, trace = self._ls, self._last if uri is None else self._by_uri.get(uri)
        status = ls.status()
        names = ("state", "message", "pair", "target", "draft", "device", "remote", "shared", "clients", "draft_only")
        told: dict[str, Any] = {
            "asked": trace is not None,
            "client": ls.client_name,
            "pid": os.getpid(),
            "version": __version__,
            "written_s": round(time.time(), 3),
            "engine": {name: status[name] for name in names},
        }
        if trace is None:
            return told
        made = trace.about.status
        if made is not None:  # who answered then, not who would now
            told["engine"] |= {name: getattr(made, name) for name in ("pair", "target", "draft", "device", "remote")}
        folder = request_context.root(ls, trace.about.uri)
        return told | explanation(trace, self._setting(trace), self._kept_back(trace), folder)

    def _kept_back(self, trace: Trace) -> tuple[str, ...]:
        """For each open document that did not even come into question: why, as far as that is so now."""
        ls, about = self._ls, trace.about
        if not about.files:
            return ()
        own = {about.uri, *(cell.uri for cell in ls.notebooks.above(about.uri))}
        others = [document.uri for document in ls.documents if document.uri not in own]
        known = [why for uri in others[:OPEN] if (why := request_context.kept_back(ls, uri))]
        return (*known, *[NOT_LOOKED_AT] * (len(others) - len(known) - request_context.OTHERS))

    def _setting(self, trace: Trace) -> str:
        """Which setting or file is the reason, where one is."""
        from speclsp.lsp.visibility.eligibility import why_not

        ls, uri = self._ls, trace.about.uri
        document = ls.documents.get(uri)
        if document is None:
            return ""
        folder, size = request_context.root(ls, uri), ls.notebooks.characters(document)
        excluded = ls.ignored.of(ls.notebooks.of(uri) or uri, folder).no_suggestions
        reason, message = why_not(uri, document.language, size, ls.config, folder, excluded)
        return message if reason == trace.outcome else ""


def explanation(
    trace: Trace, message: str = "", kept_back: tuple[str, ...] = (), folder: str | None = None
) -> dict[str, Any]:
    """A trace as docs/protocol.md has it. `message`: which setting is the reason, where one is."""
    from speclsp.lsp.context.build import path_in
    from speclsp.observability import explanation as explaining

    about = trace.about
    path = about.files[0][0] if about.files else path_in(about.uri, folder)
    above, below = about.not_shown
    at_s = time.time() - (time.monotonic() - trace.at_ms / 1000)
    return {
        "at_s": round(at_s, 3),
        "document": path,
        "language": trace.language,
        "line": trace.line + 1,
        "column": trace.column + 1,
        "outcome": trace.outcome,
        "meaning": "" if trace.outcome == "shown" else meaning(trace.outcome),
        "message": message,
        "suggestions": trace.suggestions,
        "shown_characters": trace.shown_characters,
        "streamed_characters": trace.streamed_characters,
        "reused": trace.reused,
        "adopted": trace.adopted,
        "prepared": trace.prepared,
        "draft_only": trace.draft_only,
        "ms": {
            "waiting": round(trace.waited_ms, 1),
            "parse": round(trace.parse_ms, 1),
            "context": round(trace.context_ms, 1),
            "engine": round(trace.engine_ms, 1),
            "queue": round(trace.queue_ms, 1),
            "prompt": round(trace.prompt_ms, 1),
            "rounds": round(trace.rounds_ms, 1),
            "first_text": round(trace.first_ms, 1),
            "total": round(trace.total_ms, 1),
        },
        "prompt": {
            "tokens": trace.prompt_tokens,
            "cached_tokens": trace.cached_tokens,
            "left_out_tokens": trace.left_out_tokens,
        },
        "generation": {
            "tokens": trace.tokens,
            "rounds": trace.rounds,
            "tokens_per_round": round(trace.tokens / trace.rounds, 2) if trace.rounds else 0.0,
            "drafted": trace.drafted,
            "accepted": trace.accepted,
            "by_source": trace.by_source,
            "stop": trace.stop,
        },
        "confidence": {
            "first_line": None if trace.confidence is None else round(trace.confidence, 3),
            "wanted": round(trace.least_confidence, 3),
            "taken": round(trace.taken_and_left[0], 1),
            "left": round(trace.taken_and_left[1], 1),
        },
        "cut": [
            {"why": why, "meaning": CUTS.get(why) or meaning(why), "characters": characters}
            for why, characters in trace.cuts
            if characters
        ],
        "context": {
            "files": [
                {"path": path, "characters": characters, "source": source} for path, characters, source in about.files
            ],
            "not_shown": {"above": above, "below": below},
            "left_out": explaining.counted(about.left_out + kept_back),
        },
    }


def explain(ls: CompletionServer, params: Any) -> dict[str, object]:
    """The last suggestion or nothing, of one document or of any."""
    from speclsp.observability import explanation as explaining

    uri = None
    if params and isinstance(params, Mapping) and "textDocument" in params:
        document = params["textDocument"]
        uri = document.get("uri") if isinstance(document, Mapping) else None
        if not isinstance(uri, str):
            raise InputError(f'{EXPLAIN} needs {{}} or {{"textDocument": {{"uri": ...}}}}.')
    told = ls.explaining.told(uri)
    return told | {"text": explaining.in_words(told)}
