"""Changes single settings in the user's config.toml and leaves everything else, comments and order, as it stands.

The file is replaced in one step or not at all, its permissions are kept, and a link stays a link. A result that would
not read back as wanted (there are many ways to write TOML) is never written: the error says what to write by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speclsp import config, private_files
from speclsp.errors import SpeclspError
from speclsp.private_files.os_errors import sentence


def change(path: Path, settings: Mapping[str, object]) -> None:
    """Set `settings`, by dotted key, in the file at `path`; it is made if missing.

    Raises:
        SpeclspError: the file cannot be read, changed or written; it is then as it was.
    """

    def edited(old: str) -> str | None:
        new = changed(old, settings)
        return new if new is not None and reads_as_wanted(old, new, settings) else None

    lines = ", ".join(f"{key} = {in_toml(value)}" for key, value in settings.items())
    _rewrite(path, edited, f"Set there yourself: {lines}.")


def remove(path: Path, key: str) -> bool:
    """Remove the setting `key` from the file at `path`; False when it is not there.

    Raises:
        SpeclspError: the file cannot be read, changed or written; it is then as it was.
    """
    return _rewrite(path, lambda old: without(old, key), f"Remove there yourself: {key}.")


def _rewrite(path: Path, edited: Callable[[str], str | None], fix: str) -> bool:
    """Replace the text of the file by `edited(text)`; False when the text stays the same. Raises SpeclspError.

    `edited` returns None for a text that it cannot change; `fix` is the end of that error.
    """
    path = path.resolve()  # many keep their settings in a repository and link to them
    try:
        old = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        new = edited(old)
        if new is None:
            raise SpeclspError(f"{path} is written so that it cannot be changed safely. {fix}")
        if new == old:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        private_files.replace(path, new.encode(), mode=mode, sync=True)
    except UnicodeDecodeError as error:
        raise SpeclspError(f"{path} is not UTF-8 text (byte {error.start}).") from error
    except OSError as error:
        raise SpeclspError(sentence(error, path, "be changed")) from error
    return True


def without(text: str, key: str) -> str | None:
    """`text` without `key`; None when it is not TOML, or the result would lose another setting."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    *sections, name = key.split(".")
    try:
        document = tomlkit.parse(text)
        wrapped = document.get(config.APP)
        for root in (document, wrapped) if isinstance(wrapped, dict) else (document,):
            table: Any = root
            for section in sections:
                table = table.get(section, {})
            table.pop(name, None)
            root.pop(key, None)  # `"engine.threads" = 2`
        new = tomlkit.dumps(document)
        before, after = (dict(config.flatten(config.from_toml(source))) for source in (text, new))
    except (TOMLKitError, ValueError, TypeError, AttributeError):
        return None
    before.pop(key, None)
    return new if after == before else None


def changed(text: str, settings: Mapping[str, object]) -> str | None:
    """`text` with `settings`; None when it is not TOML, or a setting's place is taken by something else."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        for key, value in settings.items():
            *sections, name = key.split(".")
            table: Any = document
            wrapped = document.get(config.APP)
            if isinstance(wrapped, dict) and (not sections or sections[0] in wrapped):
                table = wrapped  # `[speclsp.engine]`, as an editor's settings have it, is understood too
            for section in sections:
                if section not in table:
                    table[section] = tomlkit.table()
                table = table[section]
            if name not in table or table[name] != value:
                table[name] = tomlkit.item(value)
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, AttributeError):
        return None


def reads_as_wanted(old: str, new: str, settings: Mapping[str, object]) -> bool:
    """True when `new` parses to the settings of `old` with `settings` on top."""
    try:
        before, after = config.from_toml(old), config.from_toml(new)
    except ValueError:
        return False
    kept, complaints = config.parse(before)
    wanted, problems = config.parse(settings, kept)
    return not problems and config.parse(after) == (wanted, complaints)


def in_toml(value: object) -> str:
    """A value as TOML writes it."""
    import tomlkit

    return tomlkit.item(value).as_string()
