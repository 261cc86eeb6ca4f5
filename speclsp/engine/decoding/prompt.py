"""Prompt construction: fill-in-the-middle template of the model family, exact token budget, token healing.

    psm   [repo, files] <prefix> P <suffix> S <middle> L        L: the last few lines, up to the cursor
    spm   [repo, files] <suffix> S <prefix> P L <middle>

A card names its family's order.

In the order "psm", the line being typed goes after the middle marker, so typing only appends and all tokens before
it stay cached. A few whole lines go with it, so that moving to the next line mostly appends too. On completion points
in published packages the 0.5B model did no worse with these lines than with the current line alone. Compared with the
standard order, which puts all of the prefix before the marker, more lines were exact matches; both with token healing.
Both samples were small.

No prompt is refused for its length. The text farthest from the cursor is cut in blocks, and room is kept for more
typing and for a usual completion. So one more keystroke moves no cut, and `max_tokens` does not matter to it: it is
lowered to the tokens that the prompt leaves. A prompt that is prefilled ahead of a request is therefore the request's
own prompt. Texts far longer than the context are cut before they are tokenized (truncation.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple

from speclsp.engine.api import Request
from speclsp.engine.decoding.token_healing import split_healing
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.truncation import TextLimits, truncate
from speclsp.errors import InputError, WeightsError
from speclsp.weights.cards import Card

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # loading/checkpoint.py reads it and passes it in

ANCHOR_TOKENS = 256  # a long text is cut at its start in steps of at most this, so that typing keeps the rest cached
LINES_AFTER_MIDDLE = 2  # minimum number of lines before the current one that go after the middle marker
ANCHOR_LINES = 4
USUAL_TOKENS = 128  # kept free for the completion: no completion in an editor is longer by default
SUFFIX_SHARE = 4  # if the prompt must be cut, the suffix may take 1/SUFFIX_SHARE of its room
CACHED_BYTES = 4 * 2**20  # of recent texts and their tokens
TOKEN_BYTES = 36  # a place in a list, and an int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The prompt of one completion, in tokens."""

    ids: list[int]
    max_tokens: int  # of the completion: the request's, lowered to what the context leaves
    heal: bytes  # the first tokens must spell it; it is not part of the completion
    previous: list[int]  # the request's `previous`, from where the completion starts, healing included
    left_out: list[int]  # text that did not fit into the prompt; n-grams are drafted from it
    left_out_tokens: int | None = 0  # the number of all such tokens; None: some were never counted
    truncated: bool = False  # something did not fit: text around the cursor, or snippets of other files


class Prompter:
    """Builds prompts for one model. Caches the tokens of recent texts: a keystroke changes the current line only.

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
        self.encoded: dict[str, list[int]] = {}  # the tokens of recent texts
        self.encoded_bytes = 0
        added = tokenizer.get_added_tokens_decoder()
        self.markers = {added[number].content: number for number in vocabulary.special}
        self.markers |= {
            text: self.marker(text)[0] for text in (fim.prefix, fim.suffix, fim.middle, fim.repo, fim.file_sep) if text
        }
        ordered = sorted(self.markers, key=len, reverse=True)  # the longest first: one may be a prefix of another
        self.any_marker = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")

    def marker(self, text: str) -> list[int]:
        """A marker's id as a list of one; empty if the model family has no such marker."""
        if not text:
            return []
        number = self.tokenizer.token_to_id(text)
        if number is None:
            name = self.card.target.name
            raise WeightsError(
                f"the tokenizer.json of {name} has no token {text!r}, which the model definition "
                f"{self.card.name} expects: the file belongs to another model. Restore {name}'s own file, or download "
                f"it again with `speclsp models pull`."
            )
        return [number]

    def encode(self, text: str, keep: bool = True) -> list[int]:
        """Token ids of plain text; marker texts in it are plain text as well. Lone surrogates become U+FFFD.

        Other threads run meanwhile: the tokenizer releases the interpreter's lock for a batch, and only for a batch.
        """
        cached = self.encoded.get(text)
        if cached is not None:
            return cached
        valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids: list[int] = self.tokenizer.encode_batch_fast([valid], add_special_tokens=False)[0].ids
        size = getsizeof(text) + TOKEN_BYTES * len(ids)
        if keep and size <= CACHED_BYTES:
            if self.encoded_bytes + size > CACHED_BYTES:  # rare: to tokenize a file again takes a few milliseconds
                self.encoded, self.encoded_bytes = {}, 0
            self.encoded[text] = ids
            self.encoded_bytes += size
        return ids

    def encode_once(self, text: str) -> list[int]:
        """The same without caching, for a text that will not come again."""
        return self.encode(text, keep=False)

    def truncate(self, request: Request) -> Request:
        """The request without text that is far too long for the context: see truncation.py."""
        template = (self.card.fim.prefix, self.card.fim.suffix, self.card.fim.middle) if self.prefix else ()
        return truncate(request, TextLimits(context_tokens=self.context_tokens, template=template))

    def build(self, request: Request) -> Prompt:
        """The prompt of a request, cut so that a usual completion fits into the cache as well."""
        request = self.truncate(request)
        room = self.context_tokens - min(USUAL_TOKENS, self.context_tokens // 8) - 1
        if request.raw_prompt is not None:
            ids, heal = self.encode_raw(request.raw_prompt, request.heal)
            kept, left_out = self.cut_raw(ids, room)
            return self.finish(kept, heal, request, left_out)
        above, line, heal = self.split_request(request)
        before, after = self.encode(above), self.encode(request.suffix)
        current = self.encode(line, keep=False)
        if not self.prefix:  # a family without fill-in-the-middle continues the prefix
            whole = [*before, *current]
            kept = cut_start(whole, room - len(self.bos))
            extra, all_fit = self.encode_extra(request, room - len(self.bos) - len(kept))
            left_out = [*whole[: len(whole) - len(kept)], *after]
            return self.finish([*self.bos, *extra, *kept], heal, request, left_out, not all_fit)
        text = fit(before, after, current, room - len(self.bos) - 3)
        extra, all_fit = self.encode_extra(request, text.room)
        if self.card.fim.order == "spm":
            order = [*self.suffix, *text.after, *self.prefix, *text.before, *text.current, *self.middle]
        else:
            order = [*self.prefix, *text.before, *self.suffix, *text.after, *self.middle, *text.current]
        return self.finish([*self.bos, *extra, *order], heal, request, text.left_out, not all_fit)

    def check_begin(self, request: Request, heal: bytes) -> None:
        """Refuse a `Request.begin` that no completion of the request can start with.

        Raises:
            InputError: names the token or the number that is wrong.
        """
        begin, spelled = request.begin, self.vocabulary.bytes
        if not begin:
            return
        if not all(0 <= token < len(spelled) and token not in self.stop_tokens for token in begin):
            raise InputError("begin has a token that no text contains: expected token ids from `branches`.")
        if len(begin) >= request.max_tokens:
            raise InputError(
                f"begin has {len(begin)} tokens: expected fewer than {request.max_tokens}, the value of max_tokens."
            )
        text = b"".join(spelled[token] for token in begin)
        if not (text.startswith(heal) or heal.startswith(text)):
            raise InputError(
                "begin does not spell the partial word before the cursor: expected token ids from `branches`."
            )

    def encode_raw(self, text: str, heal: bool) -> tuple[list[int], str]:
        """The ids of a raw prompt, in which marker texts are markers, and the respelled end of its text.

        Clients that know the family send its template filled in, as other servers expect it.
        """
        ids, at = [], 0
        for match in self.any_marker.finditer(text):
            ids += [*self.encode(text[at : match.start()]), self.markers[match.group()]]
            at = match.end()
        last, respelled = split_healing(text[at:], heal)
        ids += self.encode(last)
        return (ids if ids[:1] == self.bos else [*self.bos, *ids]), respelled

    def cut_raw(self, ids: list[int], room: int) -> tuple[list[int], list[int]]:
        """A raw prompt, cut to `room`, and the rest: cut at its start, or between the markers of its last template.

        The prefix and the suffix may stand in either order. Other files before them are dropped first, each whole.
        """
        if len(ids) <= room:
            return ids, []
        template, room = [*self.prefix, *self.suffix, *self.middle], room - len(self.bos)
        at = [index for index, token in enumerate(ids) if token in template][-3:]
        order = [ids[index] for index in at]
        if not template or order[-1:] != self.middle or sorted(order) != sorted(template):
            kept = cut_start(ids[len(self.bos) :], room)
            return [*self.bos, *kept], ids[len(self.bos) : len(ids) - len(kept)]
        head = ids[len(self.bos) : at[0]]
        parts = {ids[start]: ids[start + 1 : end] for start, end in zip(at, [*at[1:], len(ids)], strict=True)}
        before, after, current = (parts[marker] for marker in template)
        text = fit(before, after, current, room - 3)
        files = [index for index, token in enumerate(head) if [token] == self.file_sep]
        first = next((index for index in files if len(head) - index <= text.room), len(head))
        kept_parts = dict(zip(template, (text.before, text.after, text.current), strict=True))
        kept = [*head[first:], *(token for marker in order for token in (marker, *kept_parts[marker]))]
        return [*self.bos, *kept], [*head[:first], *text.left_out]

    def split_request(self, request: Request) -> tuple[str, str, str]:
        """(the text above, the text after the middle marker, the respelled end of the current line)."""
        above, recent = split_recent_lines(request.prefix)
        line, heal = split_healing(recent + request.line_prefix, request.heal)
        return above, line, heal

    def encode_extra(self, request: Request, room: int) -> tuple[list[int], bool]:
        """Snippets of other files, in the family's own repository markers; empty if it has none. And True if all fit.

        `Request.extra` is ordered from least to most relevant. If they do not fit, the first ones are left out.
        """
        if not request.extra or not self.file_sep:
            return [], True
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
        all_fit = len(kept) == len(request.extra)
        if not kept:
            return [], all_fit
        return [*opening, *(token for ids in reversed(kept) for token in ids), *closing], all_fit

    def finish(
        self, ids: list[int], heal: str, request: Request, left_out: list[int], truncated: bool = False
    ) -> Prompt:
        """The Prompt of `ids`, never empty. `truncated`: something else than `left_out` did not fit."""
        if not ids:
            ids = [*self.middle] or self.encode("\n")
        previous = self.encode(heal + request.previous, keep=False)
        if not request.previous:
            previous = previous[:-1]  # the partial word's tokens; its last one is likely to grow into a longer one
        return Prompt(
            ids=ids,
            max_tokens=min(request.max_tokens, self.context_tokens - len(ids)),
            heal=heal.encode("utf-8", "replace"),
            previous=previous[: self.context_tokens],
            left_out=left_out,
            left_out_tokens=None if request.is_truncated else len(left_out),
            truncated=truncated or bool(left_out) or request.is_truncated,
        )


def split_recent_lines(prefix: str) -> tuple[str, str]:
    """Split the text before the current line: (text above, the last few lines, which go after the middle marker).

    At least LINES_AFTER_MIDDLE lines, and up to ANCHOR_LINES - 1 more. The cut moves once in ANCHOR_LINES lines, so
    that moving to the next line mostly appends, as typing on a line does.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", prefix)
    cut = max(0, len(lines) - LINES_AFTER_MIDDLE) // ANCHOR_LINES * ANCHOR_LINES
    return "".join(lines[:cut]), "".join(lines[cut:])


class FittedText(NamedTuple):
    """The text around the cursor, in tokens, as far as it fits."""

    before: list[int]
    after: list[int]
    current: list[int]
    left_out: list[int]
    room: int  # for snippets of other files


def fit(before: list[int], after: list[int], current: list[int], room: int) -> FittedText:
    """Cut the text around the cursor to `room` tokens. `current` ends at the cursor, and `before` ends where it begins.

    The start of `current` is cut only where nothing else but a share for `after` is left.
    """
    most = room - min(len(after), max(room, 0) // SUFFIX_SHARE)
    current_kept, block = cut_start(current, most), max(1, min(ANCHOR_TOKENS, room // 4))
    is_whole = len(current_kept) == len(current)
    room -= min(-(-len(current) // block) * block, most)
    after_kept = after[: max(room // SUFFIX_SHARE, room - len(before) * is_whole, 0)]
    before_kept = cut_start(before, room - len(after_kept)) if is_whole else []
    left_out = [
        *before[: len(before) - len(before_kept)],
        *current[: len(current) - len(current_kept)],
        *after[len(after_kept) :],
    ]
    return FittedText(before_kept, after_kept, current_kept, left_out, room - len(after_kept) - len(before_kept))


def step_tokens(room: int) -> int:
    """The step of the start of a text that must fit `room`: in a small room a power of two, at most a quarter of it."""
    return ANCHOR_TOKENS if room > ANCHOR_TOKENS else 1 << max(0, (room // 4).bit_length() - 1)


def cut_start(ids: Sequence[int], room: int) -> list[int]:
    """The last of `ids` that fit `room`, cut at a multiple of `step_tokens`, so that the cut rarely moves."""
    step, over = step_tokens(room), len(ids) - max(room, 0)
    return list(ids[-(-over // step) * step :]) if over > 0 else list(ids)
