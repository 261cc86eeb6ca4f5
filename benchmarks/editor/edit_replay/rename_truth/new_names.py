"""Plausible new names: of the style of the old one, of common words, and nowhere in the file."""

from __future__ import annotations

import random
import re

WORDS = (
    "amount", "anchor", "batch", "branch", "bucket", "bundle", "caption", "cluster", "column", "counter", "cursor",
    "depth", "detail", "digest", "entry", "extent", "factor", "folder", "fragment", "gap", "group", "handle", "heading",
    "height", "inner", "item", "job", "label", "layer", "limit", "marker", "margin", "member", "message", "origin",
    "outer", "owner", "parcel", "payload", "piece", "portion", "quantity", "reader", "record", "region", "remote",
    "result", "route", "sample", "section", "segment", "source", "spacing", "step", "stream", "subject", "summary",
    "target", "ticket", "topic", "total", "unit", "vendor", "window", "worker", "writer",
)  # fmt: skip
ABBREVIATIONS = ("amt", "cnt", "dst", "hdr", "lim", "num", "pos", "rec", "src", "tmp")  # for names of up to 3 letters
PARTS = re.compile(r"(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z])\d*|\d+")


def new_name(old: str, text: str, seed: object) -> str:
    """A name for `old` that is no word of `text`: another word, or `old` with a word more before or behind it."""
    chance = random.Random(f"{seed} {old}")
    words = re.findall(r"\w+", text)
    for _ in range(1000):
        name = _changed(old, chance)
        if name not in words:
            return name
    raise ValueError(f"no new name for {old!r}: all were in the text.")


def _changed(old: str, chance: random.Random) -> str:
    stem = old.strip("_")
    head, tail = old[: len(old) - len(old.lstrip("_"))], old[len(old.rstrip("_")) :]
    parts = PARTS.findall(stem) or [stem]
    word = chance.choice(ABBREVIATIONS if len(stem) <= 3 and chance.random() < 0.5 else WORDS)
    way = chance.choice(("word", "word", "before", "behind")) if len(stem) > 1 else "word"
    if way == "word":
        at = chance.randrange(len(parts))
        parts = [*parts[:at], word, *parts[at + 1 :]] if len(parts) < 4 else [*parts[:2], word]
    else:
        parts = [word, *parts] if way == "before" else [*parts, word]
    return head + styled(parts, stem) + tail


def styled(parts: list[str], like: str) -> str:
    """Words joined in the style of a name: UPPER_CASE, snake_case, PascalCase, camelCase."""
    if like.isupper() and len(like) > 1:
        return "_".join(part.upper() for part in parts)
    if "_" in like:
        return "_".join(part if part in like.split("_") else part.lower() for part in parts)
    if like[0].isupper():
        return "".join(part[0].upper() + part[1:] for part in parts)
    if like.islower():
        return "_".join(part.lower() for part in parts)
    return parts[0][0].lower() + parts[0][1:] + "".join(part[0].upper() + part[1:] for part in parts[1:])
