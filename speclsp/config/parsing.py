"""Settings from config.toml, the editor and command-line flags: parsing, merging and error sentences."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from speclsp import private_files
from speclsp.config.directories import APP, config_path
from speclsp.config.known_settings import KEY, KNOWN, NO_KEY, SECTIONS
from speclsp.config.rules import allowed, brief, wanted
from speclsp.config.schema import Config
from speclsp.errors import ConfigError, SpeclspError, nearest
from speclsp.private_files.os_errors import sentence

MAX_BYTES = 2**20  # of a config.toml
# Settings that decide who receives the code, what is fetched and stored, and whose weights answer. They are fixed when
# the server starts, because an editor may mix a repository's settings into what it sends later. A path as `model` too.
THE_USERS_OWN = (
    *("remote.", "models_dir"),
    *("engine.adapter", "engine.offline"),
)


def parse(
    settings: Mapping[str, object], base: Config | None = None, fixed: tuple[str, ...] = ()
) -> tuple[Config, list[str]]:
    """`base` (or the defaults) with `settings` on top, and one sentence for each part that is invalid.

    Keys are nested or dotted, a leading `speclsp` is dropped, and null leaves a setting as it was. Never raises.
    `fixed`: prefixes of settings that cannot be changed here.
    """
    config, problems = base if base is not None else Config(), []
    for key, value in flatten(settings):
        if key == KEY:
            problems.append(NO_KEY)
            continue
        a_path = (
            key == "model" and isinstance(value, str) and ("/" in value or "\\" in value or value[:1] in (".", "~"))
        )
        if fixed and (key.startswith(fixed) or a_path) and key in KNOWN:
            if value is not None and value != reduce(getattr, key.split("."), config):
                problems.append(f"{key} is taken from the user's own settings when the server starts: restart it.")
            continue
        if key in SECTIONS or key == "":
            problems.append(str(ConfigError(key or "settings", brief(value), "a table of settings")))
        elif key not in KNOWN:
            problems.append(unknown(key))
        elif value is not None:
            try:
                config = with_value(config, key, value)
            except ConfigError as error:
                problems.append(str(error))
    return config, problems


def unknown(key: str) -> str:
    """The error for a setting that does not exist, with the nearest name."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).replace("-", "_").lower()
    tails = [known for known in KNOWN if known.rpartition(".")[2] == snake.rpartition(".")[2]]
    near = snake if snake in KNOWN else next(iter(tails), None) or nearest(snake, KNOWN)
    hint = f'did you mean "{near}"?' if near else "`speclsp config list` shows all."
    return f'unknown setting "{brief(key)}": {hint}'


def flatten(settings: object) -> Iterator[tuple[str, object]]:
    """(dotted key, value) of every leaf, in the order written, however deep the nesting."""
    waiting: list[tuple[str, object]] = [("", settings)]
    while waiting:
        key, value = waiting.pop()
        key = key.removeprefix(APP).removeprefix(".") if key == APP or key.startswith(APP + ".") else key
        if isinstance(value, Mapping) and key not in KNOWN:
            inner = [(f"{key}.{name}" if key else str(name), leaf) for name, leaf in value.items()]
            waiting.extend(reversed(inner))
        elif not (value is None and (key in SECTIONS or key == "")):
            yield key, value


def with_value(config: Config, key: str, value: Any) -> Config:
    """`config` with one known setting changed. Raises ConfigError when the value is not one it can have."""
    known = KNOWN[key]
    if isinstance(known.default, tuple) and isinstance(value, list):
        value = tuple(value)
    if known.rule.is_path and isinstance(value, str) and value.startswith("~"):
        value = os.path.expanduser(value)  # noqa: PTH111 - Path.expanduser raises for an unknown user
    if not allowed(value, known.default, known.rule):
        raise ConfigError(key, brief(value), wanted(known.default, known.rule))
    section, _, name = key.rpartition(".")
    if not section:
        return replace(config, **{name: value})
    return replace(config, **{section: replace(getattr(config, section), **{name: value})})


def gather(flags: Mapping[str, object] | None = None) -> tuple[Config, list[str]]:
    """The defaults, then config.toml, then `flags`; and a sentence for each part that is invalid."""
    path = config_path()
    written, problems = read_toml(path)
    config, bad = parse(written)
    problems += [f"{path}: {problem}" for problem in bad]
    config, bad = parse(flags or {}, config)
    return config, problems + bad


def load(flags: Mapping[str, object] | None = None) -> Config:
    """As `gather`, for commands that stop at an invalid setting. Raises ConfigError naming every problem."""
    config, problems = gather(flags)
    if problems:
        raise BadSettings(problems)
    return config


class BadSettings(ConfigError):
    """One or more settings cannot be used."""

    def __init__(self, problems: list[str]) -> None:
        SpeclspError.__init__(self, " ".join(problems))
        self.key = ""


def read_toml(path: Path) -> tuple[dict[str, object], list[str]]:
    """The file's tables, or {} and a sentence. A missing file is not a problem."""
    try:
        return from_toml(private_files.read_bytes(path, MAX_BYTES).decode("utf-8-sig")), []
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return {}, [sentence(error, path, "be read")]
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        return {}, [f"{path} is not valid TOML: {error}."]


def from_toml(text: str) -> dict[str, object]:
    """The tables of a TOML text. Raises ValueError when it is not one."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def changes(config: Config) -> dict[str, object]:
    """{dotted key: value} of the settings that differ from their defaults."""
    values = {key: reduce(getattr, key.split("."), config) for key in KNOWN}
    return {key: value for key, value in values.items() if value != KNOWN[key].default}


def as_flags(config: Config) -> list[str]:
    """`--set key=value` for every setting that is not at its default: passes `config` to a child process."""
    return [word for key, value in changes(config).items() for word in ("--set", f"{key}={in_words(value)}")]


def in_words(value: object) -> str:
    """`value` as `from_words` reads it back."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def from_words(assignment: str) -> tuple[str, object]:
    """("engine.draft", False) for "engine.draft=false"; the setting's own type decides. Raises ConfigError.

    An unknown key keeps its text as the value, for `parse` to name with its nearest neighbour.
    """
    key, equals, text = assignment.partition("=")
    key, text = key.strip(), text.strip()
    if not equals:
        raise ConfigError("--set", assignment, "key=value, as in --set engine.threads=2")
    known = KNOWN.get(key)
    if known is None or isinstance(known.default, str):
        return key, text
    if isinstance(known.default, tuple):
        return key, [word.strip() for word in text.split(",") if word.strip()]
    if isinstance(known.default, bool):
        return key, {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}.get(
            text.lower(), text
        )
    try:
        return key, (int if isinstance(known.default, int) else float)(text)
    except ValueError:
        return key, text  # not a number: `parse` says what was expected
