"""What is shown to the model from elsewhere, and where the cursor is for whoever looks for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of code worth showing the model, and how much."""

    path: str
    text: str
    score: float  # its worth beside others of its source
    source: str  # "definition" | "class" | "similar" | "edit"


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where the cursor is: the document without the line being typed, newlines as \\n.

    All that is shown beside the line itself follows from this, so that a key typed only appends to the prompt.
    """

    uri: str
    path: str  # inside the workspace folder, as the model is shown it
    root: str | None  # the workspace folder's URI
    language: str  # the grammar's name, or the LSP language id where there is none
    above: str  # all of the document before the current line
    below: str  # all of it after the current line
    imports: tuple[str, ...] = ()  # the source text of its import statements, in order
    scopes: tuple[str, ...] = ()  # headers of the classes and functions around, outermost first
    window: str = ""  # what of the document the model sees anyway
    cut_off: tuple[str, str] = ("", "")  # what of the document is above and below that
