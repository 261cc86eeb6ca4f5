"""What other files say about the place at the cursor: every source is asked within its time, the best of it is shown.

    place (the document without the line being typed) ─┬─ definitions, classes, skeletons   definitions.py, by the index
                                                       ├─ like pieces of open and near files            similar.py
                                                       └─ what the user did lately                        doing.py
                                                       ─► budget.py ─► Chunks, the worthiest last

context.py asks when more than the line being typed has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from time import perf_counter

from speclsp.config import ContextConfig
from speclsp.lsp import budget, definitions, importing, similar
from speclsp.lsp.budget import Shelf
from speclsp.lsp.chunk import Chunk, Place
from speclsp.lsp.document import Snapshot
from speclsp.lsp.importing import Import
from speclsp.lsp.index import Index
from speclsp.lsp.languages import grammar

# Why another open document is not shown.
OTHER_LANGUAGE = "another language"
_STEP_CHARACTERS = 8192
LINES_A_CHOICE = 4  # lines of one scope share a choice, as they share what the engine has read (prompt.ANCHOR_LINES)
_MODULES = 8  # whose users are looked at
_USERS = 8  # of each


@dataclass(frozen=True, slots=True)
class Sources:
    """Where code from elsewhere comes from, beside the open documents."""

    index: Index | None = None
    doing: Callable[[Place], list[Chunk]] | None = None  # what the user did lately
    patience_ms: float = 4.0  # for each source; over it, it gives what it has

    def hides(self, chunk: Chunk) -> bool:
        """Whether no model may see a file any more: settings and ignore files change."""
        return self.index is not None and self.index.hides(chunk.path)


NOTHING_MORE = Sources()


def fill(
    shelf: Shelf,
    place: Place,
    config: ContextConfig,
    others: Sequence[Snapshot],
    sources: Sources,
) -> None:
    """Choose anew what is shown of other files; what is on the shelf stays while it is still good for the place."""
    step = place.above.count("\n") // LINES_A_CHOICE, config, frozenset(other.uri for other in others)
    hidden = any(map(sources.hides, shelf.chosen))
    if shelf.chosen and not hidden and (shelf.scopes, shelf.step) == (place.scopes, step):
        return
    offered: list[Chunk] = []
    left_out: list[str] = []
    wanted = frozenset(config.sources)
    if config.extra_tokens <= 0:
        shelf.chosen = shelf.left_out = ()
        return
    files = list(open_files(place, others, left_out))
    imports = [one for text in place.imports for one in importing.read(place.language, text)]
    if sources.index is not None and wanted & {"definition", "class", "skeleton"}:
        until_s = perf_counter() + sources.patience_ms / 1000
        offered += definitions.candidates(place, sources.index, imports, until_s)
    if wanted & {"similar", "test"}:
        until_s = perf_counter() + sources.patience_ms / 1000
        own = [similar.File(place.path, text) for text in near_parts(place) if text]
        near = near_files(place, imports, sources.index, files) if sources.index is not None else ()
        found, why_not = similar.candidates(place, (*own, *files, *near), until_s)
        offered += found
        left_out += [why_not[file.path] for file in files if file.path in why_not]
    if sources.doing is not None:
        offered += sources.doing(place)
    offered = [chunk for chunk in offered if chunk.source in wanted and not sources.hides(chunk)]
    known = {place.path, *(file.path for file in files), *(chunk.path for chunk in offered)}
    allowed = not hidden and (sources.index is not None or all(chunk.path in known for chunk in shelf.chosen))
    kept = shelf.chosen if allowed and shelf.scopes == place.scopes else ()
    chosen, reasons = budget.choose(offered, config.extra_tokens, place.window, kept)
    shelf.scopes, shelf.step = place.scopes, step
    shelf.chosen, shelf.left_out = chosen, (*left_out, *reasons)


def near_parts(place: Place) -> tuple[str, str]:
    """What the window cut off of the document, as far as it is looked through; its start moves in steps."""
    above, below = place.cut_off
    low = -(-max(0, len(above) - similar.FILE_CHARACTERS) // _STEP_CHARACTERS) * _STEP_CHARACTERS
    return above[above.find("\n", low) + 1 if low else 0 :], below[: similar.FILE_CHARACTERS]


def near_files(
    place: Place, imports: Sequence[Import], index: Index, open_already: Sequence[similar.File]
) -> Iterator[similar.File]:
    """Files of the workspace that are likely to do the like: tests, files beside, others that import the same."""
    seen = {place.path, *(file.path for file in open_already)}
    tests = index.counterparts(place.path)
    beside, users = index.files_like(place.path), users_of_the_same(place, imports, index)
    for path in alternately(beside, users):
        if path not in seen and (text := index.text(path)):
            seen.add(path)
            yield similar.File(path, text, "test" if path in tests else "similar")


def users_of_the_same(place: Place, imports: Sequence[Import], index: Index) -> Iterator[str]:
    """Files that import what the document imports, module by module from its last import on: those are its own."""
    modules = (index.module(one.module, place.path) for one in reversed(imports))
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


def open_files(place: Place, others: Sequence[Snapshot], left_out: list[str]) -> Iterator[similar.File]:
    """The other open documents in this language."""
    from speclsp.lsp.context import path_in

    for other in others:
        if other.uri == place.uri:
            continue
        if (grammar(other.language) or other.language) == place.language:
            yield similar.File(path_in(other.uri, place.root), other.text)
        else:
            left_out.append(OTHER_LANGUAGE)
