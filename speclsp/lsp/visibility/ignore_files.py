"""Ignore files of a workspace: they exclude files from the context, or from suggestions too.

    .gitignore   .ignore   .git/info/exclude          exclude a file from the context of other files
    .aiexclude   .cursorignore   .continueignore      also disable suggestions in the file

The rules apply from the workspace folder down to the file's own directory, as in git. The last matching pattern
decides, and a nearer ignore file overrides one further up. A file in an ignored directory cannot be included again.
(.aiexclude has no `!`, and an empty one excludes everything.) Only regular files in the workspace are read, at most
64 KiB for one document: a repository may contain a pipe or a device, or patterns that keep a regular expression busy
for ever. An ignore file that is not read excludes all that it may name. While it has not been read yet, the file is
excluded from context, but may still be completed in. Patterns ignore case where git's core.ignoreCase is on by default.

One thread reads the files and may hang with the disk. The event loop only reads cached verdicts.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from speclsp import private_files
from speclsp.lsp.documents.uri_paths import file_path, path_inside, system_path
from speclsp.lsp.documents.windows_names import is_link, real_folder, real_path

NO_CONTEXT: tuple[tuple[str, ...], ...] = ((".git/info/exclude", ".gitignore"), (".ignore",))  # the last one decides
NO_SUGGESTIONS: tuple[tuple[str, ...], ...] = ((".aiexclude",), (".cursorignore",), (".continueignore",))
WITHOUT_NEGATION = ".aiexclude"

EMPTY = "everything, because it is empty,"
UNREADABLE = "everything, because it cannot be read,"
TOO_LONG = "everything, because it is too long,"

IGNORE_CASE = sys.platform in ("win32", "darwin")  # git asks the file system when it makes a repository
RECHECK_S = 2.0  # maximum age of a verdict
WAIT_S = 0.25  # for the first answer about a file that is completed in
MAX_BYTES = 64 * 1024  # of all ignore files that apply to one document
_MAX_WILD = 3  # "*" and "**" in a pattern that can stand for texts of different lengths at one place
_MAX_PATTERN = 512
_MAX_PATH = 1024
_REMEMBERED = 4096  # verdicts
_STARS = re.compile(r"\*{2,}")


@dataclass(frozen=True, slots=True)
class IgnoreVerdict:
    """The pattern and file that exclude a document, as in "'dist/' in web/.gitignore"; "" for none."""

    no_context: str = ""
    no_suggestions: str = ""


FREE = IgnoreVerdict()
UNREAD = IgnoreVerdict(no_context="an ignore file that has not been read yet")


class IgnoreFiles:
    """Cached verdicts of documents; a thread reads the ignore files."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[float, IgnoreVerdict]] = {}
        self._asked: dict[tuple[str, str], Future[IgnoreVerdict]] = {}  # the last one of each document
        self._workspace = IgnoreWorkspace()  # used in the thread
        self._executor = ThreadPoolExecutor(1, "speclsp-ignored")
        self._hangs = False  # the disk hangs, as far as known: requests do not wait for it

    def of(self, uri: str, root: str | None) -> IgnoreVerdict:
        """The cached verdict of a document in the workspace folder `root`; never waits."""
        key = self._place(uri, root)
        if key is None:
            return FREE
        checked_s, verdict = self._known.get(key, (-RECHECK_S, UNREAD))
        if time.monotonic() - checked_s >= RECHECK_S:
            self._ask(key)
        return verdict

    def read_no_suggestions(self, uri: str, root: str | None) -> str:
        """`IgnoreVerdict.no_suggestions`, read in the calling thread, however long the disk takes."""
        key = self._place(uri, root)
        return "" if key is None else IgnoreWorkspace().no_suggestions(*key)

    async def settled(self, uri: str, root: str | None) -> IgnoreVerdict:
        """The verdict, after a wait of at most WAIT_S when none is cached or the cached one is old."""
        key = self._place(uri, root)
        if key is None:
            return FREE
        checked_s, _ = self._known.get(key, (-RECHECK_S, UNREAD))
        if time.monotonic() - checked_s >= RECHECK_S and not self._hangs:
            import asyncio  # imported late: the answer to `initialize` needs none

            try:
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._ask(key))), WAIT_S)
            except (asyncio.TimeoutError, TimeoutError):
                self._hangs = True
        return self.of(uri, root)

    def _place(self, uri: str, root: str | None) -> tuple[str, str] | None:
        """(the workspace folder, the path in it); None: no ignore file can apply."""
        if not root or (":" in root[2:] and not root.startswith("file:")):  # C:/ is no scheme
            return None
        base = file_path(root).rstrip("/")
        inside = path_inside(file_path(uri), base)
        return None if inside is None else (base, inside)

    def _ask(self, key: tuple[str, str]) -> Future[IgnoreVerdict]:
        """Request a new verdict from the thread: a reading under way may have missed the latest change."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
            self._asked.clear()
        future = self._asked.get(key)
        if future is None or future.running() or future.done():
            future = self._asked[key] = self._executor.submit(self._read, key)
        return future

    def _read(self, key: tuple[str, str]) -> IgnoreVerdict:
        try:
            verdict = self._workspace.verdict(*key)
        except Exception:  # a repository may contain any pattern
            verdict = IgnoreVerdict(no_context="an ignore file that cannot be parsed")
        self._known[key] = time.monotonic(), verdict
        self._hangs = False
        return verdict


# ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class IgnoreRules:
    """One ignore file."""

    patterns: list[tuple[re.Pattern[str], bool, str]] = field(
        default_factory=list
    )  # regex, ignores, the pattern as written
    everything: str = ""  # why it names all there is

    def match(self, path: str) -> tuple[bool, str] | None:
        """(whether the path is ignored, by which pattern); a directory ends with a slash. None: no pattern matches."""
        if self.everything:
            return True, self.everything
        for regex, ignores, line in reversed(self.patterns):
            if names(regex, path):
                return ignores, shown(line)
        return None


def names(regex: re.Pattern[str], path: str) -> bool:
    """True if one of pathspec's patterns matches the path itself, and not only a directory that it lies in.

    Theirs do for both: "a" becomes ^a(/|$), "a/" ^a(/), "a/**" ^a/, "*" one character and "*/" a slash.
    """
    match = regex.search(path)
    if match is None:
        return False
    if not regex.pattern.startswith("^"):
        return "/" not in regex.pattern or path.endswith("/")
    return (match.end() == len(path)) is ("ps_d" in regex.pattern)


NONE = IgnoreRules()


class IgnoreWorkspace:
    """The ignore files that were read, by path; read again when they have changed."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str], tuple[object, int, IgnoreRules]] = {}  # by workspace folder and path in it
        self._bytes = 0  # of the files that the last verdict needed

    def verdict(self, root: str, inside: str) -> IgnoreVerdict:
        """Verdict of the ignore files between `root` and a file in it."""
        if len(inside) > _MAX_PATH:
            return IgnoreVerdict(no_context="no ignore file: its path is too long")
        if sum(size_bytes for _, size_bytes, _ in self._rules.values()) > MAX_BYTES:
            self._rules.clear()
        self._bytes = 0
        no_suggestions = self._first(NO_SUGGESTIONS, root, inside)
        return IgnoreVerdict(self._first(NO_CONTEXT, root, inside) or no_suggestions, no_suggestions)

    def no_suggestions(self, root: str, inside: str) -> str:
        """That part of the verdict. Without an ignore file for AI tools it costs a few looks at the disk."""
        return self._first(NO_SUGGESTIONS, root, inside) if len(inside) <= _MAX_PATH else ""

    def _directories(self, root: str, parts: list[str]) -> Iterator[str]:
        """The directories from `root` down that no other user owns: "" first, each with a slash at the end."""
        inside = ""
        yield inside
        for part in parts[:-1]:
            inside += part + "/"
            try:
                info = os.lstat(system_path(f"{root}/{inside[:-1]}"))
                if not stat.S_ISDIR(info.st_mode) or is_link(info):
                    return
            except (OSError, ValueError):
                return
            yield inside

    def _first(self, families: tuple[tuple[str, ...], ...], root: str, inside: str) -> str:
        parts = inside.split("/")
        directories = list(self._directories(root, parts))
        return next(filter(None, (self._named(family, root, directories, parts) for family in families)), "")

    def _named(self, family: tuple[str, ...], root: str, directories: list[str], parts: list[str]) -> str:
        """The pattern of one kind of file that ignores a path, or a directory that it lies in."""
        ignore_files = [
            (depth, directory, name, rules)
            for depth, directory in enumerate(directories)
            for name in family
            if (rules := self._read(root, directory + name)) is not NONE
        ]
        for count in range(1, len(parts) + 1) if ignore_files else ():
            for depth, directory, name, rules in reversed(ignore_files):
                if depth >= count:
                    continue
                path = "/".join(parts[depth:count]) + ("/" if count < len(parts) else "")
                match = rules.match(path)
                if match is not None and match[0]:
                    return f"{match[1]} in {printable(directory)}{name}"
                if match is not None:
                    break
        return ""

    def _read(self, root: str, inside: str) -> IgnoreRules:
        """The current rules of one ignore file."""
        path = system_path(f"{root}/{inside}")
        try:
            info = os.lstat(path)
            if is_link(info) or ".git/" in inside:  # a link may point anywhere
                path = within(root, path)
                info = os.lstat(path)
        except (OSError, ValueError):
            return NONE
        if not stat.S_ISREG(info.st_mode):
            return NONE
        self._bytes += info.st_size
        if self._bytes > MAX_BYTES:
            return IgnoreRules(everything=TOO_LONG)
        state = path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
        known = self._rules.get((root, inside))
        if known is None or known[0] != state:
            rules = parsed(path, negation=not inside.endswith(WITHOUT_NEGATION))
            known = self._rules[root, inside] = state, info.st_size + 100, rules  # 100: an empty file has an entry, too
        return known[2]


def shown(pattern: str) -> str:
    """A pattern for a person, in quotes."""
    short = printable(pattern)
    return f"'{short if len(short) <= 60 else short[:59] + '…'}'"


def printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def within(root: str, path: str) -> str:
    """Target of a link, if it is in the workspace. Raises ValueError, OSError."""
    real = real_path(path)
    if path_inside(real, real_folder(root)) is None:
        raise ValueError("a link out of the workspace")
    return system_path(real)


def parsed(path: str, *, negation: bool) -> IgnoreRules:
    """A regular file's patterns. What cannot be read, or is more than anybody writes, names everything."""
    try:
        data = private_files.read_bytes(path, MAX_BYTES, follow=False)
    except FileNotFoundError:
        return NONE
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP):  # no ordinary file any more
            return NONE
        return IgnoreRules(everything=TOO_LONG if error.errno == errno.EFBIG else UNREADABLE)
    text = data.decode("utf-8-sig", "replace")
    if not negation and not text.strip():
        return IgnoreRules(everything=EMPTY)
    lines = [line for raw_line in text.split("\n") if (line := bounded(raw_line)) and (negation or line[0] != "!")]
    patterns = ((compiled(line, IGNORE_CASE), line) for line in lines)
    return IgnoreRules([(*pattern, line) for pattern, line in patterns if pattern is not None])


def compiled(line: str, ignore_case: bool) -> tuple[re.Pattern[str], bool] | None:
    """The regular expression of a pattern, and whether it ignores; None if it makes no sense, as git leaves it out."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    with suppress(Exception):
        pattern = GitIgnoreSpecPattern(line)
        if pattern.include is not None and pattern.regex is not None:
            return re.compile(pattern.regex.pattern, re.IGNORECASE if ignore_case else 0), pattern.include
    return None


def bounded(line: str) -> str:
    """A pattern that takes no time to match: itself, or one that stands for more; "" for a comment.

    A pattern that takes something back stands for less then: it is left out.
    """
    line = line.rstrip("\r")
    if line.startswith("#"):
        return ""
    taken_back = line.startswith("!")
    parts = line[taken_back:].split("/")
    parts = [part if part == "**" or "\\" in part else _STARS.sub("*", part) for part in parts]
    wild = sum(1 if part == "**" else part.count("*") for part in parts if part != "*")
    if len(line) <= _MAX_PATTERN and wild + (len(parts) == 1 or parts[1:] == [""]) <= _MAX_WILD:
        return "!" * taken_back + "/".join(parts)
    if taken_back:
        return ""
    start = re.split(r"[*?\[\\]", line[:_MAX_PATTERN])[0].rpartition("/")[0]
    return f"{start}/**" if start else "*"
