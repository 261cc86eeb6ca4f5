"""The engine as the HTTP handlers see it. One of the modules that import starlette."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from starlette.requests import Request as Http

from speclsp.config import Config
from speclsp.engine.http.leases import Leases
from speclsp.engine.http.request_log import RecentRequests
from speclsp.engine.scheduling.residency import Residency
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.observability.metrics import Metrics


@dataclass(frozen=True, slots=True)
class RouteContext:
    """The engine as the handlers see it: `http.app.state.engine`."""

    config: Config
    scheduler: Scheduler  # runs completions
    metrics: Metrics  # of /metrics
    leases: Leases  # of /lease, /health and /leave
    recent: RecentRequests = field(default_factory=RecentRequests)  # for /verify
    answer_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # for OpenAI's ids
    created_s: int = field(default_factory=lambda: int(time.time()))  # Unix time, for /v1/models

    @property
    def residency(self) -> Residency:
        """The state of the model."""
        return self.scheduler.residency

    @property
    def context_tokens(self) -> int:
        """The most tokens of a prompt and its completion: those of the loaded model, else the configured ones."""
        completer = self.residency.completer
        return (completer.context_tokens if completer else 0) or self.config.engine.context_tokens


def context_of(http: Http) -> RouteContext:
    """The engine that answers `http`."""
    context: RouteContext = http.app.state.engine
    return context
