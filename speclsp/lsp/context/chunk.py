"""Types of the context from other files: a piece of code, and the place in a document that it is chosen for."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from speclsp.lsp.documents.uri_paths import file_path, path_inside
from speclsp.lsp.syntax import hidden_characters

_MAX_PATH = 160  # characters


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of code that may be shown to the model."""

    path: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """The cursor's surroundings: the document without the line being typed, newlines as \\n.

    All context from other files follows from this alone, so that a typed key only appends to the prompt.
    """

    uri: str
    path: str  # inside the workspace folder, as the model sees it
    root: str | None  # the workspace folder's URI
    language: str  # the grammar's name, or the LSP language id where there is no grammar
    above: str  # the whole document before the current line
    below: str  # the whole document after the current line
    imports: tuple[str, ...] = ()  # source text of the import statements, in order
    scopes: tuple[str, ...] = ()  # headers of the enclosing classes and functions, outermost first
    window: str = ""  # the part of the document that is in the prompt
    cut_off: tuple[str, str] = ("", "")  # the parts of the document above and below that


def path_in(uri: str, root: str | None) -> str:
    """The document's path inside `root`, else its name alone: never a home directory."""
    path = file_path(uri)
    folder = file_path(root).rstrip("/") if root else ""
    inside = path_inside(path, folder) if folder and not folder.endswith(":") else None  # "c:" holds home directories
    shown = posixpath.basename(path) if inside is None else inside
    shown = hidden_characters.visible(shown).replace("\n", " ").replace("\t", " ")
    while len(shown) > _MAX_PATH and "/" in shown:
        shown = shown.partition("/")[2]
    return shown[-_MAX_PATH:]
