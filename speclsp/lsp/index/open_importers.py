"""Documents that use a name of an open document, after that name has changed: open ones, and files of the index.

    renamed name ─► its module still defines it ─► documents that may be seen ─► parsed, in a thread ─► their uses

A module means the renamed one if the index resolves it to that file, or else if it is the nearest open document of that
name. A document that imports the name may pass it on: the documents that import it from there follow too.

A document with a syntax error, a generated or read-only one and one with a merge conflict have no uses here.
"""

from __future__ import annotations

import asyncio
import functools
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.documents.uri_paths import file_path, folded, path_inside, system_path
from speclsp.lsp.index import file_cache, file_imports
from speclsp.lsp.index.file_imports import stem_of
from speclsp.lsp.index.imported_uses import ImportedUses, NameUse, defined, imported_uses
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.grammars import known_id
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.text_windows import line_at
from speclsp.lsp.syntax.tree import SyntaxTree
from speclsp.lsp.visibility import eligibility

PARSE_MS = 50.0  # of the processor, for one document; in a thread
MAX_CHARACTERS = 120_000  # a longer document is left alone
MAX_DOCUMENTS = 64  # examined, by their URIs
MAX_FILES = 128  # read for one module
WRITABLE = 0o222  # bits of a file's mode
MAX_HOPS = 3  # from the module over documents that pass the name on


@dataclass(frozen=True, slots=True)
class RenamedName:
    """A name that a module defines for other documents, before and after a rename. `uri`: the module's."""

    uri: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class DocumentUses:
    """The uses of a renamed name in one document at a version."""

    document: Document
    version: int
    tree: SyntaxTree
    uses: tuple[NameUse, ...]


@dataclass(eq=False, repr=False)
class OpenImporters:
    """Finds the documents, and keeps their last trees.

    `root(uri)` is the URI of a document's workspace folder; `index(root)` the folder's index, if it has one;
    `may_see(document)` is True where visibility rules allow a next edit.
    """

    documents: Documents
    root: Callable[[str], str | None]
    index: Callable[[str | None], WorkspaceIndex | None]
    may_see: Callable[[Document], Awaitable[bool]]
    _parser: SyntaxParser = field(default_factory=SyntaxParser)
    _trees: dict[str, tuple[Document, int, SyntaxTree | None]] = field(default_factory=dict)  # by URI

    async def is_defined(self, name: RenamedName, lines: Iterable[str] | None = None) -> bool:
        """True if the module defines the new name for others, and the old one no more.

        `lines`: the definition stands in one of these, without the blanks around them; None: anywhere.
        """
        document = self.documents.get(name.uri)
        rules = record(document.language).imports if document is not None else None
        tree = await self._tree(document) if document is not None and rules is not None and rules.exports else None
        if tree is None or rules is None or rules.exports is None:
            return False
        if not rules.package and not rules.exports(tree.text, name.new):
            return False
        old, new = (defined(tree, bindings.occurrences(tree, word, 0, len(tree.text))) for word in (name.old, name.new))
        wanted = None if lines is None else set(lines)
        return not old and any(wanted is None or line_at(tree.text, place.start) in wanted for place in new)

    async def uses(self, name: RenamedName, first: str = "", with_files: bool = False) -> list[DocumentUses]:
        """The documents with uses of the old name: the one with the URI `first`, then the others by their URIs.

        `with_files`: files of the index that are not open count as documents.
        """
        files = dict[str, Document]()
        try:
            result = await self._uses(name, files, with_files)
        finally:  # also where a newer request cancels this one
            for uri in files:
                self.closed(uri)
        return sorted(result, key=lambda uses: (uses.document.uri != first, uses.document.uri))

    async def _uses(self, name: RenamedName, files: dict[str, Document], with_files: bool) -> Iterable[DocumentUses]:
        """The documents with uses; `files` gets those that are not open, by their URIs."""
        modules, result = {name.uri}, dict[str, DocumentUses]()
        for _hop in range(MAX_HOPS):
            known = len(modules)
            if with_files:
                await self._read_importers(name, modules, files)
            for document in (*self._candidates(name), *files.values()):
                if document.uri in modules or (tree := await self._tree(document)) is None:
                    continue
                imported = self._imported(name, document, tree, modules)
                await asyncio.sleep(0)  # messages are read between two documents
                rules = record(document.language).imports
                if imported.is_bound and rules and rules.exports and rules.exports(tree.text, name.new):
                    modules.add(document.uri)
                if imported.uses:
                    result[document.uri] = DocumentUses(document, document.version, tree, imported.uses)
            if len(modules) == known:
                break
        return result.values()

    def closed(self, uri: str) -> None:
        """Forget a closed document."""
        self._trees.pop(uri, None)

    def _candidates(self, name: RenamedName) -> Sequence[Document]:
        """The open documents that may import the name: those of the module's language family that hold it."""
        module = self.documents.get(name.uri)
        if module is None:
            return ()
        family = family_of(module)
        others = sorted(self.documents, key=lambda document: document.uri)
        return [
            document
            for document in others[:MAX_DOCUMENTS]
            if document.uri != name.uri
            and document.uri.startswith("file:")
            and family_of(document) == family
            and document.characters <= MAX_CHARACTERS  # before its lines are joined
            and (name.old in document.text or name.new in document.text)
        ]

    async def _read_importers(self, name: RenamedName, modules: set[str], files: dict[str, Document]) -> None:
        """Add the unopened files to `files` that may import the name from one of these modules."""
        index, definition = self.index(self.root(name.uri)), self.documents.get(name.uri)
        if index is None or definition is None:
            return
        known = {folded(file_path(document.uri)) for document in (*self.documents, *files.values())}
        paths = list[str]()
        for module in (self._path(uri, name.uri) for uri in sorted(modules)):
            folder = posixpath.dirname(module)  # it may be the package
            beside = index.files_in(folder) if package_of(definition) else []
            paths += [*beside, *index.naming(module, name.old, posixpath.basename(folder))][:MAX_FILES]
        for path in paths:
            full, state = f"{index.folder}/{path}", index.state_of(path)
            if folded(full) in known or state is None or index.is_hidden(path):
                continue
            known.add(folded(full))
            with suppress(OSError, ValueError):  # it cannot be read
                text = await asyncio.to_thread(file_cache.read, index.folder, path, state, MAX_CHARACTERS + 1)
                if text and name.old in text:
                    uri = Path(full).as_uri()
                    files[uri] = Document(uri, known_id(posixpath.basename(path)), 0, text)

    async def _tree(self, document: Document) -> SyntaxTree | None:
        """The tree of a document as it is now; None where it is to be left alone."""
        if document.characters > MAX_CHARACTERS or not await self.may_see(document):
            return None
        cached = self._trees.get(document.uri)
        if cached is not None and cached[0] is document and cached[1] == document.version:
            return cached[2]
        tree, version, text = None, document.version, document.text
        is_written = not eligibility.is_generated(text) and "\n<<<<<<< " not in text and "\n>>>>>>> " not in text
        if is_written:
            tree = await asyncio.to_thread(self._parse, document.uri, document.language, text)
        if tree is not None and (tree.count_errors() or len(tree.view.text) != len(text)):
            tree = None
        self._trees[document.uri] = document, version, tree
        return tree if document.version == version else None

    def _parse(self, uri: str, language: str, text: str) -> SyntaxTree | None:
        """The tree, for a thread: the disk may be slow. A document that was never saved has no file."""
        file = Path(system_path(file_path(uri)))
        is_read_only = file.is_file() and not file.stat().st_mode & WRITABLE
        return None if is_read_only else self._parser.parse(language, text, PARSE_MS)

    def _imported(self, name: RenamedName, document: Document, tree: SyntaxTree, modules: set[str]) -> ImportedUses:
        """The uses in a document that imports the name from one of these modules, or is of its package."""
        definition = self.documents.get(name.uri)
        package = package_of(definition) if definition is not None else ""
        part = posixpath.dirname if package else str
        paths = {part(self._path(uri, document.uri)) for uri in modules}

        @functools.cache
        def means(module: str) -> bool:
            if package and module == ".":
                return package_of(document) == package and part(self._path(document.uri, document.uri)) in paths
            path = self._resolved(module, document.uri)
            last = module.rpartition("::")[2] if "::" in module else ""  # it may be an item of the resolved file
            return path is not None and part(path) in paths and last in ("", stem_of(path), "self", "super")

        return imported_uses(tree, name.old, name.new, means, package)

    def _resolved(self, module: str, importer: str) -> str | None:
        """The path of the file that a module means in a document: by the index, or else among the open documents."""
        path, index = self._path(importer, importer), self.index(self.root(importer))
        indexed = index.resolve_module(module, path) if index is not None else None
        return indexed or file_imports.resolve(module, path, OpenFiles(self._paths(importer)))

    def _paths(self, importer: str) -> frozenset[str]:
        return frozenset(self._path(document.uri, importer) for document in self.documents)

    def _path(self, uri: str, importer: str) -> str:
        """A document's path in the workspace folder of the importer; a document elsewhere has its whole path."""
        path = file_path(uri)
        return path_inside(path, file_path(self.root(importer) or "")) or path.lstrip("/")


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The open documents as the files that imports may mean (import_rules.KnownFiles)."""

    paths: frozenset[str]

    def first_existing(self, paths: Iterable[str]) -> str | None:
        return next((path for path in paths if path in self.paths), None)

    def files_with_stem(self, stem: str) -> list[str]:
        return sorted(path for path in self.paths if stem_of(path) == stem)

    def files_in(self, directory: str) -> list[str]:
        return sorted(path for path in self.paths if posixpath.dirname(path) == directory)


def package_of(document: Document) -> str:
    """The name of a document's package; "" in a language without packages."""
    rules = record(document.language).imports
    match = re.search(rules.package, document.text) if rules is not None and rules.package else None
    return match[1] if match is not None else ""


def family_of(document: Document) -> str:
    """A name that is the same for languages that use one another's files."""
    language = record(document.language)
    return language.family or language.name
