"""State of one editor's language server: settings, backend, session and status.

The parts around it (handlers.App) subscribe to its events: `on_config`, `on_request_ended`, `on_status` and
`on_exit` are lists of functions, called in order.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from speclsp import __version__
from speclsp import config as settings
from speclsp.config import Config
from speclsp.lsp.backend.types import Status
from speclsp.lsp.protocol.language_server import SpecLanguageServer
from speclsp.lsp.protocol.opening import AT_START, SECTION, with_settings
from speclsp.lsp.reasons import PASSING, Reason, meaning, reason_without_backend
from speclsp.lsp.server.request_context import WorkspaceDocuments
from speclsp.lsp.visibility.ignore_files import IgnoreFiles

if TYPE_CHECKING:
    from speclsp.lsp.backend.types import Backend
    from speclsp.lsp.completion.session import Session
    from speclsp.lsp.completion.trace import Trace
    from speclsp.lsp.documents.document import Document

STATUS = "speclsp/status"
STOPPED = (
    "stopped. To continue: the editor's command for that, any change of a setting or a restart of the language server. "
    "Or choose a smaller model."
)
NO_FILE = "the engine starts with the first open file that can get suggestions."
GIVEN_UP = ("error", "stopped")  # states that only a retry by the user ends, or another process's engine

log = logging.getLogger("speclsp.server")


class CompletionServer(SpecLanguageServer):
    """State of one editor's language server, and the events that report its changes."""

    def __init__(self, config: Config, problems: list[str], log_traces: bool = False, copilot: bool = False) -> None:
        """`copilot`: the client speaks Copilot's protocol, whatever it says."""
        super().__init__(SECTION, __version__)
        self.config = config
        self.problems = {"": problems}  # sentences about settings, by their source
        self.log_traces, self.copilot = log_traces, copilot
        self.ignore_files = IgnoreFiles()
        self.workspace_documents = WorkspaceDocuments(
            self.documents, self.notebooks, self.ignore_files, lambda: self.config, lambda: self.folders
        )
        self.session: Session | None = None  # created once `initialize` is answered
        self.backend: Backend | None = None
        self.starting: asyncio.Task[None] | None = None  # creates the session and the index
        self.client_ready = False  # `initialized` has arrived: notifications may be sent
        self.client_name = ""
        self.log_path: Path | None = None  # None: it writes no log
        self.folders: list[str] = []  # URIs of the workspace folders
        self.last_reason = ""  # why the last request showed nothing

        self.on_config: list[Callable[[Config, Config], None]] = []  # (new, old)
        self.on_request_ended: list[Callable[[Trace], None]] = []
        self.on_status: list[Callable[[Mapping[str, object]], None]] = []  # speclsp/status was sent
        self.on_exit: list[Callable[[], None]] = []  # before the backend ends

        self._own_url = config.remote.url  # of the user's own settings, before those of any editor
        self._own_globs = config.completion.disabled_globs  # the same; an editor adds patterns and removes none
        self._connected_config: Config | None = None  # the settings of the current backend
        self._connecting: asyncio.Task[None] | None = None
        self._has_eligible_document = False  # one was opened: before that, no backend is started
        self._eligibility_checks: set[asyncio.Task[None]] = set()
        self._sent_status: dict[str, object] = {}
        self._reported_problems: set[str] = set()
        self._backend_state = ("", "")  # the backend's last state and message
        self._model_identity: tuple[object, ...] = ()

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply_settings(self, source: str, values: object) -> None:
        """Apply the valid settings in `values` and report the invalid ones; settings it does not name are kept."""
        old, protected = self.config, () if source == AT_START else settings.THE_USERS_OWN
        config, self.problems[source] = with_settings(old, source, values, self._own_globs, protected)
        if config != old:
            self.config = config
            if self.session is not None:
                self.session.apply_config(config)
            for listener in self.on_config:
                listener(config, old)
        if self.starting is not None:
            self.connect()
            for document in self.documents:
                self.document_opened(document)
        self.publish_status()

    # ── backend ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def backend_status(self) -> Status | None:
        return self.backend.status if self.backend is not None else None

    @property
    def model(self) -> str:
        return self.backend.status.model if self.backend is not None else self.config.model

    @property
    def is_remote(self) -> bool:
        """True if the backend sends prompts to another machine."""
        return self.backend is not None and bool(self.backend.status.remote)

    def reason_without_session(self) -> str:
        """The reason for an empty answer before the session is there: the backend may have failed by then."""
        status = self.backend_status
        return Reason.LOADING if status is None else reason_without_backend(status.state, bool(status.remote))

    def document_opened(self, document: Document) -> None:
        """Start the backend with the first document that is eligible for suggestions."""
        if not self._has_eligible_document:
            check = asyncio.create_task(self._connect_if_eligible(document))
            self._eligibility_checks.add(check)
            check.add_done_callback(self._eligibility_checks.discard)

    async def _connect_if_eligible(self, document: Document) -> None:
        reason, _ = await self.workspace_documents.exclusion(document)
        if not reason:
            self._has_eligible_document = True
            self.connect()

    def connect(self) -> None:
        """Make the backend match the settings. One that failed or was stopped is replaced."""
        if self.backend is not None and self.backend.status.state in GIVEN_UP:
            self._connected_config = None
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._replace_backend())

    async def _replace_backend(self) -> None:
        """Replace the backend until it matches the settings: these may change while an old backend closes.

        While completion is off, no backend is started, and the lease on a shared engine is released: a window without
        suggestions needs no model. Before the first eligible document, none is started either.
        """
        from speclsp.lsp.backend.remote.backend_choice import connect

        while self._needs_other_backend():
            old, self.backend, self._connected_config = self.backend, None, None
            if old is not None:
                log.info("the settings require another backend")
                await old.close(replaced=self._wants_backend)
            if self._wants_backend:
                config = self._connected_config = self.config
                self.backend = connect(config, self.backend_changed, self.client_name, self._own_url)
                self.backend.start()

    @property
    def _wants_backend(self) -> bool:
        return self.config.completion.enabled and self._has_eligible_document

    def _needs_other_backend(self) -> bool:
        if self._wants_backend:
            return backend_settings(self.config) != backend_settings(self._connected_config)
        return self.backend is not None

    async def stop_loading(self) -> None:
        """Stop the backend's start at the user's request. Downloaded files stay, and the next start uses them."""
        backend = self.backend
        if backend is not None and backend.status.state in ("starting", "loading"):
            backend.status = replace(backend.status, state="error", message=STOPPED, progress=None)
            self.backend_changed(backend.status)
            await backend.close()

    def backend_changed(self, status: Status) -> None:
        """The backend has a new status. Answers of another model, or of an engine that is lost, are discarded."""
        state = (status.state, status.message)
        changed = state != self._backend_state
        if changed and status.state != "loading":
            log.info("%s: %s", status.state, status.message or f"{status.model} on {status.device}")
        lost = changed and not status.usable and status.state != "loading"
        if self.session is not None and (lost or status.model_identity != self._model_identity):
            self.session.discard_answers()
        self._backend_state, self._model_identity = state, status.model_identity
        self.publish_status()

    def end(self) -> None:
        """Stop everything but the engine. The event loop has stopped."""
        for step in self.on_exit:
            step()
        log.info("speclsp ends")

    # ── status ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def publish_status(self) -> None:
        """Send speclsp/status if it has changed, and each problem with the settings once."""
        if not self.client_ready:
            return
        for problem in self._all_problems():
            if problem not in self._reported_problems:
                self._reported_problems.add(problem)
                log.warning("%s", problem)
                self.protocol.notify(types.WINDOW_LOG_MESSAGE, {"type": types.MessageType.Warning, "message": problem})
        status = self.status()
        if status != self._sent_status:
            self._sent_status = status
            self.protocol.notify(STATUS, status)
            for listener in self.on_status:
                listener(status)

    def status(self) -> dict[str, object]:
        """The params of speclsp/status."""
        status = self.backend_status or self._status_without_backend()
        state = status.state
        if not self.config.completion.enabled:
            state = "off"
        elif state == "ready" and self.session is None:
            state = "starting"  # an engine that already runs is there before this process can use it
        elif state == "ready" and self.session is not None and self.session.busy:
            state = "thinking"
        latency_ms = self.session.last_latency_ms if self.session is not None else None
        return {
            **asdict(status),
            "state": state,
            "last_latency_ms": round(latency_ms, 1) if latency_ms is not None else None,
            "last_reason": self.last_reason,
            "last_reason_meaning": meaning(self.last_reason),
            "trigger": self.config.completion.trigger,
            "eagerness": self.config.completion.eagerness,
            "show_latency": self.config.completion.show_latency,
            "next_edit": self.config.next_edit.enabled,
            "problems": self._all_problems(),
            "log": str(self.log_path or ""),
        }

    def _status_without_backend(self) -> Status:
        config = self.config
        status = Status(state="starting", model=config.model, device=config.device)
        return status if self._has_eligible_document else replace(status, state="asleep", message=NO_FILE)

    def request_ended(self, trace: Trace) -> None:
        """A request has its answer. Its reason is sent with the next status."""
        for listener in self.on_request_ended:
            listener(trace)
        if trace.outcome not in PASSING:
            self.last_reason = "" if trace.outcome == "shown" else trace.outcome
        if self.log_traces:
            from speclsp.lsp.completion.trace import as_json

            logging.getLogger("speclsp.trace").info("%s", json.dumps(as_json(trace)))

    def _all_problems(self) -> list[str]:
        return [problem for problems in self.problems.values() for problem in problems]

    # ── the client ────────────────────────────────────────────────────────────────────────────────────────────────────

    def register_capability(self, registration_id: str, method: str, options: Mapping[str, object]) -> None:
        """Register for a notification that the client supports dynamically."""
        registration = {"id": registration_id, "method": method, "registerOptions": options}
        answer = self.protocol.request(types.CLIENT_REGISTER_CAPABILITY, {"registrations": [registration]})
        answer.add_done_callback(
            lambda done: None if done.cancelled() else done.exception()
        )  # a refusal changes nothing


def backend_settings(config: Config | None) -> object:
    """The settings that a running backend cannot change: another value needs another backend."""
    return config and (config.model, config.device, config.models_dir, config.engine, config.echo, config.remote)
