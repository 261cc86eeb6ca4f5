"""Context from other files: searches open and near files for similar code and selects the best chunks.

    place (the document without the line being typed) ─► similar code of open and near files   similar_code.py
                                                      ─► selection.py ─► Chunks, the best one last

build.py selects at the first prompt of a document, at a jump to another region, and when the open documents change.
Elsewhere a better selection is looked for only while the cursor rests: completion/prefill_ahead.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from time import perf_counter

from speclsp.config import ContextConfig
from speclsp.lsp.context import selection, similar_code
from speclsp.lsp.context.chunk import Chunk, ChunkPlace, path_in
from speclsp.lsp.context.selection import Selection
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.documents.uri_paths import folded
from speclsp.lsp.index import file_imports
from speclsp.lsp.index.deadline import NEVER, Deadline
from speclsp.lsp.index.file_cache import FILE_CHARACTERS
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.syntax import hidden_characters
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.text_windows import normal_newlines
from speclsp.lsp.visibility import secret_text

_STEP_CHARACTERS = 8192
LINES_A_SELECTION = 4  # of one scope: a better selection is looked for once in so many lines
_MODULES = 8  # whose importers are searched
_IMPORTERS = 8  # of each
READS = Deadline(0.004, lambda: 0.0)  # of `index_near`: it never passes, and each file may take 4 ms


@dataclass(frozen=True, slots=True)
class CrossFileSources:
    """Source of code beside the open documents, and the time of a search."""

    index: WorkspaceIndex | None = None
    patience_ms: float = 6.0  # after it, the search returns what it has
    clock: Callable[[], float] = perf_counter

    def allow(self, chunk: Chunk, open_texts: Mapping[str, Sequence[str]]) -> bool:
        """False if no prompt may show a chunk any more: its file is hidden, gone, or without this text."""
        if self.index is not None and self.index.is_hidden(chunk.path):
            return False
        texts, lines = open_texts.get(folded(chunk.path)), chunk.text.strip("\n")
        if texts is None:
            return self.index is not None and self.index.holds(chunk.path, lines)
        return any(hidden_characters.shows(normal_newlines(text), lines) for text in texts)


NO_SOURCES = CrossFileSources()


def open_texts(path: str, text: str, others: Iterable[Snapshot], root: str | None) -> dict[str, list[str]]:
    """The searched texts of the open documents, by path: the document at `path`, which has `text`, and `others`.

    Several documents may have one path, as the cells of a notebook.
    """
    texts = {folded(path): [text]}
    for other in others:
        texts.setdefault(folded(path_in(other.uri, root)), []).append(other.text[:FILE_CHARACTERS])
    return texts


def select_anew(
    current: Selection,
    place: ChunkPlace,
    config: ContextConfig,
    others: Sequence[Snapshot],
    sources: CrossFileSources,
    *,
    kept: Sequence[Chunk],
    allowed: Sequence[Chunk],
) -> None:
    """Select the chunks for a place: those of `kept` that are still good, and new ones.

    In lack of time, the chunks of the last selection stay as far as they are `allowed`.
    """
    chosen, late = _select(place, config, others, sources, kept)
    current.chosen = tuple(allowed) if late and allowed else chosen
    current.better, current.place = (), None if late else _place_key(place)


def look_for_better(
    current: Selection, place: ChunkPlace, config: ContextConfig, others: Sequence[Snapshot], sources: CrossFileSources
) -> None:
    """Store a better selection than the present one, if there is one; searched for once in LINES_A_SELECTION lines."""
    if (current.chosen or current.better) and current.place == _place_key(place):
        return
    chosen, late = _select(place, config, others, sources, current.chosen)
    current.place = None if late else _place_key(place)
    better = chosen if chosen != current.chosen else ()
    if better or not late:
        current.better = better


def _place_key(place: ChunkPlace) -> object:
    """Equal for a few consecutive lines of one scope."""
    return place.scopes, place.above.count("\n") // LINES_A_SELECTION


def _select(
    place: ChunkPlace,
    config: ContextConfig,
    others: Sequence[Snapshot],
    sources: CrossFileSources,
    kept: Sequence[Chunk],
) -> tuple[tuple[Chunk, ...], bool]:
    """The chunks for a place, and True if the search lacked time. `kept`: the selection so far."""
    if config.cross_file_tokens <= 0:
        return (), False
    offered, late = _candidates(place, list(open_files(place, others)), sources)
    if sources.index is not None:
        offered = [chunk for chunk in offered if not sources.index.is_hidden(chunk.path)]
    if late:  # chunks of the selection so far are not lost for want of time
        texts = {(chunk.path, chunk.text) for chunk in offered}
        offered += [chunk for chunk in kept if (chunk.path, chunk.text) not in texts]
    chosen = selection.select(offered, config.cross_file_tokens, place.window, kept)
    # The user has not opened these files, so a key in them is not shown either.
    return tuple(chunk for chunk in chosen if not secret_text.holds_secret(chunk.text)), late


def _candidates(
    place: ChunkPlace, files: Sequence[similar_code.SourceFile], sources: CrossFileSources
) -> tuple[list[Chunk], bool]:
    """Similar code, and True if the search lacked time."""
    index = sources.index
    imports = [statement for text in place.imports for statement in file_imports.read(place.language, text)]
    ends = zip(("above", "below"), own_cut_off(place), strict=True)
    own = [similar_code.SourceFile(place.path, text, f"{place.uri} {end}") for end, text in ends if text]
    for file in own:  # they change with every line, so none was indexed before
        similar_code.FILE_WORDS.get(file.text, NEVER, file.key)
    deadline = Deadline.after_ms(sources.patience_ms, sources.clock)
    near = near_files(place.path, imports, index, files, deadline) if index is not None else ()
    chunks, is_complete = similar_code.candidates(place, chain(own, files, near), deadline)
    return chunks, not is_complete or deadline.passed()


async def index_near(path: str, index: WorkspaceIndex, pause_s: float = 0.02) -> None:
    """Read the files near the document at `path` and index their words, with a pause after each file.

    The few milliseconds of one search are enough for files that are indexed.
    """
    for file in islice(near_files(path, index.imports(path), index, (), READS), similar_code.FILES):
        similar_code.FILE_WORDS.get(file.text, NEVER, file.key)
        await asyncio.sleep(pause_s)


def own_cut_off(place: ChunkPlace) -> tuple[str, str]:
    """The ends of the document outside the prompt's window that are searched; the start moves in steps."""
    above, below = place.cut_off
    low = -(-max(0, len(above) - FILE_CHARACTERS) // _STEP_CHARACTERS) * _STEP_CHARACTERS
    return above[above.find("\n", low) + 1 if low else 0 :], below[:FILE_CHARACTERS]


def near_files(
    path: str,
    imports: Sequence[Import],
    index: WorkspaceIndex,
    open_already: Sequence[similar_code.SourceFile],
    deadline: Deadline = NEVER,
) -> Iterator[similar_code.SourceFile]:
    """Workspace files that are likely to hold similar code: tests, files beside, files with the same imports."""
    path = index.listed_path(path)
    known = {path, *(index.listed_path(file.path) for file in open_already)}
    beside, users = index.files_like(path), importers_of_the_same(path, imports, index, deadline)
    for other in alternate(beside, users):
        if other not in known and (text := index.text(other, deadline)):
            known.add(other)
            yield similar_code.SourceFile(other, text)


def importers_of_the_same(
    path: str, imports: Sequence[Import], index: WorkspaceIndex, deadline: Deadline
) -> Iterator[str]:
    """Files that import a module which the document imports; its last import first: those are its own project's."""
    modules = (index.resolve_module(statement.module, path, deadline) for statement in reversed(imports))
    for module in islice(alternate(filter(None, modules)), _MODULES):
        yield from index.importers(module, _IMPORTERS, deadline)


def alternate(*sources: Iterable[str]) -> Iterator[str]:
    """One item of each source in turn, without repetition."""
    known = set()
    for row in zip_longest(*sources):
        for item in row:
            if item is not None and item not in known:
                known.add(item)
                yield item


def open_files(place: ChunkPlace, others: Sequence[Snapshot]) -> Iterator[similar_code.SourceFile]:
    """The other open documents in this language."""
    for other in others:
        if other.uri != place.uri and (grammar(other.language) or other.language) == place.language:
            yield similar_code.SourceFile(path_in(other.uri, place.root), other.text, other.uri)
