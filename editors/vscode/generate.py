"""Writes the settings into package.json and README.md, from speclsp.config: one vocabulary, written once.

    python editors/vscode/generate.py            writes both
    python editors/vscode/generate.py --check    ends with 1 when one of them differs

The server's settings keep their dotted names under `speclsp.`. What a workspace may say is listed here; everything
else, a setting nobody has thought about included, belongs to the machine and is restricted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from speclsp import config

HERE = Path(__file__).parent
OF_A_WORKSPACE = ("completion.", "context.")  # taste; the rest names commands, paths, addresses, models, devices
BUT = ("completion.disabled_globs",)  # what its user hides, a repository cannot bring back
OURS: dict[str, dict[str, Any]] = {
    "speclsp.server.command": {
        "type": "string",
        "default": "",
        "markdownDescription": "The program `speclsp`: a path, or a name on PATH. Empty searches the selected "
        "Python environment, PATH and the directories of `uv tool` and `pipx`.",
    },
    "speclsp.install.source": {
        "type": "string",
        "default": "",
        "markdownDescription": "What *Install* installs: a path or an address for pip. Empty is the "
        "server that came with the extension, of the same version.",
    },
}
BEGIN, END = "<!-- settings: made by generate.py -->", "<!-- /settings -->"


def properties() -> dict[str, dict[str, Any]]:
    """Every declared setting, in the order of the settings page."""
    return {key: made for group in groups() for key, made in group["properties"].items()}


def groups() -> list[dict[str, Any]]:
    """contributes.configuration: a group for each heading of the server's settings, and one of the extension's own."""
    theirs = {
        heading: {f"speclsp.{known.key}": as_property(known) for known in settings}
        for heading, settings in config.by_group().items()
    }
    return [
        {"title": heading, "order": order, "properties": with_scope(made)}
        for order, (heading, made) in enumerate({**theirs, "Installation": OURS}.items())
    ]


def with_scope(properties: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """`properties` of one group with scope and order."""
    return {
        key: {**property, "scope": "window" if may_be_the_workspaces(key) else "machine", "order": order}
        for order, (key, property) in enumerate(properties.items())
    }


def may_be_the_workspaces(key: str) -> bool:
    key = key.removeprefix("speclsp.")
    return key.startswith(OF_A_WORKSPACE) and key not in BUT


def restricted() -> list[str]:
    """capabilities.untrustedWorkspaces.restrictedConfigurations."""
    return [key for key in properties() if not may_be_the_workspaces(key)]


def as_property(known: config.Setting) -> dict[str, Any]:
    """One of the server's settings as VS Code's settings page wants it."""
    default, rule = known.default, known.rule
    made: dict[str, Any] = {"type": kind(default), "default": list(default) if isinstance(default, tuple) else default}
    choices = {"enum": list(rule.choices), "enumDescriptions": list(rule.choice_meanings)} if rule.choices else {}
    made |= {"items": {"type": "string"} | choices} if isinstance(default, tuple) else choices
    if rule.low is not None:
        made["minimum"] = rule.low
    if rule.high is not None:
        made["maximum"] = rule.high
    if rule.pattern and "(?" not in rule.pattern:  # inline flags are Python's own
        made |= {"pattern": f"^(?:{rule.pattern})$", "patternErrorMessage": f"expected {rule.wanted}"}
    tags = {"tags": ["advanced"]} if rule.advanced else {}
    return {**made, "markdownDescription": rule.meaning, **tags}


def kind(default: object) -> str:
    """JSON's name for the type of `default`."""
    names = {bool: "boolean", int: "integer", float: "number", tuple: "array"}
    return names.get(type(default), "string")


def table() -> str:
    """README.md's table."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for key, made in properties().items():
        listed = made.get("items", made)
        values = zip(listed.get("enum", ()), listed.get("enumDescriptions", ()), strict=True)
        text = " ".join([made["markdownDescription"], *(f"<br>`{value}`: {meaning}" for value, meaning in values)])
        rows.append(f"| `{key}` | `{json.dumps(made['default'])}` | {text} |")
    return "\n".join(rows)


def package() -> str:
    """package.json as it should be."""
    content = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    content["contributes"]["configuration"] = groups()
    content["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = restricted()
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def readme() -> str:
    """README.md as it should be."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def stale() -> list[str]:
    """The files that do not say what speclsp.config says."""
    wanted = {"package.json": package(), "README.md": readme()}
    return [name for name, text in wanted.items() if (HERE / name).read_text(encoding="utf-8") != text]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(f"run {sys.argv[0]}: {', '.join(stale())} differ" if stale() else 0)
    (HERE / "package.json").write_text(package(), encoding="utf-8")
    (HERE / "README.md").write_text(readme(), encoding="utf-8")
