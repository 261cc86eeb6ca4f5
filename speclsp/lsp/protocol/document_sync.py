"""Text synchronization: applies didOpen, didChange and didClose of documents and notebooks before any handler runs."""

from __future__ import annotations

import logging
from typing import Any

from lsprotocol import types

from speclsp.errors import error_site
from speclsp.lsp.documents.document import Documents
from speclsp.lsp.documents.notebook import NotebookChanges, Notebooks, parse_document
from speclsp.lsp.documents.uri_paths import document_key

DOCUMENT_METHODS = (types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CHANGE, types.TEXT_DOCUMENT_DID_CLOSE)
NOTEBOOK_METHODS = (
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
)
MALFORMED = (AttributeError, KeyError, TypeError, ValueError)  # raised by params of another shape

logger = logging.getLogger("speclsp.lsp.protocol")


class DocumentSync:
    """The open documents and notebooks, and the notifications that change them."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.notebooks = Notebooks(self.documents)
        self.notebook_changes = NotebookChanges()  # of the notification being handled
        self._opened: dict[str, str] = {}  # URIs of open documents, as the editor spelled them first, by document_key

    def apply(self, method: str, params: Any, encoding: str) -> bool:
        """Apply a notification of DOCUMENT_METHODS or NOTEBOOK_METHODS.

        False, and a warning in the log, if the params are malformed or the document is not open: then nothing has
        changed, and no handler must run.
        """
        is_document = method in DOCUMENT_METHODS
        try:
            is_open = (self._document if is_document else self._notebook)(method, params, encoding)
        except MALFORMED as error:
            logger.warning("ignored %s: its params are not valid (%s)", method, error_site(error))
            return False
        if not is_open:
            logger.warning("ignored %s: the %s is not open", method, "document" if is_document else "notebook")
        return is_open

    def unify_spelling(self, params: Any) -> None:
        """Replace the URI of an open document by the spelling that opened it: editors may send several."""
        document = params.get("textDocument") if isinstance(params, dict) else None
        if isinstance(document, dict) and isinstance(uri := document.get("uri"), str) and not self.documents.get(uri):
            document["uri"] = self._opened.get(document_key(uri), uri)

    def _document(self, method: str, params: Any, encoding: str) -> bool:
        if method == types.TEXT_DOCUMENT_DID_OPEN:
            document = self.documents.open(*parse_document(params["textDocument"]))
            self._opened[document_key(document.uri)] = document.uri
            return True
        uri, version = params["textDocument"]["uri"], params["textDocument"].get("version")
        if not isinstance(uri, str) or (version is not None and type(version) is not int):
            raise ValueError("a document needs a uri and an integer version")
        if method == types.TEXT_DOCUMENT_DID_CHANGE:
            return self.documents.change(uri, version, params["contentChanges"], encoding)
        self._opened.pop(document_key(uri), None)
        return self.documents.close(uri)

    def _notebook(self, method: str, params: Any, encoding: str) -> bool:
        changes: NotebookChanges | None
        if method == types.NOTEBOOK_DOCUMENT_DID_OPEN:
            changes = self.notebooks.opened(params)
        elif method == types.NOTEBOOK_DOCUMENT_DID_CHANGE:
            changes = self.notebooks.changed(params, encoding)
        else:
            changes = self.notebooks.closed(params)
        if changes is None:
            return False
        self.notebook_changes = changes
        return True
