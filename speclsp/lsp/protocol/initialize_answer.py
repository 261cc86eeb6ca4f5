"""Answer to `initialize`, without the typed messages of LSP: their import takes 0.2 s.

Only for params that are certainly valid (`is_plain`). pygls answers all others, and reports what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclsp import __version__

ACCEPT_COMMAND, REJECT_COMMAND = "speclsp.didAcceptEdit", "speclsp.didRejectEdit"  # of suggestions and next edits
COPILOT_ACCEPT_COMMAND = "github.copilot.didAcceptCompletionItem"  # some clients have its name in their code
MENU_TRIGGERS = [".", "(", "[", "{", ",", ":", "=", " "]  # word characters trigger by themselves
POSITION_ENCODINGS = ("utf-8", "utf-16", "utf-32")
TEXT_OR_NONE, NUMBER_OR_NONE = (str, type(None)), (int, type(None))
PLAIN_PARAMS: Mapping[str, tuple[type, ...]] = {  # types of the params of `initialize` that are answered here
    "processId": NUMBER_OR_NONE,
    "clientInfo": (dict, type(None)),
    "locale": TEXT_OR_NONE,
    "rootPath": TEXT_OR_NONE,
    "rootUri": TEXT_OR_NONE,
    "capabilities": (dict,),
    "initializationOptions": (dict, list, type(None)),
    "workspaceFolders": (list, type(None)),
    "workDoneToken": (str, int),
}
TRACE_VALUES = ("off", "messages", "verbose")


def is_plain(params: Mapping[str, Any]) -> bool:
    """True for params of `initialize` that are certainly valid, in every field that LSP defines."""
    known = {name: value for name, value in params.items() if name != "trace"}
    if not known.keys() <= PLAIN_PARAMS.keys() or params.get("trace", "off") not in TRACE_VALUES:
        return False
    if any(type(value) not in PLAIN_PARAMS[name] for name, value in known.items()):
        return False
    client, folders = params.get("clientInfo"), params.get("workspaceFolders") or []
    has_client = client is None or (type(client.get("name")) is str and type(client.get("version", "")) is str)
    are_folders = all(type(folder) is dict and type(folder.get("uri")) is str for folder in folders)
    has_names = are_folders and all(type(folder.get("name")) is str for folder in folders)
    has_all = {"processId", "rootUri", "capabilities"} <= known.keys()
    return has_all and has_client and has_names and has_plain_capabilities(params["capabilities"])


def has_plain_capabilities(capabilities: Mapping[str, Any]) -> bool:
    """True if the capabilities that the answer depends on have the types of LSP."""
    encodings = member(capabilities, "general", "positionEncodings")
    if encodings is not None and not (type(encodings) is list and all(type(name) is str for name in encodings)):
        return False
    syncs = [member(capabilities, section, "synchronization") for section in ("textDocument", "notebookDocument")]
    flags = [sync.values() if isinstance(sync, Mapping) else [sync] for sync in syncs if sync is not None]
    return all(type(flag) is bool for values in flags for flag in values)


def initialize_result(params: Mapping[str, Any], copilot: bool, has_menu: bool) -> dict[str, Any]:
    """The result of `initialize`, equal to the one that pygls computes.

    Args:
        copilot: the client speaks Copilot's protocol, whatever it says.
        has_menu: textDocument/completion is announced.
    """
    copilot = copilot or speaks_copilot(params.get("initializationOptions"))
    synchronization = member(params["capabilities"], "textDocument", "synchronization")
    sync: dict[str, object] = {"openClose": True, "change": 2, "save": True}
    for name in ("willSave", "willSaveWaitUntil"):
        if type(member(synchronization, name)) is bool:
            sync[name] = False
    offered = None if copilot else member(params["capabilities"], "general", "positionEncodings")
    encodings = offered if isinstance(offered, list) else []
    capabilities: dict[str, object] = {
        "positionEncoding": next((name for name in encodings if name in POSITION_ENCODINGS), "utf-16"),
        "textDocumentSync": sync,
        "executeCommandProvider": {
            "commands": [ACCEPT_COMMAND, REJECT_COMMAND, *([COPILOT_ACCEPT_COMMAND] if copilot else [])]
        },
        "inlineCompletionProvider": {},
        "workspace": {
            "workspaceFolders": {"supported": True, "changeNotifications": True},
            "fileOperations": {},
        },
    }
    if isinstance(member(params["capabilities"], "notebookDocument", "synchronization"), Mapping):
        capabilities["notebookDocumentSync"] = {"notebookSelector": [{"notebook": "*"}]}
    if has_menu:
        capabilities["completionProvider"] = {"triggerCharacters": MENU_TRIGGERS}
    return {"capabilities": capabilities, "serverInfo": {"name": "speclsp", "version": __version__}}


def speaks_copilot(initialization_options: object) -> bool:
    """True for the options of a client that was written for Copilot's language server."""
    return isinstance(initialization_options, Mapping) and "editorPluginInfo" in initialization_options


def member(value: object, *names: str) -> object:
    """A member of nested JSON objects; None if one is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
