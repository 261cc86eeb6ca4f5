"""Notebooks: which cells there are and in what order, so that a cell is completed with what stands above it.

    cell 1  python      import math         ┐ the text before cell 3, with an empty line after each:
    cell 2  markdown    # Circles           │ what it sees is "import math\\n\\n" and its own text
    cell 3  python      math.¦              ┘ positions are the cell's own

A cell is a document like any other, in Documents. Here is only what the notebook adds. A Python cell that begins with
a magic for another language (%%bash, %%sql, %%writefile x.yaml) holds that language, and goes with its like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from speclsp.lsp.documents.document import Document, Documents, Snapshot

CODE = 2  # lsp.NotebookCellKind; 1 is markup
Cell = tuple[str, int]  # URI, kind

_MAGIC = re.compile(r"\s*%%(\w+)(?:[ \t]+(?:-a[ \t]+)?([^\s]+))?")
_OF_MAGIC: Mapping[str, str] = {  # IPython's, and the best known ones of others
    **dict.fromkeys(("bash", "sh", "script"), "shellscript"),
    **dict.fromkeys(("html", "HTML"), "html"),
    **dict.fromkeys(("javascript", "js"), "javascript"),
    **dict.fromkeys(("sql", "bigquery"), "sql"),
    **{name: name for name in ("latex", "markdown", "ruby", "perl", "svg")},
    "R": "r",
}
_OF_SUFFIX: Mapping[str, str] = {  # of the file that %%writefile writes
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **{name: name for name in ("json", "toml", "html", "css", "sql", "c", "cpp")},
    "sh": "shellscript",
    "js": "javascript",
    "md": "markdown",
    "txt": "plaintext",
    "rs": "rust",
    "ts": "typescript",
}


@dataclass(slots=True)
class NotebookChanges:
    """What a message has done to a notebook's cells."""

    edited: list[tuple[str, list[Mapping[str, Any]]]] = field(default_factory=list)  # (URI, changes)
    closed: list[str] = field(default_factory=list)  # URIs


class Notebooks:
    """The open notebooks by URI. `documents` is kept in step with their cells."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._cells: dict[str, list[Cell]] = {}  # by the notebook's URI, in order
        self._notebook: dict[str, str] = {}  # by the cell's URI

    def opened(self, params: Mapping[str, Any]) -> NotebookChanges:
        """notebookDocument/didOpen. Raises ValueError, KeyError and the like for what is malformed."""
        uri, cells = params["notebookDocument"]["uri"], _cells(params["notebookDocument"].get("cells"))
        documents = [_document(found) for found in params.get("cellTextDocuments") or ()]
        news = self.closed({"notebookDocument": {"uri": uri}}) or NotebookChanges()
        self._open(documents)
        self._place(uri, cells)
        return news

    def changed(self, params: Mapping[str, Any], encoding: str) -> NotebookChanges | None:
        """notebookDocument/didChange; None: the notebook is not open."""
        uri, change = params["notebookDocument"]["uri"], params["change"].get("cells") or {}
        known = self._cells.get(uri)
        if known is None:
            return None
        news = NotebookChanges()
        structure = change.get("structure")
        if structure:
            array = structure["array"]
            start, count = _count(array["start"]), _count(array["deleteCount"])
            cells = _cells(array.get("cells"))
            documents = [_document(found) for found in structure.get("didOpen") or ()]
            going = [_uri(found) for found in structure.get("didClose") or ()]
            self._open(documents)
            self._place(uri, [*known[:start], *cells, *known[start + count :]])
            for gone in going:
                if gone not in self._notebook and self._documents.close(gone):
                    news.closed.append(gone)
        for found in change.get("data") or ():
            self._place(uri, [_cell(found) if one[0] == _cell(found)[0] else one for one in self._cells[uri]])
        for found in change.get("textContent") or ():
            document = found["document"]
            if self._documents.change(_uri(document), document.get("version"), found["changes"], encoding):
                news.edited.append((_uri(document), found["changes"]))
        return news

    def closed(self, params: Mapping[str, Any]) -> NotebookChanges | None:
        """notebookDocument/didClose; None: it was not open."""
        uri = params["notebookDocument"]["uri"]
        if not isinstance(uri, str):
            raise ValueError("a notebook needs a uri")
        cells = self._cells.pop(uri, None)
        if cells is None:
            return None
        gone = [cell for cell, _ in cells]
        for cell in gone:
            self._notebook.pop(cell, None)
            self._documents.close(cell)
        return NotebookChanges(closed=gone)

    def of(self, uri: str) -> str | None:
        """The URI of the notebook that a document is a cell of."""
        return self._notebook.get(uri)

    def above(self, uri: str) -> list[Document]:
        """The cells above this one that hold code in its language; for text, those that hold text."""
        document, found = self._documents.get(uri), list[Document]()
        for cell, kind in self._above(uri):
            other = self._documents.get(cell)
            if document is not None and other is not None and self._alike(document, other, kind):
                found.append(other)
        return found

    def snapshot(self, document: Document, offset: int) -> Snapshot:
        """The document at a code-point offset as the model sees it: a cell with the cells above it."""
        own = document.snapshot_at(offset)
        if document.uri in self._notebook:
            own = replace(own, language=language_of(own.language, own.text))
        before = "".join(_with_empty_line(other.text) for other in self.above(document.uri) if other.text.strip())
        if not before:
            return own
        return Snapshot(own.uri, own.language, own.version, before + own.text, len(before) + own.cursor)

    def characters(self, document: Document) -> int:
        """How long the text of a snapshot would be, without making it."""
        above = (other.text for other in self.above(document.uri))
        return document.characters + sum(len(_with_empty_line(text)) for text in above if text.strip())

    def _above(self, uri: str) -> Iterator[Cell]:
        notebook = self._notebook.get(uri)
        for cell in () if notebook is None else self._cells.get(notebook, ()):
            if cell[0] == uri:
                return
            yield cell

    def _alike(self, document: Document, other: Document, kind: int) -> bool:
        kinds = dict(self._cells[self._notebook[document.uri]])
        languages = {language_of(one.language, one.text) for one in (document, other)}
        return len(languages) == 1 and other.language == document.language and kind == kinds[document.uri]

    def _open(self, documents: Sequence[tuple[str, str, int, str]]) -> None:
        for uri, language, version, text in documents:
            self._documents.open(uri, language, version, text)

    def _place(self, uri: str, cells: list[Cell]) -> None:
        for cell, _ in self._cells.get(uri, ()):
            self._notebook.pop(cell, None)
        self._cells[uri] = cells
        self._notebook.update({cell: uri for cell, _ in cells})


def language_of(language: str, text: str) -> str:
    """The language of a cell's text: that of the cell, unless a magic says otherwise."""
    magic = _MAGIC.match(text) if language == "python" else None
    if magic is None:
        return language
    name, what = magic[1], magic[2] or ""
    if name in ("writefile", "file"):
        return _OF_SUFFIX.get(what.rpartition(".")[2], language)
    if name == "script" and "python" in what:
        return language
    return _OF_MAGIC.get(name, language)


def _with_empty_line(text: str) -> str:
    return text.rstrip("\r\n") + "\n\n"


def _cells(found: object) -> list[Cell]:
    if found is not None and not isinstance(found, list):
        raise ValueError("the cells of a notebook are a list")
    return [_cell(one) for one in found or ()]


def _cell(found: Mapping[str, Any]) -> Cell:
    uri, kind = found["document"], found["kind"]
    if not isinstance(uri, str) or type(kind) is not int:
        raise ValueError("a cell needs a kind and the uri of its document")
    return uri, kind


def _document(found: Mapping[str, Any]) -> tuple[str, str, int, str]:
    uri, language, version, text = found["uri"], found.get("languageId") or "", found.get("version") or 0, found["text"]
    if not isinstance(uri, str) or not isinstance(language, str) or type(version) is not int or type(text) is not str:
        raise ValueError("a cell's document needs a uri, a language, an integer version and a text")
    return uri, language, version, text


def _uri(found: Mapping[str, Any]) -> str:
    uri = found["uri"]
    if not isinstance(uri, str):
        raise ValueError("a document needs a uri")
    return uri


def _count(found: object) -> int:
    if type(found) is not int or found < 0:
        raise ValueError("a cell's place is an integer from 0")
    return found
