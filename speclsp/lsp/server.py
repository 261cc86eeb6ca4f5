"""`speclsp lsp`: the language server's surface, one handler per message, top to bottom.

    initialize            capabilities and settings; the engine is started once the answer is on its way
    initialized           settings asked for where the client has them; from here on status and progress are told
    inlineCompletion      the Snapshot in the first line, then the session
    didChange             nothing, where a request comes with it; else the prompt is read ahead
    didChangeConfiguration, didClose
    told to the client    speclsp/status on every change, progress while the model loads, problems with the settings

What stock pygls gets wrong is put right in protocol.py, what a completion is in session.py.
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
from pygls.uris import to_fs_path

from speclsp import __version__
from speclsp import config as settings
from speclsp.config import Config
from speclsp.lsp.document import Document, Snapshot
from speclsp.lsp.log import open_log
from speclsp.lsp.progress import Progress
from speclsp.lsp.protocol import SpecLanguageServer, serve
from speclsp.metrics import Metrics

if TYPE_CHECKING:
    from speclsp.lsp.ahead import Look
    from speclsp.lsp.backend import Backend, Status
    from speclsp.lsp.postprocess import Suggestion
    from speclsp.lsp.session import Session
    from speclsp.lsp.trace import Trace

SECTION = "speclsp"
STATUS = "speclsp/status"
OTHERS = 8  # other open documents the context may draw from, the last used first
NOTHING: dict[str, object] = {"items": []}

log = logging.getLogger("speclsp.server")


def main(flags: Mapping[str, object], trace: bool = False) -> int:
    """Serve one editor on stdin and stdout; the exit code. `flags`: settings by key; `trace`: log every request."""
    gc.freeze()  # what the imports made is no garbage: walking it again and again costs 30 ms before `initialize`
    config, problems = settings.gather(flags)
    path = open_log()
    log.info("speclsp %s starts", __version__)
    server = Server(config, problems, trace)
    if path is None:
        server.problems["log"] = [f"no log: {settings.log_dir()} cannot be written."]
    return serve(server, on_exit=server.end)


class Server(SpecLanguageServer):
    """One editor's server: its settings, its session, and the backend they share."""

    def __init__(self, config: Config, problems: list[str], trace: bool = False) -> None:
        super().__init__(SECTION, __version__)
        self.config = config
        self.problems = {"": problems}  # sentences about settings, by where they came from
        self.trace = trace
        self.metrics = Metrics()
        self.session: Session | None = None  # soon after `initialize` is answered
        self.backend: Backend | None = None
        self.talking = False  # the client is initialized: it may be told things
        self.recent: list[str] = []  # URIs completed in, the newest last
        self.bar = Progress(self.ask, lambda value: self.protocol.notify(types.PROGRESS, value))
        self.beginning: asyncio.Task[None] | None = None
        self._connected: Config | None = None  # what the backend was made for
        self._connecting: asyncio.Task[None] | None = None
        self._told: dict[str, object] = {}
        self._warned: set[str] = set()
        for method, handler, options in HANDLERS:
            self.feature(method, options)(handler)

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def take_settings(self, source: str, given: object) -> None:
        """Use what is good in `given` and say what is not; the rest stays as it was."""
        if isinstance(given, Mapping) and isinstance(given.get(SECTION), Mapping):
            given = given[SECTION]  # what stands beside our section is not ours
        if isinstance(given, Mapping):
            config, self.problems[source] = settings.parse(given, self.config)
        else:
            config, self.problems[source] = self.config, [f"{source} is {type(given).__name__}: expected an object."]
        if config != self.config:
            self.config = config
            if self.session is not None:
                self.session.take(config)
        if self.beginning is not None:
            self.connect()
        self.tell()

    def connect(self) -> None:
        """See that the backend is the one the settings ask for; one that has failed gets another try."""
        if self.backend is not None and self.backend.status.state == "error":
            self._connected = None
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        """Replace the backend until it is the one wanted: settings may change while the old one ends.

        Nothing is started while completion is off.
        """
        from speclsp.lsp import backend as backends

        while self.config.completion.enabled and heavy(self.config) != heavy(self._connected):
            wanted = self._connected = self.config
            old, self.backend = self.backend, None
            if old is not None:
                log.info("the settings ask for another backend")
                await old.close()
            self.backend = backends.connect(wanted, self.on_status, log_engine)
            self.backend.start()

    def end(self) -> None:
        """Leave no engine behind. The event loop has stopped."""
        if self.backend is not None:
            self.backend.end()
        log.info("speclsp ends")

    # ── told to the client ────────────────────────────────────────────────────────────────────────────────────────────

    def on_status(self, status: Status) -> None:
        """The backend has changed."""
        if status.state != "loading":
            log.info("%s: %s", status.state, status.message or f"{status.pair} on {status.device}")
            if self.session is not None:
                self.session.memory.clear()
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
            "problems": [problem for listed in self.problems.values() for problem in listed],
        }

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
        if self.trace:
            from speclsp.lsp.trace import as_json

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


def initialize(ls: Server, params: types.InitializeParams) -> None:
    """Take the settings; everything that takes time begins when this is answered."""
    options = (ls.raw_params or {}).get("initializationOptions")
    if options is not None:
        ls.take_settings("initializationOptions", options)
    ls.beginning = asyncio.create_task(begin(ls))


async def begin(ls: Server) -> None:
    """Start the engine and make the session; importing what that needs takes 0.1 s, so it was not done before."""
    ls.connect()
    await asyncio.to_thread(importlib.import_module, "speclsp.lsp.session")
    from speclsp.lsp.session import Session

    ls.session = Session(ls.config, lambda: ls.backend, ls.metrics, ls.tell, ls.on_trace)


async def initialized(ls: Server, params: types.InitializedParams) -> None:
    """From here on the client may be told and asked things."""
    ls.talking = True
    ls.tell()
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
    await pull_settings(ls)


async def pull_settings(ls: Server) -> None:
    """Ask the client for our section, where it can be asked."""
    workspace = ls.client_capabilities.workspace
    if workspace is None or not workspace.configuration:
        return
    params = types.ConfigurationParams(items=[types.ConfigurationItem(section=SECTION)])
    with contextlib.suppress(Exception):  # a client that cannot say has none
        answer = await asyncio.wrap_future(ls.protocol.send_request(types.WORKSPACE_CONFIGURATION, params))
        if isinstance(answer, Sequence) and answer and isinstance(answer[0], Mapping):
            ls.take_settings("settings", answer[0])


async def did_change_configuration(ls: Server, params: types.DidChangeConfigurationParams) -> None:
    """New settings, or word that there are some."""
    given = (ls.raw_params or {}).get("settings")
    if given is None or given == {SECTION: None}:
        await pull_settings(ls)
    else:
        ls.take_settings("settings", given)


def did_close(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
    """Forget the document."""
    uri = params.text_document.uri
    ls.recent = [recent for recent in ls.recent if recent != uri]
    if ls.session is not None:
        ls.session.forget(uri)


def did_change(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
    """Tell the session, which may use the time until the next request."""
    document, encoding = ls.documents.get(params.text_document.uri), ls.position_encoding
    changes = (ls.raw_params or {}).get("contentChanges") or []
    if document is None or ls.session is None or not changes or changes[-1].get("range") is None:
        return  # a whole text does not say where in it somebody types
    start, new = changes[-1]["range"]["start"], changes[-1]["text"]
    version = document.version

    def look() -> Look | None:
        """The document with the cursor where the edit ended, if it is still so."""
        from speclsp.lsp.ahead import Look

        if ls.documents.get(document.uri) is not document or document.version != version:
            return None
        there = document.snapshot(start, encoding)
        end = min(len(there.text), there.cursor + len(new))
        return Look(replace(there, cursor=end), neighbours(ls, document.uri), root(ls, document.uri))

    ls.session.changed(document.uri, look)


async def inline_completion(ls: Server, params: types.InlineCompletionParams) -> dict[str, object]:
    """What to show at the cursor. Empty where there is nothing, whatever the reason: the editor clears the old one."""
    document, encoding = ls.documents.get(params.text_document.uri), ls.position_encoding
    if document is None or ls.session is None:
        return NOTHING
    position = {"line": params.position.line, "character": params.position.character}
    snapshot = document.snapshot(position, encoding)  # no await before this line
    line = document.position(snapshot.cursor, encoding)["line"]
    claimed = ls.raw_params["textDocument"].get("version")
    if claimed is not None and claimed != snapshot.version:
        return NOTHING
    chosen = params.context.selected_completion_info
    if chosen is not None:
        picked = select(document, chosen, snapshot.cursor, encoding)
        if picked is None:
            return NOTHING
        snapshot = picked
    invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
    wanted = ls.config.completion.alternatives if invoked else 1
    outcome = await ls.session.complete(snapshot, wanted, neighbours(ls, snapshot.uri), root(ls, snapshot.uri))
    if chosen is None:
        items = [item(made, snapshot, line, encoding) for made in outcome.suggestions]
    else:
        items = [extended(made, chosen, snapshot) for made in outcome.suggestions]
    return {"items": [made for made in items if made is not None]}


def neighbours(ls: Server, uri: str) -> list[Snapshot]:
    """Other open documents, the last one completed in first."""
    ls.recent = [*(recent for recent in ls.recent if recent != uri), uri]
    by_use = sorted(ls.documents, key=lambda document: place_in(ls.recent, document.uri), reverse=True)
    others = [document for document in by_use if document.uri != uri][:OTHERS]
    return [document.snapshot({"line": 0, "character": 0}, "utf-32") for document in others]


def place_in(recent: Sequence[str], uri: str) -> int:
    return recent.index(uri) if uri in recent else -1


def root(ls: Server, uri: str) -> str | None:
    """The path of the workspace folder that `uri` lies in."""
    folders = [folder.rstrip("/") for folder in ls.workspace.folders] or [ls.workspace.root_uri or ""]
    within = [folder for folder in folders if folder and uri.startswith(folder + "/")]
    return to_fs_path(max(within, key=len)) if within else None


def select(document: Document, chosen: types.SelectedCompletionInfo, cursor: int, encoding: str) -> Snapshot | None:
    """The document as if the item selected in the completion menu had been accepted; None when that makes no sense."""
    start, end = (
        document.offset({"line": place.line, "character": place.character}, encoding)
        for place in (chosen.range.start, chosen.range.end)
    )
    if chosen.range.start.line != chosen.range.end.line or not start <= cursor <= end:
        return None
    text = document.text[:start] + chosen.text + document.text[end:]
    return Snapshot(document.uri, document.language, document.version, text, start + len(chosen.text))


def extended(made: Suggestion, chosen: types.SelectedCompletionInfo, snapshot: Snapshot) -> dict[str, object] | None:
    """An item that goes on from the selected one over its very range; editors show no other beside their menu."""
    typed, replaced = snapshot.text[made.start : snapshot.cursor], snapshot.text[snapshot.cursor : made.end]
    if not made.text.startswith(typed) or not made.text.endswith(replaced):
        return None
    more = made.text[len(typed) : len(made.text) - len(replaced)]
    return {"insertText": chosen.text + more, "range": chosen.range} if more else None


def item(made: Suggestion, snapshot: Snapshot, line: int, encoding: str) -> dict[str, object] | None:
    """A suggestion as LSP has it; the range always on the cursor's line."""
    text, cursor = snapshot.text, snapshot.cursor
    begins = max(text.rfind("\n", 0, cursor), text.rfind("\r", 0, cursor)) + 1
    if not begins <= made.start <= cursor <= made.end:
        log.error("a suggestion does not lie around the cursor: %s", (made.start - begins, cursor - begins, made.end))
        return None
    this_line = Document("", "", 0, text[begins : made.end])
    start, end = (this_line.position(offset - begins, encoding) for offset in (made.start, made.end))
    if end["line"]:
        log.error("a suggestion replaces more than its line")
        return None
    return {"insertText": made.text, "range": {"start": {**start, "line": line}, "end": {**end, "line": line}}}


HANDLERS: Sequence[tuple[str, Callable[..., Any], object]] = (
    (types.INITIALIZE, initialize, None),
    (types.INITIALIZED, initialized, None),
    (types.WORKSPACE_DID_CHANGE_CONFIGURATION, did_change_configuration, None),
    (types.TEXT_DOCUMENT_DID_CHANGE, did_change, None),
    (types.TEXT_DOCUMENT_DID_CLOSE, did_close, None),
    (types.TEXT_DOCUMENT_INLINE_COMPLETION, inline_completion, types.InlineCompletionOptions()),
)
