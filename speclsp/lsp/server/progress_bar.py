"""The client's progress bar while the model loads: create, begin, report and end in the order that LSP requires."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from lsprotocol import types

from speclsp.lsp.protocol.language_server import SpecLanguageServer


class ProgressBar:
    """One bar at a time, for a client that supports it."""

    def __init__(self, server: SpecLanguageServer) -> None:
        self._server = server
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
            self._request()
        elif self._shown and bar_values(status) != self._reported:
            self._reported = bar_values(status)
            self._send_progress("report", self._token)

    def is_shown(self, token: object) -> bool:
        """True if this is the token of the shown bar."""
        return self._shown and token == self._token

    def _request(self) -> None:
        self._number += 1
        token = self._token = f"speclsp-{self._number}"
        if self._server.client_can("window", "workDoneProgress"):
            answer = self._server.protocol.request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, {"token": token})
            answer.add_done_callback(lambda done: self._begin(token, done))

    def _begin(self, token: str, answer: asyncio.Future[Any]) -> None:
        """The client has created the bar. If the model is ready by now, the bar begins and ends: LSP requires both."""
        if answer.cancelled() or answer.exception() is not None:
            return
        title = f"speclsp: {self._status['model']}"
        if token == self._token:
            self._shown, self._reported = True, bar_values(self._status)
        self._send_progress("begin", token, title=title, cancellable=True)
        if token != self._token:
            self._send_progress("end", token)

    def _send_progress(self, kind: str, token: str, **more: object) -> None:
        value = {"kind": kind, **more, **bar_values(self._status)}
        self._server.protocol.notify(types.PROGRESS, {"token": token, "value": value})

    def _end(self) -> None:
        if self._shown:
            self._send_progress("end", self._token)
        self._token, self._shown = "", False


def bar_values(status: Mapping[str, Any]) -> dict[str, object]:
    """The message and percentage that the bar shows for a status."""
    fraction = status["progress"]
    percentage = {} if fraction is None else {"percentage": round(100 * fraction)}
    return {"message": status["message"] or status["state"], **percentage}
