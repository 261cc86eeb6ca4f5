"""Answer to `initialize`, without the typed messages of LSP: their import takes 0.2 s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclsp import __version__

ACCEPT_COMMAND, REJECT_COMMAND = "speclsp.didAcceptEdit", "speclsp.didRejectEdit"  # of suggestions and next edits
COPILOT_ACCEPT_COMMAND = "github.copilot.didAcceptCompletionItem"  # some clients have its name in their code
MENU_TRIGGERS = [".", "(", "[", "{", ",", ":", "=", " "]  # word characters trigger by themselves
POSITION_ENCODINGS = ("utf-8", "utf-16", "utf-32")
NONE = type(None)
PARAMS: Mapping[str, tuple[tuple[type, ...], str]] = {  # types that LSP defines for the params that are read here
    "processId": ((int, NONE), "an integer or null"),
    "clientInfo": ((dict, NONE), "an object"),
    "rootUri": ((str, NONE), "a string or null"),
    "capabilities": ((dict, list), "an object"),  # []: Lua's {}
    "workspaceFolders": ((list, NONE), "a list or null"),
}


def params_problem(params: object) -> str:
    """The first value of `initialize` that has not the type of LSP, in words; "" for valid params."""
    if not isinstance(params, Mapping) or "capabilities" not in params:
        return "capabilities is missing"
    for name, (kinds, wanted) in PARAMS.items():
        if type(params.get(name)) not in kinds and (name in params or name == "capabilities"):
            return f"params.{name}: expected {wanted}"
    folders = params.get("workspaceFolders") or []
    if not all(type(folder) is dict and type(folder.get("uri")) is str for folder in folders):
        return "params.workspaceFolders: each folder needs a uri"
    return ""


def initialize_result(params: Mapping[str, Any], copilot: bool, has_menu: bool) -> dict[str, Any]:
    """The result of `initialize`.

    Args:
        copilot: the client speaks Copilot's protocol, whatever it says. Such clients use UTF-16 columns, whatever else
            they offer.
        has_menu: textDocument/completion is announced.
    """
    copilot = copilot or speaks_copilot(params.get("initializationOptions"))
    offered = None if copilot else member(params["capabilities"], "general", "positionEncodings")
    encodings = offered if isinstance(offered, list) else []
    capabilities: dict[str, object] = {
        "positionEncoding": next((name for name in encodings if name in POSITION_ENCODINGS), "utf-16"),
        "textDocumentSync": {"openClose": True, "change": 2, "save": True},
        "executeCommandProvider": {
            "commands": [ACCEPT_COMMAND, REJECT_COMMAND, *([COPILOT_ACCEPT_COMMAND] if copilot else [])]
        },
        "inlineCompletionProvider": {},
        "workspace": {"workspaceFolders": {"supported": True, "changeNotifications": True}},
    }
    if isinstance(member(params["capabilities"], "notebookDocument", "synchronization"), Mapping):
        capabilities["notebookDocumentSync"] = {"notebookSelector": [{"notebook": "*"}]}
    if has_menu:
        capabilities["completionProvider"] = {"triggerCharacters": MENU_TRIGGERS}
    return {"capabilities": capabilities, "serverInfo": {"name": "speclsp", "version": __version__}}


def speaks_copilot(initialization_options: object) -> bool:
    """True for the options of a client that was written for Copilot's language server."""
    return isinstance(initialization_options, Mapping) and "editorPluginInfo" in initialization_options


def workspace_folders(params: Mapping[str, Any]) -> list[str]:
    """The URIs of the workspace folders in the params of `initialize`, without slashes at their ends."""
    folders = [folder["uri"] for folder in params.get("workspaceFolders") or ()]
    return [uri.rstrip("/") for uri in folders or [params.get("rootUri") or ""] if uri]


def member(value: object, *names: str) -> object:
    """A member of nested JSON objects; None if one is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
