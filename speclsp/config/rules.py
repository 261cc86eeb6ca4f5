"""Rules of settings: the text for users and the valid values of each, their check and its error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speclsp.errors import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A setting's meaning and its valid values."""

    meaning: str  # one or two sentences for users, in Markdown
    group: str = ""  # heading in docs and editors; "": the heading of its section
    advanced: bool = False  # few users change it
    low: float | None = None
    high: float | None = None
    choices: Mapping[str, str] = field(default_factory=dict)  # each with a sentence about it
    pattern: str = ""
    wanted: str = ""  # words for `pattern`
    is_path: bool = False  # a leading ~ is the home directory


def setting(default: Any, meaning: str, **limits: Any) -> Any:
    """A dataclass field that carries its Rule."""
    return field(default=default, metadata={"rule": Rule(meaning=meaning, **limits)})


def allowed(value: object, default: object, rule: Rule) -> bool:
    """True when `value` has the type of `default` (a bool is no number, a whole number is a float) and fits `rule`."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, int | float):
        numbers = int if isinstance(default, int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, numbers):
            return False
        low, high = rule.low, rule.high  # written so that NaN, which compares to nothing, is refused
        return (low is None or value >= low) and (high is None or value <= high)
    if isinstance(default, tuple):
        words = value if isinstance(value, tuple) else (None,)
        return all(isinstance(word, str) and (not rule.choices or word in rule.choices) for word in words)
    if not isinstance(value, str) or "\0" in value:
        return False
    if rule.choices:
        return value in rule.choices
    return not rule.pattern or re.fullmatch(rule.pattern, value) is not None


def wanted(default: object, rule: Rule, value: object = None) -> str:
    """The valid values of a setting, in words; for a list, also the nearest valid word to a wrong one in `value`."""
    if rule.wanted:
        return rule.wanted
    if rule.choices:
        *others, last = (f'"{choice}"' for choice in rule.choices)
        choices = f"{', '.join(others)} or {last}"
        if not isinstance(default, tuple):
            return choices
        words = [word for word in value if isinstance(word, str)] if isinstance(value, tuple) else []
        odd = next((word for word in words if word not in rule.choices), "")
        near = nearest(odd[:60], rule.choices) if odd else None
        return f"a list of {choices}" + (f' (did you mean "{near}"?)' if near else "")
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, int | float):
        kind = "a whole number" if isinstance(default, int) else "a number"
        if rule.low is not None and rule.high is not None:
            return f"{kind} from {rule.low} to {rule.high}"
        return kind if rule.low is None else f"{kind}, {rule.low} or more"
    return "a list of texts" if isinstance(default, tuple) else "a text"


def brief(value: object) -> object:
    """`value`, cut so that an error stays one readable line."""
    if len(repr(value)) <= 80:
        return value
    return value[:60] + "…" if isinstance(value, str) else type(value).__name__ + "(…)"
