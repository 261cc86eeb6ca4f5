"""The client's progress bar while the model loads: created, begun, reported and ended in the order LSP wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Create = Callable[[str, Callable[[], None]], None]
Send = Callable[[Mapping[str, object]], None]


class ProgressBar:
    """One bar at a time. `create(token, then)` asks the client for one and calls `then` when it agrees."""

    def __init__(self, create: Create, send: Send) -> None:
        self._create, self._send = create, send
        self._number = 0
        self._token = ""  # of the bar that is shown, or asked for
        self._shown = False
        self._status: Mapping[str, Any] = {}
        self._reported: dict[str, object] = {}

    def show(self, status: Mapping[str, Any]) -> None:
        """Begin, report or end, as the status asks."""
        self._status = status
        if status["state"] not in ("starting", "loading"):
            self._end()
        elif not self._token:
            self._number += 1
            token = self._token = f"speclsp-{self._number}"
            self._create(token, lambda: self._begin(token))
        elif self._shown and figures(status) != self._reported:
            self._reported = figures(status)
            self._tell("report", self._token)

    def is_shown(self, token: object) -> bool:
        """Whether it is that of the bar which is shown."""
        return self._shown and token == self._token

    def _begin(self, token: str) -> None:
        """The client agrees; if the model is ready by now, the bar ends as it begins: what was created is used."""
        title = f"speclsp: {self._status['pair']}"
        if token == self._token:
            self._shown, self._reported = True, figures(self._status)
        self._tell("begin", token, title=title, cancellable=True)
        if token != self._token:
            self._tell("end", token)

    def _tell(self, kind: str, token: str, **more: object) -> None:
        self._send({"token": token, "value": {"kind": kind, **more, **figures(self._status)}})

    def _end(self) -> None:
        if self._shown:
            self._tell("end", self._token)
        self._token, self._shown = "", False


def figures(status: Mapping[str, Any]) -> dict[str, object]:
    """The message and percentage of a status."""
    fraction = status["progress"]
    percentage = {} if fraction is None else {"percentage": round(100 * fraction)}
    return {"message": status["message"] or status["state"], **percentage}
