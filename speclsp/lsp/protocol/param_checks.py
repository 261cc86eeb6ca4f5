"""Validation of LSP params; the first error is described in one line."""

from __future__ import annotations

import re
from typing import Any

import cattrs
from lsprotocol import types

from speclsp.lsp.protocol.document_sync import NOTEBOOK_METHODS
from speclsp.lsp.protocol.initialize_answer import params_problem

WITHOUT_PARAMS = {types.SHUTDOWN: None, types.INITIALIZED: types.InitializedParams()}


def structured_params(method: str, message: dict[str, Any], kind: type | None, converter: cattrs.Converter) -> Any:
    """Typed and checked params for LSP's methods, whose messages are of type `kind`; the JSON itself for other methods.

    The JSON also for `initialize`, for didChange, at every key, and for notebooks, full of outputs, which are checked
    by functions of their own.
    """
    params = message.get("params")
    if method in WITHOUT_PARAMS:
        return WITHOUT_PARAMS[method]
    if method == types.INITIALIZE and (problem := params_problem(params)):
        raise ValueError(problem)
    if kind is None or method in (types.INITIALIZE, types.TEXT_DOCUMENT_DID_CHANGE, *NOTEBOOK_METHODS):
        return params
    return converter.structure({"id": 0, **message}, kind).params  # a request sent as a notification has no id


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
