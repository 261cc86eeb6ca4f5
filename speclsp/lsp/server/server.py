"""`speclsp lsp`: the language server's surface, one handler per message, top to bottom.

    initialize            capabilities and settings; the engine is started once the answer is on its way
    initialized           settings asked for where the client has them; from here on status and progress are told
    inlineCompletion      the Snapshot in the first line, then the session
    didChange             nothing, where a request comes with it; else the prompt is read ahead
    completion            the same as an item of the menu, where the settings ask for that
    here, pairs, explain, retry   what a client's menus ask, each as speclsp/...
    didChangeConfiguration, didClose, workDoneProgress/cancel
    told to the client    speclsp/status on every change, progress while the model loads, problems with the settings

What stock pygls gets wrong is put right in protocol.py, what a completion is in session.py, how it looks in items.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from speclsp import __version__
from speclsp import config as settings
from speclsp.config import Config
from speclsp.lsp.protocol.language_server import SpecLanguageServer, serve
from speclsp.lsp.reasons import LOADING, PASSING, meaning
from speclsp.lsp.server import custom_requests, items, request_context
from speclsp.lsp.server.completion_menu import CompletionMenu
from speclsp.lsp.server.explain import EXPLAIN, ExplainRecorder, explain
from speclsp.lsp.server.progress_bar import ProgressBar
from speclsp.lsp.server.usage_stats import UsageStats
from speclsp.lsp.syntax.grammars import SUFFIXES
from speclsp.lsp.visibility.ignore_files import IgnoreFiles
from speclsp.observability.logfile import open_language_server_log
from speclsp.observability.metrics import Metrics

if TYPE_CHECKING:
    from speclsp.lsp.backend.types import Backend, Status
    from speclsp.lsp.completion.job import CompletionInput
    from speclsp.lsp.completion.session import Session
    from speclsp.lsp.completion.trace import Trace
    from speclsp.lsp.context.recent_activity import RecentActivity
    from speclsp.lsp.server.index_supervisor import IndexSupervisor

SECTION = "speclsp"
RULES = (".gitignore", ".ignore", ".aiexclude", ".cursorignore", ".continueignore")
SOURCES = f"**/{{{','.join((*(f'*{suffix}' for suffix in SUFFIXES), *RULES))}}}"  # files that the editor tells of
STATUS = "speclsp/status"
AT_START = "initializationOptions"  # the editor's user wrote them; what comes later may be a repository's too
STOPPED = (
    'stopped. To go on where it was: the editor\'s command for that ("Try Again", `:Speclsp retry`), any change of a '
    "setting or a restart of the language server. Or choose a smaller pair."
)
EVERY_NOTEBOOK = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook(notebook="*")])
NOTHING: dict[str, object] = {"items": []}

log = logging.getLogger("speclsp.server")


def main(flags: Mapping[str, object], trace: bool = False, wire: tuple[int, int] | None = None) -> int:
    """Serve one editor on stdin and stdout, or on `wire`; the exit code.

    `flags`: settings by key; `trace`: log every request.
    """
    gc.freeze()  # what the imports made is no garbage: walking it again and again costs 30 ms before `initialize`
    config, problems = settings.gather(flags)
    path = open_language_server_log()
    log.info("speclsp %s starts", __version__)
    server = CompletionServer(config, problems, trace)
    if path is None:
        server.problems["log"] = [f"no log: {settings.log_dir()} cannot be written."]
    return serve(server, on_exit=server.end, wire=wire)


class CompletionServer(SpecLanguageServer):
    """One editor's server: its settings, its session, and the backend they share."""

    def __init__(self, config: Config, problems: list[str], trace: bool = False) -> None:
        super().__init__(SECTION, __version__, notebook_document_sync=EVERY_NOTEBOOK)
        self.config = config
        self.own_url = config.backend.url  # before any editor has said something
        self.own_globs = config.completion.globs_off  # the same: an editor adds to these and takes none away
        self.problems = {"": problems}  # sentences about settings, by where they came from
        self.trace = trace
        self.metrics = Metrics()
        self.session: Session | None = None  # soon after `initialize` is answered
        self.backend: Backend | None = None
        self.recent_activity: RecentActivity | None = None  # only while `context.sources` names "edit"
        self.indexing: IndexSupervisor | None = None  # the same
        self.last_reason = ""  # why the last request showed nothing
        self.talking = False  # the client is initialized: it may be told things
        self.client_name = ""
        self.folders_named = False  # the client has workspace folders, be it none at the moment
        self.recent: list[str] = []  # URIs completed in, the newest last
        self.bar = ProgressBar(self.ask, lambda value: self.protocol.notify(types.PROGRESS, value))
        self.menu = CompletionMenu(self)
        self.counting = UsageStats(self)
        self.explaining = ExplainRecorder(self)
        self.ignored = IgnoreFiles()
        self.beginning: asyncio.Task[None] | None = None
        self._connected: Config | None = None  # what the backend was made for
        self._connecting: asyncio.Task[None] | None = None
        self._told: dict[str, object] = {}
        self._warned: set[str] = set()
        self._said = ("", "")  # the backend's state and message
        self._made_by: tuple[object, ...] = ()
        for method, handler, options in HANDLERS:
            self.feature(method, options)(handler)

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def take_settings(self, source: str, given: object) -> None:
        """Use what is good in `given` and say what is not; the rest stays as it was."""
        if isinstance(given, Mapping) and isinstance(given.get(SECTION), Mapping):
            given = given[SECTION]  # what stands beside our section is not ours
        if isinstance(given, Mapping):
            fixed = () if source == AT_START else settings.THE_USERS_OWN
            config, self.problems[source] = settings.parse(given, self.config, fixed)
            globs = (*self.own_globs, *(glob for glob in config.completion.globs_off if glob not in self.own_globs))
            config = replace(config, completion=replace(config.completion, globs_off=globs))
        else:
            config, self.problems[source] = self.config, [f"{source} is {type(given).__name__}: expected an object."]
        if config != self.config:
            other_sources = config.context.sources != self.config.context.sources
            self.config = config
            if self.session is not None:
                self.session.apply_config(config)
                if other_sources:
                    self.track_recent_activity()
            if self.indexing is not None:
                self.indexing.take(config)
            if self.talking:
                self.menu.switch()
        if self.beginning is not None:
            self.connect()
        self.tell()

    def connect(self) -> None:
        """See that the backend is the one the settings ask for; one that has failed or was stopped is tried again."""
        if self.backend is not None and self.backend.status.state in custom_requests.GIVEN_UP:
            self._connected = None
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        """Replace the backend until it is the one wanted: settings may change while the old one ends.

        Nothing is started while completion is off, and a lease on what others can use is let go of: a window without
        suggestions needs no model.
        """
        from speclsp.lsp.backend.remote.connect import connect

        while heavy(self.config) != heavy(self._connected) if self.config.completion.enabled else self.is_for_others():
            old, self.backend, self._connected = self.backend, None, None
            if old is not None:
                log.info("the settings ask for another backend")
                await old.close()
            if self.config.completion.enabled:
                wanted = self._connected = self.config
                self.backend = connect(wanted, self.on_status, log_engine, self.client_name, self.own_url)
                self.backend.start()

    def is_for_others(self) -> bool:
        """Whether the backend is one that stays without us, for a while."""
        return self.backend is not None and not self.backend.kept_while_off

    def track_recent_activity(self) -> None:
        """Record recent edits from now on if `context.sources` names "edit"; earlier records are dropped."""
        from speclsp.lsp.context.build import path_in
        from speclsp.lsp.context.recent_activity import EDIT, RecentActivity

        def path(uri: str) -> str:
            return path_in(self.notebooks.of(uri) or uri, request_context.root(self, uri))

        activity = None
        if EDIT in self.config.context.sources:
            activity = RecentActivity(lambda uri: bool(request_context.kept_back(self, uri)), path)
        self.recent_activity = activity
        self.documents.follow_edits(activity.edited if activity is not None else None)
        if self.session is not None:
            self.session.pipeline.recent_activity = activity

    async def stop_loading(self) -> None:
        """The user will not wait. What has been fetched stays, and the next try goes on from there."""
        backend = self.backend
        if backend is not None and backend.status.state in ("starting", "loading"):
            backend.status = replace(backend.status, state="error", message=STOPPED, progress=None)
            self.on_status(backend.status)
            await backend.close()

    def end(self) -> None:
        """Leave no engine behind. The event loop has stopped."""
        self.counting.end()
        self.explaining.end()
        if self.indexing is not None:
            self.indexing.end()
        if self.backend is not None:
            self.backend.end()
        log.info("speclsp ends")

    # ── told to the client ────────────────────────────────────────────────────────────────────────────────────────────

    def on_status(self, status: Status) -> None:
        """The backend has changed."""
        said = (status.state, status.message)
        if said != self._said and status.state != "loading":
            log.info("%s: %s", status.state, status.message or f"{status.pair} on {status.device}")
        lost = said != self._said and not status.usable and status.state != "loading"
        if self.session is not None and (lost or status.model_identity != self._made_by):
            self.session.discard_answers()
        if said != self._said:
            self.explaining.changed()
        self._said, self._made_by = said, status.model_identity
        self.tell()

    def tell(self) -> None:
        """Send speclsp/status and progress where they differ from what was sent, and each problem once."""
        if not self.talking:
            return
        for problem in (problem for listed in self.problems.values() for problem in listed):
            if problem not in self._warned:
                self._warned.add(problem)
                log.warning("%s", problem)
                self.protocol.notify(types.WINDOW_LOG_MESSAGE, {"type": types.MessageType.Warning, "message": problem})
        status = self.status()
        if status != self._told:
            self._told = status
            self.protocol.notify(STATUS, status)
            self.bar.show(status)

    def status(self) -> dict[str, object]:
        """What speclsp/status says."""
        now = self.backend.status if self.backend is not None else None
        state = now.state if now is not None else "starting"
        if not self.config.completion.enabled:
            state = "off"
        elif state == "ready" and self.session is not None and self.session.busy:
            state = "thinking"
        return {
            "state": state,
            "pair": now.pair if now is not None else self.config.pair,
            "target": now.target if now is not None else "",
            "draft": now.draft if now is not None else "",
            "device": now.device if now is not None else self.config.device,
            "message": now.message if now is not None else "",
            "progress": now.progress if now is not None else None,
            "last_latency_ms": rounded(self.metrics.last_ms("latency_ms"), 1),
            "acceptance": rounded(self.metrics.acceptance, 3),
            "tokens_per_round": rounded(self.metrics.tokens_per_round, 2),
            "last_reason": self.last_reason,
            "last_reason_meaning": meaning(self.last_reason),
            "remote": now.remote if now is not None else "",
            "shared": now.shared if now is not None else self.config.engine.shared,
            "clients": now.clients if now is not None else 0,
            "engine_pid": now.engine_pid if now is not None else 0,
            "draft_only": now.draft_only if now is not None else False,
            "memory": now.memory if now is not None else "full",
            "problems": [problem for listed in self.problems.values() for problem in listed],
        }

    def say(self, reason: str) -> None:
        """A request has shown nothing, for this reason."""
        self.last_reason = reason
        self.tell()

    def ask(self, token: str, then: Callable[[], None]) -> None:
        """Ask the client for a progress bar, if it has any; `then` is called when it agrees."""
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            return
        params = types.WorkDoneProgressCreateParams(token=token)
        future = self.protocol.send_request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, params)
        future.add_done_callback(lambda done: then() if not done.cancelled() and done.exception() is None else None)

    def on_trace(self, trace: Trace) -> None:
        """A request has ended."""
        self.counting.traced(trace)
        self.explaining.ended(trace)
        if trace.outcome not in PASSING:
            self.last_reason = "" if trace.outcome == "shown" else trace.outcome  # told with what ends now
        if self.trace:
            from speclsp.lsp.completion.trace import as_json

            logging.getLogger("speclsp.trace").info("%s", json.dumps(as_json(trace)))


def heavy(config: Config | None) -> object:
    """The part of the settings that a running engine cannot change."""
    return config and (config.pair, config.device, config.models_dir, config.engine, config.echo, config.backend)


def log_engine(line: str) -> None:
    """What the engine prints."""
    logging.getLogger("speclsp.engine").info("%s", line)


def rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


# ── handlers, in the order of a session ───────────────────────────────────────────────────────────────────────────────


def initialize(ls: CompletionServer, params: types.InitializeParams) -> None:
    """Take the settings; everything that takes time begins when this is answered."""
    options = (ls.raw_params or {}).get("initializationOptions")
    if options is not None:
        ls.take_settings(AT_START, options)
    info = (ls.raw_params or {}).get("clientInfo")
    ls.client_name = str(info.get("name") or "") if isinstance(info, Mapping) else ""
    ls.folders_named = bool(params.workspace_folders)
    ls.menu.announce(ls.raw_params or {})
    ls.beginning = asyncio.create_task(begin(ls))


async def begin(ls: CompletionServer) -> None:
    """Start the engine and make the session; importing what that needs takes 0.1 s, so it was not done before."""
    ls.connect()
    await asyncio.to_thread(importlib.import_module, "speclsp.lsp.completion.session")
    from speclsp.lsp.completion.session import Session
    from speclsp.lsp.server import index_supervisor

    ls.session = Session(ls.config, lambda: ls.backend, ls.metrics, ls.tell, ls.on_trace, ls.ignored)
    ls.track_recent_activity()
    index_supervisor.attach(ls)


async def initialized(ls: CompletionServer, params: types.InitializedParams) -> None:
    """From here on the client may be told and asked things."""
    ls.talking = True
    ls.tell()
    ls.menu.switch()
    workspace = ls.client_capabilities.workspace
    changes = workspace.did_change_configuration if workspace is not None else None
    if changes is not None and changes.dynamic_registration:
        registration = types.Registration(
            id="speclsp-settings",
            method=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
            register_options={"section": SECTION},
        )
        ls.protocol.send_request(
            types.CLIENT_REGISTER_CAPABILITY, types.RegistrationParams(registrations=[registration])
        )
    files = workspace.did_change_watched_files if workspace is not None else None
    if files is not None and files.dynamic_registration and ls.config.context.index:
        watchers = [types.FileSystemWatcher(glob_pattern=SOURCES)]
        registration = types.Registration(
            id="speclsp-files",
            method=types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
            register_options=types.DidChangeWatchedFilesRegistrationOptions(watchers=watchers),
        )
        ls.protocol.send_request(
            types.CLIENT_REGISTER_CAPABILITY, types.RegistrationParams(registrations=[registration])
        )
    await pull_settings(ls)


async def pull_settings(ls: CompletionServer) -> None:
    """Ask the client for our section, where it can be asked."""
    workspace = ls.client_capabilities.workspace
    if workspace is None or not workspace.configuration:
        return
    params = types.ConfigurationParams(items=[types.ConfigurationItem(section=SECTION)])
    with contextlib.suppress(Exception):  # a client that cannot say has none
        answer = await asyncio.wrap_future(ls.protocol.send_request(types.WORKSPACE_CONFIGURATION, params))
        if isinstance(answer, Sequence) and answer and isinstance(answer[0], Mapping):
            ls.take_settings("settings", answer[0])


async def did_change_configuration(ls: CompletionServer, params: types.DidChangeConfigurationParams) -> None:
    """New settings, or word that there are some."""
    given = (ls.raw_params or {}).get("settings")
    if given is None or given == {SECTION: None}:
        await pull_settings(ls)
    else:
        ls.take_settings("settings", given)


def did_open(ls: CompletionServer, params: types.DidOpenTextDocumentParams) -> None:
    """The first document of a folder is the reason to index it."""
    if ls.indexing is not None:
        ls.indexing.opened(params.text_document.uri)


def did_save(ls: CompletionServer, params: types.DidSaveTextDocumentParams) -> None:
    """The index looks at the file again."""
    if ls.indexing is not None:
        ls.indexing.saved(params.text_document.uri)


def files_changed(ls: CompletionServer, params: types.DidChangeWatchedFilesParams) -> None:
    """Files were made, written, renamed or deleted."""
    if ls.indexing is not None:
        ls.indexing.files_changed([change.uri for change in params.changes])


def folders_changed(ls: CompletionServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Folders were added to the workspace, or removed."""
    ls.folders_named = True
    if ls.indexing is not None:
        ls.indexing.folders_changed()


def did_close(ls: CompletionServer, params: types.DidCloseTextDocumentParams) -> None:
    """Forget the document."""
    forget(ls, params.text_document.uri)


def forget(ls: CompletionServer, uri: str) -> None:
    ls.counting.closed(uri)
    if ls.recent_activity is not None:
        ls.recent_activity.closed(uri)
    ls.recent = [recent for recent in ls.recent if recent != uri]
    if ls.indexing is not None:
        ls.indexing.saved(uri)  # what counts is on the disk now
    if ls.session is not None:
        ls.session.document_closed(uri)


def did_change(ls: CompletionServer, params: types.DidChangeTextDocumentParams) -> None:
    """Tell the session, which may use the time until the next request."""
    changed(ls, params.text_document.uri, (ls.raw_params or {}).get("contentChanges") or [])


def notebook_changed(ls: CompletionServer, params: object) -> None:
    """The same for each cell that is gone or was edited."""
    for uri in ls.protocol.notebook_news.gone:
        forget(ls, uri)
    for uri, changes in ls.protocol.notebook_news.edited:
        changed(ls, uri, changes)


def changed(ls: CompletionServer, uri: str, changes: Sequence[Mapping[str, Any]]) -> None:
    """A document was edited."""
    if ls.indexing is not None:
        ls.indexing.changed(uri)
    document = ls.documents.get(uri)
    if document is None or ls.session is None or not changes or changes[-1].get("range") is None:
        return  # a whole text does not say where in it somebody types
    start, new = changes[-1]["range"]["start"], changes[-1]["text"]
    version = document.version

    def look() -> CompletionInput | None:
        """The document with the cursor where the edit ended, if it is still so."""
        from speclsp.lsp.completion.job import CompletionInput

        there = request_context.cursor_context(ls, uri, start, version)
        if there is None or there.document is not document:
            return None
        end = min(len(there.snapshot.text), there.snapshot.cursor + len(new))
        others = request_context.neighbours(ls, uri)
        return CompletionInput(replace(there.snapshot, cursor=end), others, request_context.root(ls, uri))

    ls.session.document_changed(uri, look)


async def inline_completion(ls: CompletionServer, params: types.InlineCompletionParams) -> dict[str, object]:
    """What to show at the cursor. Empty where there is nothing, whatever the reason: the editor clears the old one."""
    from speclsp.lsp.completion.job import CompletionInput, CompletionRequest

    uri, position, encoding = params.text_document.uri, params.position, ls.position_encoding
    claimed = ls.raw_params["textDocument"].get("version")
    at = request_context.cursor_context(
        ls, uri, {"line": position.line, "character": position.character}, claimed
    )  # no await before this
    if at is None or ls.session is None:
        reason = LOADING if ls.session is None else request_context.refusal_reason(ls, uri)
        if reason:
            ls.say(reason)
            ls.explaining.refused(uri, position.line, position.character, reason)
        return NOTHING
    snapshot, chosen = at.snapshot, params.context.selected_completion_info
    if chosen is not None:
        picked = request_context.selected(at, chosen, encoding)
        if picked is None:
            return NOTHING
        snapshot = picked
    by_hand = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
    wanted = ls.config.completion.alternatives if by_hand else 1
    request_context.mark_as_recent(ls, uri)
    others, root = request_context.neighbours(ls, uri), request_context.root(ls, uri)
    place = at.line, position.character
    if ls.recent_activity is not None:
        ls.recent_activity.cursor_moved(uri, at.line)
    outcome = await ls.session.complete(
        CompletionRequest(
            CompletionInput(snapshot, others, root), wanted, by_hand=by_hand, id=ls.request_id, position=place
        )
    )
    if chosen is None:
        shown = [items.inline(made, snapshot, at.line, encoding) for made in outcome.suggestions]
    else:
        shown = [items.extended(made, chosen, snapshot) for made in outcome.suggestions]
    sent = [item for item in shown if item is not None]
    if outcome.reason not in PASSING:
        ls.counting.answered(at, sent, encoding)
    return {"items": sent}


async def cancel_progress(ls: CompletionServer, params: types.WorkDoneProgressCancelParams) -> None:
    """The user will not wait for the model."""
    if ls.bar.is_shown(params.token):
        await ls.stop_loading()


HANDLERS: Sequence[tuple[str, Callable[..., Any], object]] = (
    (types.INITIALIZE, initialize, None),
    (types.INITIALIZED, initialized, None),
    (types.WORKSPACE_DID_CHANGE_CONFIGURATION, did_change_configuration, None),
    (types.TEXT_DOCUMENT_DID_CHANGE, did_change, None),
    (types.TEXT_DOCUMENT_DID_OPEN, did_open, None),
    (types.TEXT_DOCUMENT_DID_SAVE, did_save, None),
    (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, files_changed, None),
    (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, folders_changed, None),
    (types.TEXT_DOCUMENT_DID_CLOSE, did_close, None),
    (types.NOTEBOOK_DOCUMENT_DID_OPEN, notebook_changed, None),
    (types.NOTEBOOK_DOCUMENT_DID_CHANGE, notebook_changed, None),
    (types.NOTEBOOK_DOCUMENT_DID_CLOSE, notebook_changed, None),
    (types.TEXT_DOCUMENT_INLINE_COMPLETION, inline_completion, types.InlineCompletionOptions()),
    (types.WINDOW_WORK_DONE_PROGRESS_CANCEL, cancel_progress, None),
    (custom_requests.HERE, custom_requests.here, None),
    (custom_requests.PAIRS, custom_requests.pairs, None),
    (EXPLAIN, explain, None),
    (custom_requests.RETRY, custom_requests.retry, None),
)
