"""Token healing: a cursor rarely stands at a token boundary, and models continue badly from inside a token.

    typed      return self.it
    prompt     return self         it ends where a token of running text may end
    respelled       .it ems        the first tokens must spell ".it" again: here the one token ".items"

This constrains the target's own choice, in plain and in speculative decoding alike. Respelling would cost rounds of
its own if it were not drafted as well. The draft is the continuation of the same text at an earlier position. It is
found by its bytes, whatever its tokens are there, and tokenized again from where the respelling starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from speclsp.engine.decoding.drafters import Drafter, FreeDrafter, Guess, Pick
from speclsp.engine.decoding.vocabulary import Vocabulary

# Tokenizers of code join a word with a space or, in x.y, the sign before it; and signs with the space before them.
PARTIAL = re.compile(r"(?:(?:^|(?<=[\w\t\n]))[^\w\s]\w+|[ \t]?\w+| ?[^\w\s]{1,4}| )\Z")
MAX_CHARACTERS = 80  # respelled
CONTEXT_BYTES = (32, 16, 8, 4, 2, 0)  # of equal text before the partial word, the longest first
GUESSED_BYTES = 80  # of a continuation: more than a round can take


def split_healing(line: str, heal: bool) -> tuple[str, str]:
    """(the line without the respelled end, the respelled end)."""
    match = PARTIAL.search(line, max(0, len(line) - MAX_CHARACTERS)) if heal else None
    return (line[: match.start()], match.group()) if match else (line, "")


class Healing:
    """The constraint that the first tokens spell `text` again: see generate.Constraint."""

    def __init__(self, text: bytes, vocabulary: Vocabulary) -> None:
        self.text, self.vocabulary = text, vocabulary
        self.cache: dict[int, NDArray[np.int64]] = {}

    def allowed(self, emitted: Sequence[int]) -> NDArray[np.int64] | None:
        done = 0
        for token in emitted:
            done += len(self.vocabulary.bytes[token])
            if done >= len(self.text):
                return None
        if done >= len(self.text):
            return None
        if done not in self.cache:
            self.cache[done] = self.vocabulary.spelling(self.text[done:])
        return self.cache[done]


class RespelledTokens(FreeDrafter):
    """A drafter's guesses, except the first: it is found by text, because respelled tokens do not line up.

    Args:
        drafter: guesses once the first tokens are there.
        heal: the bytes that the first tokens must spell.
        elsewhere: tokens of text that is not in the prompt.
        start: where the completion starts in `ids`.
        encode: text to tokens.
    """

    def __init__(
        self,
        drafter: Drafter,
        heal: bytes,
        elsewhere: Sequence[int],
        start: int,
        vocabulary: Vocabulary,
        encode: Callable[[str], list[int]],
    ) -> None:
        self.source, self.prior = drafter.source, drafter.prior
        self.drafter, self.heal, self.elsewhere, self.start = drafter, heal, elsewhere, start
        self.vocabulary, self.encode = vocabulary, encode

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        if len(ids) > self.start:
            return self.drafter.propose(ids, k, pick)
        spelled = self.vocabulary.bytes
        text = b"".join(spelled[token] or b"\0" for token in (*self.elsewhere, *ids))  # a marker is a boundary
        continued, context_bytes = continuation(text, self.heal)
        tokens = self.encode(continued.decode(errors="ignore"))[:k]
        return Guess(tokens, strength=1 + context_bytes // 4) if tokens else Guess([])


def continuation(text: bytes, heal: bytes) -> tuple[bytes, int]:
    """`heal` and its continuation at its last occurrence in `text` after the same bytes; the number of those bytes.

    Empty where there is no such occurrence, or only one in the middle of another word.
    """
    for size in CONTEXT_BYTES:
        key = text[len(text) - size :] + heal
        if size and (size > len(text) or b"\0" in key):
            continue
        end = len(text)
        while (at := text.rfind(key, 0, end)) >= 0:
            if size or not (is_word_byte(text[at - 1 : at]) and is_word_byte(heal[:1])):
                start = at + size
                return text[start : start + len(heal) + GUESSED_BYTES].partition(b"\0")[0], size
            end = at + len(key) - 1
    return b"", 0


def is_word_byte(byte: bytes) -> bool:
    """True if the byte is part of an identifier; a byte of a multi-byte character counts as one."""
    return byte.isalnum() or byte == b"_" or byte >= b"\x80"
