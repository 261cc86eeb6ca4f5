"""Counts requests and accepted suggestions for `speclsp stats`; counts nothing on disk if `stats.enabled` is off.

The counts of accepted and ignored suggestions also set the confidence threshold of later ones
(completion/confidence.py). This session's counts are kept in memory even if `stats.enabled` is off. Those of the last
weeks are read from disk, where they were stored.

The server calls this module when it sends an answer, when a request or a document ends, and at its own end. A bug in
here costs a line in the log and a count, never an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from speclsp.config import stats_path
from speclsp.errors import SpeclspError, error_site
from speclsp.lsp.completion.acceptance import AcceptanceTracker, Counts, to_sent_items
from speclsp.lsp.documents.document import CursorContext, Documents
from speclsp.observability.usage_db import Tally, first_of, of_request, read, week_of

if TYPE_CHECKING:
    from speclsp.lsp.completion.confidence import AcceptanceHistory
    from speclsp.lsp.completion.trace import Trace

REMEMBERED_WEEKS = 4  # older counts have next to no weight
WEEK_S = 7 * 86400.0

log = logging.getLogger("speclsp.stats")


@contextmanager
def errors_logged() -> Iterator[None]:
    """Log an error inside by its type and site, and go on after it."""
    try:
        yield
    except Exception as error:  # its message may quote the document
        log.error("an event is not counted: %s", error_site(error))


@dataclass(eq=False, repr=False)
class UsageStats:
    """Usage counters of one server."""

    documents: Documents
    model: Callable[[], str]  # the model that answers
    enabled: Callable[[], bool]  # whether counts are stored
    acceptance_history: Callable[[], AcceptanceHistory | None]  # sets the threshold; None before the session's start
    _tally: Tally = field(default_factory=lambda: Tally(stats_path()))
    _loading: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._acceptance = AcceptanceTracker(self._suggestion_ended)

    @errors_logged()
    def request_ended(self, trace: Trace) -> None:
        by_model = trace.outcome == "shown" and trace.tokens > 0 and not trace.reused
        latency_ms = trace.total_ms if by_model else None
        counts = of_request(trace.outcome, latency_ms, trace.reused, trace.tokens, trace.rounds, trace.by_source)
        self._add(trace.language, self.model(), counts | ({"prepared": 1} if trace.prepared else {}))
        if self._loading is None and self.enabled():
            self._loading = asyncio.get_running_loop().create_task(self._load_history())

    @errors_logged()
    def answered(self, at: CursorContext, items: Sequence[Mapping[str, Any]], encoding: str) -> None:
        """Watch the suggestions that the editor shows from now on; an empty answer clears the shown one.

        An answer for a text that has changed meanwhile is not watched: the editor drops it.
        """
        document = at.document
        if self.documents.get(document.uri) is document and document.version == at.snapshot.version:
            sent = to_sent_items(items, document, encoding)
            self._acceptance.answered(document, at.snapshot.cursor - at.before, sent, self.model())

    @errors_logged()
    def next_edit(self, language: str, counts: Mapping[str, int]) -> None:
        """Count a next edit that was shown, accepted or rejected."""
        self._add(language, self.model(), dict(counts))

    @errors_logged()
    def closed(self, uri: str) -> None:
        self._acceptance.closed(uri)

    @errors_logged()
    def end(self) -> None:
        """Count the suggestions that are still shown, and write everything to disk. The server ends."""
        self._acceptance.close()
        self._tally.close()

    async def _load_history(self) -> None:
        """Add the stored counts of the last weeks to the session's acceptance history."""
        today = date.today()
        try:
            rows = await asyncio.to_thread(read, self._tally.path, first_of(REMEMBERED_WEEKS, today))
        except SpeclspError as error:
            log.debug("cannot read the counts of the last weeks: %s", type(error).__name__)
            return
        age_s = {week_of(today - timedelta(weeks=weeks)): weeks * WEEK_S for weeks in range(REMEMBERED_WEEKS)}
        with errors_logged():
            history = self.acceptance_history()
            for week, language, _pair, name, count in rows:
                if week in age_s and history is not None:
                    history.learn(language, {name: count}, age_s[week])

    def _suggestion_ended(self, language: str, model: str, counts: Counts) -> None:
        """A suggestion was accepted, partly accepted or ignored."""
        history = self.acceptance_history()
        if history is not None:
            history.learn(language, counts)
        self._add(language, model, counts)

    def _add(self, language: str, model: str, counts: Counts) -> None:
        if self.enabled():
            self._tally.add(language, model, counts)
