"""Ignore files: the same verdicts as git, and bounded time and memory for every hostile repository."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.rows import rows

from speclsp.lsp.visibility import ignore_files
from speclsp.lsp.visibility.ignore_files import IgnoreFiles, IgnoreVerdict, IgnoreWorkspace, bounded

ROWS = rows(__file__)


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def verdict(root: Path, path: str) -> IgnoreVerdict:
    """The verdict. Its part about suggestions can be read alone."""
    whole = IgnoreWorkspace().verdict(str(root), path)
    assert IgnoreWorkspace().no_suggestions(str(root), path) == whole.no_suggestions
    return whole


def is_context(root: Path, path: str) -> bool:
    return not verdict(root, path).no_context


@pytest.mark.parametrize(("files", "named", "free"), ROWS["a_pattern_matches_the_same_files_as_in_git"])
def test_a_pattern_matches_the_same_files_as_in_git(
    tmp_path: Path, files: dict[str, str], named: list[str], free: list[str]
):
    root = lay(tmp_path, files)
    assert [path for path in named if is_context(root, path)] == []
    for path in [*named, *free]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    assert [path for path in named if is_context(root, path)] == []
    assert [path for path in free if not is_context(root, path)] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git itself is what is compared with")
@pytest.mark.parametrize("ignore_case", [False, True])
def test_random_trees_get_the_same_verdicts_as_from_git(
    tmp_path: Path, soak: bool, ignore_case: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ignore_files, "IGNORE_CASE", ignore_case)
    rng, wrong = random.Random(4), list[str]()
    parts = ["a", "b", "ab", "*", "a*", "*b", "?", "**", "[ab]", "a.py", "*.py"]
    parts += ["A", "aB", "*.PY", "[A-B]", "A.py"] if ignore_case else []
    for number in range(400 if soak else 25):
        root = tmp_path / str(number)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        for folder in ("", "a/", "a/b/", "b/", "ab/"):
            (root / folder).mkdir(exist_ok=True)
            lines = [
                rng.choice(["", "", "!"])
                + rng.choice(["", "", "/"])
                + "/".join(rng.choice(parts) for _ in range(rng.choice([1, 1, 2, 3])))
                + rng.choice(["", "", "/"])
                for _ in range(rng.randrange(4))
            ]
            # pathspec matches "a/**/" also against files directly in a.
            lines = [line for line in lines if not line.endswith("**/")]
            (root / folder / ".gitignore").write_text("\n".join(lines))
        paths = [
            f"{folder}{name}" for folder in ("", "a/", "a/b/", "b/", "ab/") for name in ("x.py", "ab.py", "z", "a.py")
        ]
        for path in paths:
            (root / path).touch()
        completed = subprocess.run(
            ["git", "-C", str(root), "-c", f"core.ignoreCase={ignore_case}", "check-ignore", "--no-index", "--stdin"],
            input="\n".join(paths), capture_output=True, text=True,
        )  # fmt: skip
        by_git = set(completed.stdout.split("\n")) - {""}
        by_us = {path for path in paths if not is_context(root, path)}
        if by_us != by_git:
            rules = {str(f.relative_to(root)): f.read_text() for f in root.rglob(".gitignore")}
            wrong.append(f"{rules}: only git {by_git - by_us}, only we {by_us - by_git}")
    assert wrong == []


def test_aiexclude_has_no_negation_and_an_empty_one_excludes_everything(tmp_path: Path):
    root = lay(tmp_path, {"a/.aiexclude": "*.py\n!b.py\n", "c/.aiexclude": " \n", "d/.cursorignore": ""})
    assert verdict(root, "a/b.py").no_suggestions and not verdict(root, "a/b.txt").no_suggestions
    assert "empty" in verdict(root, "c/x/y.txt").no_suggestions
    assert verdict(root, "d/y.txt") == IgnoreVerdict()


def test_many_large_ignore_files_are_read_up_to_one_limit(tmp_path: Path):
    """The files nearest to the root are read. Everything under the unread files counts as ignored."""
    path = tmp_path
    for depth in range(30):
        path = path / f"d{depth}"
        path.mkdir()
        (path / ".gitignore").write_text("".join(f"/{depth}*{line}\n" for line in range(1900)))
    workspace = IgnoreWorkspace()
    inside = f"{path.relative_to(tmp_path).as_posix()}/a.py"
    verdict = workspace.verdict(str(tmp_path), inside)
    assert workspace.verdict(str(tmp_path), inside) == verdict and "too long" in verdict.no_context
    assert verdict.no_suggestions == ""
    assert not workspace.verdict(str(tmp_path), "d0/a.py").no_context


def test_an_unreadable_ignore_file_excludes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ignore_files.private_files, "read_bytes", refused)
    root = lay(tmp_path, {".aiexclude": "x"})
    assert "cannot be read" in verdict(root, "a.py").no_suggestions


wild_parts = st.lists(st.sampled_from(["a", "b", "*", "**", "?", "[ab]", "-", "a*", "\\*", "aa"]), max_size=8).map(
    "".join
)
patterns = st.builds(
    lambda taken, parts, end: taken + "/".join(parts) + end,
    st.sampled_from(["", "!"]),
    st.lists(wild_parts, min_size=1, max_size=5),
    st.sampled_from(["", "/"]),
)
paths = st.lists(st.text("ab-*", min_size=1, max_size=6), min_size=1, max_size=5).map("/".join)


@settings(max_examples=400)
@given(patterns, paths)
@example("*a*a*a*a*b", "aaaaaaab")
@example("**/a/**/b/**/a/**/b", "a/b/a/b")
def test_a_bounded_pattern_matches_at_least_the_same_paths(pattern: str, path: str):
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    result = bounded(pattern)
    try:
        original = GitIgnoreSpecPattern(pattern)
    except Exception:
        return
    if original.include is None or not original.regex.search(path):
        return
    if original.include:
        assert GitIgnoreSpecPattern(result).regex.search(path), f"{pattern} became {result}"
    else:
        assert result in (pattern, "") or GitIgnoreSpecPattern(result).include is False


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 60 + "b",
        "**/a/" * 30 + "b",
        "*" * 400 + "x",
        "a**" * 50,
        "[ab]*" * 40 + "c",
        "/".join(["*a*a*a*"] * 40),
        "\\**a" * 50,
        "?" * 500,
    ],
)
def test_every_pattern_is_matched_in_bounded_time(tmp_path: Path, pattern: str):
    root = lay(tmp_path, {".gitignore": "\n".join([pattern] * 20)})
    for path in ("/".join(["a" * 200] * 5), "/".join("ab" * 30) + "/x", "a" * 250):
        start_s = time.monotonic()
        verdict(root, path)
        assert time.monotonic() - start_s < 3


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_any_bytes_give_a_verdict(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    root = tmp_path_factory.mktemp("odd")
    (root / ".gitignore").write_bytes(data)
    assert isinstance(verdict(root, "a/b.py"), IgnoreVerdict)


# ── verdicts in the event loop ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise WAIT_S: on a busy machine a verdict may take longer, and these tests do not check that limit."""
    monkeypatch.setattr(ignore_files, "WAIT_S", 60.0)


@pytest.mark.usefixtures("waits_long")
async def test_a_read_that_began_before_the_request_does_not_answer_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started, changed, read_verdict = threading.Event(), threading.Event(), IgnoreWorkspace.verdict

    def slow(self: IgnoreWorkspace, root: str, inside: str) -> IgnoreVerdict:
        result = read_verdict(self, root, inside)
        started.set()
        changed.wait(5)
        return result

    monkeypatch.setattr(IgnoreWorkspace, "verdict", slow)
    root, ignore_files_cache = tmp_path.as_uri(), IgnoreFiles()
    assert ignore_files_cache.of(f"{root}/a.py", root) == ignore_files.UNREAD
    assert started.wait(60)
    lay(tmp_path, {".gitignore": "a.py"})

    settled = asyncio.ensure_future(ignore_files_cache.settled(f"{root}/a.py", root))
    await asyncio.sleep(0)  # the request is made
    changed.set()
    assert (await settled).no_context == "'a.py' in .gitignore"


async def test_a_hung_disk_is_waited_for_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    resume = threading.Event()
    monkeypatch.setattr(IgnoreWorkspace, "verdict", lambda self, root, inside: resume.wait(20) and IgnoreVerdict())
    root, ignore_files_cache = tmp_path.as_uri(), IgnoreFiles()
    first = await ignore_files_cache.settled(f"{root}/a.py", root)
    assert first == ignore_files.UNREAD and not first.no_suggestions, "completion goes on"
    monkeypatch.setattr(ignore_files, "WAIT_S", 60.0)  # a second wait would exceed the limit of this test
    start_s = time.monotonic()
    for number in range(50):
        assert (await asyncio.wait_for(ignore_files_cache.settled(f"{root}/{number}.py", root), 10)).no_context
    assert time.monotonic() - start_s < 30, "half of a second wait"
    resume.set()


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("untitled:Untitled-1", None),
        ("file:///a.py", None),
        ("untitled:/p/a.py", "file:///p2"),
        ("vscode-vfs://github/p/a.py", "vscode-vfs://github/p"),
        ("", ""),
        ("file:///p", "file:///p"),
    ],
)
def test_a_document_outside_a_local_folder_is_free(uri: str, root: str | None):
    assert IgnoreFiles().of(uri, root) == ignore_files.FREE
