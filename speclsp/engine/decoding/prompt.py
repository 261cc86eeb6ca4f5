"""From a request in text to token ids: the family's fill-in-the-middle template, an exact budget, and token healing.

    psm    [repo, files] <prefix> P <suffix> S <middle> L        L: the last few lines, up to the cursor
    spm    [repo, files] <suffix> S <prefix> P L <middle>

What is being typed goes after the middle marker, so typing only appends and everything before stays cached. A few whole
lines go with it: going on to the next line then mostly appends too, and on holes in published packages the 0.5B model
did no worse with them than with the current line alone (benchmarks/README.md). Against the standard
order, all before the marker, both with healing, more lines came out exactly right (the same place). Small samples, both.

A prompt that is too long is cut in blocks, and room is kept for more typing and for any usual completion: one more key
moves no cut, nor does it matter to them how much is asked for. What is read ahead of a request is then its own prompt.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speclsp.engine.api import Request
from speclsp.engine.decoding.token_healing import split_healing
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.errors import InputError, WeightsError
from speclsp.weights.cards import Card

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # reading.py reads it and hands it in

ANCHOR_TOKENS = 256  # a prompt too long loses its start in steps of this many, so that typing keeps the rest cached
LINES_AFTER_MIDDLE = 2  # lines before the current one that stand after the middle marker, at least
ANCHOR_LINES = 4
USUAL_TOKENS = 128  # no completion in an editor is longer by default, so the cut is the same for all of them
SUFFIX_SHARE = 4  # the suffix may take one part in so many of the context, when the prompt must be cut


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
        added = tokenizer.get_added_tokens_decoder()
        self.markers = {added[number].content: number for number in vocabulary.special}
        self.markers |= {
            text: self.marker(text)[0] for text in (fim.prefix, fim.suffix, fim.middle, fim.repo, fim.file_sep) if text
        }
        ordered = sorted(self.markers, key=len, reverse=True)  # the longest first, where one begins with another
        self.any_marker = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")

    def marker(self, text: str) -> list[int]:
        """A marker's id as a list of one; empty for a marker the family does not have."""
        if not text:
            return []
        number = self.tokenizer.token_to_id(text)
        if number is None:
            name = self.card.target.name
            raise WeightsError(
                f"the tokenizer.json of {name} has no token {text!r}, which card {self.card.name} expects: it is "
                f"another model's. Put {name}'s own there, or fetch it again with `speclsp models pull`."
            )
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
            while len(self.encoded) > 64:
                self.encoded.popitem(last=False)
        return ids

    def encode_once(self, text: str) -> list[int]:
        """The same for a text that will not be seen again."""
        return self.encode(text, keep=False)

    def build(self, request: Request) -> Prompt:
        """The prompt of a request, cut to what the cache can hold beside the completion.

        Raises:
            InputError: even the shortest prompt and the wanted completion do not fit.
        """
        room = self.context_tokens - max(request.max_tokens, min(USUAL_TOKENS, self.context_tokens // 8)) - 1
        if request.raw_prompt is not None:
            ids, heal = self.marked(request.raw_prompt, request.heal)
            return self.checked(self.fitted(ids, room), heal, request, [])
        above, line, heal = self.parts(request)
        before, after = self.encode(above), self.encode(request.suffix)
        current = self.encode(line, keep=False)
        if not self.prefix:  # a family without fill-in-the-middle goes on from the left
            ids = cut_start([*self.bos, *self.files(request, room), *before, *current], room)
            return self.checked(ids, heal, request, after)
        block = max(1, min(ANCHOR_TOKENS, room // 4))
        room -= len(self.bos) + 3 + -(-len(current) // block) * block
        after_kept = after[: max(room // SUFFIX_SHARE, room - len(before))]
        before_kept = cut_start(before, room - len(after_kept))
        extra = self.files(request, room - len(after_kept) - len(before_kept))
        if self.card.fim.order == "spm":
            ids = [*self.bos, *extra, *self.suffix, *after_kept, *self.prefix, *before_kept, *current, *self.middle]
        else:
            ids = [*self.bos, *extra, *self.prefix, *before_kept, *self.suffix, *after_kept, *self.middle, *current]
        return self.checked(ids, heal, request, [*before[: len(before) - len(before_kept)], *after[len(after_kept) :]])

    def marked(self, text: str, heal: bool) -> tuple[list[int], str]:
        """The ids of a raw prompt, in which marker texts are markers, and what is respelled of its end.

        Clients that know the family send its template filled in, as other servers take it.
        """
        ids, at = [], 0
        for found in self.any_marker.finditer(text):
            ids += [*self.encode(text[at : found.start()]), self.markers[found.group()]]
            at = found.end()
        last, respelled = split_healing(text[at:], heal)
        ids += self.encode(last)
        return (ids if ids[:1] == self.bos else [*self.bos, *ids]), respelled

    def fitted(self, ids: list[int], room: int) -> list[int]:
        """A raw prompt, cut to `room`: at its start, and in a filled-in template between its markers."""
        template = [*self.prefix, *self.suffix, *self.middle]
        at = [place for place, token in enumerate(ids) if token in template]
        if len(ids) <= room or [ids[place] for place in at] != template:
            return cut_start(ids, room)
        before, after, current = ids[at[0] + 1 : at[1]], ids[at[1] + 1 : at[2]], ids[at[2] + 1 :]
        room -= len(self.bos) + 3 + len(current)
        after = after[: max(room // SUFFIX_SHARE, room - len(before), 0)]
        before = cut_start(before, room - len(after))
        return [*self.bos, *self.prefix, *before, *self.suffix, *after, *self.middle, *current]

    def parts(self, request: Request) -> tuple[str, str, str]:
        """The text above, what stands after the middle marker, and what of the current line is respelled."""
        above, recent = split_recent_lines(request.prefix)
        line, heal = split_healing(recent + request.line_prefix, request.heal)
        return above, line, heal

    def files(self, request: Request, room: int) -> list[int]:
        """Other files, in the family's own repository markers, or as nothing when it has none.

        They come the least worthy first. Those that there is no room for are left out, beginning with the first.
        """
        if not request.extra or not self.file_sep:
            return []
        opening = [*self.repo, *self.encode("repo\n")] if self.repo else []
        closing = [*self.file_sep, *self.encode(f"{request.filename}\n")]
        room -= len(opening) + len(closing)
        kept: list[list[int]] = []
        for extra in reversed(request.extra):
            ids = [*self.file_sep, *self.encode(f"{extra.filename}\n{extra.text}\n")]
            room -= len(ids)
            if room < 0:
                break
            kept.append(ids)
        return [*opening, *(token for ids in reversed(kept) for token in ids), *closing] if kept else []

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


def split_recent_lines(prefix: str) -> tuple[str, str]:
    """The text before the current line, and of it the last few lines that go after the middle marker with it.

    At least LINES_AFTER_MIDDLE of them, and up to ANCHOR_LINES - 1 more: the cut moves once in ANCHOR_LINES lines, so
    that not only typing on a line but going on to the next one mostly appends.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", prefix)
    cut = max(0, len(lines) - LINES_AFTER_MIDDLE) // ANCHOR_LINES * ANCHOR_LINES
    return "".join(lines[:cut]), "".join(lines[cut:])


def cut_start(ids: Sequence[int], room: int) -> list[int]:
    """The last of `ids` that fit `room`, cut at a multiple of ANCHOR_TOKENS, so that the cut moves seldom."""
    if len(ids) <= room:
        return list(ids)
    cut = -(-(len(ids) - max(room, 0)) // ANCHOR_TOKENS) * ANCHOR_TOKENS
    return list(ids[cut:]) if room > ANCHOR_TOKENS else list(ids[len(ids) - max(room, 0) :])
