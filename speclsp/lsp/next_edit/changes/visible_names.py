"""Names that an edit writes: each must be visible at its place, and a function must not call itself for its body."""

from __future__ import annotations

import re

from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.next_edit.changes.substitutions import Place
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.text_windows import common_ends

TEXTS = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|(?:#|//).*""")
WRITTEN = re.compile(r"(?<![\w.$])([^\W\d]\w*)(?!\w|\s*[=:](?![=:]))")  # neither a member nor a key
CALLED = re.compile(r"([^\W\d]\w*)\(")
TO_ITSELF = re.compile(r"(?m)^\s*(?:(?:const|let|var)\s+)?([\w.]+)\s+=\s+\1[;,]?\s*$")


def writes_unknown_name(recent: Recent, place: Place) -> bool:
    """True if new code has a name that is not visible at its place, or does in a function what that function does."""
    text = recent.text[place.start : place.end]
    at, tree = place.start + common_ends(text, place.new)[0], recent.parse(place.start)
    old, new = TEXTS.sub('""', text), TEXTS.sub('""', place.new)
    if tree is None or recent.kind_at(at) != "code":
        return False
    functions = {scope.name for scope in tree.enclosing(at) if scope.kind == "function"}
    names = {*WRITTEN.findall(new)} - {*WRITTEN.findall(old)}
    changed = [line for origin in place.evidence.origins if (line := recent.text.find(origin.line)) >= 0]

    def is_visible(name: str) -> bool:
        """True if a definition of a name holds there, if the edit brings it along, or if the file has none."""
        named = bindings.occurrences(tree, name, recent.low, recent.high, recent.is_late)
        scopes = [(name.start, scope.start, scope.end) for name in named if (scope := name.defines) is not None]
        return not scopes or any(
            (low <= at < high and not place.start <= start < place.end)
            or any(0 <= start - line < len(place.new) for line in changed)
            for start, low, high in scopes
        )

    is_recursive = functions & ({*CALLED.findall(new)} - {*CALLED.findall(old)})
    return bool(TO_ITSELF.search(new) or is_recursive) or not all(map(is_visible, names))
