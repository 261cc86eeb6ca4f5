"""What other files say about the place at the cursor: every source is asked within its time, the best of it is shown.

    place (the document without the line being typed) ─┬─ definitions and classes           definitions.py, by the index
                                                       ├─ like pieces of open and near files  similar_code.py
                                                       └─ recent edits                     recent_activity.py
                                                       ─► selection.py ─► Chunks, the worthiest last

context.py asks when more than the line being typed has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from time import perf_counter

from speclsp.config import ContextConfig
from speclsp.lsp.context import definitions, selection, similar_code
from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.context.selection import Selection
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index import import_statements
from speclsp.lsp.index.import_statements import Import
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.visibility import secret_text

# Why another open document is not shown.
OTHER_LANGUAGE = "another language"
_STEP_CHARACTERS = 8192
LINES_A_CHOICE = 4  # lines of one scope share a choice, as they share what the engine has read (prompt.ANCHOR_LINES)
_MODULES = 8  # whose users are looked at
_USERS = 8  # of each
LINES_A_STEP = 100  # of a document, looked at beforehand
CHARACTERS_A_STEP = 10_000
MOST_CHARACTERS = 80_000
STEP_S = 0.001  # of a file that is read beforehand, at a time


@dataclass(frozen=True, slots=True)
class CrossFileSources:
    """Where code from elsewhere comes from, beside the open documents."""

    index: IndexReader | None = None
    recent_edits: Callable[[ChunkPlace], list[Chunk]] | None = None
    patience_ms: float = 4.0  # for definitions; half as much again for all; over it, a source gives what it has

    def hides(self, chunk: Chunk) -> bool:
        """Whether no model may see a file any more: settings and ignore files change."""
        return self.index is not None and self.index.hides(chunk.path)


NOTHING_MORE = CrossFileSources()


def fill(
    shelf: Selection,
    place: ChunkPlace,
    config: ContextConfig,
    others: Sequence[Snapshot],
    sources: CrossFileSources,
) -> None:
    """Choose anew what is shown of other files; what is on the shelf stays while it is still good for the place."""
    step = place.above.count("\n") // LINES_A_CHOICE, config, frozenset(other.uri for other in others)
    hidden = any(map(sources.hides, shelf.chosen))
    if shelf.chosen and not hidden and (shelf.scopes, shelf.step) == (place.scopes, step):
        return
    if config.extra_tokens <= 0:
        shelf.chosen = shelf.left_out = ()
        return
    wanted = frozenset(config.sources)
    left_out: list[str] = []
    files = list(open_files(place, others, left_out))
    offered, hurried = _offered(place, wanted, files, left_out, sources)
    offered = [chunk for chunk in offered if chunk.source in wanted and not sources.hides(chunk)]
    known = {place.path, *(file.path for file in files), *(chunk.path for chunk in offered)}
    allowed = not hidden and (sources.index is not None or all(chunk.path in known for chunk in shelf.chosen))
    kept = shelf.chosen if allowed and shelf.scopes == place.scopes else ()
    if hurried:  # what was found before is not lost for want of time
        found = {(chunk.path, chunk.text) for chunk in offered}
        offered += [chunk for chunk in kept if (chunk.path, chunk.text) not in found]
    chosen, reasons = selection.choose(offered, config.extra_tokens, place.window, kept)
    chosen = tuple(chunk for chunk in chosen if not secret_text.holds_secret(chunk.text))  # nobody has opened the file
    again = hurried and not shelf.again  # at the next line, when the rest is known; but not at every line
    shelf.scopes, shelf.step, shelf.again = place.scopes, None if again else step, again
    shelf.chosen, shelf.left_out = chosen, (*left_out, *reasons)


def _offered(
    place: ChunkPlace,
    wanted: frozenset[str],
    files: Sequence[similar_code.File],
    left_out: list[str],
    sources: CrossFileSources,
) -> tuple[list[Chunk], bool]:
    """What all sources give, and whether one of them had too little time."""
    offered: list[Chunk] = []
    hurried, index = False, sources.index
    imports = [one for text in place.imports for one in import_statements.read(place.language, text)]
    began_s = perf_counter()
    if index is not None and wanted & definitions.SOURCES:
        until_s = began_s + sources.patience_ms / 1000
        with index.look(until_s):
            offered += definitions.candidates(place, index, imports, until_s, wanted)
        hurried = perf_counter() > until_s
    if "similar" in wanted:
        until_s = began_s + 1.5 * sources.patience_ms / 1000
        own = [similar_code.File(place.path, text) for text in near_parts(place) if text]
        near = near_files(place.path, imports, index, files) if index is not None else ()
        with index.look(until_s) if index is not None else nullcontext():
            found, why_not = similar_code.candidates(place, chain(own, files, near), until_s)
        offered += found
        left_out += [why_not[file.path] for file in files if file.path in why_not]
        hurried = hurried or similar_code.NO_TIME in why_not.values() or perf_counter() > until_s
    if hurried and index is not None:
        index.hurried(place.path)
    if sources.recent_edits is not None:
        offered += sources.recent_edits(place)
    return offered, hurried


def beforehand(path: str, index: IndexReader) -> Iterator[None]:
    """Ask all that does not depend on where in the document at `path` the cursor is, so that it is known; in steps."""
    imports = index.imports(path)
    for one in imports:
        yield
        if one.module:
            index.module(one.module, path)
        if one.names:
            yield
            index.imported(one, path)
    for file in islice(near_files(path, imports, index, ()), similar_code.FILES):
        yield
        while similar_code.READ.words(file.text, perf_counter() + STEP_S) is None:
            yield
    text = index.text(path)
    for start in range(0, min(len(text), MOST_CHARACTERS), CHARACTERS_A_STEP):
        for name in definitions.names_in(text[start : start + CHARACTERS_A_STEP]):
            yield
            index.symbols([name], near=path)
    lines = text.split("\n")[: similar_code.MOST_LINES // 2]
    for start in range(0, len(lines), LINES_A_STEP):
        yield
        for line in lines[start : start + LINES_A_STEP]:
            similar_code.words_of_line(line)
            definitions.of_line(line)


def near_parts(place: ChunkPlace) -> tuple[str, str]:
    """What the window cut off of the document, as far as it is looked through; its start moves in steps."""
    above, below = place.cut_off
    low = -(-max(0, len(above) - similar_code.FILE_CHARACTERS) // _STEP_CHARACTERS) * _STEP_CHARACTERS
    return above[above.find("\n", low) + 1 if low else 0 :], below[: similar_code.FILE_CHARACTERS]


def near_files(
    path: str, imports: Sequence[Import], index: IndexReader, open_already: Sequence[similar_code.File]
) -> Iterator[similar_code.File]:
    """Files of the workspace that are likely to do the like: tests, files beside, others that import the same."""
    seen = {path, *(file.path for file in open_already)}
    beside, users = index.files_like(path), users_of_the_same(path, imports, index)
    for one in alternately(beside, users):
        if one not in seen and (text := index.text(one)):
            seen.add(one)
            yield similar_code.File(one, text)


def users_of_the_same(path: str, imports: Sequence[Import], index: IndexReader) -> Iterator[str]:
    """Files that import what the document imports, module by module from its last import on: those are its own."""
    modules = (index.module(one.module, path) for one in reversed(imports))
    for module in islice(dict.fromkeys(filter(None, modules)), _MODULES):
        yield from index.importers(module, _USERS)


def alternately(*sources: Iterable[str]) -> Iterator[str]:
    """One of each in turn, each once."""
    seen = set()
    for row in zip_longest(*sources):
        for one in row:
            if one is not None and one not in seen:
                seen.add(one)
                yield one


def open_files(place: ChunkPlace, others: Sequence[Snapshot], left_out: list[str]) -> Iterator[similar_code.File]:
    """The other open documents in this language."""
    from speclsp.lsp.context.build import path_in

    for other in others:
        if other.uri == place.uri:
            continue
        if (grammar(other.language) or other.language) == place.language:
            yield similar_code.File(path_in(other.uri, place.root), other.text)
        else:
            left_out.append(OTHER_LANGUAGE)
