"""Examples of places with automatic closers: `f(‸)`, `{‸}`, `["‸"]`, `<li>‸</li>`, and a block after Enter.

    file ─► pairs ─► a pair ─► editor_pairs.py: the editor's state ─► Cut: answer up to the innermost closer

The other examples leave closers of any opener behind the cursor, also of those in their answers. A model that learns
from them alone leaves out the closers of what it opens itself. Here the answer closes all that it opens.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from benchmarks.quality.auto_closed import editor_pairs
from benchmarks.quality.auto_closed.editor_pairs import Pair, Place
from models.training.fill_examples import FILE_LINES, GENERATED, NO_CODE, UNWRITTEN, WIDEST, Cut, indent_of

KIND = "auto-closed"
SHARES = {"bracket": 42, "block": 32, "string": 13, "docstring": 5, "tag": 8}  # of the kinds that a file has
AT_OPENER = 0.7  # share of the cursors directly behind the opener; the others are further right on the line
ENTERED = 0.4  # share of the blocks that Enter has opened
WITH_MARK, TYPED_AROUND = 0.4, 0.3  # shares: the line's `;` stands there; text between the closers stands there
ANSWER_CHARACTERS = 2, 400
FIRST_LINES = 6  # of a body that is longer; the answer then has no end


def cuts(text: str, language: str, draw: random.Random, most: int) -> Iterator[Cut]:
    """At most `most` cuts of a file."""
    if not FILE_LINES[0] <= text.count("\n") + 1 <= FILE_LINES[1] or GENERATED.search(text[:1000]):
        return
    pairs = editor_pairs.pairs_of(text, language)
    by_kind: dict[str, list[Pair]] = {}
    for pair in pairs or ():
        by_kind.setdefault(kind_of(text, pair), []).append(pair)
    if not pairs or not by_kind:
        return
    kinds = sorted(by_kind)
    for _ in range(most):
        kind = draw.choices(kinds, [SHARES[kind] for kind in kinds])[0]
        place = place_in(text, pairs, draw.choice(by_kind[kind]), draw)
        cut = cut_of(text, place, draw) if place is not None else None
        if cut is not None:
            yield cut


def kind_of(text: str, pair: Pair) -> str:
    """A key of SHARES: brackets and tags at the end of their line are blocks."""
    return "block" if pair.kind in ("bracket", "tag") and text[pair.opened : pair.opened + 1] == "\n" else pair.kind


def place_in(text: str, pairs: list[Pair], pair: Pair, draw: random.Random) -> Place | None:
    """A cursor in `pair` with the editor's closers; None where there is nothing to learn."""
    start, end = editor_pairs.line_of(text, pair.opened)
    line = text[start:end]
    cursor = pair.opened
    if draw.random() >= AT_OPENER and min(pair.closed, end) - cursor > 3:
        cursor = draw.randrange(cursor + 1, min(pair.closed, end) - 1)
    with_mark, typed_around = draw.random() < WITH_MARK, draw.random() < TYPED_AROUND
    if len(line) > WIDEST or line.strip().startswith((*NO_CODE[:3], "#", "import ", "from ", "use ", "export *")):
        return None
    place = editor_pairs.place_at(text, pairs, cursor, with_mark=with_mark, typed_around=typed_around)
    if place is not None and place.kind == "block" and draw.random() < ENTERED:
        return editor_pairs.entered(text, place)
    return place


def cut_of(text: str, place: Place, draw: random.Random) -> Cut | None:
    """The cut of a place; of a long body its first lines."""
    low, high = ANSWER_CHARACTERS
    answer, document, is_whole = place.answer, place.document(text), True
    if len(answer) > high and place.kind in ("block", "entered"):
        answer, is_whole = "\n".join(answer.split("\n")[:FIRST_LINES]).rstrip(), False
    if not low <= len(answer.strip()) <= len(answer) <= high or not re.search(r"\w", answer):
        return None
    if place.kind not in ("block", "entered") and draw.random() < UNWRITTEN:
        document = without_rest_of_block(document, place.cursor)
    return Cut(KIND, document, place.cursor, answer, is_whole)


def without_rest_of_block(document: str, cursor: int) -> str:
    """The document without the lines of the cursor's block below it; as it is where the line opens a block."""
    start, end = editor_pairs.line_of(document, cursor)
    indent = indent_of(document[start:end])
    if not indent or document[:end].endswith(("{", ":")):
        return document
    below = document[end + 1 :].split("\n")
    count = next((at for at, line in enumerate(below) if line.strip() and indent_of(line) < indent), len(below))
    while count and not below[count - 1].strip():
        count -= 1
    return "\n".join([document[:end], *below[count:]])
