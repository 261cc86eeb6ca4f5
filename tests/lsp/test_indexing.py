"""Indexes of the workspace folders: when a folder is read, which files may be shown, and what ends its thread."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.lsp.editor_client import Editor, Page
from support.waiting import becomes_true

from speclsp.config import Config
from speclsp.lsp.context import cross_file
from speclsp.lsp.documents.document import Documents
from speclsp.lsp.documents.notebook import Notebooks
from speclsp.lsp.documents.uri_paths import lies_in
from speclsp.lsp.index import folder_reader
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.server import workspace_indexes
from speclsp.lsp.server.request_context import WorkspaceDocuments
from speclsp.lsp.server.workspace_indexes import WorkspaceIndexes, is_local
from speclsp.lsp.visibility.ignore_files import UNREAD, IgnoreFiles, IgnoreVerdict

PATIENCE_S = 120  # the machine may be busy
NEAR = "import store\n\n\ndef load_user(path, version):\n    record = read_record(path, version)\n    return record\n"
TYPED = "import store\n\n\ndef load_shop(path, version):\n    record = read_record(path, version)\n    "


def lay(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    lay(folder, {"app.py": "import store\n", "store.py": "import first\n"})
    return folder


# ── with an editor ────────────────────────────────────────────────────────────────────────────────────────────────────


class TypedPage(Page):
    """A document of a folder with two regions like the code of near.py, in which keys are typed by turns."""

    def __init__(self, editor: Editor, root: Path) -> None:
        super().__init__(editor, TYPED + "\n" * 20 + TYPED, uri=(root / "typed.py").as_uri())
        self.is_below = False

    def shown(self) -> set[str]:
        """The files with code in the prompt of the next key."""
        self.is_below = not self.is_below
        cursor = self.type(len(self.text) if self.is_below else len(TYPED), "x")
        self.editor.items(self.ask(cursor))
        files = self.editor.call("speclsp/explain", {})["files"]
        return {file["path"] for file in files if file["source"] == "similar"}


def test_code_of_a_closed_file_is_shown_until_a_rule_hides_it(tmp_path: Path):
    root = tmp_path / "vertraulich & größer"
    lay(root, {"near.py": NEAR, "secret.py": NEAR, ".aiexclude": "secret.py\n"})
    with Editor() as editor:
        editor.begin(workspaceFolders=[{"uri": root.as_uri(), "name": "work"}])
        page = TypedPage(editor, root)
        assert becomes_true(lambda: page.shown() == {"near.py"})
        (root / "near.py").rename(root / "other.py")
        changes = [{"uri": (root / name).as_uri(), "type": 3} for name in ("near.py", "other.py")]
        editor.notify("workspace/didChangeWatchedFiles", {"changes": changes})
        assert becomes_true(lambda: page.shown() == {"other.py"})
        lay(root, {".gitignore": "other.py\n"})
        changes = [{"uri": (root / ".gitignore").as_uri(), "type": 1}]
        editor.notify("workspace/didChangeWatchedFiles", {"changes": changes})
        assert becomes_true(lambda: page.shown() == set())


def test_the_index_setting_drops_and_creates_the_index(root: Path):
    lay(root, {"near.py": NEAR})
    with Editor() as editor:
        context = {"context": {"index_workspace": False}}
        editor.begin(workspaceFolders=[{"uri": root.as_uri(), "name": "work"}], initializationOptions=context)
        page = TypedPage(editor, root)
        assert page.shown() == set()
        for is_on in (True, False):
            settings = {"context": {"index_workspace": is_on}}
            editor.notify("workspace/didChangeConfiguration", {"settings": settings})
            assert becomes_true(lambda is_on=is_on: ("near.py" in page.shown()) is is_on)


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


# ── without an editor ─────────────────────────────────────────────────────────────────────────────────────────────────


class Workspace:
    """The indexes of an editor's folders."""

    def __init__(self, *roots: Path, ignore_files: IgnoreFiles | None = None) -> None:
        self.folders, self.remote, self.config = [root.as_uri() for root in roots], False, Config()
        documents = Documents()
        ignored = ignore_files or IgnoreFiles()
        workspace = WorkspaceDocuments(
            documents, Notebooks(documents), ignored, lambda: self.config, lambda: self.folders
        )
        self.indexes = WorkspaceIndexes(workspace, is_remote=lambda: self.remote)

    def hidden(self, root: Path, path: str) -> bool:
        return self.indexes.index(root.as_uri()).is_hidden(path)

    def modules(self, root: Path) -> set[str]:
        """The modules that files of a folder import, by the index."""
        index = self.indexes.index(root.as_uri())
        return (
            {one.module for file in index.files() for one in index.imports(file.path)} if index is not None else set()
        )


def in_workspace(workspace: Callable[[], Workspace], work: Callable[[Workspace], Awaitable[None]]) -> None:
    """Do `work` in a workspace whose threads start at once, and end after it."""

    async def run() -> None:
        opened = workspace()
        try:
            await work(opened)
        finally:
            opened.indexes.end()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace_indexes, "START_S", 0.01)
        asyncio.run(run())


async def settled(so: Callable[[], object]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while not so() and time.monotonic() < deadline_s:
        await asyncio.sleep(0.01)
    return bool(so())


def threads() -> int:
    return sum(thread.name == "speclsp-index" for thread in threading.enumerate())


def test_a_saved_file_is_read_again_and_unreported_changes_are_found_later(root: Path, monkeypatch: pytest.MonkeyPatch):
    async def work(workspace: Workspace) -> None:
        indexes, uri = workspace.indexes, (root / "app.py").as_uri()
        indexes.document_opened(uri)
        assert await settled(lambda: workspace.modules(root) == {"store", "first"})
        lay(root, {"app.py": "import saved\n", "new.py": "import unreported\n"})
        indexes.file_saved(uri)
        assert await settled(lambda: workspace.modules(root) == {"saved", "first"})
        monkeypatch.setattr(workspace_indexes, "RESCAN_S", 0.0)
        indexes.files_changed([(root / ".gitignore").as_uri()])
        assert await settled(lambda: "unreported" in workspace.modules(root))
        lay(root, {"new.py": "import later\n\n"})
        assert await settled(lambda: indexes.file_saved(uri) or "later" in workspace.modules(root))

    in_workspace(lambda: Workspace(root), work)


def test_the_files_near_the_newest_document_are_indexed_and_none_after_the_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    steps = list[str]()

    async def index_near(path: str, index: WorkspaceIndex) -> None:
        while True:
            steps.append(path)
            await asyncio.sleep(0.001)

    monkeypatch.setattr(cross_file, "index_near", index_near)

    async def work(workspace: Workspace) -> None:
        workspace.indexes.document_opened((root / "app.py").as_uri())
        assert await settled(lambda: "app.py" in steps), "once the folder is scanned"
        workspace.indexes.document_opened((root / "store.py").as_uri())
        opened = len(steps)
        assert await settled(lambda: len(steps) > opened + 1)
        assert set(steps[opened:]) == {"store.py"}
        workspace.indexes.end()
        ended = len(steps)
        await asyncio.sleep(0.02)
        assert len(steps) == ended

    in_workspace(lambda: Workspace(root), work)


def test_a_folder_that_leaves_the_workspace_loses_its_index_and_its_thread(root: Path, tmp_path: Path):
    other = tmp_path / "other"
    assert becomes_true(lambda: threads() == 0)
    lay(other, {"shop.py": "import second\n"})

    async def work(workspace: Workspace) -> None:
        indexes = workspace.indexes
        for path in (root / "app.py", other / "shop.py"):
            indexes.document_opened(path.as_uri())
        assert await settled(lambda: workspace.modules(root))
        assert threads() == 1 and not workspace.modules(other), "none for a document that lies in no folder"
        workspace.folders = [other.as_uri()]
        indexes.folders_changed()
        indexes.document_opened((other / "shop.py").as_uri())
        assert await settled(lambda: workspace.modules(other) == {"second"} and threads() == 1)
        assert indexes.index(root.as_uri()) is None

    in_workspace(lambda: Workspace(root), work)
    assert becomes_true(lambda: threads() == 0)


class Unread(IgnoreFiles):
    """Ignore files on a slow disk: not read yet."""

    def of(self, uri: str, root: str | None) -> IgnoreVerdict:
        return UNREAD


def test_a_file_whose_rules_are_unread_is_shown_only_after_a_scan_and_never_to_a_remote_server(root: Path):
    async def work(workspace: Workspace) -> None:
        workspace.indexes.document_opened((root / "app.py").as_uri())
        assert workspace.hidden(root, "app.py"), "the folder was not scanned"
        assert await settled(lambda: not workspace.hidden(root, "app.py"))
        workspace.remote = True
        assert workspace.hidden(root, "app.py"), "its rules were not read"
        workspace.remote = False
        lay(root, {".gitignore": "store.py\n"})
        workspace.indexes.files_changed([(root / ".gitignore").as_uri()])
        assert workspace.hidden(root, "app.py") and await settled(lambda: not workspace.hidden(root, "app.py"))
        assert workspace.modules(root) == {"store"}

    in_workspace(lambda: Workspace(root, ignore_files=Unread()), work)


def test_the_home_directory_and_its_parents_are_not_indexed(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("USERPROFILE", str(root))
    (root / "project").mkdir()
    (root.parent / "link").symlink_to(root)
    wide = [path for path in (root, root.parent, root.parent / "link") if folder_reader.is_too_wide(str(path))]
    assert wide == [root, root.parent, root.parent / "link"] and folder_reader.is_too_wide("")
    assert not folder_reader.is_too_wide(str(root / "project"))
    assert not folder_reader.is_too_wide(str(root.parent / "wor"))

    async def work(workspace: Workspace) -> None:
        workspace.indexes.document_opened((root / "app.py").as_uri())
        assert await settled(lambda: "the workspace folder contains the home directory" in caplog.text)
        assert workspace.modules(root.parent) == set()

    in_workspace(lambda: Workspace(root.parent), work)


def test_only_a_local_folder_is_indexed():
    local, remote = ("file:///work", "file://localhost/work"), ("file://host/share", "vscode-remote://ssh/work", "/")
    assert all(is_local(uri, windows=False) for uri in local)
    assert not any(is_local(uri, windows=False) for uri in remote)
    assert [uri for uri in (*local, *remote) if is_local(uri, windows=True)] == [*local, remote[0]]
