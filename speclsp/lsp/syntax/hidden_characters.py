"""Hidden characters: found in suggestions, and removed from context, so that the text shown is the text that runs."""

from __future__ import annotations

import re

# Never in a suggestion, whatever the file holds: control characters, bidirectional overrides and isolates, tags,
# lone surrogates, noncharacters.
NEVER = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\U000e0000-\U000e00ff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
    + "]"
)
# Invisible too, or shown differently by every font (private use), but needed in some languages: allowed if the file has
# the same character. Unicode 16's format characters, default ignorables and fillers, except marks that are visible.
SOMETIMES = re.compile(
    "[\x0c\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028\u2029\u2060-\u2065\u206a-\u206f"
    "\u2800\u3164\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffd\U00013430-\U0001343f\U00016fe4"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0100-\U000e0fff\U000f0000-\U000ffffd\U00100000-\U0010fffd]"
)
# The variation selector U+FE0F is allowed right behind one of these: it selects the emoji presentation.
EMOJI = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001faff"
)
HIDDEN = re.compile(f"{NEVER.pattern}|(?!(?<=[{EMOJI}])\ufe0f){SOMETIMES.pattern}")


def has_hidden(text: str, known: str) -> bool:
    """True if a text holds a hidden character that is never allowed, or that `known` does not hold."""
    return any(NEVER.match(match[0]) or match[0] not in known for match in HIDDEN.finditer(text))


def visible(text: str) -> str:
    """The text without hidden characters."""
    return HIDDEN.sub("", text)


def shows(text: str, lines: str) -> bool:
    """True if a text holds `lines`, with or without its hidden characters."""
    return lines in text or lines in visible(text)
