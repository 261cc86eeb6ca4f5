"""Handlers of the language server: one function per message of LSP and of next edits, in the order of a session.

A handler runs up to its first `await` before the next message is read. So a Snapshot taken there is the text that the
client's request is about.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from speclsp.lsp.documents.uri_paths import document_key
from speclsp.lsp.next_edit import wire
from speclsp.lsp.protocol.initialize_answer import (
    COPILOT_ACCEPT_COMMAND,
    initialize_result,
    speaks_copilot,
    workspace_folders,
)
from speclsp.lsp.protocol.opening import AT_START, SECTION
from speclsp.lsp.reasons import Reason
from speclsp.lsp.server import items
from speclsp.lsp.server.explain import ExplainRecorder
from speclsp.lsp.server.progress_bar import ProgressBar
from speclsp.lsp.server.request_context import WorkspaceDocuments, with_selected_item
from speclsp.lsp.server.server import CompletionServer
from speclsp.lsp.server.usage_stats import UsageStats

if TYPE_CHECKING:
    from speclsp.lsp.completion.job import CompletionInput, CompletionRequest
    from speclsp.lsp.next_edit.next_edits import NextEdits
    from speclsp.lsp.next_edit.recent_activity import RecentActivity
    from speclsp.lsp.server.workspace_indexes import WorkspaceIndexes

IGNORE_FILES = (".gitignore", ".ignore", ".aiexclude", ".cursorignore", ".continueignore")
EMPTY: dict[str, object] = {"items": []}
EMPTY_MENU: dict[str, object] = {"isIncomplete": True, "items": []}  # incomplete: the client asks again at the next key
ABILITIES = ("experimental", "speclsp")  # of our own clients, in the capabilities
CursorParams = types.InlineCompletionParams | types.CompletionParams
BY_HAND = (types.InlineCompletionTriggerKind.Invoked, types.CompletionTriggerKind.Invoked)  # the user asks for it


@dataclass(kw_only=True)
class App:
    """The parts of one editor's server. app.compose() creates and connects them."""

    server: CompletionServer
    usage: UsageStats
    recorder: ExplainRecorder
    progress: ProgressBar
    start: Callable[[App], Coroutine[Any, Any, None]]  # creates the session and the index
    index: WorkspaceIndexes | None = None  # created with the session
    next_edits: NextEdits | None = None  # created after the session
    recent_activity: RecentActivity | None = None  # its recent edits, only while `next_edit.enabled` is on

    @property
    def documents(self) -> WorkspaceDocuments:
        """The open documents and their workspace folders."""
        return self.server.workspace_documents


# ── lifecycle and settings ────────────────────────────────────────────────────────────────────────────────────────────


def initialize(app: App, params: Mapping[str, Any]) -> dict[str, Any]:
    """Apply the settings, and answer. Slow work starts then."""
    server, options, client = app.server, params.get(AT_START), params.get("clientInfo")
    if options is not None:
        server.apply_settings(AT_START, options)
    server.client_name = str(client.get("name") or "") if isinstance(client, Mapping) else ""
    server.folders = workspace_folders(params)
    if server.copilot or speaks_copilot(options):
        server.command(COPILOT_ACCEPT_COMMAND)(lambda *arguments: edit_accepted(app, *arguments))
    server.starting = asyncio.create_task(app.start(app))
    return initialize_result(params, server.copilot, server.config.completion.show_in_menu)


async def initialized(app: App, params: types.InitializedParams) -> None:
    """The client is ready: send the status, register for changes, and request the settings."""
    server = app.server
    server.client_ready = True
    server.publish_status()
    if server.client_can("workspace", "didChangeConfiguration", "dynamicRegistration"):
        method = types.WORKSPACE_DID_CHANGE_CONFIGURATION
        server.register_capability("speclsp-settings", method, {"section": SECTION})
    watches_files = server.client_can("workspace", "didChangeWatchedFiles", "dynamicRegistration")
    if watches_files and server.config.context.index_workspace:
        from speclsp.lsp.syntax.grammars import SUFFIXES  # imported late: `initialize` is answered by then

        names = ",".join([*(f"*{suffix}" for suffix in SUFFIXES), *IGNORE_FILES])
        options = {"watchers": [{"globPattern": f"**/{{{names}}}"}]}
        server.register_capability("speclsp-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    await pull_settings(server)


async def pull_settings(server: CompletionServer) -> None:
    """Request our section of the settings, if the client supports workspace/configuration."""
    if not server.client_can("workspace", "configuration"):
        return
    with contextlib.suppress(Exception):  # a client that answers with an error has no settings
        answer = await server.protocol.request(types.WORKSPACE_CONFIGURATION, {"items": [{"section": SECTION}]})
        if isinstance(answer, Sequence) and answer and isinstance(answer[0], Mapping):
            server.apply_settings("settings", answer[0])


async def did_change_configuration(app: App, params: types.DidChangeConfigurationParams) -> None:
    """Apply new settings. Some clients only report that there are new ones."""
    values = (app.server.raw_params or {}).get("settings")
    if values is None or values == {SECTION: None}:
        await pull_settings(app.server)
    else:
        app.server.apply_settings("settings", values)


async def cancel_progress(app: App, params: types.WorkDoneProgressCancelParams) -> None:
    """The user cancelled the progress bar: stop loading the model."""
    if app.progress.is_shown(params.token):
        await app.server.stop_loading()


# ── documents and files ───────────────────────────────────────────────────────────────────────────────────────────────


def did_open(app: App, params: types.DidOpenTextDocumentParams) -> None:
    """The first eligible document starts the backend, and the first one of a workspace folder its index."""
    uri = params.text_document.uri
    document = app.server.documents.get(uri)
    if app.next_edits is not None:
        app.next_edits.cancel(uri)  # its text was another one, if it was open
    if document is not None:
        app.server.document_opened(document)
    read_visibility(app, uri)
    if app.recent_activity is not None and document is not None:
        app.recent_activity.opened(document)
    if app.index is not None:
        app.index.document_opened(uri)


def read_visibility(app: App, uri: str) -> None:
    """Start to read the ignore files of a document: only then its edits are recorded, if no rule hides it."""
    if app.recent_activity is not None:
        app.documents.hidden_reason(uri)


def did_change(app: App, params: Mapping[str, Any]) -> None:
    """Let the session use the time until the next request. The params are JSON that document sync has checked."""
    document_changed(app, params["textDocument"]["uri"], params["contentChanges"])


def did_save(app: App, params: types.DidSaveTextDocumentParams) -> None:
    """Index the saved file again. Its last change was no reload."""
    if app.recent_activity is not None:
        app.recent_activity.saved(params.text_document.uri)
    if app.index is not None:
        app.index.file_saved(params.text_document.uri)


def did_close(app: App, params: types.DidCloseTextDocumentParams) -> None:
    """Forget the document."""
    document_closed(app, params.text_document.uri)


def did_change_notebook(app: App, params: object) -> None:
    """Handle cells that were opened, closed or edited as documents."""
    changes = app.server.protocol.sync.notebook_changes
    for document in app.server.documents:
        app.server.document_opened(document)
    for uri in changes.closed:
        document_closed(app, uri)
    for uri, content_changes in changes.edited:
        document_changed(app, uri, content_changes)


def did_change_watched_files(app: App, params: types.DidChangeWatchedFilesParams) -> None:
    """Files were created, written, renamed or deleted."""
    if app.index is not None:
        app.index.files_changed([change.uri for change in params.changes])


def did_change_workspace_folders(app: App, params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Folders were added to the workspace, or removed."""
    removed = {document_key(folder.uri.rstrip("/")) for folder in params.event.removed}
    kept = [uri for uri in app.server.folders if document_key(uri) not in removed]
    app.server.folders = kept + [folder.uri.rstrip("/") for folder in params.event.added]
    if app.index is not None:
        app.index.folders_changed()


def document_changed(app: App, uri: str, changes: Sequence[Mapping[str, Any]]) -> None:
    """A document or a cell was edited."""
    server, documents = app.server, app.documents
    if app.index is not None:
        app.index.document_edited()
    if app.next_edits is not None:
        app.next_edits.cancel(uri)
    document = server.documents.get(uri)
    if document is None or server.session is None or not changes or changes[-1].get("range") is None:
        return  # a full text does not show where the user types
    start, inserted, version = changes[-1]["range"]["start"], changes[-1]["text"], document.version

    def capture() -> CompletionInput | None:
        """The document with the cursor where the edit ended; None if it has changed since."""
        at = documents.cursor_context(uri, start, server.position_encoding, version)
        if isinstance(at, str) or at.document is not document:
            return None
        cursor = min(len(at.snapshot.text), at.snapshot.cursor + len(inserted))
        return documents.completion_input(uri, replace(at.snapshot, cursor=cursor))

    server.session.document_changed(uri, capture)


def document_closed(app: App, uri: str) -> None:
    """A document or a cell was closed."""
    if app.recent_activity is not None:
        app.recent_activity.closed(uri)
    if app.next_edits is not None:
        app.next_edits.closed(uri)
    if app.server.session is not None:
        app.server.session.document_closed(uri)


# ── completion ────────────────────────────────────────────────────────────────────────────────────────────────────────


def completion_request(app: App, params: CursorParams) -> CompletionRequest | str:
    """The session's request at a cursor, or the reason for none; "" for a reason that is not reported.

    No await stands before it.
    """
    server, documents, encoding = app.server, app.documents, app.server.position_encoding
    uri, inline = params.text_document.uri, isinstance(params, types.InlineCompletionParams)
    position = {"line": params.position.line, "character": params.position.character}
    if server.session is None:
        return server.reason_without_session()
    version = server.raw_params["textDocument"].get("version") if inline else None
    at = documents.cursor_context(uri, position, encoding, version)
    if isinstance(at, str):
        return at
    selected = params.context.selected_completion_info if isinstance(params, types.InlineCompletionParams) else None
    snapshot = at.snapshot if selected is None else with_selected_item(at, selected, encoding)
    if snapshot is None:
        return ""
    by_hand = params.context is None or params.context.trigger_kind in BY_HAND
    if inline and not by_hand and app.next_edits and app.next_edits.precedes(at.document, position, encoding):
        return Reason.NEXT_EDIT_HERE
    documents.documents.move_to_end(uri)
    from speclsp.lsp.completion.job import CompletionRequest

    return CompletionRequest(
        documents.completion_input(uri, snapshot),
        wanted=server.config.completion.alternatives if inline and by_hand else 1,
        by_hand=inline and by_hand,
        automatic=not by_hand,
        menu=not inline,
        id=server.request_id,
        position=(at.line, position["character"]),
    )


async def inline_completion(app: App, params: types.InlineCompletionParams) -> dict[str, object]:
    """Suggestions at the cursor. An empty list, for whatever reason, makes the editor clear the shown one."""
    server, uri, request = app.server, params.text_document.uri, completion_request(app, params)
    if isinstance(request, str):
        if request:  # "" is not reported: the version has passed, or the selected item does not fit
            server.last_reason = request
            server.publish_status()
            app.recorder.request_refused(uri, params.position.line, params.position.character, request)
        return EMPTY
    assert server.session is not None
    outcome = await server.session.complete(request)
    snapshot, selected = request.input.snapshot, params.context.selected_completion_info
    if selected is None:
        line, encoding = request.position[0], server.position_encoding
        return {"items": [items.inline_item(shown, snapshot, line, encoding) for shown in outcome.suggestions]}
    extended = (items.extended_item(suggestion, selected, snapshot) for suggestion in outcome.suggestions)
    return {"items": [item for item in extended if item is not None]}


async def completion(app: App, params: types.CompletionParams) -> dict[str, object]:
    """The suggestion as an entry of the completion menu, for editors without inline completion."""
    session, encoding = app.server.session, app.server.position_encoding
    if session is None or not app.server.config.completion.show_in_menu:
        return EMPTY_MENU
    if isinstance(request := completion_request(app, params), str):
        return EMPTY_MENU
    outcome, snapshot, line = await session.complete(request), request.input.snapshot, request.position[0]
    entries = [items.menu_item(suggestion, snapshot, line, encoding) for suggestion in outcome.suggestions]
    return {"isIncomplete": True, "items": [entry for entry in entries if entry is not None]}


# ── the next edit ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def inline_edit(app: App, params: Any) -> wire.Answer:
    """The next edit; none for another version or an unknown document."""
    request, server = wire.parse_request(params), app.server
    if app.next_edits is None and server.starting is not None:  # a request right after `initialize`
        await asyncio.wait([server.starting])
    document, next_edits, encoding = server.documents.get(request.uri), app.next_edits, server.position_encoding
    if next_edits is None:
        return wire.no_edit()
    if document is None or not server.config.next_edit.enabled:
        reason = Reason.NOT_OPEN if document is None else Reason.NEXT_EDIT_OFF
        next_edits.refuse(request.uri, request.position["line"], reason)
        return wire.no_edit()
    if request.version not in (None, document.version):
        return wire.no_edit()
    line, cursor = document.locate(request.position, encoding)
    offer = await next_edits.answer(document, line, cursor, server.client_can(*ABILITIES, wire.ELSEWHERE))
    if isinstance(offer, dict):
        return wire.no_edit(offer)
    edited = server.documents.get(offer.uri) if offer is not None else None
    if offer is None or edited is None or edited.version != offer.version:  # it has changed since
        return wire.no_edit()
    return wire.answer(edited, offer, cursor if edited is document else -1, encoding)


def next_edit_shown(app: App, params: Any) -> None:
    """The client shows an edit."""
    if app.next_edits is not None:
        app.next_edits.offers.shown(wire.shown_id(params))


def ignore_notification(app: App, params: Any) -> None:
    """Accept a notification of Copilot's protocol that means nothing here."""


def edit_accepted(app: App, *arguments: Any) -> None:
    """speclsp.didAcceptEdit: the user accepted a suggestion or an edit. Any arguments are allowed."""
    app.usage.suggestion_accepted(arguments)
    if app.next_edits is not None:
        app.next_edits.offers.accepted(wire.first_id(arguments))


def edit_rejected(app: App, *arguments: Any) -> None:
    """speclsp.didRejectEdit: the user rejected an edit. Any arguments are allowed."""
    if app.next_edits is not None:
        app.next_edits.offers.rejected(wire.first_id(arguments))
