"""A tokenizer's vocabulary as bytes: bytes for an id, ids for a text prefix, text for a stream of ids."""

from __future__ import annotations

import bisect
import codecs
import re
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # loading/checkpoint.py reads it and passes it in

Tables = Mapping[str, NDArray[Any]]  # of Vocabulary.tables


class Spellings:
    """Tokens' bytes, cut from one table when they are read: objects for 150 000 tokens take 0.3 s and 20 MiB.

    Args:
        text: the bytes of all tokens by id, one after the other.
        ends: [tokens] the end of each in `text`.
        order: the ids whose bytes these are; None: every id in turn.
    """

    def __init__(self, text: bytes, ends: Sequence[int], order: Sequence[int] | None = None) -> None:
        self.text, self.ends, self.order = text, ends, range(len(ends)) if order is None else order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> bytes:
        token = self.order[place]
        return self.text[self.ends[token - 1] if token else 0 : self.ends[token]]


class Vocabulary:
    """Each token id's bytes, and the ids that spell a given text.

    Handles byte-level BPE (GPT-2's alphabet of 256 letters) and SentencePiece's style (▁ for space, <0x0A> for bytes).

    Args:
        tables: those of the same tokenizer, kept by prepared_weights.py: making them takes 0.4 s.
    """

    def __init__(self, tokenizer: Tokenizer, tables: Tables | None = None) -> None:
        self.tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.special = frozenset(number for number, token in added.items() if token.special)
        self.tables = tables or make_tables(tokenizer)
        text, ends, ids = self.tables["text"].tobytes(), numbers(self.tables["ends"]), numbers(self.tables["ids"])
        self.bytes = Spellings(text, ends)
        self.ordered = Spellings(text, ends, ids)  # every token with bytes, sorted: a prefix is one range
        self.ids = self.tables["ids"].astype(np.int64)  # [tokens], in the same order

    def __len__(self) -> int:
        return len(self.bytes)

    def spelling(self, text: bytes) -> NDArray[np.int64]:
        """The ids whose bytes start with `text`, or are a prefix of it.

        Takes a few searches in sorted bytes and as many slices; the other 150 000 tokens are not visited.
        """
        low = bisect.bisect_left(self.ordered, text)
        high = bisect.bisect_left(self.ordered, prefix_upper_bound(text), lo=low) if text else len(self.ordered)
        ranges = [(low, high)]
        for end in range(1, len(text)):
            at = bisect.bisect_left(self.ordered, text[:end])
            ranges.append((at, bisect.bisect_right(self.ordered, text[:end], lo=at)))
        slices = [self.ids[low:high] for low, high in ranges if low < high]
        return slices[0] if len(slices) == 1 else np.concatenate([self.ids[:0], *slices])


def numbers(values: NDArray[Any]) -> array[int]:
    """The same as Python's array, whose items are read faster."""
    own = array("I")
    own.frombytes(values.astype(f"u{own.itemsize}").tobytes())
    return own


def make_tables(tokenizer: Tokenizer) -> Tables:
    """A vocabulary's bytes as arrays: `text` and `ends` as in Spellings, and `ids` in the order of their bytes."""
    added = tokenizer.get_added_tokens_decoder()
    special = {number for number, token in added.items() if token.special}
    byte_level = "ByteLevel" in repr(tokenizer.decoder) or "ByteLevel" in repr(tokenizer.pre_tokenizer)
    letters = {ord(letter): byte for letter, byte in byte_letters().items()}
    spelled = [b""] * tokenizer.get_vocab_size(with_added_tokens=True)
    for text, number in tokenizer.get_vocab(with_added_tokens=True).items():
        if number >= len(spelled) or number in special:
            continue
        if number in added:
            spelled[number] = text.encode()
        elif byte_level:
            spelled[number] = text.translate(letters).encode("latin-1")
        elif re.fullmatch(r"<0x[0-9A-F]{2}>", text):
            spelled[number] = bytes([int(text[3:5], 16)])
        else:
            spelled[number] = text.replace("▁", " ").encode()
    ids = sorted((number for number, own in enumerate(spelled) if own), key=lambda number: (spelled[number], number))
    return {
        "text": np.frombuffer(b"".join(spelled), np.uint8),
        "ends": np.cumsum([len(own) for own in spelled], dtype=np.uint32),
        "ids": np.array(ids, np.uint32),
    }


class TextStream:
    """Decodes token ids to text as soon as it is certain: no incomplete characters, no healing prefix.

    Bytes within the text that are no character are U+FFFD. An incomplete character at its end is left out.
    """

    def __init__(self, vocabulary: Vocabulary, heal: bytes) -> None:
        self.vocabulary = vocabulary
        self.skip = len(heal)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes."""
        raw = self.vocabulary.bytes[token]
        skipped = min(self.skip, len(raw))
        self.skip -= skipped
        return self.decoder.decode(raw[skipped:])


def prefix_upper_bound(text: bytes) -> bytes:
    """The smallest bytes greater than every byte string that starts with `text`."""
    kept = text.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\xff" * (len(text) + 64)


def byte_letters() -> dict[str, int]:
    """GPT-2's alphabet for byte-level BPE, inverted: letter -> byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in printable]
    return letters | {chr(256 + i): b for i, b in enumerate(others)}
