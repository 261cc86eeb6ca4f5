"""What goes into `speclsp stats`: how each request went, and what became of each suggestion; nothing if so set.

What became of suggestions also says how sure the next ones must be (confidence.py): that of this session, which is
held in memory whatever is set, and that of the last weeks, where they were counted.

The server calls it where an answer leaves, where a request or document ends, and at its own end. A bug in here costs a
line in the log and a number, never an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from speclsp.config import stats_path
from speclsp.errors import SpeclspError, error_site
from speclsp.lsp.completion.acceptance import AcceptanceTracker, Counts, to_sent_items
from speclsp.observability.usage_db import Tally, first_of, of_request, read, week_of

if TYPE_CHECKING:
    from speclsp.lsp.completion.trace import Trace
    from speclsp.lsp.server.request_context import CursorContext
    from speclsp.lsp.server.server import CompletionServer


WEEKS = 4  # that are remembered: what is older weighs next to nothing

log = logging.getLogger("speclsp.counting")


@contextmanager
def at_any_rate() -> Iterator[None]:
    """Whatever goes wrong inside, its kind and place are logged, and what comes after it goes on."""
    try:
        yield
    except Exception as error:  # its message may quote the document
        log.error("something was not counted: %s", error_site(error))


class UsageStats:
    """Counts for one server."""

    def __init__(self, ls: CompletionServer) -> None:
        self._ls = ls
        self._tally = Tally(stats_path())
        self._feedback = AcceptanceTracker(self._became)
        self._remembering: asyncio.Task[None] | None = None

    @property
    def pair(self) -> str:
        """Whose suggestions these are."""
        backend = self._ls.backend
        return backend.status.pair if backend is not None else self._ls.config.pair

    @at_any_rate()
    def traced(self, trace: Trace) -> None:
        """A request has ended."""
        by_model = trace.outcome == "shown" and trace.tokens > 0 and not trace.reused
        latency_ms = trace.total_ms if by_model else None
        counts = of_request(trace.outcome, latency_ms, trace.reused, trace.tokens, trace.rounds, trace.by_source)
        self._add(trace.language, self.pair, counts | ({"prepared": 1} if trace.prepared else {}))
        if self._remembering is None and self._ls.config.stats.enabled:
            self._remembering = asyncio.get_running_loop().create_task(self._remember())

    @at_any_rate()
    def answered(self, at: CursorContext, items: Sequence[Mapping[str, Any]], encoding: str) -> None:
        """These are what the editor shows from now on; none clears what it shows. Not for text that has changed."""
        document = at.document
        if self._ls.documents.get(document.uri) is document and document.version == at.snapshot.version:
            sent = to_sent_items(items, document, encoding)
            self._feedback.answered(document, at.snapshot.cursor - at.before, sent, self.pair)

    @at_any_rate()
    def closed(self, uri: str) -> None:
        """A document was closed."""
        self._feedback.closed(uri)

    @at_any_rate()
    def end(self) -> None:
        """The server ends: settle what stands and write it down."""
        self._feedback.close()
        self._tally.close()

    async def _remember(self) -> None:
        """Tell the session what became of suggestions in the last weeks."""
        today = date.today()
        try:
            rows = await asyncio.to_thread(read, self._tally.path, first_of(WEEKS, today))
        except SpeclspError as error:
            log.debug("nothing is known of the last weeks: %s", type(error).__name__)
            return
        by_week = {week_of(today - timedelta(weeks=ago)): ago * 7 * 86400.0 for ago in range(WEEKS)}
        with at_any_rate():
            for week, language, _pair, name, count in rows:
                if week in by_week and self._ls.session is not None:
                    self._ls.session.acceptance_history.learn(language, {name: count}, by_week[week])

    def _became(self, language: str, pair: str, counts: Counts) -> None:
        """This became of a suggestion."""
        if self._ls.session is not None:
            self._ls.session.acceptance_history.learn(language, counts)
        self._add(language, pair, counts)

    def _add(self, language: str, pair: str, counts: Counts) -> None:
        if self._ls.config.stats.enabled:
            self._tally.add(language, pair, counts)
