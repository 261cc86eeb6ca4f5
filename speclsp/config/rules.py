"""Rules of settings: the text for users and the valid values of each, their check and its error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from speclsp.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A setting's meaning and its valid values."""

    meaning: str  # one or two sentences for users, in Markdown
    choice_meanings: tuple[str, ...] = ()  # a sentence for each of `choices`
    group: str = ""  # heading in docs and editors; "": the heading of its section
    advanced: bool = False  # few users change it
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    wanted: str = ""  # words for `pattern`
    is_path: bool = False  # a leading ~ is the home directory


def setting(default: Any, meaning: str, **limits: Any) -> Any:
    """A dataclass field that carries its Rule."""
    return field(default=default, metadata={"rule": Rule(meaning=meaning, **limits)})


def check(section: Any, prefix: str) -> None:
    """Raise ConfigError for the first field whose value has the wrong type or lies outside its Rule."""
    for item in fields(section):
        value, rule = getattr(section, item.name), item.metadata.get("rule")
        if rule is None:  # a section in Config
            if not isinstance(value, item.default_factory):  # type: ignore[arg-type]
                raise ConfigError(prefix + item.name, value, f"{item.default_factory.__name__}(...)")  # type: ignore[union-attr]
        elif not allowed(value, item.default, rule):
            raise ConfigError(prefix + item.name, brief(value), wanted(item.default, rule))


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
        return all(isinstance(word, str) for word in words)
    if not isinstance(value, str) or "\0" in value:
        return False
    if rule.choices:
        return value in rule.choices
    return not rule.pattern or re.fullmatch(rule.pattern, value) is not None


def wanted(default: object, rule: Rule) -> str:
    """The valid values of a setting, in words."""
    if rule.wanted:
        return rule.wanted
    if rule.choices:
        return " or ".join([", ".join(f'"{choice}"' for choice in rule.choices[:-1]), f'"{rule.choices[-1]}"'])
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
