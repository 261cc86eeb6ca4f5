"""Scores of a suggestion against the code that a person wrote at that place.

    document  def area(r):⏎    return |⏎          | the cursor
    truth     math.pi * r**2                      what the person wrote there
    suggested math.pi * r                         right 11 characters, saves 11, not exact

The rule of postprocess/repetition.py is not used here. tree-sitter checks twice whether the whole text parses: as
it is, and with the suggestion's open brackets completed, because people also leave brackets open.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter

from benchmarks.quality.tasks.tasks import Task
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import surroundings
from speclsp.lsp.postprocess.plan import Suggestion
from speclsp.lsp.postprocess.syntax_check import SyntaxCheck, Verdict
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar, language_id
from speclsp.lsp.syntax.text_windows import line_end, line_start, normal_newlines
from speclsp.lsp.syntax.tree import SyntaxTree
from speclsp.plain_text import is_inside_word, is_word

PARSE_MS = 1000.0  # no user is waiting
MAX_BYTES = 1_000_000  # of a file whose words are read
WORD = re.compile(r"[^\W\d]\w*")
SCRIPT = """
abstract any arguments Array ArrayBuffer as asserts async await BigInt bigint boolean Boolean break Buffer case catch
class clearTimeout clearInterval console const constructor continue Date debugger declare default delete do document
else enum Error eval export exports extends false finally fetch for from function get global globalThis if implements
import in infer Infinity instanceof interface is JSON keyof length let Map Math module namespace NaN never new null
number Number object Object of package private process Promise prototype protected Proxy public Record Partial
readonly Reflect RegExp require return satisfies set Set setInterval setTimeout static string String super switch
symbol Symbol this throw true try type TypeError typeof undefined unique unknown URL var void WeakMap WeakSet while
window with yield push pop shift unshift slice splice map filter reduce forEach find some every includes indexOf join
split trim replace match test exec toString keys values entries assign then has add concat sort isArray parse stringify
"""
OF_LANGUAGE = frozenset((*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *SCRIPT.split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Scores of one suggestion. Where nothing is shown, all of them are zero or False."""

    shown: bool = False
    exact: bool = False  # its first line is the one that the person wrote, blanks at the end aside
    similarity: float = 0.0  # of the first lines, 0 to 1
    right: int = 0  # characters from its start that are the person's
    saved: int = 0  # the part of these that accepting word by word gives
    names: int = 0  # in its code
    known: int = 0  # of these, that stand in the file or its package, belong to the language, or are the person's
    parsed: bool = False  # there is a grammar, so the next fields are defined
    breaks: bool = False  # it adds syntax errors, with both texts completed at their ends
    unparsed: bool = False  # the same of the texts as they are: an opened block without its end counts too
    repeats: bool = False  # its end repeats the text right of it or below


def judge(
    task: Task, suggestion: Suggestion | None, snapshot: Snapshot, tree: SyntaxTree | None, *, torn: bool
) -> Judged:
    """`snapshot` is the document as an editor has it, `tree` its syntax; `torn`: a limit ended the generation."""
    if suggestion is None:
        return Judged()
    text, truth = normal_newlines(suggestion.text), normal_newlines(task.truth)
    end = line_end(task.text, task.cursor)
    after, rest = task.text[suggestion.end : end], task.text[task.cursor : end]
    suggested, meant = first_line(text + after), first_line(truth + rest)
    right = min(same_start(text, truth + rest), len(truth))
    words = names(task, text) if tree is None or tree.kind_at(task.cursor) == "code" else []
    names_known = known_names(task) if words else frozenset()
    return Judged(
        shown=True,
        exact=suggested == meant,
        similarity=similarity(suggested, meant),
        right=right,
        saved=whole_words(text, right),
        names=len(words),
        known=sum(word in names_known for word in words),
        parsed=tree is not None,
        breaks=tree is not None and breaks(suggestion, snapshot, tree, torn=torn),
        unparsed=tree is not None and unparsed(suggestion, tree),
        repeats=repeats(task, suggestion) and not repeats(task, truth_of(task)),
    )


def unparsed(suggestion: Suggestion, tree: SyntaxTree) -> bool:
    """True if the grammar finds more errors in the document with the suggestion than without it."""
    after = tree.count_errors_with(suggestion.start, suggestion.end, suggestion.text, PARSE_MS)
    return after is not None and after > tree.count_errors()


def breaks(suggestion: Suggestion, snapshot: Snapshot, tree: SyntaxTree, *, torn: bool) -> bool:
    """The same for texts whose open ends are closed first."""
    check = SyntaxCheck(tree, surroundings.read_surroundings(snapshot, tree))
    deadline = perf_counter() + PARSE_MS / 1e3
    return check.check(suggestion.text, suggestion.end, deadline, truncated=torn) is Verdict.BREAKS


# ── the line ─────────────────────────────────────────────────────────────────────────────────────────────────


def truth_of(task: Task) -> Suggestion:
    """The truth as a suggestion."""
    return Suggestion(task.truth, task.cursor, task.cursor)


def first_line(text: str) -> str:
    """All up to the end of the first line that says something, without blanks at its end."""
    end = text.find("\n", len(text) - len(text.lstrip()))
    return text[: end if end >= 0 else len(text)].rstrip()


def same_start(one: str, other: str) -> int:
    """Length of the common prefix, in characters."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def whole_words(text: str, right: int) -> int:
    """Of the first `right` characters those that do not end inside a word of `text`."""
    while is_inside_word(text, right):
        right -= 1
    return right


def similarity(one: str, other: str) -> float:
    """2 x the longest common subsequence / both lengths, as the field's "edit similarity" has it. 1 for two empty ones.

    The subsequence by whole rows of bits (Hyyrö 2004): a line against a line takes microseconds.
    """
    if not one or not other:
        return float(one == other)
    at: dict[str, int] = {}
    for place, character in enumerate(one):
        at[character] = at.get(character, 0) | 1 << place
    everything = (1 << len(one)) - 1
    row = everything
    for character in other:
        same = row & at.get(character, 0)
        row = ((row + same) | (row - same)) & everything
    return 2 * (everything ^ row).bit_count() / (len(one) + len(other))


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────


def names(task: Task, text: str) -> list[str]:
    """The names in the code of `text`, without its strings and comments."""
    rules = lexical_rules.rules_of(grammar(task.language))
    head = task.text[line_start(task.text, task.cursor) : task.cursor]
    whole, code = head + text, []
    at = len(head)
    for token in lexical_rules.tokens(whole, rules):
        if token.kind != "bracket" and token.end > at:
            code.append(whole[at : max(at, token.start)])
            at = token.end
    code.append(whole[at:])
    half = bool(head) and is_word(head[-1]) and bool(text) and is_word(text[0])
    words_found = WORD.findall(" ".join(code))
    if half and words_found:  # the word at the cursor is all of it
        begun = WORD.search(head[-200:][::-1])
        words_found[0] = (begun[0][::-1] if begun and begun.start() == 0 else "") + words_found[0]
    return words_found


def known_names(task: Task) -> frozenset[str]:
    """Whatever may be named at a task's place."""
    return OF_LANGUAGE | words_of(task.root) | frozenset(WORD.findall(task.text)) | frozenset(WORD.findall(task.truth))


@lru_cache(maxsize=4)
def words_of(root: Path) -> frozenset[str]:
    """Every word in the source files of a package."""
    words: set[str] = set()
    for file in sorted(root.rglob("*")):
        if grammar(language_id(file.name)) and file.is_file() and file.stat().st_size < MAX_BYTES:
            words.update(WORD.findall(file.read_text(encoding="utf-8", errors="replace")))
    return frozenset(words)


# ── repetition ───────────────────────────────────────────────────────────────────────────────────────────────


def repeats(task: Task, suggestion: Suggestion) -> bool:
    """True if a suggestion ends with the text right of it, or with the lines below it."""
    text = normal_newlines(suggestion.text).rstrip()
    end = line_end(task.text, task.cursor)
    rest = task.text[suggestion.end : end].strip()
    if any(is_overlap(text, rest, length) for length in range(1, min(len(rest), len(text)) + 1)):
        return True
    head = task.text[line_start(task.text, task.cursor) : task.cursor]
    lines = [line.strip() for line in (head + text + rest).split("\n") if line.strip()]
    below = [line.strip() for line in normal_newlines(task.text[end:]).split("\n") if line.strip()]
    return any(is_again(lines[-count:], below[:count]) for count in range(1, min(len(lines), len(below), 12) + 1))


def is_overlap(text: str, rest: str, length: int) -> bool:
    """True if `text` ends with the first `length` characters of the rest of the line, in whole words."""
    start = rest[:length]
    if not says_something(start) or not text.endswith(start):
        return False
    cut = is_word(start[-1]) and is_word(rest[length : length + 1])
    return not cut and not (is_word(start[0]) and is_word(text[-length - 1 : -length]))


def is_again(lines: Sequence[str], below: Sequence[str]) -> bool:
    """True if the lines equal those below, and one of them has more than brackets."""
    return list(lines) == list(below) and any(map(says_something, lines))


def says_something(line: str) -> bool:
    """True if a line holds more than brackets and words that end blocks, so that repeating it is an error."""
    return len(line) > 2 and any(word not in ("end", "else", "return", "pass", "try") for word in WORD.findall(line))
