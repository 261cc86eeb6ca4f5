"""What a request is about: the text as it is now with the cursor in it, and which other documents may bear on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from lsprotocol import types

from speclsp.lsp.documents.document import Document, Snapshot
from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.reasons import NOT_OPEN, TOO_LARGE
from speclsp.lsp.visibility import secret_files
from speclsp.lsp.visibility.eligibility import glob_off

if TYPE_CHECKING:
    from speclsp.lsp.server.server import CompletionServer

OTHERS = 8  # other open documents the context may draw from, the last used first


@dataclass(frozen=True, slots=True)
class CursorContext:
    """A place in a document."""

    document: Document
    snapshot: Snapshot  # in a notebook with the cells above, so its cursor is not the document's
    line: int  # of the document
    before: int  # characters of the snapshot that are not the document's


def cursor_context(
    ls: CompletionServer, uri: str, position: Mapping[str, int], version: object = None
) -> CursorContext | None:
    """The place at a position of a document; None where it is not open, not of the version claimed, or too large."""
    document = ls.documents.get(uri)
    if document is None or (version is not None and version != document.version) or is_too_large(ls, document):
        return None
    offset = document.offset(position, ls.position_encoding)
    snapshot = ls.notebooks.snapshot(document, position, ls.position_encoding)
    line = document.position(offset, ls.position_encoding)["line"]
    return CursorContext(document, snapshot, line, snapshot.cursor - offset)


def refusal_reason(ls: CompletionServer, uri: str) -> str:
    """The reason for None, "" where it is the version."""
    document = ls.documents.get(uri)
    if document is None:
        return NOT_OPEN
    return TOO_LARGE if is_too_large(ls, document) else ""


def is_too_large(ls: CompletionServer, document: Document) -> bool:
    """Whether nothing is suggested in it: then its text, which takes its time, is not even put together."""
    return ls.notebooks.characters(document) > ls.config.context.max_file_bytes


def selected(at: CursorContext, chosen: types.SelectedCompletionInfo, encoding: str) -> Snapshot | None:
    """The snapshot as if the item selected in the completion menu had been accepted; None where that makes no sense."""
    start, end = (
        at.before + at.document.offset({"line": place.line, "character": place.character}, encoding)
        for place in (chosen.range.start, chosen.range.end)
    )
    if chosen.range.start.line != chosen.range.end.line or not start <= at.snapshot.cursor <= end:
        return None
    from speclsp.lsp.syntax import (
        hidden_characters,  # not sooner: the editor has its answer to `initialize` by then
    )

    if hidden_characters.has_hidden(chosen.text, at.snapshot.text):  # it would be part of our item
        return None
    text = at.snapshot.text[:start] + chosen.text + at.snapshot.text[end:]
    return replace(at.snapshot, text=text, cursor=start + len(chosen.text))


def mark_as_recent(ls: CompletionServer, uri: str) -> None:
    """Make a document the last one that was completed in."""
    ls.recent = [*(recent for recent in ls.recent if recent != uri), uri]


def neighbours(ls: CompletionServer, uri: str) -> Callable[[], list[Snapshot]]:
    """Other open documents, the last one completed in first: a function that collects them at its first call.

    Most requests are answered from the cache and never call it. Left out are documents that the text itself shows, as
    cells above in a notebook, and those that no model may see.
    """
    recent = tuple(ls.recent)

    @functools.cache
    def collect() -> list[Snapshot]:
        shown = {uri, *(cell.uri for cell in ls.notebooks.above(uri))}
        by_use = sorted(ls.documents, key=lambda document: place_in(recent, document.uri), reverse=True)
        others = [document for document in by_use if document.uri not in shown and not is_too_large(ls, document)]
        allowed = (document for document in others if not kept_back(ls, document.uri))
        return [document.snapshot({"line": 0, "character": 0}, "utf-32") for document in islice(allowed, OTHERS)]

    return collect


def kept_back(ls: CompletionServer, uri: str) -> str:
    """Why no model sees a piece of this document while another one is completed in; "" where one may."""
    file, folder = ls.notebooks.of(uri) or uri, root(ls, uri)
    if secret_files.pattern_of(file):
        return "secret file"
    if glob_off(uri, ls.config, folder):
        return "off by a glob"
    return "named by an ignore file" if ls.ignored.of(file, folder).no_context else ""


def place_in(recent: Sequence[str], uri: str) -> int:
    return recent.index(uri) if uri in recent else -1


def folders(ls: CompletionServer) -> list[str]:
    """The URIs of the workspace's folders, as they are now."""
    named = [folder.uri.rstrip("/") for folder in ls.workspace.folders.values()]  # pygls' own keys are unquoted
    alone = ls.workspace.root_uri if not ls.folders_named else None
    return named or ([alone.rstrip("/")] if alone else [])


def lies_in(uri: str, folder: str) -> bool:
    """Whether a document is in a folder, however the two are quoted."""
    if uri.startswith(folder + "/"):
        return True
    both = uri.startswith("file:") and folder.startswith("file:")
    return both and file_path(uri).startswith(file_path(folder).rstrip("/") + "/")


def root(ls: CompletionServer, uri: str) -> str | None:
    """The URI of the workspace folder that a document lies in; that of a cell lies where its notebook does."""
    uri = ls.notebooks.of(uri) or uri
    within = [folder for folder in folders(ls) if lies_in(uri, folder)]
    return max(within, key=len) if within else None
