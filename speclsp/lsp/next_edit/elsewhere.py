"""Uses in other documents, after the rename of a name that they import.

recent edits ─► the last renamed name that other documents can import
    ├─► its uses in open documents ─► filters ─► the first one
    └─► without one: the number of uses in files that are not open
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from speclsp.errors import error_site
from speclsp.lsp.documents.document import Document
from speclsp.lsp.index.open_importers import DocumentUses, OpenImporters, RenamedName
from speclsp.lsp.next_edit.changes.renamed_names import Rename, renamed
from speclsp.lsp.next_edit.changes.substitutions import RENAME, Edit, Evidence, Substitution
from speclsp.lsp.next_edit.offers import Offers
from speclsp.lsp.next_edit.producer import BUDGET_MS, Found, error_problem, minimal, text_problem
from speclsp.lsp.next_edit.renames.name_conflicts import spot_of
from speclsp.lsp.next_edit.renames.rename_places import replaced_lines, spots_of
from speclsp.lsp.next_edit.renames.scoped_uses import MIN_TIMES

# Renames by scope that were right in the module's own file, on blind packages of the fit.
# Across files it is not measured.
PROBABILITY = 0.83

log = logging.getLogger("speclsp.next_edit")


@dataclass(eq=False, repr=False)
class OtherDocuments:
    """Proposes the uses of the last renamed name, document by document."""

    importers: OpenImporters
    _last: RenamedName | None = None  # the last name of a rename that other documents can import
    _proposed: set[tuple[str, str, str]] = field(default_factory=set)  # (URI, old name, new name)

    def decides(self, document: Document, edits: Sequence[Edit]) -> bool:
        """True if the newest edit is a proposed one of a document, where rules know the name by its text alone."""
        is_newest = bool(edits) and edits[-1].uri == document.uri
        return is_newest and any((document.uri, name.old, name.new) in self._proposed for name in renamed(edits))

    async def propose(
        self, document: Document, text: str, cursor: int, edits: Sequence[Edit], offers: Offers
    ) -> Found | RenamedName | None:
        """The first use; the renamed name if no use is left. `cursor`: the offset in `text`, which is near it.

        In a document without the newest edit, as one opened from the list of uses, only its own uses are proposed.
        """
        try:
            name = await self._renamed_name(document, text, cursor, edits) if edits else None
            documents = await self.importers.uses(name, document.uri) if name is not None else []
        except Exception as error:  # its message may quote a document
            log.error("the uses in other documents are unknown: %s", error_site(error))
            return None
        if name is None:
            return None
        is_edited = edits[-1].uri == document.uri
        edits_of = (first_use(uses, name, offers) for uses in documents if is_edited or uses.document is document)
        use = next(filter(None, edits_of), None)
        if use is not None:
            self._proposed.add((use.document.uri, name.old, name.new))
        return use or (name if is_edited else None)

    async def unopened(self, name: RenamedName) -> dict[str, int] | None:
        """The number of uses in files that are not open, and of these files; None for none."""
        documents = self.importers.documents
        counts = [len(uses.uses) for uses in await self.left(name) if documents.get(uses.document.uri) is None]
        return {"uses": sum(counts), "files": len(counts)} if counts else None

    async def left(self, name: RenamedName | None = None) -> list[DocumentUses]:
        """The uses of a renamed name, or of the last one, in all other files."""
        name = name or self._last
        try:
            is_renamed = name is not None and await self.importers.is_renamed(name)
            return await self.importers.uses(name, with_files=True) if name is not None and is_renamed else []
        except Exception as error:  # its message may quote a document
            log.error("the uses in other files are unknown: %s", error_site(error))
            return []

    async def _renamed_name(
        self, document: Document, text: str, cursor: int, edits: Sequence[Edit]
    ) -> RenamedName | None:
        """The name that the newest edit is about. None while it is typed at the cursor."""
        listed = renamed(edits)
        for rename in listed if edits[-1].uri == document.uri else ():
            if any(spots_of(rename, text, cursor)):
                written = partial(is_written, rename)
                if name := await self.importers.renamed_name(document, rename.old, rename.new, written):
                    self._last = name
                    return name
        last = self._last
        is_same = last is not None and any((last.old, last.new) == (rename.old, rename.new) for rename in listed)
        return last if last is not None and is_same and await self.importers.is_renamed(last) else None


def is_written(rename: Rename, text: str, offset: int) -> bool:
    """True if an edit made the rename at an offset, or so many did elsewhere that this one may be forgotten."""
    return rename.times >= MIN_TIMES or spot_of(text, offset) in rename.written


def first_use(uses: DocumentUses, name: RenamedName, offers: Offers) -> Found | None:
    """The first use in a document that the filters allow; None also if the document has changed."""
    document, text = uses.document, uses.tree.text
    if document.text != text:
        return None
    substitution = Substitution(RENAME, name.old, name.new)
    replaced = ((use.start, use.end, use.text) for use in uses.uses)
    for place in replaced_lines(replaced, substitution, Evidence(times=1), text):
        problem = offers.declined(document, 0, place) or text_problem(text[place.start : place.end], place.new)
        if not problem and not error_problem(uses.tree, place, lambda: BUDGET_MS):
            return Found(document, replace(minimal(place, text), probability=PROBABILITY))
    return None
