"""The tiny model in a Residency driven from this thread: the test moves its clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from speclsp.cli.measure import complete_once
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request, Result
from speclsp.engine.loading import loading
from speclsp.engine.scheduling.residency import Residency
from speclsp.weights import cards

ASKED = Request(prefix="def add(a, b):\n", line_prefix="    return ", suffix="\n\n\nclass Point:\n", max_tokens=24)


def tiny(context_tokens: int) -> Config:
    """Settings of a small engine, computed by the reference decoder, whose methods a test can replace."""
    return Config(
        model="tiny", engine=EngineConfig(context_tokens=context_tokens, threads=1, quantization="fp32", draft=True)
    )


class ManagedModel:
    """A Residency and its model, which `load` returns: by default tiny with `config`."""

    def __init__(self, config: Config, load: Callable[..., Any] | None = None, **settings: Any) -> None:
        self.now_s = 0.0
        self.residency = Residency(load or loader(config), clock=lambda: self.now_s, **settings)
        self.residency.maintain()

    def runs_out(self) -> None:
        self.residency.report_out_of_memory()
        self.residency.maintain()

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.residency.maintain()

    def says(self, request: Request = ASKED) -> Result:
        self.residency.note_request()
        self.residency.maintain()
        assert self.residency.completer is not None, self.residency.message
        return complete_once(self.residency.completer, request)


def loader(config: Config) -> Callable[..., Any]:
    """Loads tiny with `config`."""
    return lambda progress: loading.start(config, cards.load("tiny"), progress)
