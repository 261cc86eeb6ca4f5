"""Variants of the quality benchmark: the product with its default settings, and with one thing changed.

Each variant is a few settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from speclsp.errors import InputError

if TYPE_CHECKING:
    from speclsp.config import Config

BASE, FULL = "base", "full"
NO_OTHER_FILES: Mapping[str, object] = MappingProxyType({"context.cross_file_tokens": 0})
BY_KIND = (BASE, FULL)  # variants whose figures are shown by language and kind of cursor as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to complete a task."""

    name: str
    about: str
    settings: Mapping[str, object] = field(default_factory=dict)  # dotted, as for --set
    speculate: bool = True


def variants() -> dict[str, Variant]:
    """All of them by name."""
    all_variants = [
        Variant(name=BASE, about="the text around the cursor, nothing from elsewhere", settings=NO_OTHER_FILES),
        Variant(name=FULL, about="speclsp as it comes"),
        Variant(name="plain", about="full, speculation off: the same text", speculate=False),
    ]  # fmt: skip
    return {item.name: item for item in all_variants}


def chosen(names: str) -> list[Variant]:
    """The named variants, base first, because the others are compared with it. Raises InputError."""
    every, order = variants(), [BASE]
    for name in filter(None, (word.strip() for word in names.split(","))):
        if name not in every:
            raise InputError(f"no variant is called {name!r}: there are {', '.join(every)}.")
        order.append(name)
    return [every[name] for name in dict.fromkeys(order)]


def settings(config: Config, variant: Variant) -> Config:
    """The settings of a variant."""
    from speclsp import config as settings_of

    for key, value in variant.settings.items():
        section, _, name = key.partition(".")
        assert key in settings_of.KNOWN
        config = replace(config, **{section: replace(getattr(config, section), **{name: value})})
    return config
