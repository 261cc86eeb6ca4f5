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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.documents.uri_paths import file_path, folded, path_inside, system_path
from speclsp.lsp.index import file_cache
from speclsp.lsp.index.file_imports import stem_of
from speclsp.lsp.index.imported_members import IsWritten, imported_types, member_uses, owners_of
from speclsp.lsp.index.imported_uses import NameUse, definitions, imported_uses
from speclsp.lsp.index.workspace_index import FileChange, IndexedFile, WorkspaceIndex
from speclsp.lsp.syntax.grammars import known_id
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.languages.import_rules import Exports
from speclsp.lsp.syntax.parser import SyntaxParser
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
    """A name that a module defines for other documents, before and after a rename.

    `owners`: of a member, its types. `is_argument`: arguments of their constructors have the names of their members.
    """

    module: Document
    old: str
    new: str
    owners: frozenset[str] = frozenset()
    is_argument: bool = False


@dataclass(frozen=True, slots=True)
class DocumentUses:
    """The uses of a renamed name in one document, when it had the text of the tree."""

    document: Document
    tree: SyntaxTree
    uses: list[NameUse]


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
    _trees: WeakKeyDictionary[Document, tuple[int, SyntaxTree | None]] = field(default_factory=WeakKeyDictionary)

    async def renamed_name(
        self, module: Document, old: str, new: str, is_written: IsWritten = lambda text, offset: True
    ) -> RenamedName | None:
        """The name if the module defines the new one for others, and the old one no more; it may be one of a member.

        `is_written(text, offset)` is True for a definition that the user has renamed.
        """
        exports, is_open = exports_of(module), self.documents.get(module.uri) is module
        tree = await self._tree(module) if exports is not None and is_open else None
        if tree is None or exports is None:
            return None
        is_name = any(is_written(tree.text, name.start) for name in definitions(tree, new))
        if is_name and exports(tree.text, new) and not definitions(tree, old):
            return RenamedName(module, old, new)
        owners, is_argument = await asyncio.to_thread(owners_of, tree, old, new, is_written)
        owners = {owner for owner in owners if exports(tree.text, owner) and definitions(tree, owner)}
        return RenamedName(module, old, new, frozenset(owners), is_argument) if owners else None

    async def is_renamed(self, name: RenamedName) -> bool:
        """True if the module still defines the new name, and the old one no more."""
        current = await self.renamed_name(name.module, name.old, name.new)
        return current is not None and name.owners <= current.owners and bool(name.owners) == bool(current.owners)

    async def uses(self, name: RenamedName, first: str = "", with_files: bool = False) -> list[DocumentUses]:
        """The documents with uses of the old name: the one with the URI `first`, then the others by their URIs.

        `with_files`: files of the index that are not open count as documents.
        """
        modules, files, result = {name.module.uri}, dict[str, Document](), dict[str, DocumentUses]()
        for _hop in range(MAX_HOPS):
            known = len(modules)
            if with_files:
                await self._read_importers(name, modules, files)
            for document in (*self._candidates(name), *files.values()):
                if document.uri in modules or (tree := await self._tree(document)) is None:
                    continue
                uses, is_bound = await self._imported(name, document, tree, modules)
                await asyncio.sleep(0)  # messages are read between two documents
                exports = exports_of(document)
                names = name.owners or {name.new}
                if is_bound and exports and any(exports(tree.text, exported) for exported in names):
                    modules.add(document.uri)
                if uses:
                    result[document.uri] = DocumentUses(document, tree, uses)
            if len(modules) == known:
                break
        return sorted(result.values(), key=lambda uses: (uses.document.uri != first, uses.document.uri))

    def _candidates(self, name: RenamedName) -> Sequence[Document]:
        """The open documents that may import the name: those of the module's language family that hold it."""
        family = family_of(name.module)
        others = sorted(self.documents, key=lambda document: document.uri)
        return [
            document
            for document in others[:MAX_DOCUMENTS]
            if document is not name.module
            and document.uri.startswith("file:")
            and family_of(document) == family
            and document.characters <= MAX_CHARACTERS  # before its lines are joined
            and (name.old in document.text or name.new in document.text)
        ]

    async def _read_importers(self, name: RenamedName, modules: set[str], files: dict[str, Document]) -> None:
        """Add the unopened files to `files` that may import the name from one of these modules."""
        if (index := self.index(self.root(name.module.uri))) is None:
            return
        known = {folded(file_path(document.uri)) for document in (*self.documents, *files.values())}
        paths, names = list[str](), name.owners or {name.old}
        for module in (self._path(uri, name.module.uri) for uri in sorted(modules)):
            folder = posixpath.dirname(module)  # it may be the package
            beside = index.files_in(folder) if package_of(name.module) else []
            paths += [*beside, *index.naming(module, *names, posixpath.basename(folder))][:MAX_FILES]
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
        cached = self._trees.get(document)
        if cached is not None and cached[0] == document.version:
            return cached[1]
        tree, version, text = None, document.version, document.text
        is_written = not eligibility.is_generated(text) and "\n<<<<<<< " not in text and "\n>>>>>>> " not in text
        if is_written:
            tree = await asyncio.to_thread(self._parse, document.uri, document.language, text)
        if tree is not None and (tree.count_errors() or len(tree.view.text) != len(text)):
            tree = None
        self._trees[document] = version, tree
        return tree if document.version == version else None

    def _parse(self, uri: str, language: str, text: str) -> SyntaxTree | None:
        """The tree, for a thread: the disk may be slow. A document that was never saved has no file."""
        file = Path(system_path(file_path(uri)))
        is_read_only = file.is_file() and not file.stat().st_mode & WRITABLE
        return None if is_read_only else self._parser.parse(language, text, PARSE_MS)

    async def _imported(
        self, name: RenamedName, document: Document, tree: SyntaxTree, modules: set[str]
    ) -> tuple[list[NameUse], bool]:
        """The uses in a document that imports the name from one of these modules, or is of its package."""
        package = package_of(name.module)
        part = posixpath.dirname if package else str
        paths = {part(self._path(uri, document.uri)) for uri in modules}

        @functools.cache
        def means(module: str) -> bool:
            if package and not module:
                return package_of(document) == package and part(self._path(document.uri, document.uri)) in paths
            path = self._resolved(module, document.uri)
            last = module.rpartition("::")[2] if "::" in module else ""  # it may be an item of the resolved file
            return path is not None and part(path) in paths and last in ("", stem_of(path), "self", "super")

        if not name.owners:
            return imported_uses(tree, name.old, name.new, means, package)
        names = imported_types(tree, name.owners, means)
        uses = await asyncio.to_thread(member_uses, tree, name.old, name.new, names, name.is_argument) if names else ()
        return sorted({*uses}, key=lambda use: use.start), bool(names)

    def _resolved(self, module: str, importer: str) -> str | None:
        """The path of the file that a module means in a document: by the index, or else among the open documents."""
        path, index, open_files = self._path(importer, importer), self.index(self.root(importer)), WorkspaceIndex("")
        if index is not None and (resolved := index.resolve_module(module, path)):
            return resolved
        paths = {self._path(document.uri, importer) for document in self.documents}
        open_files.apply(FileChange(path, IndexedFile(path, (0, 0), None)) for path in paths)
        return open_files.resolve_module(module, path)

    def _path(self, uri: str, importer: str) -> str:
        """A document's path in the workspace folder of the importer; a document elsewhere has its whole path."""
        path = file_path(uri)
        return path_inside(path, file_path(self.root(importer) or "")) or path.lstrip("/")


def exports_of(document: Document) -> Exports | None:
    """The rule about what other documents can import from one: all that a package has."""
    rules = record(document.language).imports
    return None if rules is None else (lambda text, name: True) if rules.package else rules.exports


def package_of(document: Document) -> str:
    """The name of a document's package; "" in a language without packages."""
    rules = record(document.language).imports
    match = re.search(rules.package, document.text) if rules is not None and rules.package else None
    return match[1] if match is not None else ""


def family_of(document: Document) -> str:
    """A name that is the same for languages that use one another's files."""
    language = record(document.language)
    return language.family or language.name
