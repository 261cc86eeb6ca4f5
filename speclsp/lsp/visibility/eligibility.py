"""Eligibility of a document for suggestions; if it is not eligible, the setting or file that excludes it.

    *  anything but a slash     **  any directories, or none     ?  one character     [ab]  [!ab]  one of these, or not
    "secrets/**"  "**/*.pem"    a pattern without a slash, "*.pem", is for a file's name, wherever it lies

A pattern in completion.disabled_globs is held against the path inside the workspace folder and against the whole path,
with forward slashes.
"""

from __future__ import annotations

import functools
import re

from speclsp.config import Config
from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.reasons import Reason
from speclsp.lsp.visibility import secret_files

_WILD = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?\]?[^\]]*\]")


def why_not(
    uri: str, language: str, characters: int, config: Config, root: str | None, excluded: str = ""
) -> tuple[str, str]:
    """(reason, a sentence that names the setting or the file) where nothing is suggested; ("", "") where it is.

    `excluded`: the pattern of an ignore file for AI tools that names the document, and which file that is.
    """
    if not config.completion.enabled:
        return Reason.DISABLED, "completion.enabled is off"
    return exclusion(uri, language, characters, config, root, excluded)


def exclusion(
    uri: str, language: str, characters: int, config: Config, root: str | None, excluded: str = ""
) -> tuple[str, str]:
    """As `why_not`, for features that do not depend on `completion.enabled`."""
    secret = secret_files.pattern_of(uri)  # no setting changes this reason, so it comes before the language's
    if secret:
        return Reason.SECRET_FILE, f"files of this kind hold secrets: {secret!r}"
    if language in config.completion.disabled_languages:
        return Reason.LANGUAGE_OFF, f"{language} is in completion.disabled_languages"
    pattern = glob_off(uri, config, root)
    if pattern:
        return Reason.GLOB_OFF, f"the file matches {pattern!r} in completion.disabled_globs"
    if excluded:
        return Reason.EXCLUDED, f"the file matches {excluded}"
    limit = config.context.max_file_bytes
    if characters > limit:
        return Reason.TOO_LARGE, f"the file has {characters} characters, more than context.max_file_bytes = {limit}"
    return "", ""


def glob_off(uri: str, config: Config, root: str | None) -> str:
    """The pattern of completion.disabled_globs that the document's path matches, "" if none does."""
    patterns = config.completion.disabled_globs
    if not patterns:
        return ""
    path, base = file_path(uri), file_path(root).rstrip("/") if root else ""
    inside = path.removeprefix(base + "/") if base else path
    return next((pattern for pattern in patterns if matches(pattern, path) or matches(pattern, inside)), "")


def matches(pattern: str, path: str) -> bool:
    """True if a glob matches a path, which has forward slashes."""
    if "/" not in pattern:
        path = path.rpartition("/")[2]
    return _compiled(pattern).fullmatch(path) is not None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The glob as a regular expression; a bracket that makes no sense stands for itself."""
    regex, at = "", 0
    for wildcard in _WILD.finditer(pattern):
        regex += re.escape(pattern[at : wildcard.start()]) + _translated(wildcard[0])
        at = wildcard.end()
    try:
        return re.compile(regex + re.escape(pattern[at:]), re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern))


def _translated(wild: str) -> str:
    if wild.startswith("["):
        letters = re.sub(r"([\\\[^&~|])", r"\\\1", wild[1:-1].removeprefix("!"))
        return f"[^/{letters}]" if wild.startswith("[!") else f"[{letters}]"
    return {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}[wild]
