"""Storage of API keys for `remote.url`, and the rules for who receives one.

    SPECLSP_API_KEY        for the server that the user's own settings name, and no other
    `speclsp key set URL`  for that URL's scheme, host and port: in keys.json, which only the user can read

An editor can send a `remote.url` that a repository put into its settings. Such a server gets only a key that the user
stored for it by name. A key is never a setting.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from speclsp import config, private_files
from speclsp.errors import SpeclspError
from speclsp.private_files.os_errors import sentence

VARIABLE = "SPECLSP_API_KEY"
PORTS = {"http": 80, "https": 443}


def find(url: str, own_url: str = "") -> tuple[str, str]:
    """The key to send to the server at `url`, "" for none; and a sentence about a key that was withheld, "" for none.

    `own_url`: the address in the user's own settings. Raises SpeclspError: others can read the key, or it cannot be a
    key.
    """
    here, ours = origin(url), own_url and origin(own_url)
    from_environment = os.environ.get(VARIABLE, "").strip()
    if from_environment and here == ours:
        return checked(from_environment, VARIABLE), ""
    if stored := read().get(here):
        return checked(stored, "the stored key"), ""
    if from_environment:
        return "", (
            f"{VARIABLE} is not sent to {here}, which config.toml does not name: `speclsp key set {here}` "
            f"stores a key for it."
        )
    return "", ""


def origin(url: str) -> str:
    """Scheme, host and port: what a key is bound to. Raises SpeclspError."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError) as error:
        raise SpeclspError(f"{url!r} is no http:// or https:// address.") from error
    if not parts.hostname:
        raise SpeclspError(f"{url!r} names no host.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def checked(key: str, source: str) -> str:
    """The key, if it can stand in a header. Raises SpeclspError, which does not quote it."""
    if not key.isascii() or not key.isprintable() or any(letter.isspace() for letter in key):
        raise SpeclspError(f"{source} is no key: it holds spaces, line ends or letters that no key has.")
    return key


def store(url: str, key: str) -> Path:
    """Store a key for the server at `url`; returns its file. Raises SpeclspError."""
    place, key = origin(url), checked(key.strip(), "what was given")
    if not key:
        raise SpeclspError("no key was given.")
    write({**read(), place: key})
    return keys_path()


def forget(url: str) -> bool:
    """Delete the key for the server at `url`; False when there was none. Raises SpeclspError."""
    keys = read()
    if keys.pop(origin(url), None) is None:
        return False
    write(keys)
    return True


def keys_path() -> Path:
    """keys.json beside config.toml."""
    return config.config_path().with_name("keys.json")


def read() -> dict[str, str]:
    """{origin: key} of keys.json. Raises SpeclspError."""
    path = keys_path()
    try:
        text = path.read_text(encoding="utf-8")
        problem = private_files.exposure(path, path.stat())
        keys = json.loads(text)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SpeclspError(sentence(error, path, "be read")) from error
    except ValueError as error:
        raise SpeclspError(f"{path} cannot be understood: remove it, and store the keys anew.") from error
    if problem:
        mend = f"chmod 600 {path}"
        if sys.platform == "win32":
            mend = f'icacls "{path}" /inheritance:r /grant:r "%USERNAME%:F"'
        raise SpeclspError(f"{path} holds keys and {problem}: `{mend}`, or remove it.")
    return {str(place): str(key) for place, key in keys.items()} if isinstance(keys, dict) else {}


def write(keys: dict[str, str]) -> None:
    """Replace keys.json, in one step, with mode 0600; no file for no keys. Raises SpeclspError."""
    path = keys_path()
    try:
        if not keys:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        private_files.replace(path, json.dumps(keys).encode(), sync=True)
    except OSError as error:
        raise SpeclspError(sentence(error, path, "be written")) from error
