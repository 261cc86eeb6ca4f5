"""Inputs of a completion request: the text at the cursor, its workspace folder, and other documents a model may see."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from lsprotocol import types

from speclsp.config import Config
from speclsp.lsp.documents.document import CursorContext, Document, Documents, Snapshot
from speclsp.lsp.documents.notebook import Notebooks
from speclsp.lsp.documents.uri_paths import containing_folder
from speclsp.lsp.reasons import Reason
from speclsp.lsp.visibility import secret_files
from speclsp.lsp.visibility.eligibility import exclusion, glob_off
from speclsp.lsp.visibility.ignore_files import IgnoreFiles

if TYPE_CHECKING:
    from speclsp.lsp.completion.job import CompletionInput

MAX_NEIGHBOURS = 8  # other open documents in a prompt, the last used first


@dataclass(eq=False, repr=False)
class WorkspaceDocuments:
    """The open documents of one editor, with their workspace folders and the rules about who may see them."""

    documents: Documents
    notebooks: Notebooks
    ignore_files: IgnoreFiles
    _config: Callable[[], Config]  # a function, as the next: both change while documents are open
    folders: Callable[[], Sequence[str]]  # URIs of the workspace folders

    @property
    def config(self) -> Config:
        return self._config()

    def cursor_context(
        self, uri: str, position: Mapping[str, int], encoding: str, version: object = None
    ) -> CursorContext | str:
        """The cursor at a position of a document, or the reason for none; "" for another version than the client's."""
        document = self.documents.get(uri)
        if document is None:
            return Reason.NOT_OPEN
        if self.is_too_large(document):
            return Reason.TOO_LARGE
        if version is not None and version != document.version:
            return ""
        line, offset = document.locate(position, encoding)
        snapshot = self.notebooks.snapshot(document, offset)
        return CursorContext(document, snapshot, line, snapshot.cursor - offset)

    def is_too_large(self, document: Document) -> bool:
        """True if the document is over the size limit. Its lines are then not even joined, which would take long."""
        return self.notebooks.characters(document) > self.config.context.max_file_bytes

    def neighbours(self, uri: str) -> Callable[[], Sequence[Snapshot]]:
        """Other open documents, the last one used first: a function that collects them at its first call.

        Most requests are answered from the cache and never call it. Left out are documents that the text itself
        shows, as cells above in a notebook, and those that no model may see.
        """

        @functools.cache
        def collect() -> Sequence[Snapshot]:
            shown = {uri, *(cell.uri for cell in self.notebooks.above(uri))}
            by_use = reversed(list(self.documents))
            others = (document for document in by_use if document.uri not in shown and not self.is_too_large(document))
            visible = (document for document in others if not self.hidden_reason(document.uri))
            return [document.snapshot_at(0) for document in islice(visible, MAX_NEIGHBOURS)]

        return collect

    def completion_input(self, uri: str, snapshot: Snapshot) -> CompletionInput:
        """The session's input for a document at its cursor."""
        from speclsp.lsp.completion.job import CompletionInput  # imported late: `initialize` is answered by then

        return CompletionInput(snapshot, self.neighbours(uri), self.root(uri))

    def hidden_reason(self, uri: str) -> str:
        """The reason why no model sees this document while another one is completed in; "" if one may."""
        file, folder = self.notebooks.of(uri) or uri, self.root(uri)
        if secret_files.pattern_of(file):
            return "secret file"
        if glob_off(uri, self.config, folder):
            return "off by a glob"
        return "named by an ignore file" if self.ignore_files.of(file, folder).no_context else ""

    async def exclusion(self, document: Document) -> tuple[str, str]:
        """(reason, sentence) where a setting or file excludes a document from suggestions; ("", "") where none does."""
        uri, root = document.uri, self.root(document.uri)
        verdict = await self.ignore_files.settled(self.notebooks.of(uri) or uri, root)
        characters = self.notebooks.characters(document)
        return exclusion(uri, document.language, characters, self.config, root, verdict.no_suggestions)

    def root(self, uri: str) -> str | None:
        """The URI of the workspace folder that contains a document. A cell lies where its notebook does."""
        uri = self.notebooks.of(uri) or uri
        return containing_folder(uri, self.folders())


def with_selected_item(at: CursorContext, item: types.SelectedCompletionInfo, encoding: str) -> Snapshot | None:
    """The snapshot as if the item selected in the completion menu had been accepted.

    None if the item's range is not around the cursor on one line, or if the item's text must not be shown.
    """
    start, end = (
        at.before + at.document.offset({"line": position.line, "character": position.character}, encoding)
        for position in (item.range.start, item.range.end)
    )
    if item.range.start.line != item.range.end.line or not start <= at.snapshot.cursor <= end:
        return None
    from speclsp.lsp.syntax.hidden_characters import has_hidden  # imported late: `initialize` is answered by then

    if has_hidden(item.text, at.snapshot.text):  # it would become a part of the suggestion
        return None
    text = at.snapshot.text[:start] + item.text + at.snapshot.text[end:]
    return replace(at.snapshot, text=text, cursor=start + len(item.text))
