"""Strict validation of LSP params: types are checked, never coerced, and the first error is described in one line."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import Any

import cattrs
from lsprotocol import types

from speclsp.lsp.protocol.document_sync import NOTEBOOK_METHODS
from speclsp.lsp.protocol.initialize_answer import speaks_copilot

WITHOUT_PARAMS = {types.SHUTDOWN: None, types.EXIT: None, types.INITIALIZED: types.InitializedParams()}
CAPABILITIES_WE_READ = {
    "general": ("positionEncodings",),
    "textDocument": ("synchronization", "inlineCompletion"),
    "notebookDocument": ("synchronization",),
    "window": ("workDoneProgress", "showMessage"),
    "workspace": ("configuration", "didChangeConfiguration", "didChangeWatchedFiles", "workspaceFolders"),
}


def structured_params(
    method: str, message: dict[str, Any], kind: type | None, converter: cattrs.Converter, utf16_only: bool = False
) -> Any:
    """Typed and checked params for LSP's methods, whose messages are of type `kind`; the JSON itself for other methods.

    The JSON also for didChange, at every key, and for notebooks, full of outputs: document sync has checked both.
    """
    if method in WITHOUT_PARAMS:
        return WITHOUT_PARAMS[method]
    if kind is None or method == types.TEXT_DOCUMENT_DID_CHANGE or method in NOTEBOOK_METHODS:
        return message.get("params")
    if method == types.INITIALIZE:
        message = with_capabilities_we_read(message, converter, utf16_only)
    return converter.structure({"id": 0, **message}, kind).params  # a request sent as a notification has no id


def make_strict(converter: cattrs.Converter) -> cattrs.Converter:
    """Make a converter strict: it no longer turns null into "None" and 1.7 into 1."""
    for kind, name in ((int, "an integer"), (str, "a string"), (bool, "true or false")):
        converter.register_structure_hook(kind, functools.partial(_check_scalar, kind, name))
    converter.register_structure_hook(types.ProgressToken, _check_token)
    return converter


def _check_token(value: object, _: object) -> object:
    if type(value) not in (int, str):
        raise ValueError(f"expected an integer or a string, found {clip(repr(value), 40)}")
    return value


def _check_scalar(kind: type, name: str, value: object, wanted: type) -> object:
    if type(value) is not kind:
        raise ValueError(f"expected {name}, found {clip(repr(value), 40)}")
    return value if wanted is kind else wanted(value)  # an enum of the kind


def with_capabilities_we_read(
    message: dict[str, Any], converter: cattrs.Converter, utf16_only: bool = False
) -> dict[str, Any]:
    """An `initialize` request with only the client capabilities that this server reads, and only valid ones.

    Structuring the others would cost 30 ms of an editor's start, and an unknown or malformed one must not refuse it.
    Clients of Copilot's protocol use UTF-16 columns, whatever else they offer. So for them, and with `utf16_only`, the
    offer is left out.
    """
    params, kept = message.get("params"), dict[str, dict[str, Any]]()
    capabilities = params.get("capabilities") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not (isinstance(capabilities, dict) or capabilities == []):  # []: Lua's {}
        return message
    utf16_only = utf16_only or speaks_copilot(params.get("initializationOptions"))
    for section, keys in CAPABILITIES_WE_READ.items():
        if utf16_only and section == "general":
            continue
        values = capabilities.get(section) if isinstance(capabilities, dict) else None
        for key in keys:
            if isinstance(values, dict) and key in values:
                with contextlib.suppress(Exception):
                    converter.structure({section: {key: values[key]}}, types.ClientCapabilities)
                    kept.setdefault(section, {})[key] = values[key]
    return {**message, "params": {**params, "capabilities": kept}}


def explain(error: Exception) -> str:
    """The first error in some params, in one line: path and reason."""
    first = cattrs.transform_error(error, format_exception=_reason)[0]
    reason, _, path = first.partition(" @ $.")
    path = re.sub(r"_(\w)", lambda letter: letter[1].upper(), path)  # in the client's spelling
    return f"{path}: {reason}" if path else reason


def _reason(error: BaseException, kind: type | None) -> str:
    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, ValueError):
        return str(error)
    return f"expected {getattr(kind, '__name__', 'something else')}"


def clip(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def is_message_id(value: object) -> bool:
    """True if JSON-RPC allows this value as the id of a request."""
    return type(value) in (int, str)
