"""Index processes: when they run, the messages they get, and files that crash or hang a grammar."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.lsp.editor_client import Editor, Page, is_indexer
from support.waiting import becomes_true
from windows.harness.program import IS_FOREIGN

from speclsp.config import Config
from speclsp.lsp.documents.document import Documents
from speclsp.lsp.documents.notebook import Notebooks
from speclsp.lsp.documents.uri_paths import lies_in
from speclsp.lsp.index import index_schema
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.server import index_supervisor
from speclsp.lsp.server.index_supervisor import CANNOT_INDEX, IndexedFolder, IndexSupervisor
from speclsp.lsp.server.request_context import WorkspaceDocuments
from speclsp.lsp.visibility.ignore_files import UNREAD, IgnoreFiles, IgnoreVerdict

PATIENCE_S = 120  # the process has the lowest priority, and the machine may be busy


def lay(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the index at once in this process. The server of an editor keeps its delay."""
    monkeypatch.setattr(index_supervisor, "START_S", 0.01)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    lay(folder, {"app.py": "import store\n", "store.py": "import first\n"})
    return folder


def begin(editor: Editor, root: Path, **context: object) -> None:
    editor.begin(workspaceFolders=[{"uri": root.as_uri(), "name": "work"}], initializationOptions={"context": context})


def indexers(editor: Editor) -> list[psutil.Process]:
    """The processes that maintain an index for the editor. Under Wine they are no children of its server."""
    if not IS_FOREIGN:
        return [child for child in editor.server.children() if is_indexer(child)]
    running = []
    for process in filter(is_indexer, psutil.process_iter()):
        with suppress(psutil.NoSuchProcess):
            if process.environ()["XDG_RUNTIME_DIR"].endswith(f"{editor.runtime.parent}"):
                running.append(process)
    return running


def voluntary_switches(task: Path) -> int:
    """Voluntary context switches of a thread; 0 if it has ended."""
    try:
        lines = (task / "status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))


def importers(index: IndexReader, module: str) -> list[str]:
    """Files of the folder that import a module, by the index. No query is cut short on a busy machine."""
    index.cache.query_ms = 60_000
    paths = index.files_like("another.py")
    return [path for path in paths if any(statement.module == module for statement in index.imports(path))]


# ── with an editor ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_is_indexed_and_updated_once_one_of_its_documents_is_open(root: Path):
    index = IndexReader(root.as_uri())
    with Editor() as editor:
        begin(editor, root)
        editor.until("ready")
        assert indexers(editor) == [] and not index.database.exists()
        page = Page(editor, "import store\n", uri=(root / "app.py").as_uri())
        assert becomes_true(lambda: importers(index, "first") == ["store.py"])
        (process,) = indexers(editor)

        page.type(0, "import typed\n")
        lay(root, {"app.py": "import saved\n"})
        editor.notify("textDocument/didSave", {"textDocument": {"uri": (root / "app.py").as_uri()}})
        assert becomes_true(lambda: importers(index, "saved") == ["app.py"])
        assert importers(index, "typed") == [], "unsaved text is not indexed"
        (root / "store.py").rename(root / "shop.py")
        changes = [{"uri": (root / name).as_uri(), "type": 3} for name in ("store.py", "shop.py")]
        editor.notify("workspace/didChangeWatchedFiles", {"changes": changes})
        assert becomes_true(lambda: importers(index, "first") == ["shop.py"])
        lay(root, {".gitignore": "shop.py\n"})
        editor.notify(
            "workspace/didChangeWatchedFiles", {"changes": [{"uri": (root / ".gitignore").as_uri(), "type": 1}]}
        )
        assert becomes_true(lambda: importers(index, "first") == [])
    assert becomes_true(lambda: not process.is_running()), "it ends with its server"


def test_the_index_setting_stops_and_starts_the_process(root: Path):
    with Editor() as editor:
        begin(editor, root, index_workspace=False)
        editor.until("ready")
        Page(editor, "import store\n", uri=(root / "app.py").as_uri())
        time.sleep(1.5)
        assert indexers(editor) == []
        editor.notify("workspace/didChangeConfiguration", {"settings": {"context": {"index_workspace": True}}})
        assert becomes_true(lambda: indexers(editor))
        editor.notify("workspace/didChangeConfiguration", {"settings": {"context": {"index_workspace": False}}})
        assert becomes_true(lambda: not indexers(editor))


def test_a_folder_that_leaves_the_workspace_ends_its_process_and_a_new_folder_starts_one(root: Path, tmp_path: Path):
    other = tmp_path / "other"
    lay(other, {"shop.py": "import second\n"})
    folder, added = ({"uri": workspace.as_uri(), "name": workspace.name} for workspace in (root, other))
    with Editor() as editor:
        begin(editor, root)
        editor.until("ready")
        for path in (root / "app.py", other / "shop.py"):
            Page(editor, path.read_text(), uri=path.as_uri())
        assert becomes_true(lambda: importers(IndexReader(root.as_uri()), "first"))
        assert len(indexers(editor)) == 1, "none for a document that lies in no folder"
        editor.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [added], "removed": []}})
        assert becomes_true(lambda: importers(IndexReader(other.as_uri()), "second") and len(indexers(editor)) == 2)
        editor.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": [folder]}})
        assert becomes_true(lambda: len(indexers(editor)) == 1)
        editor.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [folder], "removed": [added]}})
        assert becomes_true(lambda: len(indexers(editor)) == 1 and importers(IndexReader(root.as_uri()), "first"))


def test_removing_the_root_folder_ends_its_process(root: Path):
    folder = {"uri": root.as_uri(), "name": root.name}
    with Editor() as editor:
        editor.begin(workspaceFolders=[folder], rootUri=root.as_uri())
        editor.until("ready")
        Page(editor, "import store\n", uri=(root / "app.py").as_uri())
        assert becomes_true(lambda: len(indexers(editor)) == 1)
        editor.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": [folder]}})
        assert becomes_true(lambda: not indexers(editor))


def test_a_folder_whose_name_needs_quoting_is_indexed(tmp_path: Path):
    root = tmp_path / "vertraulich & größer"
    lay(root, {"app.py": "import first\n", "secret.py": "x = 1\n", ".aiexclude": "secret.py\n"})
    with Editor() as editor:
        begin(editor, root)
        editor.until("ready")
        pages = [Page(editor, "x = 1\n", uri=(root / name).as_uri()) for name in ("app.py", "secret.py")]
        assert becomes_true(lambda: importers(IndexReader(root.as_uri()), "first"))
        shown = [editor.reply(editor.complete(page.uri, 0, 5))["result"]["items"] for page in pages]
        assert shown[0] and not shown[1], "its ignore files are obeyed"


@pytest.mark.parametrize(
    ("uri", "folder", "inside"),
    [
        ("file:///a%20b/c.py", "file:///a%20b", True),
        ("file:///a%20b/c.py", "file:///a b", True),
        ("file:///C%3A/w/c.py", "file:///c:/w", True),
        ("file:///a%20bc/c.py", "file:///a%20b", False),
        ("vscode-remote://one/w/c.py", "vscode-remote://two/w", False),
        ("untitled:/w/c.py", "file:///w", False),
        ("file:///w/c.py", "file://", True),
    ],
)
def test_a_document_is_found_in_its_folder_under_any_quoting(uri: str, folder: str, inside: bool):
    assert lies_in(uri, folder) is inside


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="only Linux counts how often a process has waited")
def test_an_idle_index_does_not_wake(root: Path):
    index = IndexReader(root.as_uri())
    with Editor() as editor:
        begin(editor, root)
        Page(editor, "import store\n", uri=(root / "app.py").as_uri())
        assert becomes_true(lambda: index.metadata("built") == "all")
        (process,) = indexers(editor)
        assert process.nice() == 19

        def work_so_far() -> tuple[int, float]:
            threads = Path(f"/proc/{process.pid}/task").iterdir()
            times = process.cpu_times()
            return sum(map(voluntary_switches, threads)), times.user + times.system

        def is_quiet() -> bool:
            before = work_so_far()
            time.sleep(1)
            return work_so_far() == before

        assert becomes_true(is_quiet)


# ── without an editor: files that harm the process ────────────────────────────────────────────────────────────────────

HOSTILE = """
import os, re, signal
from speclsp.lsp.index import worker as indexer
from speclsp.lsp.index import writer
writer.HANG_CPU_S = 0.2
read = writer.import_reader()

def read_imports(grammar, text, path):
    if path == "crash.py":
        os.kill(os.getpid(), signal.SIGSEGV)
    if path == "hang.py":
        re.match("(a+)+b", "a" * 60)  # in C, with the interpreter's lock
    return read(grammar, text, path)

indexer.main(read_imports)
"""


def folder_of(root: Path, command: tuple[str, ...] = index_supervisor.COMMAND) -> IndexedFolder:
    """A folder without globs and hidden files."""
    return IndexedFolder(
        root.as_uri(), command, disabled_globs=tuple, is_hidden=lambda path, root, rules_applied: False
    )


def in_folder(folder: Callable[[], IndexedFolder], work: Callable[[IndexedFolder], Awaitable[None]]) -> None:
    """Do `work` with a folder, which ends after it."""

    async def run() -> None:
        indexed = folder()
        try:
            await work(indexed)
        finally:
            indexed.end()

    asyncio.run(run())


async def settled(folder: IndexedFolder, so: Callable[[], object]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not so() and time.monotonic() < deadline_s:
        await asyncio.sleep(0.05)
    return bool(so())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_a_file_that_crashes_or_hangs_a_grammar_costs_only_itself(root: Path):
    lay(root, {"crash.py": "import never\n", "hang.py": "import ever\n", "zoo.py": "import last\n"})

    async def work(folder: IndexedFolder) -> None:
        folder.start("app.py")
        assert await settled(folder, lambda: folder.index.metadata("built") == "all")
        for name, path in (("first", "store.py"), ("last", "zoo.py")):
            assert await settled(folder, lambda name=name, path=path: importers(folder.index, name) == [path])
        assert importers(folder.index, "never") == importers(folder.index, "ever") == []
        lay(root, {"crash.py": "import never\n\n", "zoo.py": "import late\n"})
        folder.files_changed(["crash.py", "zoo.py"], scan=False)
        folder.send({"scan": "app.py"})
        assert await settled(folder, lambda: importers(folder.index, "late") == ["zoo.py"])

    in_folder(lambda: folder_of(root, (sys.executable, "-c", HOSTILE)), work)


def test_a_file_that_was_ignored_while_no_process_ran_is_never_shown(root: Path):
    built = IndexReader.build(root)
    assert importers(built, "first") == ["store.py"]
    lay(root, {".gitignore": "store.py\n"})

    async def run() -> None:
        remote = False
        documents = Documents()
        workspace = WorkspaceDocuments(documents, Notebooks(documents), Unread(), Config, lambda: [root.as_uri()])
        supervisor = IndexSupervisor(workspace, is_remote=lambda: remote)
        folder = IndexedFolder(root.as_uri(), index_supervisor.COMMAND, tuple, supervisor.is_hidden)
        try:
            assert importers(folder.index, "first") == [], "its process has not been there yet"
            folder.start("app.py")
            assert await settled(folder, lambda: folder.rules_applied)
            assert not folder.index.is_hidden("app.py") and importers(folder.index, "first") == []
            remote = True
            assert folder.index.is_hidden("app.py"), "nobody has read what its rules are"
            remote = False
            folder.files_changed([".gitignore"], scan=False)
            assert folder.index.is_hidden("app.py") and await settled(folder, lambda: folder.rules_applied)
        finally:
            folder.end()

    asyncio.run(run())


class Unread(IgnoreFiles):
    """Ignore files on a slow disk: not read yet."""

    def of(self, uri: str, root: str | None) -> IgnoreVerdict:
        return UNREAD


def test_the_home_directory_and_its_parents_are_not_indexed(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("USERPROFILE", str(root))
    (root / "project").mkdir()
    (root.parent / "link").symlink_to(root)
    wide = [path for path in (root, root.parent, root.parent / "link") if index_supervisor.is_too_wide(str(path))]
    assert wide == [root, root.parent, root.parent / "link"] and index_supervisor.is_too_wide("")
    assert not index_supervisor.is_too_wide(str(root / "project"))
    assert not index_supervisor.is_too_wide(str(root.parent / "wor"))

    async def work(folder: IndexedFolder) -> None:
        folder.start("app.py")
        assert await settled(folder, lambda: "the workspace folder contains the home directory" in caplog.text)
        assert not folder.index.database.exists()

    in_folder(lambda: folder_of(root.parent), work)


def test_only_a_local_folder_is_indexed():
    local, remote = ("file:///work", "file://localhost/work"), ("file://host/share", "vscode-remote://ssh/work", "/")
    assert all(index_supervisor.is_local(uri, windows=False) for uri in local)
    assert not any(index_supervisor.is_local(uri, windows=False) for uri in remote)
    assert [uri for uri in (*local, *remote) if index_supervisor.is_local(uri, windows=True)] == [*local, remote[0]]


def test_a_broken_index_is_rebuilt_while_the_process_runs(root: Path):
    async def work(folder: IndexedFolder) -> None:
        folder.start("app.py")
        assert await settled(folder, lambda: importers(folder.index, "first"))
        before = folder.index.database.stat().st_ino, folder.index.database.stat().st_ctime_ns
        folder.index.on_broken()

        def is_another() -> bool:
            stat = folder.index.database.stat() if folder.index.database.exists() else None
            return stat is not None and (stat.st_ino, stat.st_ctime_ns) != before

        assert await settled(folder, is_another)
        assert await settled(folder, lambda: importers(folder.index, "first") == ["store.py"])

    in_folder(lambda: folder_of(root), work)


def test_an_index_of_an_older_version_is_replaced(root: Path, caplog: pytest.LogCaptureFixture):
    """The version is written into an index that is otherwise this one: its rows must not be read."""
    database = IndexReader.build(root).database
    with closing(sqlite3.connect(database)) as rows:
        rows.execute("PRAGMA user_version = 2")

    async def work(folder: IndexedFolder) -> None:
        assert importers(folder.index, "first") == []
        folder.start("app.py")
        assert await settled(folder, lambda: importers(folder.index, "first") == ["store.py"])
        assert "process ended" not in caplog.text

    in_folder(lambda: folder_of(root), work)
    with closing(sqlite3.connect(database)) as rows:
        assert rows.execute("PRAGMA user_version").fetchone() == (index_schema.VERSION,)


def test_of_two_windows_on_a_folder_one_scans_it_and_the_other_takes_over(root: Path):
    async def run() -> None:
        first, second = folder_of(root), folder_of(root)
        try:
            first.start("app.py")
            assert await settled(first, lambda: first.index.metadata("built") == "all")
            second.start("app.py")
            lay(root, {"new.py": "import new\n"})
            await asyncio.sleep(1)
            assert importers(second.index, "new") == [], "no editor reported it"
            second.files_changed(["new.py"], scan=False)
            assert await settled(second, lambda: importers(first.index, "new") == ["new.py"])
            lay(root, {"newer.py": "import newer\n"})
            first.end()
            assert await settled(second, lambda: importers(second.index, "newer") == ["newer.py"])
        finally:
            first.end()
            second.end()

    asyncio.run(run())


def test_an_unwritable_cache_ends_the_process_and_gives_no_imports(root: Path, caplog: pytest.LogCaptureFixture):
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "speclsp"
    cache.mkdir(exist_ok=True)
    (cache / "index").write_text("in the way")

    async def work(folder: IndexedFolder) -> None:
        folder.start("app.py")
        assert await settled(folder, lambda: f"process ended with {CANNOT_INDEX}" in caplog.text)
        assert folder.index.imports("store.py") == []

    in_folder(lambda: folder_of(root), work)


def test_every_scan_of_a_folder_starts_at_the_same_file():
    """The budget of a scan leaves out the files furthest from its start. With a new start for every scan, the index
    of a large folder would never become complete.
    """
    from speclsp.lsp.index import worker

    inbox, starts = queue.SimpleQueue[dict[str, object]](), list[str]()
    for message in ({"scan": "elsewhere/b.py", "rules": 1}, {"changed": ["a.py"] * 300}, {"rebuild": True}):
        inbox.put(message)
    writer = SimpleNamespace(steps=lambda near: starts.append(near) or iter(()))
    worker.process_messages(writer, inbox, SimpleNamespace(owned=True), {"near": "here/a.py"})  # type: ignore[arg-type]
    assert starts == ["here/a.py"] * 3


def test_an_invalid_message_is_ignored():
    from speclsp.lsp.index.worker import parse_message

    assert [parse_message(line) for line in (b"", b"\xff\n", b"[1]\n", b"[" * 100_000, b'{"a": 1}\n')] == [
        {},
        {},
        {},
        {},
        {"a": 1},
    ]
