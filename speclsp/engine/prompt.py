"""From a request in text to token ids: the family's fill-in-the-middle template, an exact budget, and token healing.

    psm    [repo, files] <prefix> P <suffix> S <middle> L        L: the last few lines, up to the cursor
    spm    [repo, files] <suffix> S <prefix> P L <middle>

What is being typed goes after the middle marker, so typing only appends and everything before stays cached. A few whole
lines go with it: going on to the next line then mostly appends too, and on holes in published packages the 0.5B model
did no worse with them than with the current line alone (benchmarks/results/prompt-anchor.json; a small sample, whose
column with all before the marker is without healing and decides nothing).

Text ends where a person's cursor is, not where a token ends, and models are poor at going on from there. So the prompt
backs up over the partial word, or the one space, before the cursor, and the first tokens of the completion may only be
such that spell it again: a constraint on the target's own choice, the same in plain and in speculative decoding.
"""

from __future__ import annotations

import bisect
import codecs
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from speclsp.cards import Card
from speclsp.engine.seam import Request
from speclsp.errors import InputError, WeightsError

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # loading.py reads it and hands it in

ANCHOR_TOKENS = 256  # a prompt too long loses its start in steps of this many, so that typing keeps the rest cached
LINES_AFTER_MIDDLE = 2  # lines before the current one that stand after the middle marker, at least
ANCHOR_LINES = 4
PARTIAL_WORD = re.compile(r"(?:\w+| )\Z")
SUFFIX_SHARE = 4  # the suffix may take one part in so many of the context, when the prompt must be cut


class Vocabulary:
    """What each token id means in bytes, and which ids spell a given text.

    Handles byte-level BPE (GPT-2's alphabet of 256 letters) and SentencePiece's style (▁ for space, <0x0A> for bytes).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.special = frozenset(number for number, token in added.items() if token.special)
        size = tokenizer.get_vocab_size(with_added_tokens=True)
        pieces: list[str | None] = [None] * size
        for piece, number in tokenizer.get_vocab(with_added_tokens=True).items():
            if number < size:
                pieces[number] = piece
        letters = byte_letters()
        byte_level = "ByteLevel" in repr(tokenizer.decoder) or "ByteLevel" in repr(tokenizer.pre_tokenizer)
        self.bytes: list[bytes] = []
        for number, text in enumerate(pieces):
            if text is None:
                self.bytes.append(b"")
            elif number in added:
                self.bytes.append(b"" if number in self.special else text.encode())
            elif byte_level:
                self.bytes.append(bytes(letters[c] for c in text))
            elif re.fullmatch(r"<0x[0-9A-F]{2}>", text):
                self.bytes.append(bytes([int(text[3:5], 16)]))
            else:
                self.bytes.append(text.replace("▁", " ").encode())
        self.sorted = sorted((spelled, number) for number, spelled in enumerate(self.bytes) if spelled)
        self.starts = [spelled for spelled, _ in self.sorted]
        self.by_bytes: dict[bytes, list[int]] = {}
        for spelled, number in self.sorted:
            self.by_bytes.setdefault(spelled, []).append(number)

    def __len__(self) -> int:
        return len(self.bytes)

    def spelling(self, text: bytes) -> list[int]:
        """The ids whose bytes start with `text`, or are a start of it."""
        low = bisect.bisect_left(self.starts, text)
        high = bisect.bisect_left(self.starts, text + b"\xff" * 8, lo=low) if text else len(self.starts)
        ids = [number for _, number in self.sorted[low:high]]
        for end in range(1, len(text)):
            ids += self.by_bytes.get(text[:end], [])
        return ids


class Healing:
    """The constraint that the first tokens spell `text` again: see generate.Constraint."""

    def __init__(self, text: bytes, vocabulary: Vocabulary) -> None:
        self.text, self.vocabulary = text, vocabulary
        self.cache: dict[int, Tensor] = {}

    def allowed(self, emitted: Sequence[int]) -> Tensor | None:
        done = 0
        for token in emitted:
            done += len(self.vocabulary.bytes[token])
            if done >= len(self.text):
                return None
        if done >= len(self.text):
            return None
        if done not in self.cache:
            self.cache[done] = torch.tensor(self.vocabulary.spelling(self.text[done:]))
        return self.cache[done]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the engine decodes from."""

    ids: list[int]
    heal: bytes  # what the first tokens must spell, and what is not part of the completion
    previous: list[int]  # the request's `previous`, from where the completion starts, healing included
    elsewhere: list[int]  # prompt text that did not fit: still good to draft from


class Prompter:
    """Builds prompts for one pair. Texts seen lately keep their tokens: only the current line is new at a keystroke.

    Raises:
        WeightsError: the card names a marker that the tokenizer does not have.
    """

    def __init__(self, card: Card, tokenizer: Tokenizer, vocabulary: Vocabulary, context_tokens: int) -> None:
        self.card, self.tokenizer, self.vocabulary, self.context_tokens = card, tokenizer, vocabulary, context_tokens
        fim = card.fim
        self.prefix, self.suffix, self.middle = (self.marker(text) for text in (fim.prefix, fim.suffix, fim.middle))
        self.repo, self.file_sep = self.marker(fim.repo), self.marker(fim.file_sep)
        self.bos = self.marker(fim.bos)
        stops = {number for text in card.stop_tokens for number in self.marker(text)}
        self.stop_tokens = frozenset(stops | vocabulary.special)
        self.encoded: OrderedDict[str, list[int]] = OrderedDict()

    def marker(self, text: str) -> list[int]:
        """A marker's id as a list of one; empty for a marker the family does not have."""
        if not text:
            return []
        number = self.tokenizer.token_to_id(text)
        if number is None:
            raise WeightsError(f"card {self.card.name}: its tokenizer has no token {text!r}; correct its markers.")
        return [number]

    def encode(self, text: str, keep: bool = True) -> list[int]:
        """Token ids of plain text; marker texts in it are plain text too. Lone surrogates become U+FFFD."""
        if text in self.encoded:
            self.encoded.move_to_end(text)
            return self.encoded[text]
        valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids: list[int] = self.tokenizer.encode(valid, add_special_tokens=False).ids
        if keep:
            self.encoded[text] = ids
            while len(self.encoded) > 16:
                self.encoded.popitem(last=False)
        return ids

    def build(self, request: Request) -> Prompt:
        """The prompt of a request, cut to what the cache can hold beside the completion.

        Raises:
            InputError: even the shortest prompt and the wanted completion do not fit.
        """
        room = self.context_tokens - request.max_tokens - 1
        if request.raw_prompt is not None:
            text, heal = split_healing(request.raw_prompt, request.heal)
            ids = cut_start([*self.bos, *self.encode(text)], room)
            return self.checked(ids, heal, request, [])
        above, recent = split_recent_lines(request.prefix)
        line, heal = split_healing(recent + request.line_prefix, request.heal)
        extra = self.files(request)
        before, after = self.encode(above), self.encode(request.suffix)
        current = self.encode(line, keep=False)
        if not self.prefix:  # a family without fill-in-the-middle goes on from the left
            ids = cut_start([*self.bos, *extra, *before, *current], room)
            return self.checked(ids, heal, request, after)
        room -= len(self.bos) + 3 + len(current)
        after_kept = after[: max(room // SUFFIX_SHARE, room - len(before))]
        before_kept = cut_start(before, room - len(after_kept))
        extra = extra if len(extra) <= room - len(after_kept) - len(before_kept) else []
        if self.card.fim.order == "spm":
            ids = [*self.bos, *extra, *self.suffix, *after_kept, *self.prefix, *before_kept, *current, *self.middle]
        else:
            ids = [*self.bos, *extra, *self.prefix, *before_kept, *self.suffix, *after_kept, *self.middle, *current]
        return self.checked(ids, heal, request, [*before[: len(before) - len(before_kept)], *after[len(after_kept) :]])

    def files(self, request: Request) -> list[int]:
        """Other files, in the family's own repository markers, or as nothing when it has none."""
        if not request.extra or not self.file_sep:
            return []
        ids = [*self.repo, *self.encode("repo\n", keep=True)] if self.repo else []
        for extra in request.extra:
            ids += [*self.file_sep, *self.encode(f"{extra.filename}\n{extra.text}\n")]
        return [*ids, *self.file_sep, *self.encode(f"{request.filename}\n")]

    def checked(self, ids: list[int], heal: str, request: Request, elsewhere: list[int]) -> Prompt:
        if not ids:
            ids = [*self.middle] or self.encode("\n")
        if len(ids) + request.max_tokens > self.context_tokens:
            raise InputError(
                f"{len(ids)} prompt tokens and {request.max_tokens} new ones do not fit engine.context_tokens = "
                f"{self.context_tokens}: ask for fewer, or raise it."
            )
        previous = self.encode(heal + request.previous, keep=False)
        if not request.previous:
            previous = previous[:-1]  # the word's own tokens; its last one is likely to grow into a longer one
        return Prompt(ids=ids, heal=heal.encode("utf-8", "replace"), previous=previous, elsewhere=elsewhere)


class TextStream:
    """Token ids in, text out, as soon as it is certain: no half characters, no healing prefix."""

    def __init__(self, vocabulary: Vocabulary, heal: bytes) -> None:
        self.vocabulary = vocabulary
        self.skip = len(heal)
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def push(self, tokens: Sequence[int], final: bool = False) -> str:
        """The text that `tokens` complete; with `final`, bytes that never became a character are U+FFFD."""
        raw = b"".join(self.vocabulary.bytes[token] for token in tokens)
        skipped = min(self.skip, len(raw))
        self.skip -= skipped
        return self.decode(raw[skipped:], final)


def split_recent_lines(prefix: str) -> tuple[str, str]:
    """The text before the current line, and of it the last few lines that go after the middle marker with it.

    At least LINES_AFTER_MIDDLE of them, and up to ANCHOR_LINES - 1 more: the cut moves once in ANCHOR_LINES lines, so
    that not only typing on a line but going on to the next one mostly appends.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", prefix)
    cut = max(0, len(lines) - LINES_AFTER_MIDDLE) // ANCHOR_LINES * ANCHOR_LINES
    return "".join(lines[:cut]), "".join(lines[cut:])


def split_healing(line: str, heal: bool) -> tuple[str, str]:
    """The line without, and then only, the partial word or one space before the cursor."""
    match = PARTIAL_WORD.search(line) if heal else None
    return (line[: match.start()], match.group()) if match else (line, "")


def cut_start(ids: Sequence[int], room: int) -> list[int]:
    """The last of `ids` that fit `room`, cut at a multiple of ANCHOR_TOKENS, so that the cut moves seldom."""
    if len(ids) <= room:
        return list(ids)
    cut = -(-(len(ids) - max(room, 0)) // ANCHOR_TOKENS) * ANCHOR_TOKENS
    return list(ids[cut:]) if room > ANCHOR_TOKENS else list(ids[len(ids) - max(room, 0) :])


def byte_letters() -> dict[str, int]:
    """GPT-2's alphabet: the letter that stands for each byte in byte-level BPE, the other way round."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in printable]
    return letters | {chr(256 + i): b for i, b in enumerate(others)}
