"""The token of the TCP port: 256 random bits, made once, in a file that only this user can read."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from speclsp import config, private_files
from speclsp.errors import EngineError
from speclsp.private_files.os_errors import naming, sentence

TOKEN_BYTES = 32


def token_path() -> Path:
    """The path of the token's file, which may not exist yet."""
    return config.state_dir() / "token"


def token() -> str:
    """This user's token, made if there is none. Raises EngineError: the file is not ours, or others can read it."""
    path = token_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return read_token(path)
        handle, name = tempfile.mkstemp(prefix=".token-", dir=path.parent)  # 0600
        try:
            with naming(path), os.fdopen(handle, "w", encoding="ascii") as file:
                private_files.restrict(Path(name))
                file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
            with suppress(FileExistsError):  # another engine that starts now was first: its token is used
                os.link(name, path)
        finally:
            Path(name).unlink()
        return read_token(path)
    except OSError as error:
        raise EngineError(sentence(error, path, "keep the token")) from error


def read_token(path: Path) -> str:
    """The token in the file at `path`. Raises FileNotFoundError, OSError, EngineError."""
    if path.is_symlink():
        private_files.check_private(path, path.lstat())
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        private_files.check_private(path, os.fstat(file.fileno()))
        text = file.read(4096).decode("ascii", "replace").strip()
    if not re.fullmatch(r"[\w-]{43,256}", text, re.ASCII):
        raise EngineError(f"{path} has no 256-bit token: remove it, and the engine creates a new one.")
    return text
