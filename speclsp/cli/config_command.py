"""`speclsp config`: list, read and change the settings in config.toml. Comments and the other lines stay."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from functools import reduce
from typing import Any

from speclsp import config
from speclsp.cli.command_line import FAILURE, SUCCESS, USER_ERROR, complain
from speclsp.config import Setting, toml_edit

FROM_FILE, FROM_DEFAULT = "config.toml", "default"


def run_list(options: argparse.Namespace) -> int:
    """Print the settings in groups, or one JSON object; exit code 2 when config.toml has an invalid part."""
    settings, problems = config.gather()
    written, _ = config.read_toml(config.config_path())
    set_here = {key for key, _ in config.flatten(written)}
    groups = {
        heading: [row(known, settings, set_here) for known in group] for heading, group in config.by_group().items()
    }
    if options.json:
        rows = [{"group": heading, **entry} for heading, entries in groups.items() for entry in entries]
        print(json.dumps({"path": str(config.config_path()), "settings": rows, "problems": problems}))
    else:
        sys.stdout.write(as_text(groups, advanced=options.advanced))
    for problem in problems:
        complain(problem, USER_ERROR)
    return USER_ERROR if problems else SUCCESS


def run_get(options: argparse.Namespace) -> int:
    """Print the value of one setting."""
    require_known(options.key)
    settings, problems = config.gather()
    print(config.in_words(reduce(getattr, options.key.split("."), settings)))
    for problem in problems:
        complain(problem, USER_ERROR)
    return USER_ERROR if problems else SUCCESS


def run_set(options: argparse.Namespace) -> int:
    """Write one setting into config.toml. Raises SpeclspError; the file is then as it was."""
    key, value = config.from_words(f"{options.key}={options.value}")
    settings, problems = config.parse({key: value})
    if problems:
        raise config.BadSettings(problems)
    require_known(key)
    path, checked = config.config_path(), reduce(getattr, key.split("."), settings)
    toml_edit.change(path, {key: list(checked) if isinstance(checked, tuple) else checked})
    print(f"{key} = {shown(checked)} ({path})")
    return SUCCESS


def run_unset(options: argparse.Namespace) -> int:
    """Remove one setting from config.toml; exit code 1 when it is not there."""
    require_known(options.key)
    path = config.config_path()
    if not toml_edit.change(path, {options.key: None}):
        return complain(f"{options.key} is not set in {path}.", FAILURE)
    print(f"{options.key} = {shown(config.KNOWN[options.key].default)} (default)")
    return SUCCESS


def run_path(_options: argparse.Namespace) -> int:
    """Print the path of config.toml, whether it exists or not."""
    print(config.config_path())
    return SUCCESS


def require_known(key: str) -> None:
    """Raise BadSettings with the nearest name unless `key` is a setting."""
    if key not in config.KNOWN:
        _, problems = config.parse({key: 0})
        raise config.BadSettings(problems or [f'"{key}" is not one setting.'])


def row(known: Setting, settings: config.Config, set_here: set[str]) -> dict[str, Any]:
    """One setting as `--json` prints it."""
    value = reduce(getattr, known.key.split("."), settings)
    return {
        "key": known.key,
        "value": value,
        "default": known.default,
        "source": FROM_FILE if known.key in set_here else FROM_DEFAULT,
        "advanced": known.rule.advanced,
        "meaning": known.rule.meaning,
        "choices": list(known.rule.choices),
    }


def as_text(groups: Mapping[str, list[dict[str, Any]]], advanced: bool) -> str:
    """The table. Advanced settings appear with --advanced, and where config.toml sets them."""
    lines, hidden = [], 0
    for heading, entries in groups.items():
        visible = [entry for entry in entries if advanced or not entry["advanced"] or entry["source"] == FROM_FILE]
        hidden += len(entries) - len(visible)
        lines += [heading] if visible else []
        for entry in visible:
            text = shown(entry["value"])
            text = text if len(text) <= 44 else text[:43] + "…"
            origin = f"config.toml (default {shown(entry['default'])})" if entry["source"] == FROM_FILE else "default"
            lines.append(f"  {entry['key']:<34} {text:<44} {origin}")
        lines += [""] if visible else []
    lines.append(f"File: {config.config_path()}")
    if hidden:
        lines.append(f"{hidden} advanced settings are not shown: `speclsp config list --advanced`.")
    return "\n".join(lines) + "\n"


def shown(value: object) -> str:
    """A value as JSON and TOML write it."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
