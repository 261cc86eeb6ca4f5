"""Two changes of one shape, offered where the same shape stands: `X.unwrap()` -> `X?`, `env[k]` -> `env.get(k)`.

    two changed lines ─► tokens that differ, equal in both ─► Shape: differences, gaps, neighbours ─► guards ─► places

A gap between two differences has a hole where the two lines differ in it: an expression that closes its brackets. Of
the neighbours that the two have in common, a shape keeps what makes the differences characteristic.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from speclsp.lsp.next_edit.changes.recent_changes import Change, Recent
from speclsp.lsp.next_edit.changes.shapes import guards
from speclsp.lsp.next_edit.changes.shapes.format_strings import converted_places
from speclsp.lsp.next_edit.changes.substitutions import Evidence, Place, Substitution, differences
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.languages.keywords import statement_words
from speclsp.lsp.syntax.text_windows import common_ends, common_suffix

SHAPE = "shape"  # the kind of these edits
MIN_TIMES = 2
MAX_DIFFERENCES, MAX_CHARACTERS = 3, 60  # of one line; of the old text of a difference
MAX_PARTNERS, MAX_NEAREST = 6, 3  # earlier changes that the newest one is compared with; places of one shape
MIN_CHARACTERS = 4  # of a text in a string or comment
TOKENS = re.compile(r"\d\w*(?:\.\d\w*)*|\w+|\s+|[=!<>+*/&|%^-]+|[^\w\s]")
OPERATOR = "[=!<>+*/&|%^]"
LETTER = re.compile(r"[^\W\d]")
NAME, PATH = re.compile(r"[^\W\d]\w*\Z"), re.compile(r"[^\W\d][\w.$]*\Z")
NESTED = r"\"[^\"]*\"|'[^']*'|\((?:[^()]|\([^()]*\))*\)|\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\{[^{}]*\}"
HOLE = rf"((?:[^()\[\]{{}}\"'`,;\s]|{NESTED})*?)"
EDGES = {r"[\w$]": (r"(?<![\w$.])", r"(?![\w$])"), OPERATOR: (f"(?<!{OPERATOR})", f"(?!{OPERATOR})")}
CALL = re.compile(r"[\w.$]+\((?:[^()]|\([^()]*\))*\)\Z")
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
EXPRESSIONS = ("new", "await", "async")  # statement words that only begin an expression
AWAIT, POSTFIX, ASYNC = (("", "await "),), (("", ".await"),), (("", "async "),)

Hunk = tuple[str, str]  # tokens of a line, before and after


class LineChange(NamedTuple):
    """The differences of a changed line, the tokens between them, and those left and right of all of them."""

    change: Change
    left: Sequence[str]
    hunks: tuple[Hunk, ...]
    gaps: Sequence[Sequence[str]]
    right: Sequence[str]


class Shape(NamedTuple):
    """A pattern with a group for each hole, and the text that takes a match's place."""

    pattern: str
    substitution: Substitution
    new: tuple[str, ...]  # HOLE is the text of the next hole
    before: int  # characters of a match before the first difference


def shape_of(left: str, hunks: Sequence[Hunk], gaps: Sequence[tuple[str, ...]] = (), right: str = "") -> Shape:
    """The shape of differences between texts. A gap is its text, or the texts before and behind its hole."""
    pieces, new, behind = [re.escape(left)], [left], [*gaps, (right,)]
    for (old, text), gap in zip(hunks, behind, strict=True):
        is_insertion = text and not old and text != ")"  # not where it has been made
        pieces.append(f"(?<!{re.escape(text)})(?!{re.escape(text)})" if is_insertion else re.escape(old))
        pieces.append(re.escape(gap[0]))
        new += [text, gap[0]]
        if len(gap) > 1:
            pieces += [HOLE, re.escape(gap[1])]
            new += [HOLE, gap[1]]
    literal = left + hunks[0][0] + behind[0][0]
    ends = (next((kind for kind in EDGES if re.match(kind, end)), "") for end in (literal[:1], literal[-1:]))
    before, after = (EDGES.get(end, ("", ""))[side] for side, end in enumerate(ends))
    pattern = before + "".join(pieces) + (after if len(behind[0]) == 1 and len(behind) == 1 else "")
    return Shape(pattern, Substitution(SHAPE, literal, left + hunks[0][1] + behind[0][0]), tuple(new), len(left))


@functools.lru_cache(maxsize=256)
def line_change(change: Change) -> LineChange | None:
    """The differences of a changed line; None if there are none, too many, or such as change names or arguments."""
    before, after = TOKENS.findall(change.old.strip()), TOKENS.findall(change.new.strip())
    head, tail = common_ends(before, after)
    end = len(before) - tail
    codes = differences(before[head:end], after[head : len(after) - tail])
    spans = [(head + code[1], head + code[2], head + code[3], head + code[4]) for code in codes]
    hunks = tuple(("".join(before[low:high]), "".join(after[first:last])) for low, high, first, last in spans)
    is_rename = len(hunks) > 1 and all(NAME.match(old) and NAME.match(new) for old, new in hunks)
    is_argument = any("," in (old[:1], new.strip()[-1:], "" if old else new.strip()[:1]) for old, new in hunks)
    if is_rename or is_argument or "".join(change.old.split()) == "".join(change.new.split()):
        return None
    if not 0 < len(hunks) <= MAX_DIFFERENCES or max(len(old) for old, _ in hunks) > MAX_CHARACTERS:
        return None
    gaps = [before[span[1] : following[0]] for span, following in pairwise(spans)]
    if gaps and hunks[-1] == ("", ")") and before[end : end + 1] == [")"] and gaps[-1].count("(") > gaps[-1].count(")"):
        gaps[-1], end = [*gaps[-1], ")"], end + 1  # of the two brackets the first one closes the gap's call
    return LineChange(change, before[:head], hunks, gaps, before[end:])


def common_shape(first: LineChange, other: LineChange, is_code: bool) -> Shape | None:
    """The least general shape of two changes with the same differences; None if it is not characteristic."""
    gaps = list[tuple[str, ...]]()
    if first.gaps != other.gaps and not is_code:  # in prose a hole has no bounds
        return None
    for tokens, others in zip(first.gaps, other.gaps, strict=True):
        head, tail = common_ends(tokens, others)
        end = len(tokens) - tail
        for quote in "\"'`":  # a hole has whole strings
            if tokens[:head].count(quote) % 2 and quote in tokens[end:]:
                head, end = head - 1 - tokens[:head][::-1].index(quote), tokens.index(quote, end) + 1
        gaps.append(("".join(tokens[:head]), "".join(tokens[end:])) if tokens != others else ("".join(tokens),))
    left = first.left[len(first.left) - common_suffix(first.left, other.left) :]
    right = first.right[: common_ends(first.right, other.right)[0]]
    hunks, (old, new) = first.hunks, first.hunks[0]
    neighbours = gap_neighbours(hunks, gaps, left) if gaps else hunk_neighbours(hunks[0], left, right, is_code)
    is_mark = not gaps and is_code and not old and re.fullmatch(r"[^\w\s]+", new)
    if neighbours is None and is_mark and first.right[:1] == other.right[:1] != []:  # the same mark at other names
        neighbours = up_to_word(first.left[::-1]), first.right[0]
    return shape_of(neighbours[0], hunks, gaps, neighbours[1]) if neighbours is not None else None


def gap_neighbours(
    hunks: Sequence[Hunk], gaps: Sequence[tuple[str, ...]], left: Sequence[str]
) -> tuple[str, str] | None:
    """The text left of differences with gaps that makes them characteristic; None if none does."""
    is_open = any(not gap[-1] + old for gap, (old, _) in zip(gaps, hunks[1:], strict=True))
    is_wrap = not any(old for old, _ in hunks)
    if is_open or (is_wrap and "(" not in gaps[0][0]):  # little is known of what is wrapped
        return None
    before = up_to_word(left[::-1])
    return (before, "") if LETTER.search(before + hunks[0][0] + "".join(gap[0] for gap in gaps)) else None


def hunk_neighbours(hunk: Hunk, left: Sequence[str], right: Sequence[str], is_code: bool) -> tuple[str, str] | None:
    """The texts left and right that make one difference characteristic; None if none does."""
    old, new = hunk
    before, after, beside = up_to_word(left[::-1]), up_to_word(right, 1), ("".join(left[-1:]), "".join(right[:1]))
    if not is_code and old:
        before, after = (text if not re.search(r"[\w\s]", text) else "" for text in beside)
        is_long = len((before + old + after).strip()) >= MIN_CHARACTERS and any(map(str.isalnum, old))
        return (before, after) if is_long else None
    if not old and is_code and left[-1:] == [")"]:  # behind a call: of the same callee
        call = CALL.search("".join(left))
        return (call[0], after) if call is not None else None
    if not old:
        return (before, after) if LETTER.search(before + (after if is_code else "")) else None
    if guards.LITERAL.fullmatch(old):
        return before, ""
    if NAME.match(old) and NAME.match(new):
        return ("", " ") if hunk in guards.DECLARATIONS else None
    if PATH.match(old) and PATH.match(new):
        return (before or beside[0], beside[1]) if beside[1] != "(" else None  # a callee
    if not new and not LETTER.search(before):
        return None
    if not new or LETTER.search(old):
        return "" if new and old[0] == "." else before, beside[1] if not new and LETTER.match(beside[1]) else ""
    operand = after if re.fullmatch(r"\s*\w+", after) else ""
    return ("", operand) if operand or len(old) > 1 else None


def up_to_word(tokens: Sequence[str], step: int = -1) -> str:
    """The text of the first tokens, up to a whole name with dots; "" without one. `step`: -1 for tokens in reverse."""
    words = [number for number, token in enumerate(tokens) if re.match(r"\w", token)]
    end = words[0] + 1 if words else 0
    while words and end < len(tokens) and "." in tokens[end - 1 : end + 1] and not tokens[end].isspace():
        end += 1
    return "".join(tokens[:end][::step])


def shape_places(recent: Recent) -> Iterator[Place]:
    """The lines where a shape of two changes applies that the newest edit has made too, the nearest first."""
    yield from converted_places(recent, SHAPE, MIN_TIMES)
    groups, statements = dict[tuple[Hunk, ...], list[LineChange]](), statement_words(recent.language.keywords)
    for line in filter(None, map(line_change, recent.changes)):
        groups.setdefault(line.hunks, []).append(line)
    newest = [line.hunks for line in filter(None, map(line_change, recent.newest))]
    if ASYNC in newest:  # first what waits in its function
        newest = [*(hunks for hunks in (AWAIT, POSTFIX) if hunks in groups), *newest]
    for hunks in dict.fromkeys(newest):
        is_undone = tuple((new, old) for old, new in hunks) in groups
        if is_undone or recent.is_late() or not is_expression(hunks, statements):
            continue
        shapes, evidence = dict[Shape, list[guards.Spots]](), recent.evidence([line.change for line in groups[hunks]])
        is_rule, learn = evidence.times >= MIN_TIMES, awaited_shapes if hunks in (AWAIT, POSTFIX, ASYNC) else shapes_of
        for shape, spots in learn(recent, groups[hunks], is_rule):
            shapes.setdefault(shape, []).append(spots)
        nearest = list[Place]()
        if not (is_rule or shapes or recent.not_offered):
            recent.report(SHAPE, Reason.MADE_ONCE)
        for shape, pairs in shapes.items():
            nearest += islice(places_of(recent, shape, hunks, pairs, evidence), MAX_NEAREST * (not recent.is_late()))
        yield from sorted(nearest, key=lambda at: (at.end < recent.cursor, abs(at.start - recent.cursor)))


def is_expression(hunks: Sequence[Hunk], statements: re.Pattern[str]) -> bool:
    """True if differences leave the kind of a statement, and its brackets, as they were."""
    old, new = (" ".join(texts) for texts in zip(*hunks, strict=True))
    if {old.strip(), new.strip()} & {"pass", "..."}:
        return False
    words = ([word for word in statements.findall(text) if word not in EXPRESSIONS] for text in (old, new))
    is_balanced = all(old.count(end) - new.count(end) == old.count(top) - new.count(top) for top, end in BRACKETS)
    return is_balanced and (hunks[0] in guards.DECLARATIONS or next(words) == next(words))


def awaited_shapes(recent: Recent, lines: Sequence[LineChange], is_rule: bool) -> Iterator[tuple[Shape, guards.Spots]]:
    """The shapes of `await` and `async`. One change is enough where an async function of the file is called."""
    hunks, tree = lines[-1].hunks, recent.parse(recent.cursor)
    callees = (guards.awaited_callees(recent) if is_rule else [*guards.async_functions(recent)])[: guards.MAX_CALLS]
    spots = guards.spot_of(recent, *lines[-1][:2]), guards.spot_of(recent, *lines[-2:][0][:2])
    if hunks == ASYNC and tree is not None and is_rule:
        yield from ((shape_of("", ASYNC, (), head), spots) for head in guards.missing_async(recent, tree, callees))
    for call in (f"{callee}(" for callee in callees if hunks != ASYNC):
        is_last = hunks == POSTFIX
        yield shape_of("", (("", ""), *hunks), [(call, ")")]) if is_last else shape_of("", hunks, (), call), spots


def shapes_of(recent: Recent, lines: Sequence[LineChange], is_rule: bool) -> Iterator[tuple[Shape, guards.Spots]]:
    """The shapes that the newest of some changes with the same differences has in common with the others."""
    newest, others = lines[-1], lines[-MAX_PARTNERS - 1 : -1]
    spot = guards.spot_of(recent, *newest[:2])
    for other in (*others, *lines[-1:][: newest.change.times - 1])[::-1] if is_rule else ():
        spots = spot, guards.spot_of(recent, *other[:2])
        kinds = {spot.kind for spot in spots}
        is_code = kinds <= {"code", "type"}
        if not is_code and "code" in kinds and not guards.is_typo(*newest.hunks[0]):  # a rename
            return
        for first, two in ((newest, other), (other, newest)):
            if (shape := common_shape(first, two, is_code)) is not None:
                yield shape, spots


def places_of(
    recent: Recent, shape: Shape, hunks: Sequence[Hunk], pairs: Sequence[guards.Spots], evidence: Evidence
) -> Iterator[Place]:
    """The lines where a shape applies, and what stands around it allows it."""
    pattern, tree = re.compile(shape.pattern), recent.parse(recent.cursor)

    def rewritten(start: int, line: str) -> str:
        def new(match: re.Match[str]) -> str:
            at, holes = start + match.start() + shape.before, iter(match.groups())
            if tree is None or not any(guards.allows(recent, tree, hunks, pair, at) for pair in dict.fromkeys(pairs)):
                return match[0]
            return "".join(next(holes) if piece == HOLE else piece for piece in shape.new)

        return pattern.sub(new, line)

    is_proven = any(guards.is_guarded(hunks, pair) for pair in pairs)
    return recent.rewritten_lines(pattern, shape.substitution, evidence, rewritten, is_proven)
