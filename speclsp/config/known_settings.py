"""Every known setting by its key, derived from the schema: for docs, editors, `speclsp config` and the hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from speclsp.config.rules import Rule
from speclsp.config.schema import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting."""

    key: str  # dotted: "engine.threads"
    default: object
    rule: Rule

    @property
    def group(self) -> str:
        """The heading in docs and editors."""
        return self.rule.group or GROUPS[self.key.rpartition(".")[0]]


GROUPS: Mapping[str, str] = {  # {section: heading}, in the order of docs and editors
    "": "Model",
    "completion": "Completion",
    "context": "Context",
    "next_edit": "Next edit",
    "remote": "Remote server",
    "stats": "Privacy",
    "engine": "Engine",
    "echo": "Testing",
}


def walk(section: Any, prefix: str = "") -> Iterator[Setting]:
    """The settings of a section, in the order of the schema."""
    for item in fields(section):
        if "rule" in item.metadata:
            yield Setting(key=prefix + item.name, default=item.default, rule=item.metadata["rule"])
        else:
            yield from walk(item.default_factory, f"{prefix}{item.name}.")


KNOWN: Mapping[str, Setting] = {known.key: known for known in walk(Config)}
SECTIONS = frozenset(key.partition(".")[0] for key in KNOWN if "." in key)
KEY = "remote.key"  # not a setting: never in a file that others may read, on a command line or in a log
NO_KEY = "remote.key is not taken from settings: `speclsp key set URL` stores it, or set SPECLSP_API_KEY."


def by_group() -> dict[str, list[Setting]]:
    """{heading: settings}, ordinary settings before advanced ones; those of tests are left out."""
    groups: dict[str, list[Setting]] = {heading: [] for heading in GROUPS.values() if heading != GROUPS["echo"]}
    for known in sorted(KNOWN.values(), key=lambda known: known.rule.advanced):
        if known.group in groups:
            groups[known.group].append(known)
    return groups
