"""`speclsp lsp`: composes the language server from its parts and serves one editor.

protocol/language_server.py     framing, lifecycle and document sync
server.py                       state: settings, backend, session, status
handlers.py                     one function per message; the table HANDLERS is below
usage_stats, explain, index_supervisor, completion_menu, progress_bar      parts that follow the server's events
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lsprotocol import types

from speclsp import __version__
from speclsp import config as settings
from speclsp.config import Config
from speclsp.lsp.protocol.language_server import serve
from speclsp.lsp.server import handlers
from speclsp.lsp.server.completion_menu import OPTIONS, CompletionMenu
from speclsp.lsp.server.custom_requests import DID_FOCUS, HERE, PAIRS, RETRY
from speclsp.lsp.server.explain import EXPLAIN, ExplainRecorder
from speclsp.lsp.server.handlers import App
from speclsp.lsp.server.progress_bar import ProgressBar
from speclsp.lsp.server.server import CompletionServer
from speclsp.lsp.server.usage_stats import UsageStats
from speclsp.observability.logfile import open_language_server_log

HANDLERS: Sequence[tuple[str, Callable[..., Any], object]] = (
    (types.INITIALIZE, handlers.initialize, None),
    (types.INITIALIZED, handlers.initialized, None),
    (types.WORKSPACE_DID_CHANGE_CONFIGURATION, handlers.did_change_configuration, None),
    (types.TEXT_DOCUMENT_DID_CHANGE, handlers.did_change, None),
    (types.TEXT_DOCUMENT_DID_OPEN, handlers.did_open, None),
    (types.TEXT_DOCUMENT_DID_SAVE, handlers.did_save, None),
    (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, handlers.did_change_watched_files, None),
    (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, handlers.did_change_workspace_folders, None),
    (types.TEXT_DOCUMENT_DID_CLOSE, handlers.did_close, None),
    (types.NOTEBOOK_DOCUMENT_DID_OPEN, handlers.did_change_notebook, None),
    (types.NOTEBOOK_DOCUMENT_DID_CHANGE, handlers.did_change_notebook, None),
    (types.NOTEBOOK_DOCUMENT_DID_CLOSE, handlers.did_change_notebook, None),
    (types.TEXT_DOCUMENT_INLINE_COMPLETION, handlers.inline_completion, types.InlineCompletionOptions()),
    (types.WINDOW_WORK_DONE_PROGRESS_CANCEL, handlers.cancel_progress, None),
    (DID_FOCUS, handlers.did_focus, None),
    (HERE, handlers.here, None),
    (PAIRS, handlers.pairs, None),
    (EXPLAIN, handlers.explain_last, None),
    (RETRY, handlers.retry, None),
)  # and textDocument/completion, while the settings enable it: see completion_menu.py

log = logging.getLogger("speclsp.server")


def main(flags: Mapping[str, object], trace: bool = False, pipes: tuple[int, int] | None = None) -> int:
    """Serve one editor on stdin and stdout, or on the file descriptors `pipes`. Returns the exit code.

    `flags`: settings by key; `trace`: log every request.
    """
    gc.freeze()  # imported modules are no garbage: each collection over them would cost 30 ms before `initialize`
    config, problems = settings.gather(flags)
    path = open_language_server_log()
    log.info("speclsp %s starts", __version__)
    server = compose(config, problems, trace).server
    if path is None:
        server.problems["log"] = [f"no log: {settings.log_dir()} cannot be written."]
    return serve(server, on_exit=server.end, pipes=pipes)


def compose(config: Config, problems: list[str], trace: bool = False) -> App:
    """Create the server and its parts, subscribe the parts to its events, and register all handlers."""
    server = CompletionServer(config, problems, trace)
    documents = server.workspace_documents

    def register(method: str, handler: Callable[..., Any], options: object) -> None:
        server.feature(method, options)(functools.partial(handler, app))

    app = App(
        server=server,
        menu=CompletionMenu(
            enabled=lambda: server.config.completion.show_in_menu,
            add_handler=lambda: register(types.TEXT_DOCUMENT_COMPLETION, handlers.completion, OPTIONS),
            send_request=server.protocol.send_request,
        ),
        usage=UsageStats(
            server.documents,
            pair=lambda: server.pair,
            enabled=lambda: server.config.stats.enabled,
            acceptance_history=lambda: server.session.acceptance_history if server.session is not None else None,
        ),
        recorder=ExplainRecorder(documents, server.status, lambda: server.backend_status, lambda: server.client_name),
        progress=ProgressBar(server.create_progress, lambda value: server.protocol.notify(types.PROGRESS, value)),
        start=start,
    )
    server.on_config.append(functools.partial(config_changed, app))
    server.on_request_ended += [app.usage.request_ended, app.recorder.request_ended]
    server.on_backend_change.append(app.recorder.schedule_write)
    server.on_status.append(app.progress.show)
    server.on_exit += [app.usage.end, app.recorder.end, lambda: app.index.end() if app.index is not None else None]
    for method, handler, options in HANDLERS:
        register(method, handler, options)
    return app


async def start(app: App) -> None:
    """Start the backend, the session and the index. Their imports take 0.1 s, so `initialize` is answered first."""
    server = app.server
    server.connect()
    await asyncio.to_thread(importlib.import_module, "speclsp.lsp.completion.session")
    from speclsp.lsp.completion.session import Session
    from speclsp.lsp.server.index_supervisor import IndexSupervisor

    server.session = Session(
        server.config,
        lambda: server.backend,
        server.metrics,
        server.publish_status,
        server.request_ended,
        server.ignore_files,
    )
    follow_recent_edits(app)
    app.index = IndexSupervisor(server.workspace_documents, lambda: server.is_remote)
    server.session.pipeline.index_of = app.index.index
    for document in server.documents:
        app.index.document_opened(document.uri)


def config_changed(app: App, config: Config, old: Config) -> None:
    """Apply new settings to the parts."""
    if app.server.session is not None and config.context.sources != old.context.sources:
        follow_recent_edits(app)
    if app.index is not None:
        app.index.apply_config(config)
    if app.server.client_ready:
        app.menu.update()


def follow_recent_edits(app: App) -> None:
    """Record recent edits while `context.sources` names "edit". Earlier records are dropped."""
    from speclsp.lsp.context.chunk import path_in
    from speclsp.lsp.context.recent_activity import EDIT, RecentActivity

    server, documents = app.server, app.documents

    def path(uri: str) -> str:
        return path_in(server.notebooks.of(uri) or uri, documents.root(uri))

    activity = None
    if EDIT in server.config.context.sources:
        activity = RecentActivity(lambda uri: bool(documents.hidden_reason(uri)), path)
    app.recent_activity = activity
    server.documents.follow_edits(activity.edited if activity is not None else None)
    if server.session is not None:
        server.session.pipeline.recent_activity = activity
