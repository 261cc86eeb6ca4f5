"""JSON-RPC and LSP lifecycle on top of pygls: exactly one reply per request, strict params, no text in the log.

    reader thread -> receive -> lifecycle -> document sync, or checked params -> handler -> reply -> writer thread

pygls provides the registry of features and commands, the typed messages and the result of `initialize`. This module
replaces its I/O, its dispatch and its text store. A message is read only after the handler of the previous one has run
up to its first await, so a Snapshot taken there is the text that the client's request is about. Errors are answered in
one line, without a traceback, and never shown as a popup.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import gc
import inspect
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.feature_manager import is_thread_function
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method

from speclsp.errors import InputError, SpeclspError, error_site
from speclsp.lsp.documents.document import Documents
from speclsp.lsp.documents.notebook import Notebooks
from speclsp.lsp.protocol.document_sync import DOCUMENT_METHODS, NOTEBOOK_METHODS, DocumentSync
from speclsp.lsp.protocol.framing import INVALID_REQUEST, FramingFault
from speclsp.lsp.protocol.param_checks import clip, explain, is_message_id, make_strict, structured_params
from speclsp.lsp.protocol.process_exit import ProcessExit
from speclsp.lsp.protocol.stdio import Input, MessageWriter, converse

if TYPE_CHECKING:
    from cattrs import Converter

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
NOT_INITIALIZED, REQUEST_CANCELLED = -32002, -32800
MAX_REASON_CHARACTERS = 300
ALSO_NOTIFIED = (types.WORKSPACE_EXECUTE_COMMAND,)  # a request that copilot.el sends as a notification


MessageId = int | str
AnyFuture = asyncio.Future[Any] | concurrent.futures.Future[Any]

logger = logging.getLogger("speclsp.lsp.protocol")


class SpecLanguageServer(LanguageServer):
    """A pygls server that speaks over stdio only, through `serve`."""

    protocol: SpecProtocol

    def __init__(self, name: str, version: str, **options: Any) -> None:
        super().__init__(name, version, protocol_cls=SpecProtocol, converter_factory=_strict_converter, **options)
        self.documents: Documents = self.protocol.sync.documents  # up to date when a handler runs
        self.notebooks: Notebooks = self.protocol.sync.notebooks  # their cells are documents, and as up to date

    @property
    def position_encoding(self) -> str:
        """The unit of columns: "utf-8", "utf-16" or "utf-32"; agreed in `initialize`."""
        return self.protocol.position_encoding

    @property
    def raw_params(self) -> Any:
        """The JSON params of the message being handled, including fields that LSP does not define."""
        return self.protocol.raw_params.get()

    @property
    def request_id(self) -> MessageId:
        return self.protocol._ctx_msg_id.get() or 0

    def stop(self, code: int) -> None:
        """End `serve` with this exit code; from any thread."""
        self.protocol.process_exit.end(code)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log the error's site. pygls would show its message, which may quote a document, as a popup."""
        logger.error("%s", error_site(error))

    def start_tcp(self, host: str, port: int) -> NoReturn:
        """Refused: any web page could connect, and two editors would share one session."""
        raise SpeclspError("speclsp speaks LSP over stdin and stdout only, not over TCP or WebSockets.")

    start_ws = start_tcp


class SpecProtocol(LanguageServerProtocol):
    """JSON-RPC dispatch and LSP lifecycle that accept any JSON without raising."""

    writer: MessageWriter | None

    def __init__(self, server: SpecLanguageServer, converter: Converter) -> None:
        self.sync = DocumentSync()
        self.position_encoding = "utf-16"
        self.utf16_only = False  # whatever the client offers
        self.raw_params: contextvars.ContextVar[Any] = contextvars.ContextVar("raw_params", default=None)
        self.process_exit = ProcessExit()
        self.is_answered: Callable[[object], bool] = lambda msg_id: False  # `initialize` has its answer already
        self._phase = "new"  # then "starting", "ready", "down"
        self.pending: dict[MessageId, AnyFuture] = {}  # from the client; pygls' own dict holds ours
        super().__init__(server, converter)  # last: it reads every attribute to find handlers

    def _register_builtin_features(self) -> None:
        super()._register_builtin_features()  # type: ignore[no-untyped-call]
        for method in NOTEBOOK_METHODS:  # they store text in pygls' workspace
            del self.fm.builtin_features[method]

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
            requests = [item for item in message if isinstance(item, dict) and "method" in item]
            for msg_id in [item["id"] for item in requests if is_message_id(item.get("id"))] or [None]:
                self._fail(msg_id, INVALID_REQUEST, "LSP has no batches: send one message at a time")
            return None
        if not isinstance(message, dict):
            return self._fail(None, INVALID_REQUEST, "a message is a JSON object")
        method, msg_id = message.get("method"), message.get("id")
        ours = isinstance(msg_id, str) and msg_id in self._request_futures
        if "method" not in message and (ours or "result" in message or "error" in message):
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
        callback = self._answer
        if method == types.INITIALIZE:
            self._phase, callback = "starting", self._answer_initialize
        context = contextvars.copy_context()
        context.run(self._ctx_msg_id.set, msg_id)
        context.run(self.raw_params.set, message.get("params"))
        future = context.run(self._execute_handler, msg_id, handler, functools.partial(callback, msg_id), (params,))
        if not future.done():
            self.pending[msg_id] = future
        return None

    def _check_request(self, msg_id: MessageId, method: str, message: dict[str, Any]) -> tuple[Any, Any]:
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
            kind = self.get_message_type(method)
            return handler, structured_params(method, message, kind, self._converter, self.utf16_only)
        except Exception as error:
            raise JsonRpcException(f"{method}: {explain(error)}", INVALID_PARAMS) from None

    def _on_notification(self, method: str, message: dict[str, Any]) -> None:
        if self._phase != "ready" and method != types.EXIT:
            return logger.info("ignored %.80r: the server is not running", method)
        if method == types.CANCEL_REQUEST:
            params = message.get("params")
            msg_id = params.get("id") if isinstance(params, dict) else None
            if is_message_id(msg_id) and msg_id in self.pending:
                self.pending[msg_id].cancel()
            return None
        synced = method in DOCUMENT_METHODS or method in NOTEBOOK_METHODS
        if synced and not self.sync.apply(method, message.get("params"), self.position_encoding):
            return None
        handler = self.fm.features.get(method) if synced else self._find_handler(method)  # pygls' own store text
        if handler is None or (self._is_request(method, unknown=False) and method not in ALSO_NOTIFIED):
            return logger.debug("ignored %.80r", method)
        try:
            params = structured_params(method, message, self.get_message_type(method), self._converter)
        except Exception as error:
            return logger.warning("ignored %.80r: its params are not valid (%s)", method, error_site(error))
        context = contextvars.copy_context()
        context.run(self.raw_params.set, message.get("params"))
        context.run(self._execute_handler, "", handler, self._check_handler_result, (params,))
        return None

    def _on_response(self, message: dict[str, Any]) -> None:
        msg_id, error = str(message.get("id")), message.get("error")  # ours are strings
        future, kind = self._request_futures.pop(msg_id, None), self._result_types.pop(msg_id, None)
        if future is None or future.done():
            return logger.debug("ignored a response without a request")
        if error is not None:
            details = error if isinstance(error, dict) else {}
            code, text = details.get("code"), str(details.get("message"))
            future.set_exception(JsonRpcException(text, code if type(code) is int else INTERNAL_ERROR))
            return None
        try:
            result = message.get("result")
            if kind is not None:
                response = {"jsonrpc": self.VERSION, "id": msg_id, "result": result}
                result = self._converter.structure(response, kind).result
            future.set_result(result)
        except Exception as invalid:
            reason = f"the client's answer is not valid: {explain(invalid)}"
            future.set_exception(JsonRpcException(reason, INVALID_PARAMS))
        return None

    def _find_handler(self, method: str) -> Any:
        return self.fm.builtin_features.get(method) or self.fm.features.get(method)

    def _is_request(self, method: str, unknown: bool) -> bool:
        return unknown if (kind := self.get_message_type(method)) is None else hasattr(kind, "id")

    # ── handlers ────────────────────────────────────────────────────────────────────────────────────────────────

    def _execute_handler(
        self,
        msg_id: MessageId,
        handler: Callable[..., Any],
        callback: Callable[[Any], None],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> AnyFuture:
        """Run a handler. The caller keeps its future: pygls would keep the future of every notification, too."""
        call = functools.partial(handler, *(args or ()), **(kwargs or {}))
        future: AnyFuture
        if inspect.iscoroutinefunction(handler):
            future = asyncio.ensure_future(call())
        elif is_thread_function(handler):  # type: ignore[no-untyped-call]
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            future = loop.run_in_executor(self._server.thread_pool, context.run, call)
        else:
            future = concurrent.futures.Future()
            if inspect.isgeneratorfunction(handler):  # pygls' built-in handlers yield ours
                self._run_generator(None, gen=call(), result_future=future)
            else:
                try:
                    future.set_result(call())
                except Exception as error:
                    future.set_exception(error)
        future.add_done_callback(callback)
        return future

    def _check_handler_result(self, future: AnyFuture) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            refused = isinstance(error, (JsonRpcException, InputError))  # a request sent as a notification, for example
            logger.log(logging.WARNING if refused else logging.ERROR, "a notification failed: %s", error_site(error))

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Any:
        """Cancel pending requests and refuse new ones."""
        self._phase, self._shutdown = "down", True
        for future in list(self.pending.values()):
            future.cancel()

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> Any:
        """End the process: code 0 after shutdown, 1 without."""
        self.process_exit.end(self.exit_code)

    @property
    def exit_code(self) -> int:
        """The exit code for a client that disconnects now."""
        return 0 if self._phase == "down" else 1

    # ── out ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, msg_id: MessageId, future: AnyFuture) -> None:
        self.pending.pop(msg_id, None)
        if future.cancelled():
            return self._fail(msg_id, REQUEST_CANCELLED, "cancelled")
        error = future.exception()
        if error is None:
            try:
                return self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "result": future.result()})
            except Exception as not_json:
                error = not_json
        if isinstance(error, (JsonRpcException, InputError)):
            return self._fail(msg_id, getattr(error, "code", INVALID_PARAMS), getattr(error, "message", str(error)))
        logger.error("a request's handler failed: %s", error_site(error))
        text = str(error) if isinstance(error, SpeclspError) else f"{type(error).__name__}: {error}"
        return self._fail(msg_id, INTERNAL_ERROR, text)

    def _answer_initialize(self, msg_id: MessageId, future: AnyFuture) -> None:
        if future.cancelled() or future.exception() is not None:
            self._phase = "new"
        elif self._phase == "starting":
            self._phase = "ready"
            self.position_encoding = str(getattr(encoding := self.workspace.position_encoding, "value", encoding))
            if self._server.process_id is not None:
                self.process_exit.watch(self._server.process_id)
        if self.is_answered(msg_id):
            self.pending.pop(msg_id, None)
        else:
            self._answer(msg_id, future)

    def _fail(self, msg_id: MessageId | None, code: int, reason: str) -> None:
        reason = clip(" ".join(reason.split()), MAX_REASON_CHARACTERS)
        if msg_id is None:
            logger.warning("refused: %s", reason)
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": {"code": code, "message": reason}})

    def notify(self, method: str, params: Any | None = None) -> None:
        """Send a notification from any thread, without blocking. Dropped when the client has stopped reading."""
        message = {"jsonrpc": self.VERSION, "method": method}
        self._send_data(message if params is None else {**message, "params": params}, droppable=True)

    def _send_data(self, data: Any, droppable: bool = False) -> None:
        if self.writer is not None:
            body = json.dumps(data, default=self._serialize_message, allow_nan=False, separators=(",", ":"))
            self.writer.write(body.encode(), droppable)  # ASCII, so lone surrogates pass


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


def _strict_converter() -> Converter:
    return make_strict(default_converter())  # type: ignore[no-untyped-call]
