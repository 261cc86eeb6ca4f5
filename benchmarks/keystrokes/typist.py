"""Simulated typing: turns a source file and a seed into timed keys. No person was recorded.

    source ─► regions taken out ─► a typist writes them back: bursts, pauses, typos, pastes, jumps ─► the source again

The model, and its sources:
    rhythm     log-normal intervals around the typist's own median, slower for digits, capitals and symbols; never more
               than 15 keys/s, and slower than 2 keys/s only in pauses (the usual shape of keystroke logs)
    pauses     before a region, a line, a word, an argument: log-normal, up to 8 s
    typos      a neighbouring key, two keys swapped, one pressed twice: noticed up to three keys later and taken back,
               one by one; or a missing letter, put right at the end of the line by jumping there and back
    minds      a wrong beginning of a line, looked at, and deleted word by word
    editors    the indentation comes with Enter and goes from lines left blank; a long name known in the file may be
               picked from the completion menu; half of the typists have brackets and quotes closed for them
    pastes     one to four whole lines        jumps   to the next region, and to look something up and back

Everything follows from the seed. Applying the keys to the start gives the source, character by character, for any
source. tests/unit/benchmarks/keystrokes/test_typist.py checks that, and the limits on the rates.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence

from benchmarks.keystrokes.recording import FASTEST_MS, MAX_PAUSE_MS, SLOWEST_MS, Key, Recording
from benchmarks.keystrokes.regions import Region, regions_of, without

CLOSES = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
OPENS_BLOCK = re.compile(r"[\[({:]\s*$|\b(?:then|do|else|repeat)\s*$|\bfunction\s*\w*\([^()]*\)\s*$")
INDENTS_BY_COLON = ("python",)
NAME = re.compile(r"[A-Za-z_]\w*")
PLAIN = re.compile(r"[A-Za-z0-9_ ]*")  # text that triggers no insertion by the editor
ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")


def record(
    source: str,
    *,
    language: str,
    seed: int,
    minutes: float,
    path: str = "",
    origin: str = "",
    licence: str = "",
) -> Recording:
    """As much of `source` typed as fills `minutes`, or all that can be taken out of it. Lines end in \\n only."""
    dice = random.Random(seed)
    regions = regions_of(source, dice)
    for count in range(1, len(regions) + 1):
        chosen = sorted(regions[:count])
        typist = Typist(without(source, chosen), source, language, random.Random(seed + count))
        typist.fill(chosen)
        if sum(key.wait_ms for key in typist.keys) >= minutes * 60_000:
            break
    return Recording(
        language=language,
        path=path,
        origin=origin,
        licence=licence,
        seed=seed,
        minutes=minutes,
        start=without(source, chosen),
        keys=tuple(typist.keys),
    )


# ── who types ────────────────────────────────────────────────────────────────────────────────────────────────


def indent_unit(source: str) -> str:
    """One level of indentation in this source."""
    indents: list[str] = re.findall(r"^(\t|  +)\S", source, re.M)
    if not indents or "\t" in indents:
        return "\t" if indents else "    "
    return min(indents, key=len)[:8]


class Typist:
    """A text, a cursor in it, and hands with a rhythm of their own."""

    def __init__(self, text: str, source: str, language: str, dice: random.Random) -> None:
        self.text, self.source, self.language, self.dice = text, source, language, dice
        self.cursor = 0
        self.keys: list[Key] = []
        self.unit = indent_unit(source)
        self.interval_ms = dice.uniform(110, 220)
        self.typo_rate = dice.uniform(0.015, 0.05)
        self.closes = dice.random() < 0.5  # the editor closes brackets and quotes
        self.closers = ""  # closers inserted right of the cursor, to be typed over
        self.loose = 0  # blanks before the cursor that came with Enter and are not in the source
        self.missing: tuple[int, str] | None = None  # a letter left out: where, and which
        self._pause_ms = 0.0

    def fill(self, regions: Sequence[Region]) -> None:
        """Write `regions` of the source where they are missing, top to bottom with some exchanged."""
        order, missing = list(regions), list(regions)
        for n in range(len(order) - 1):
            if self.dice.random() < 0.2:
                order[n], order[n + 1] = order[n + 1], order[n]
        for region in order:
            above = sum(end - start for start, end in missing if start < region[0])
            self.pause(1500, 0.5, at_least_ms=600)
            self.jump(region[0] - above)
            self.write(self.source[slice(*region)])
            missing.remove(region)

    # ── single keys ───────────────────────────────────────────────────────────────────────────────────────────────────

    def pause(self, median_ms: float, spread: float, share: float = 1.0, at_least_ms: float = 0) -> None:
        """In `share` of the cases, wait before the next key."""
        drawn, length = self.dice.random(), self.dice.lognormvariate(math.log(median_ms), spread)
        if drawn < share:
            self._pause_ms = max(self._pause_ms, at_least_ms, length)

    def press(self, kind: str, start: int, end: int, new: str, cursor: int | None = None) -> None:
        """One key: changes the text and moves the cursor to the end of the insertion, unless a position is given."""
        slow = 1.0
        if kind in ("char", "typo") and new:
            slow = 0.9 if new == " " else 1.3 if new[0].isdigit() else 1.4 if not new[0].isalpha() else 1.0
            slow *= 1.2 if new[0].isupper() else 1.0
        rhythm = self.dice.lognormvariate(math.log(self.interval_ms * slow), 0.35)
        wait = min(max(rhythm, FASTEST_MS), SLOWEST_MS) + self._pause_ms
        self._pause_ms = 0.0
        cursor = start + len(new) if cursor is None else cursor
        key = Key(round(min(wait, MAX_PAUSE_MS)), kind, start, end, new, cursor)
        self.keys.append(key)
        self.text, self.cursor = key.on(self.text), cursor

    def jump(self, to: int) -> None:
        """Put the cursor elsewhere, by mouse or by keys."""
        if to != self.cursor:
            self.press("jump", to, to, "")

    def back(self, count: int, kind: str = "backspace") -> None:
        """Delete `count` characters before the cursor, at once."""
        self.press(kind, self.cursor - count, self.cursor, "")

    # ── a region ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, want: str) -> None:
        """Type `want` at the cursor, with all that goes wrong on the way."""
        new_line = True
        while want:
            ahead = self.closers[: len(self.closers) - len(self.closers.lstrip()) + 1]
            if want[0] == "\n" and self.missing:
                self.put_right()
            elif ahead[:1] == "\n" and want.startswith(ahead):
                self.drop_loose()
                self.pause(300, 0.4)
                self.jump(self.cursor + len(ahead))  # the editor has closed the block: go below it
                want, self.closers = want[len(ahead) :], self.closers[len(ahead) :]
            elif want[0] == "\n":
                want, new_line = self.enter(want), True
            elif want[0] == self.closers[:1]:
                self.press("overtype", self.cursor, self.cursor + 1, want[0])
                want, self.closers = want[1:], self.closers[1:]
            else:
                if new_line:
                    self.pause(900, 0.6, share=0.7, at_least_ms=150)
                    want = self.begin_line(want)
                new_line = False
                if want and want[0] != "\n" and want[0] != self.closers[:1]:
                    want = self.type_on(want)
        if self.missing:
            self.put_right()
        self.drop_loose()
        if self.closers:  # closed without need
            self.press("cut", self.cursor, self.cursor + len(self.closers), "")
            self.closers = ""

    def enter(self, want: str) -> str:
        """Enter, then correct the indentation for the next line; returns the text wanted after it."""
        self.pause(350, 0.5, share=0.5)
        head = self.text[: self.cursor - self.loose]
        line = head[head.rfind("\n") + 1 :]
        blanks = self.text[self.cursor - self.loose : self.cursor]
        have = blanks if self.loose else line[: len(line) - len(line.lstrip(" \t"))]
        opens = OPENS_BLOCK.search(line) is not None
        if opens and line.rstrip().endswith(":"):
            opens = self.language in INDENTS_BY_COLON
        inner = have + self.unit if opens and not self.loose else have
        between = bool(line) and CLOSES.get(line[-1]) == self.closers[:1] and self.closers != ""
        outer = "\n" + have if between and not self.loose else ""
        start = self.cursor - self.loose
        self.press("enter", start, self.cursor, "\n" + inner + outer, start + 1 + len(inner))
        self.closers, self.loose = outer + self.closers, 0
        target = want[1 : len(want) - len(want[1:].lstrip(" \t"))]
        rest = want[1 + len(target) :]
        if rest[:1] in ("", "\n") and not target:
            self.loose = len(inner)
            return rest
        have = inner
        while have != target:
            if target.startswith(have):
                step = target[len(have) : len(have) + len(self.unit)]
                self.press("indent", self.cursor, self.cursor, step)
                have += step
            else:
                same = next((n for n, (a, b) in enumerate(zip(have, target, strict=False)) if a != b), len(target))
                count = min(len(self.unit), len(have) - min(same, len(have)))
                self.back(count)
                have = have[:-count]
        return rest

    def drop_loose(self) -> None:
        """Remove indentation that no text follows."""
        if self.loose:
            self.back(self.loose)
            self.loose = 0

    def begin_line(self, want: str) -> str:
        """Events before a line is typed: a jump elsewhere, a wrong start, a paste."""
        if self.dice.random() < 0.05 and self.text:
            here = self.cursor
            self.pause(900, 0.4)
            self.jump(self.dice.choice([match.start() for match in re.finditer(r"$", self.text, re.M)]))
            self.pause(1400, 0.5, at_least_ms=500)
            self.jump(here)
        if self.dice.random() < 0.06:
            self.change_mind()
        lines = want.split("\n")
        if len(lines) > 2 and not self.closers and self.dice.random() < 0.06:
            count = self.dice.randint(1, min(4, len(lines) - 2))
            pasted = "\n".join(lines[:count])
            self.pause(1100, 0.5, at_least_ms=300)
            self.press("paste", self.cursor, self.cursor, pasted)
            return want[len(pasted) :]
        return want

    def change_mind(self) -> None:
        """Begin with the words of another line, look at them, and delete them."""
        other = self.dice.choice(self.source.split("\n")).strip()
        wrong = plain_start(other)[: self.dice.randint(6, 24)].rstrip()
        for char in wrong:
            self.press("char", self.cursor, self.cursor, char)
        self.pause(1000, 0.4)
        for word in reversed(re.findall(r"\w+\s*|\W", wrong)):
            self.back(len(word), "cut")

    def type_on(self, want: str) -> str:
        """Type the next key or keys of a line; returns the text left to type."""
        char, before = want[0], self.text[self.cursor - 1 : self.cursor]
        at_word = char.isidentifier() and not (before.isidentifier() or before.isdigit())
        if at_word:
            self.pause(650, 0.7, share=0.15)
        elif before in ("(", ",", "=", ".", "{", "["):
            self.pause(450, 0.6, share=0.2)
        if at_word and self.dice.random() < 0.25:
            word = NAME.match(want)
            if word and len(word[0]) >= 7 and word[0] in self.text:
                return self.pick(word[0], want)
        if char.isalpha() and char.isascii() and self.dice.random() < self.typo_rate:
            return self.mistype(want)
        close = CLOSES.get(char, "")
        if close and self.closes and not self.missing and self.closing(want, before):
            self.press("char", self.cursor, self.cursor, char + close, self.cursor + 1)
            self.closers = close + self.closers
        else:
            self.press("char", self.cursor, self.cursor, char)
        return want[1:]

    def closing(self, want: str, before: str) -> bool:
        """True if the editor closes the bracket or quote at the start of `want`, and the source needs it."""
        after = self.text[self.cursor : self.cursor + 1]
        if after and not after.isspace() and after not in ")]},;:":
            return False
        opener, closer = want[0], CLOSES[want[0]]
        if opener == closer:
            return not before.isalnum() and closer in want[1 : (want + "\n").index("\n")]
        depth = 0
        for char in want:
            depth += (char == opener) - (char == closer)
            if depth == 0:
                return True
        return False

    def pick(self, word: str, want: str) -> str:
        """Some letters of a name, then the whole of it from the menu."""
        start = self.cursor
        for char in word[: self.dice.randint(2, 4)]:
            self.press("char", self.cursor, self.cursor, char)
        self.pause(350, 0.3)
        self.press("pick", start, self.cursor, word)
        return want[len(word) :]

    def mistype(self, want: str) -> str:
        """A slip, seen soon and taken back key by key; or a letter left out and seen at the end of the line."""
        char, following = want[0], plain_start(want[1:])[: self.dice.randint(0, 3)]
        kind = self.dice.choice(("neighbour", "neighbour", "swapped", "doubled", "missing"))
        if kind == "missing":
            if self.missing is None and plain_start(want[1:2]):
                self.missing = (self.cursor, char)
                return want[1:]
            kind = "neighbour"
        wrong = self.neighbour(char) + following
        if kind == "doubled":
            wrong = char + char + following
        elif kind == "swapped" and following and following[0] != char:
            wrong = following[0] + char + following[1:]
        right = next((n for n, (a, b) in enumerate(zip(wrong, want, strict=False)) if a != b), len(wrong))
        for n, typed in enumerate(wrong):
            self.press("char" if n < right else "typo", self.cursor, self.cursor, typed)
        self.pause(300, 0.4)
        for _ in wrong[right:]:
            self.back(1)
        return want[right:]

    def neighbour(self, char: str) -> str:
        """The key beside this one."""
        row = next((row for row in ROWS if char.lower() in row), ROWS[1])
        at = max(0, row.find(char.lower()))
        return row[at - 1 if at else 1]

    def put_right(self) -> None:
        """Go back for the letter that was left out, and return."""
        assert self.missing is not None
        (at, char), here = self.missing, self.cursor
        self.missing = None
        self.pause(500, 0.4)
        self.jump(at)
        self.press("char", at, at, char)
        self.jump(here + 1)


def plain_start(text: str) -> str:
    """As much of the beginning of `text` as no editor adds anything to."""
    match = PLAIN.match(text)
    return match[0] if match else ""
