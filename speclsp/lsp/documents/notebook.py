"""Notebooks: their cells in order, so that a cell is completed with the cells above it as context.

    cell 1  python      import math         ┐ the text before cell 3, with an empty line after each:
    cell 2  markdown    # Circles           │ the model sees "import math\\n\\n" and its own text
    cell 3  python      math.¦              ┘ positions are the cell's own

A cell is an ordinary document in Documents; this module adds the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from speclsp.lsp.documents.document import Document, Documents, Snapshot


@dataclass(slots=True)
class NotebookChanges:
    """Changes of a notebook's cells by one notification."""

    edited: list[tuple[str, list[Mapping[str, Any]]]] = field(default_factory=list)  # (URI, changes)
    closed: list[str] = field(default_factory=list)  # URIs


class Notebooks:
    """The open notebooks by URI. Their cells are opened, changed and closed in `documents`."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._cells: dict[str, list[str]] = {}  # URIs, by the notebook's, in order
        self._notebook: dict[str, str] = {}  # by the cell's URI

    def opened(self, params: Mapping[str, Any]) -> NotebookChanges:
        """notebookDocument/didOpen. Raises ValueError, KeyError, TypeError or AttributeError for malformed params."""
        uri, cells = params["notebookDocument"]["uri"], _cells(params["notebookDocument"].get("cells"))
        documents = [parse_document(item) for item in params.get("cellTextDocuments") or ()]
        changes = self.closed({"notebookDocument": {"uri": uri}}) or NotebookChanges()
        self._open(documents)
        self._set_cells(uri, cells)
        return changes

    def changed(self, params: Mapping[str, Any], encoding: str) -> NotebookChanges | None:
        """notebookDocument/didChange; None: the notebook is not open."""
        uri, change = params["notebookDocument"]["uri"], params["change"].get("cells") or {}
        known = self._cells.get(uri)
        if known is None:
            return None
        changes = NotebookChanges()
        structure = change.get("structure")
        if structure:
            array = structure["array"]
            start, count = _count(array["start"]), _count(array["deleteCount"])
            cells = _cells(array.get("cells"))
            documents = [parse_document(item) for item in structure.get("didOpen") or ()]
            closing = [_uri(item) for item in structure.get("didClose") or ()]
            self._open(documents)
            self._set_cells(uri, [*known[:start], *cells, *known[start + count :]])
            for cell in closing:
                if cell not in self._notebook and self._documents.close(cell):
                    changes.closed.append(cell)
        for item in change.get("textContent") or ():
            document = item["document"]
            if self._documents.change(_uri(document), document.get("version"), item["changes"], encoding):
                changes.edited.append((_uri(document), item["changes"]))
        return changes

    def closed(self, params: Mapping[str, Any]) -> NotebookChanges | None:
        """notebookDocument/didClose; None: it was not open."""
        uri = params["notebookDocument"]["uri"]
        if not isinstance(uri, str):
            raise ValueError("a notebook needs a uri")
        cells = self._cells.pop(uri, None)
        if cells is None:
            return None
        for cell in cells:
            self._notebook.pop(cell, None)
            self._documents.close(cell)
        return NotebookChanges(closed=cells)

    def of(self, uri: str) -> str | None:
        """The URI of the notebook that contains a cell; None for a document that is no cell."""
        return self._notebook.get(uri)

    def above(self, uri: str) -> list[Document]:
        """The cells above this one in the same language. Markup has its own."""
        document = self._documents.get(uri)
        cells = self._cells[self._notebook[uri]] if document is not None and uri in self._notebook else []
        above = map(self._documents.get, takewhile(lambda cell: cell != uri, cells))
        return [other for other in above if document and other and other.language == document.language]

    def snapshot(self, document: Document, offset: int) -> Snapshot:
        """The document at a code-point offset as the model sees it: a cell with the cells above it."""
        own = document.snapshot_at(offset)
        before = "".join(_with_empty_line(other.text) for other in self.above(document.uri) if other.text.strip())
        if not before:
            return own
        return Snapshot(own.uri, own.language, own.version, before + own.text, len(before) + own.cursor)

    def characters(self, document: Document) -> int:
        """Length of a snapshot's text, without building it."""
        above = (other.text for other in self.above(document.uri))
        return document.characters + sum(len(_with_empty_line(text)) for text in above if text.strip())

    def _open(self, documents: Sequence[tuple[str, str, int, str]]) -> None:
        for uri, language, version, text in documents:
            self._documents.open(uri, language, version, text)

    def _set_cells(self, uri: str, cells: list[str]) -> None:
        for cell in self._cells.get(uri, ()):
            self._notebook.pop(cell, None)
        self._cells[uri] = cells
        self._notebook.update(dict.fromkeys(cells, uri))


def _with_empty_line(text: str) -> str:
    return text.rstrip("\r\n") + "\n\n"


def _cells(value: object) -> list[str]:
    if value is not None and not isinstance(value, list):
        raise ValueError("the cells of a notebook are a list")
    return [_uri(item, "document") for item in value or ()]


def parse_document(item: Mapping[str, Any]) -> tuple[str, str, int, str]:
    """(URI, language, version, text) of LSP's TextDocumentItem. Raises ValueError, KeyError and the like."""
    uri, language, version, text = item["uri"], item.get("languageId") or "", item.get("version"), item["text"]
    version = 0 if version is None else version
    if not isinstance(uri, str) or not isinstance(language, str) or type(version) is not int or type(text) is not str:
        raise ValueError("a document needs a uri, a language, an integer version and a text")
    return uri, language, version, text


def _uri(item: Mapping[str, Any], name: str = "uri") -> str:
    uri = item[name]
    if not isinstance(uri, str):
        raise ValueError("a document needs a uri")
    return uri


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a cell's index is an integer from 0")
    return value
