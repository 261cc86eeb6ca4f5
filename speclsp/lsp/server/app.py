"""`speclsp lsp`: composes the language server from its parts and serves one editor.

protocol/language_server.py     framing, lifecycle and document sync
server.py                       state: settings, backend, session, status
handlers.py, custom_requests.py one function per message; the table HANDLERS is below
usage_stats, explain, workspace_indexes, progress_bar      parts that follow the server's events
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from speclsp import __version__
from speclsp import config as settings
from speclsp.config import Config
from speclsp.lsp.next_edit import wire
from speclsp.lsp.protocol.initialize_answer import ACCEPT_COMMAND, REJECT_COMMAND
from speclsp.lsp.protocol.language_server import serve
from speclsp.lsp.protocol.opening import Opening
from speclsp.lsp.server import custom_requests, handlers
from speclsp.lsp.server.custom_requests import SUGGESTION_GREW, grown_params
from speclsp.lsp.server.explain import ExplainRecorder
from speclsp.lsp.server.handlers import ABILITIES, App
from speclsp.lsp.server.progress_bar import ProgressBar
from speclsp.lsp.server.server import CompletionServer
from speclsp.lsp.server.usage_stats import UsageStats
from speclsp.observability.logfile import open_language_server_log

if TYPE_CHECKING:
    from speclsp.lsp.backend.types import FimRequest, StreamPiece
    from speclsp.lsp.completion.job import CompletionRequest
    from speclsp.lsp.documents.document import Document
    from speclsp.lsp.index.workspace_index import WorkspaceIndex
    from speclsp.lsp.next_edit.next_edits import NextEdits

HANDLERS: Mapping[str, Callable[..., Any]] = {
    types.INITIALIZE: handlers.initialize,
    types.INITIALIZED: handlers.initialized,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: handlers.did_change_configuration,
    types.TEXT_DOCUMENT_DID_CHANGE: handlers.did_change,
    types.TEXT_DOCUMENT_DID_OPEN: handlers.did_open,
    types.TEXT_DOCUMENT_DID_SAVE: handlers.did_save,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: handlers.did_change_watched_files,
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: handlers.did_change_workspace_folders,
    types.TEXT_DOCUMENT_DID_CLOSE: handlers.did_close,
    types.NOTEBOOK_DOCUMENT_DID_OPEN: handlers.did_change_notebook,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE: handlers.did_change_notebook,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE: handlers.did_change_notebook,
    types.TEXT_DOCUMENT_INLINE_COMPLETION: handlers.inline_completion,
    types.TEXT_DOCUMENT_COMPLETION: handlers.completion,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL: handlers.cancel_progress,
    custom_requests.DID_FOCUS: custom_requests.did_focus,
    custom_requests.HERE: custom_requests.here,
    custom_requests.LIST_MODELS: custom_requests.list_models,
    custom_requests.EXPLAIN: custom_requests.explain,
    custom_requests.USES: custom_requests.uses,
    custom_requests.RETRY: custom_requests.retry,
    wire.INLINE_EDIT: handlers.inline_edit,
    wire.DID_SHOW: handlers.next_edit_shown,
    **dict.fromkeys(wire.IGNORED, handlers.ignore_notification),
}

log = logging.getLogger("speclsp.server")


def main(opening: Opening, trace: bool = False) -> int:
    """Serve one editor. Returns the exit code. `trace`: log every request."""
    path = open_language_server_log()
    log.info("speclsp %s starts", __version__)
    server = compose(opening.own_config, opening.problems, trace, opening.copilot).server
    server.log_path = path
    if path is None:
        server.problems["log"] = [f"no log: {settings.log_dir()} cannot be written."]
    server.protocol.is_answered = opening.has_answered
    opening.end()
    return serve(server, opening.input, opening.out_fd, server.end)


def compose(config: Config, problems: list[str], trace: bool = False, copilot: bool = False) -> App:
    """Create the server and its parts, subscribe the parts to its events, and register all handlers."""
    server = CompletionServer(config, problems, trace, copilot)
    documents = server.workspace_documents
    app = App(
        server=server,
        usage=UsageStats(model=lambda: server.model, enabled=lambda: server.config.stats.enabled),
        recorder=ExplainRecorder(documents, server.status),
        progress=ProgressBar(server),
        start=start,
    )
    server.on_config.append(functools.partial(config_changed, app))
    server.on_request_ended += [app.usage.request_ended, app.recorder.request_ended]
    server.on_status.append(app.progress.show)
    server.on_exit += [app.usage.end, lambda: app.index.end() if app.index is not None else None]
    for method, handler in HANDLERS.items():
        server.feature(method)(functools.partial(handler, app))
    server.command(ACCEPT_COMMAND)(lambda *arguments: handlers.edit_accepted(app, *arguments))
    server.command(REJECT_COMMAND)(lambda *arguments: handlers.edit_rejected(app, *arguments))
    return app


async def start(app: App) -> None:
    """Create the session, the index and the next edits. Their imports take 0.1 s, so `initialize` is answered first."""
    server = app.server
    await asyncio.to_thread(importlib.import_module, "speclsp.lsp.next_edit.recent_activity")
    follow_recent_edits(app)
    await asyncio.to_thread(importlib.import_module, "speclsp.lsp.completion.session")
    from speclsp.lsp.completion.session import Session
    from speclsp.lsp.server.workspace_indexes import WorkspaceIndexes

    def grown(request: CompletionRequest) -> None:
        server.protocol.notify(SUGGESTION_GREW, grown_params(request))

    app.index = WorkspaceIndexes(server.workspace_documents, lambda: server.is_remote)
    server.session = Session(
        server.config,
        lambda: server.backend,
        server.publish_status,
        server.request_ended,
        server.ignore_files,
        on_grown=grown if server.client_can(*ABILITIES, "suggestionGrew") else None,
        client_outdents=server.client_can(*ABILITIES, "outdent"),
        index_of=app.index.index,
    )
    server.publish_status()
    for document in server.documents:
        app.index.document_opened(document.uri)
    # ghost text does not wait for this import
    await asyncio.to_thread(importlib.import_module, "speclsp.lsp.next_edit.next_edits")
    app.next_edits = next_edits_of(app)


def config_changed(app: App, config: Config, old: Config) -> None:
    """Apply new settings to the parts."""
    if app.server.starting is not None and config.next_edit.enabled != old.next_edit.enabled:
        follow_recent_edits(app)
    if app.index is not None:
        app.index.apply_config(config, old)


def next_edits_of(app: App) -> NextEdits:
    """Create the next edits of one editor, connected to the statistics and the explanations."""
    from speclsp.errors import EngineError
    from speclsp.lsp.context.chunk import path_in
    from speclsp.lsp.index.open_importers import OpenImporters
    from speclsp.lsp.next_edit.elsewhere import OtherDocuments
    from speclsp.lsp.next_edit.model_producer import ModelProducer
    from speclsp.lsp.next_edit.next_edits import NextEdits
    from speclsp.lsp.next_edit.offers import Offers
    from speclsp.lsp.server.model_list import predicts_edits

    server, documents = app.server, app.documents

    def stream(request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        if server.backend is None:
            raise EngineError("the backend is being replaced")
        return server.backend.stream(request)

    model = ModelProducer(
        is_available=lambda: predicts_edits(server.backend_status),
        stream=stream,
        session=lambda uri: server.session.pipeline.engine_session(uri) if server.session is not None else uri,
        path=lambda uri: path_in(server.notebooks.of(uri) or uri, documents.root(uri)),
    )

    async def eligible(document: Document) -> str:
        return (await documents.exclusion(document))[0]

    async def may_see(document: Document) -> bool:
        return not await eligible(document) and not documents.hidden_reason(document.uri)

    def index(root: str | None) -> WorkspaceIndex | None:
        return app.index.index(root) if app.index is not None else None

    return NextEdits(
        Offers(app.usage.next_edit, server.client_can(*ABILITIES, "nextEditPlaceholder")),
        eligible,
        lambda: server.session is not None and server.session.busy,
        app.recorder.next_edit_ended,
        lambda: app.recent_activity,
        model,
        OtherDocuments(OpenImporters(documents.documents, documents.root, index, may_see)),
    )


def follow_recent_edits(app: App) -> None:
    """Record recent edits while `next_edit.enabled` is on. A change of the setting drops the earlier ones."""
    from speclsp.lsp.next_edit.recent_activity import RecentActivity

    server, documents = app.server, app.documents
    app.recent_activity = None
    if server.config.next_edit.enabled:
        app.recent_activity = RecentActivity(lambda uri: bool(documents.hidden_reason(uri)))
    server.documents.follow_edits(app.recent_activity.edited if app.recent_activity is not None else None)
    for document in server.documents:
        handlers.read_visibility(app, document.uri)
