"""speclsp/explain: the last request's outcome, with everything that is known about it.

A request's Trace is kept when it ends. The explanation is computed when the client asks.

Explanations hold numbers, names and reasons, never document text. Names and paths go to the user who asks, never into
a log. Imports that only this needs are late: `initialize` is answered by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.reasons import PASSING, meaning
from speclsp.lsp.server.request_context import WorkspaceDocuments

if TYPE_CHECKING:
    from speclsp.lsp.completion.trace import Trace
    from speclsp.lsp.next_edit.next_edits import NextEditOutcome

ENGINE_FIELDS = ("state", "message", "model", "target", "draft", "device", "remote", "clients")


@dataclass(eq=False, repr=False)
class ExplainRecorder:
    """The last outcomes of one editor."""

    _documents: WorkspaceDocuments
    _status: Callable[[], Mapping[str, object]]  # the fields of speclsp/status
    _last: Trace | None = None
    _last_next_edit: NextEditOutcome | None = None

    def request_ended(self, trace: Trace) -> None:
        """Keep the trace of an answered request. A superseded request says nothing about its position."""
        if trace.outcome not in PASSING:
            self._last = trace

    def next_edit_ended(self, outcome: NextEditOutcome) -> None:
        self._last_next_edit = outcome

    def request_refused(self, uri: str, line: int, column: int, reason: str) -> None:
        """Keep the outcome of a request that was answered before it reached the session."""
        from speclsp.lsp.completion.trace import Trace

        trace = Trace.of(Snapshot(uri, "", 0, "", 0), wanted=1, position=(line, column))
        trace.ended((), reason)
        self.request_ended(trace)

    async def current(self) -> dict[str, Any]:
        """The explanation of the last request, and the outcome of the last request for a next edit."""
        from speclsp.lsp.context.chunk import path_in

        trace, outcome, status = self._last, self._last_next_edit, self._status()
        facts: dict[str, Any] = {"asked": trace is not None, "engine": {name: status[name] for name in ENGINE_FIELDS}}
        if outcome is not None:
            facts["next_edit"] = outcome.as_json(path_in(outcome.uri, self._documents.root(outcome.uri)))
        if trace is None:
            return facts
        folder = self._documents.root(trace.about.uri)
        return facts | explanation(trace, await self._refusal_message(trace), folder)

    async def _refusal_message(self, trace: Trace) -> str:
        """The setting or file that caused the outcome, if one did."""
        document = self._documents.documents.get(trace.about.uri)
        reason, message = await self._documents.exclusion(document) if document is not None else ("", "")
        return message if reason == trace.outcome else ""


def explanation(trace: Trace, message: str = "", folder: str | None = None) -> dict[str, Any]:
    """A trace in the form of docs/lsp-extensions.md. `message` names the setting or file behind the outcome."""
    from speclsp.lsp.completion.trace import as_json
    from speclsp.lsp.context.chunk import path_in

    about = trace.about
    numbers = as_json(trace)
    for name in ("document", "version", "request", "wanted", "at_ms"):  # of the log
        del numbers[name]
    return {
        "outcome": trace.outcome,
        "meaning": "" if trace.outcome == "shown" else meaning(trace.outcome),
        "message": clean(message),
        "document": clean(about.files[0][0] if about.files else path_in(about.uri, folder)),
        **numbers,
        "language": clean(trace.language),
        "line": trace.line + 1,
        "column": trace.column + 1,
        "age_s": round(time.monotonic() - trace.at_ms / 1000, 1),
        "files": [
            {"path": clean(path), "characters": characters, "source": source}
            for path, characters, source in about.files
        ],
    }


def clean(text: str) -> str:
    """A name of a repository without control characters: clients show it on a screen."""
    return "".join(filter(str.isprintable, text))
