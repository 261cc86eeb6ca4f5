"""What goes into `speclsp stats`: how each request went, and what became of each suggestion; nothing if so set.

The server calls it where an answer leaves, where a request or document ends, and at its own end. A bug in here costs a
line in the log and a number, never an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from speclsp.config import stats_path
from speclsp.lsp.feedback import Counts, Feedback, as_sent
from speclsp.lsp.params import kind_of
from speclsp.stats import Tally, of_request

if TYPE_CHECKING:
    from speclsp.lsp.asked import Spot
    from speclsp.lsp.server import Server
    from speclsp.lsp.trace import Trace


log = logging.getLogger("speclsp.counting")


@contextmanager
def at_any_rate() -> Iterator[None]:
    """Whatever goes wrong inside, its kind and place are logged, and what comes after it goes on."""
    try:
        yield
    except Exception as error:  # its message may quote the document
        log.error("something was not counted: %s", kind_of(error))


class Counting:
    """Counts for one server."""

    def __init__(self, ls: Server) -> None:
        self._ls = ls
        self._tally = Tally(stats_path())
        self._feedback = Feedback(self._add)

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
        self._add(trace.language, self.pair, counts)

    @at_any_rate()
    def answered(self, at: Spot, items: Sequence[Mapping[str, Any]], encoding: str) -> None:
        """These are what the editor shows from now on; none clears what it shows. Not for text that has changed."""
        document = at.document
        if self._ls.documents.get(document.uri) is document and document.version == at.snapshot.version:
            sent = as_sent(items, document, encoding) if self._ls.config.stats.enabled else ()
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

    def _add(self, language: str, pair: str, counts: Counts) -> None:
        if self._ls.config.stats.enabled:
            self._tally.add(language, pair, counts)
