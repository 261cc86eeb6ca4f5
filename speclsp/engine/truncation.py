"""Truncation of a request's texts, in characters, before they are queued, logged, scanned or tokenized.

    text before the cursor    its end; the cut moves once in a quarter of the limit, so that typing keeps the prompt
    text after it, drafts     their beginning
    snippets of other files   the most relevant ones that fit, whole

The limit is generous: code has 3 to 5 characters a token. prompt.py cuts the rest to the exact number of tokens. Here
only lengths are compared, markers searched and slices made: that takes milliseconds for a body of 16 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from speclsp.engine.api import Extra, Request

CHARACTERS_PER_TOKEN = 16  # of a text that may be used
STEPS = 4  # the start of a text that is too long moves in steps of limit / STEPS
NAME_CHARACTERS = 1024  # the end of a file's path is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLimits:
    """The limits of one model."""

    context_tokens: int
    template: tuple[str, ...] = ()  # the markers of a raw prompt that a client filled in: prefix, suffix, middle

    @property
    def characters(self) -> int:
        """The most characters of each text."""
        return self.context_tokens * CHARACTERS_PER_TOKEN


def truncate(request: Request, limits: TextLimits) -> Request:
    """`request` with shorter texts; the same object if none is too long. A second call changes nothing.

    `Request.is_truncated` says that text of the prompt is missing. Drafts do not count.
    """
    most = limits.characters
    prompt: dict[str, object] = {
        "prefix": last_part(request.prefix, most),
        "line_prefix": last_part(request.line_prefix, most),
        "suffix": request.suffix[:most],
        "raw_prompt": truncate_raw(request.raw_prompt, limits),
        "extra": truncate_extra(request.extra, limits),
    }
    others: dict[str, object] = {
        "filename": request.filename[-NAME_CHARACTERS:],
        "previous": request.previous[:most],
    }
    changed = {name: value for name, value in (prompt | others).items() if value != getattr(request, name)}
    if not changed:
        return request
    changed["is_truncated"] = request.is_truncated or not changed.keys().isdisjoint(prompt)
    return replace(request, **changed)  # type: ignore[arg-type]


def last_part(text: str, most: int) -> str:
    """The end of `text`, at most `most` characters. It begins with a line, unless the lines are very long."""
    if len(text) <= most:
        return text
    step = max(1, most // STEPS)
    cut = -(-(len(text) - most) // step) * step
    return text[text.find("\n", cut, cut + step) + 1 or cut :]


def truncate_raw(text: str | None, limits: TextLimits) -> str | None:
    """A raw prompt: its end, or the parts around the markers of its last template, each with a limit of its own."""
    if text is None or len(text) <= limits.characters:
        return text
    most, template = limits.characters, limits.template
    at = sorted((text.rfind(marker), marker) for marker in template)
    if not at or at[-1][1] != template[-1] or any(text.count(marker, max(0, at[0][0])) != 1 for marker in template):
        return last_part(text, most)
    parts = [last_part(text[: at[0][0]], most)]
    for (start, marker), (end, _) in zip(at, [*at[1:], (len(text), "")], strict=True):
        part = text[start + len(marker) : end]
        parts += [marker, part[:most] if marker == template[1] else last_part(part, most)]
    return "".join(parts)


def truncate_extra(extra: Sequence[Extra], limits: TextLimits) -> tuple[Extra, ...]:
    """The last snippets that fit: they are ordered from least to most relevant. Each takes a token or more."""
    room, kept = limits.characters, []
    for item in reversed(extra[-limits.context_tokens :]):
        room -= len(item.text)
        if room < 0:
            break
        short = len(item.filename) <= NAME_CHARACTERS
        kept.append(item if short else replace(item, filename=item.filename[-NAME_CHARACTERS:]))
    return tuple(reversed(kept))
