"""JSON-RPC and LSP lifecycle on top of pygls: exactly one reply per request, no text in the log.

    reader thread -> receive -> lifecycle -> document sync, or checked params -> handler -> reply -> writer thread

pygls provides the registry of features and commands, and the types of messages. A message is read only after the
handler of the previous one has run up to its first await, so a Snapshot taken there is the text that the client's
request is about. Errors are answered in one line, without a traceback, and never shown as a popup.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import json
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol

from speclsp.errors import InputError, SpeclspError, error_site
from speclsp.lsp.documents.document import Documents
from speclsp.lsp.documents.notebook import Notebooks
from speclsp.lsp.protocol.document_sync import DOCUMENT_METHODS, NOTEBOOK_METHODS, DocumentSync
from speclsp.lsp.protocol.framing import INVALID_REQUEST, FramingFault
from speclsp.lsp.protocol.initialize_answer import member
from speclsp.lsp.protocol.param_checks import clip, explain, is_message_id, structured_params
from speclsp.lsp.protocol.process_exit import ProcessExit
from speclsp.lsp.protocol.stdio import Input, MessageWriter, converse

if TYPE_CHECKING:
    from cattrs import Converter

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
NOT_INITIALIZED, REQUEST_CANCELLED = -32002, -32800
MAX_REASON_CHARACTERS = 300
ALSO_NOTIFIED = (types.WORKSPACE_EXECUTE_COMMAND,)  # a request that copilot.el sends as a notification

MessageId = int | str
Handler = Callable[[Any], Any]

logger = logging.getLogger("speclsp.lsp.protocol")


class SpecLanguageServer(LanguageServer):
    """A pygls server that speaks over stdio only, through `serve`. A feature `initialize` returns the JSON answer."""

    protocol: SpecProtocol

    def __init__(self, name: str, version: str) -> None:
        super().__init__(name, version, protocol_cls=SpecProtocol)
        self.documents: Documents = self.protocol.sync.documents  # up to date when a handler runs
        self.notebooks: Notebooks = self.protocol.sync.notebooks  # their cells are documents, and as up to date

    @property
    def position_encoding(self) -> str:
        """The unit of columns: "utf-8", "utf-16" or "utf-32"; agreed in `initialize`."""
        return self.protocol.position_encoding

    @property
    def raw_params(self) -> Any:
        """The JSON params of the message being handled, including fields that LSP does not define."""
        return self.protocol.message.get({}).get("params")

    @property
    def request_id(self) -> MessageId:
        return self.protocol.message.get({}).get("id") or 0

    def client_can(self, *capability: str) -> bool:
        """True for a capability that the client announced as true: "workspace", "configuration"."""
        return member(self.protocol.client_offer, *capability) is True

    def stop(self, code: int) -> None:
        """End `serve` with this exit code; from any thread."""
        self.protocol.process_exit.end(code)


class SpecProtocol(LanguageServerProtocol):
    """JSON-RPC dispatch and LSP lifecycle that accept any JSON without raising."""

    writer: MessageWriter | None
    _phase = "new"  # then "starting", "ready", "down"

    def __init__(self, server: SpecLanguageServer, converter: Converter) -> None:
        super().__init__(server, converter)
        self.sync = DocumentSync()
        self.position_encoding = "utf-16"
        self.client_offer: Mapping[str, Any] = {}  # the client's capabilities
        self.message: ContextVar[dict[str, Any]] = ContextVar("message")  # being handled
        self.process_exit = ProcessExit()
        self.is_answered: Callable[[object], bool] = lambda msg_id: False  # `initialize` has its answer already
        self.pending: dict[MessageId, asyncio.Task[None]] = {}  # requests from the client
        self.awaited: dict[MessageId, asyncio.Future[Any]] = {}  # requests to the client
        self._convert = converter
        self._notified: set[asyncio.Task[None]] = set()  # handlers of notifications that still run
        self._numbers = itertools.count(1)

    # ── in ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, message: object) -> None:
        """Handle one value from the reader; never raises."""
        try:
            self._receive(message)
        except Exception as error:
            logger.error("a message could not be handled: %s", error_site(error))

    def _receive(self, message: object) -> None:
        if isinstance(message, FramingFault):
            return self._fail(None, message.code, message.reason)
        if isinstance(message, list):
            ids = [item["id"] for item in message if isinstance(item, dict) and "method" in item and "id" in item]
            for msg_id in list(filter(is_message_id, ids)) or [None]:
                self._fail(msg_id, INVALID_REQUEST, "LSP has no batches: send one message at a time")
            return None
        if not isinstance(message, dict):
            return self._fail(None, INVALID_REQUEST, "a message is a JSON object")
        method, msg_id = message.get("method"), message.get("id")
        if "method" not in message and ("result" in message or "error" in message):
            return self._on_response(message)
        if "id" in message and not is_message_id(msg_id):
            return self._fail(None, INVALID_REQUEST, "the id of a request is an integer or a string")
        if message.get("jsonrpc") != self.VERSION or not isinstance(method, str):
            if "id" in message:
                return self._fail(msg_id, INVALID_REQUEST, 'a request needs "jsonrpc": "2.0" and a method')
            return logger.warning("ignored a message without method or id")
        self.sync.unify_spelling(message.get("params"))
        return self._on_request(msg_id, method, message) if "id" in message else self._on_notification(method, message)

    def _on_request(self, msg_id: Any, method: str, message: dict[str, Any]) -> None:
        try:
            handler, params = self._check_request(msg_id, method, message)
        except JsonRpcException as refusal:
            return self._fail(msg_id, refusal.code, refusal.message)
        if method == types.INITIALIZE:
            self._phase, self.client_offer = "starting", message["params"]["capabilities"]
        self.pending[msg_id] = asyncio.ensure_future(self._answer(msg_id, handler, params, message))
        return None

    def _check_request(self, msg_id: MessageId, method: str, message: dict[str, Any]) -> tuple[Handler, Any]:
        """The request's handler and params. Raises JsonRpcException with the error to answer."""
        if self._phase == "down":
            raise JsonRpcException("the server is shutting down", INVALID_REQUEST)
        if method == types.INITIALIZE and self._phase != "new":
            raise JsonRpcException("initialize may be sent only once", INVALID_REQUEST)
        if method != types.INITIALIZE and self._phase != "ready":
            raise JsonRpcException(f"{method} was sent before initialize was answered", NOT_INITIALIZED)
        if msg_id in self.pending:
            raise JsonRpcException("this id belongs to a request that is not yet answered", INVALID_REQUEST)
        if not self._is_request(method, unknown=True):
            raise JsonRpcException(f"{method} is a notification and takes no id", INVALID_REQUEST)
        handler = self._find_handler(method)
        if handler is None:
            raise JsonRpcException(f"this server does not support {method}", METHOD_NOT_FOUND)
        try:
            return handler, structured_params(method, message, self.get_message_type(method), self._convert)
        except Exception as error:
            raise JsonRpcException(f"{method}: {explain(error)}", INVALID_PARAMS) from None

    def _on_notification(self, method: str, message: dict[str, Any]) -> None:
        params = message.get("params")
        if method == types.EXIT:
            return self.process_exit.end(self.exit_code)
        if self._phase != "ready":
            return logger.info("ignored %.80r: the server is not running", method)
        if method == types.CANCEL_REQUEST:
            msg_id = params.get("id") if isinstance(params, dict) else None
            if is_message_id(msg_id) and msg_id in self.pending:
                self.pending[msg_id].cancel()
            return None
        synced = method in DOCUMENT_METHODS or method in NOTEBOOK_METHODS
        if synced and not self.sync.apply(method, params, self.position_encoding):
            return None
        handler = self._find_handler(method)
        if handler is None or (self._is_request(method, unknown=False) and method not in ALSO_NOTIFIED):
            return logger.debug("ignored %.80r", method)
        try:
            params = structured_params(method, message, self.get_message_type(method), self._convert)
        except Exception as error:
            return logger.warning("ignored %.80r: its params are not valid (%s)", method, error_site(error))
        task = asyncio.ensure_future(self._run_notified(handler, params, message))
        self._notified.add(task)
        task.add_done_callback(self._notified.discard)
        return None

    def _on_response(self, message: dict[str, Any]) -> None:
        future, error = self.awaited.pop(str(message.get("id")), None), message.get("error")  # our ids are strings
        if future is None or future.done():
            return logger.debug("ignored a response without a request")
        if error is None:
            return future.set_result(message.get("result"))
        return future.set_exception(JsonRpcException(str(member(error, "message"))))

    def _find_handler(self, method: str) -> Handler | None:
        ours = {types.SHUTDOWN: self._shut_down, types.WORKSPACE_EXECUTE_COMMAND: self._execute_command}
        handler: Handler | None = ours.get(method) or self.fm.features.get(method)
        return handler

    def _is_request(self, method: str, unknown: bool) -> bool:
        return unknown if (kind := self.get_message_type(method)) is None else hasattr(kind, "id")

    # ── handlers ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, handler: Handler, params: Any, message: dict[str, Any]) -> Any:
        self.message.set(message)
        result = handler(params)
        return await result if inspect.isawaitable(result) else result

    async def _run_notified(self, handler: Handler, params: Any, message: dict[str, Any]) -> None:
        try:
            await self._run(handler, params, message)
        except Exception as error:
            refused = isinstance(error, (JsonRpcException, InputError))  # a request sent as a notification, for example
            logger.log(logging.WARNING if refused else logging.ERROR, "a notification failed: %s", error_site(error))

    async def _answer(self, msg_id: MessageId, handler: Handler, params: Any, message: dict[str, Any]) -> None:
        """Run a request's handler and send its one reply."""
        starting, reply, failure = self._phase == "starting", b"", (0, "")
        try:
            result = await self._run(handler, params, message)
            reply = self._encode({"jsonrpc": self.VERSION, "id": msg_id, "result": result})
        except asyncio.CancelledError:
            failure = REQUEST_CANCELLED, "cancelled"
        except (JsonRpcException, InputError) as error:
            failure = getattr(error, "code", INVALID_PARAMS), getattr(error, "message", str(error))
        except Exception as error:
            logger.error("a request's handler failed: %s", error_site(error))
            text = str(error) if isinstance(error, SpeclspError) else f"{type(error).__name__}: {error}"
            failure = INTERNAL_ERROR, text
        self.pending.pop(msg_id, None)
        if starting and message["method"] == types.INITIALIZE:
            self._phase = "ready" if reply else "new"
            if reply:
                self.position_encoding = str(member(result, "capabilities", "positionEncoding") or "utf-16")
                self.process_exit.watch(message["params"].get("processId") or 0)
            if self.is_answered(msg_id):
                return
        if reply:
            self._write(reply)
        else:
            self._fail(msg_id, *failure)

    def _execute_command(self, params: types.ExecuteCommandParams) -> Any:
        command = self.fm.commands.get(params.command)
        if command is None:
            raise InputError(f"there is no command {params.command!r}")
        return command(*(params.arguments or []))

    def _shut_down(self, params: object) -> None:
        """Cancel pending requests and refuse new ones."""
        self._phase = "down"
        for task in self.pending.values():
            if task is not asyncio.current_task():
                task.cancel()

    @property
    def exit_code(self) -> int:
        """The exit code for a client that disconnects now: 0 after shutdown, 1 without."""
        return 0 if self._phase == "down" else 1

    # ── out ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def request(self, method: str, params: Any) -> asyncio.Future[Any]:
        """Send a request to the client, in the event loop; its result as JSON. An error raises JsonRpcException."""
        msg_id = f"speclsp-{next(self._numbers)}"
        future = self.awaited[msg_id] = asyncio.get_running_loop().create_future()
        self._write(self._encode({"jsonrpc": self.VERSION, "id": msg_id, "method": method, "params": params}))
        return future

    def notify(self, method: str, params: Any | None = None) -> None:
        """Send a notification from any thread, without blocking. Dropped when the client has stopped reading."""
        message = {"jsonrpc": self.VERSION, "method": method}
        self._write(self._encode(message if params is None else {**message, "params": params}), droppable=True)

    def _fail(self, msg_id: MessageId | None, code: int, reason: str) -> None:
        reason = clip(" ".join(reason.split()), MAX_REASON_CHARACTERS)
        if msg_id is None:
            logger.warning("refused: %s", reason)
        error = {"code": code, "message": reason}
        self._write(self._encode({"jsonrpc": self.VERSION, "id": msg_id, "error": error}))

    def _encode(self, message: Mapping[str, object]) -> bytes:
        text = json.dumps(message, default=self._convert.unstructure, allow_nan=False, separators=(",", ":"))
        return text.encode()  # ASCII, so lone surrogates pass

    def _write(self, body: bytes, droppable: bool = False) -> None:
        if self.writer is not None:
            self.writer.write(body, droppable)


def serve(server: SpecLanguageServer, source: Input, out_fd: int, on_exit: Callable[[], None] = lambda: None) -> int:
    """Serve LSP until the client exits or disconnects. Returns the process's exit code.

    Call it in the main thread, once. `on_exit` runs once at the end, whatever ended it. The process is killed if it has
    not stopped 1.5 s after the end was requested.
    """
    logging.getLogger("pygls").setLevel(logging.WARNING)  # at INFO it logs every message with its text
    gc.freeze()  # imported modules are no garbage: full collections need not visit them while the user types
    gc.enable()  # the caller disables it during the imports, which saves 20 ms
    protocol, process_exit = server.protocol, server.protocol.process_exit
    process_exit.begin(on_exit)
    writer = protocol.writer = MessageWriter(out_fd, on_broken=lambda: process_exit.end(protocol.exit_code))
    with process_exit.signals():
        try:
            asyncio.run(converse(source, writer, process_exit, protocol.receive, lambda: protocol.exit_code))
        except (Exception, SystemExit) as error:
            logger.error("the server failed: %s", error_site(error))
        writer.close()
        return process_exit.finish(join=server.shutdown)
