"""Changes single settings in the user's config.toml and leaves everything else, comments and order, as it stands.

The file is replaced in one step or not at all, its permissions are kept, and a link stays a link. A result that would
not read back as wanted (there are many ways to write TOML) is never written: the error says what to write by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclsp import config, private_files
from speclsp.errors import SpeclspError
from speclsp.private_files.os_errors import sentence


def change(path: Path, settings: Mapping[str, object]) -> bool:
    """Set `settings`, by dotted key, in the file at `path`; None removes one. The file is made if missing.

    False when the file has them already. Raises SpeclspError: the file cannot be read, changed or written; it is then
    as it was.
    """
    path = path.resolve()  # many keep their settings in a repository and link to them
    try:
        old = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        new = changed(old, settings)
        if new is None:
            lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if value is not None]
            lines += [f"no {key}" for key, value in settings.items() if value is None]
            raise SpeclspError(f"{path} cannot be changed safely. Change it yourself: {', '.join(lines)}.")
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


def changed(text: str, settings: Mapping[str, object]) -> str | None:
    """`text` with `settings`; None when it is not TOML, or the result would not read back as wanted."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        for key, value in settings.items():
            if value is None:
                _remove(document, key)
            else:
                _set(document, key, value)
        new = tomlkit.dumps(document)
        before, after = (dict(config.flatten(config.from_toml(source))) for source in (text, new))
    except (TOMLKitError, ValueError, TypeError, AttributeError):
        return None
    wanted = {key: value for key, value in {**before, **settings}.items() if value is not None}
    return new if after == wanted else None


def _set(document: Any, key: str, value: object) -> None:
    """Write one setting into a tomlkit document."""
    import tomlkit

    *sections, name = key.split(".")
    table, wrapped = document, document.get(config.APP)
    if isinstance(wrapped, dict) and (not sections or sections[0] in wrapped):
        table = wrapped  # `[speclsp.engine]`, as an editor's settings have it, is understood too
    for section in sections:
        if section not in table:
            table[section] = tomlkit.table()
        table = table[section]
    if name not in table or table[name] != value:
        table[name] = tomlkit.item(value)


def _remove(document: Any, key: str) -> None:
    """Remove one setting from a tomlkit document, from each place where it can stand."""
    *sections, name = key.split(".")
    for root in filter(None, (document, document.get(config.APP))):
        table = root
        for section in sections:
            table = table.get(section, {})
        table.pop(name, None)
        root.pop(key, None)  # `"engine.threads" = 2`
