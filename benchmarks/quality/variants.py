"""Variants of the quality benchmark: the product with its default settings, and with one thing changed.

Each variant is a few settings and a way to write the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from speclsp.errors import InputError
from speclsp.lsp.context.cross_file import CrossFileSources

if TYPE_CHECKING:
    from speclsp.config import Config

PATIENCE_MS = CrossFileSources().patience_ms
BASE, FULL = "base", "full"
# Tasks of the full set, the first ones in the order of their ids, which is no order, for what takes long.
FEWER, FEW, FEWEST = 120, 60, 12
NO_OTHER_FILES: Mapping[str, object] = MappingProxyType({"context.cross_file_tokens": 0})
OURS, PEER = "speclsp", "llama.vscode"
BY_KIND = (BASE, FULL, PEER)  # variants whose figures are shown by language and kind of cursor as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to complete a task."""

    name: str
    about: str
    settings: Mapping[str, object] = field(default_factory=dict)  # dotted, as for --set
    order: str = "ours"  # of the prompt: prompt_orders.py
    heal: bool = True
    speculate: bool = True
    policy: str = OURS  # the policy that chooses the prompt, and the shown part of the answer
    patience_ms: float | None = None  # time limit of the context from other files; None: no limit
    open_before: bool = False  # the document is open long enough for all of the server's prefetched queries
    most_tasks: int | None = None  # it takes long


def variants() -> dict[str, Variant]:
    """All of them by name."""
    all_variants = [
        Variant(name=BASE, about="the text around the cursor, nothing from elsewhere", settings=NO_OTHER_FILES),
        Variant(name=FULL, about="speclsp as it comes"),
        Variant(name="in-time", about="full with the server's own patience, the document open for a few seconds",
                patience_ms=PATIENCE_MS, open_before=True),
        Variant(name="in-time-cold", about="full with the server's own patience, the document just opened",
                patience_ms=PATIENCE_MS),
        Variant(name="plain", about="full, speculation off: the same text", speculate=False),
        Variant(name="psm-line", about="full, only the current line after the middle marker", order="line",
                most_tasks=FEWER),
        Variant(name="psm-standard", about="full, nothing after the middle marker", order="standard", most_tasks=FEWER),
        Variant(name="spm", about="full, the suffix before the prefix", order="spm", most_tasks=FEWER),
        Variant(name="no-heal", about="full, no token healing", heal=False, most_tasks=FEWER),
        Variant(name="standard-no-heal", about="full, the standard order as models are asked by others",
                order="standard", heal=False, most_tasks=FEWER),
        *(
            Variant(name=item, about=f"full, the target in {item}", settings={"engine.quantization": item},
                    most_tasks=FEWEST if item == "nf4" else FEW)
            for item in ("int8", "bf16", "nf4")
        ),
        Variant(name="base-bf16", about="base, the target in bf16",
                settings={**NO_OTHER_FILES, "engine.quantization": "bf16"}, most_tasks=FEW),
        Variant(name=PEER, about="llama.vscode's context policy and filters on this engine and model", policy=PEER),
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
