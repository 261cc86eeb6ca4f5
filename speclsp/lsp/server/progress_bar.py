"""The client's progress bar while the model loads: create, begin, report and end in the order that LSP requires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Create = Callable[[str, Callable[[], None]], None]
Send = Callable[[Mapping[str, object]], None]


class ProgressBar:
    """One bar at a time. `create(token, then)` requests a bar from the client and calls `then` when it agrees."""

    def __init__(self, create: Create, send: Send) -> None:
        self._create, self._send = create, send
        self._number = 0
        self._token = ""  # of the bar that is shown or requested
        self._shown = False
        self._status: Mapping[str, Any] = {}
        self._reported: dict[str, object] = {}

    def show(self, status: Mapping[str, Any]) -> None:
        """Begin, update or end the bar to match speclsp/status."""
        self._status = status
        if status["state"] not in ("starting", "loading"):
            self._end()
        elif not self._token:
            self._number += 1
            token = self._token = f"speclsp-{self._number}"
            self._create(token, lambda: self._begin(token))
        elif self._shown and bar_values(status) != self._reported:
            self._reported = bar_values(status)
            self._send_progress("report", self._token)

    def is_shown(self, token: object) -> bool:
        """True if this is the token of the shown bar."""
        return self._shown and token == self._token

    def _begin(self, token: str) -> None:
        """The client has created the bar. If the model is ready by now, the bar begins and ends: LSP requires both."""
        title = f"speclsp: {self._status['model']}"
        if token == self._token:
            self._shown, self._reported = True, bar_values(self._status)
        self._send_progress("begin", token, title=title, cancellable=True)
        if token != self._token:
            self._send_progress("end", token)

    def _send_progress(self, kind: str, token: str, **more: object) -> None:
        self._send({"token": token, "value": {"kind": kind, **more, **bar_values(self._status)}})

    def _end(self) -> None:
        if self._shown:
            self._send_progress("end", self._token)
        self._token, self._shown = "", False


def bar_values(status: Mapping[str, Any]) -> dict[str, object]:
    """The message and percentage that the bar shows for a status."""
    fraction = status["progress"]
    percentage = {} if fraction is None else {"percentage": round(100 * fraction)}
    return {"message": status["message"] or status["state"], **percentage}
