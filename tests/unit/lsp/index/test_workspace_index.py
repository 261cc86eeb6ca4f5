"""Workspace index: imports, updates, excluded files, and queries."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import rows
from support.waiting import becomes_true

from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.index import file_cache, file_imports, folder_reader, scan
from speclsp.lsp.index.deadline import Deadline
from speclsp.lsp.index.file_imports import stem_of, twins
from speclsp.lsp.index.folder_reader import FolderReader, Job, build
from speclsp.lsp.index.workspace_index import FileChange, IndexedFile, WorkspaceIndex

ROWS = rows(__file__)

CANARY = "canary_in_the_index"
PASSED = Deadline(-1.0, lambda: 0.0)
clock = itertools.count(1_700_000_000)


def lay(root: Path, files: dict[str, str]) -> Path:
    """Write files. Each is one second newer than the previous one."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
        os.utime(file, (next(clock),) * 2)
    return root


@pytest.fixture(autouse=True)
def no_cached_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speclsp.lsp.index.file_cache.AT_ONCE_S", 0.0)
    monkeypatch.setattr("speclsp.lsp.index.file_cache.RECHECK_S", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def contents(index: WorkspaceIndex) -> object:
    """Everything in an index, without the order of its changes."""
    names = {*(path for file in index.files() for path in (file.path, stem_of(file.path), *file.leaves)), "pkg", "lib"}
    found = ((name, sorted(index.files_with_stem(name)), index.files_in(name), index.importers(name)) for name in names)
    return sorted(index.files(), key=lambda file: file.path), sorted(found)


def paths(index: WorkspaceIndex) -> list[str]:
    return sorted(file.path for file in index.files())


def modules(index: WorkspaceIndex, path: str) -> list[str]:
    return [statement.module for statement in index.imports(path)]


def reader_of(index: WorkspaceIndex, **options: object) -> FolderReader:
    """A reader that changes its index at once, in this thread."""
    return FolderReader(index, lambda function: function(), **options)


# ── imports ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TREES = ROWS["trees"]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, WorkspaceIndex]:
    return {language: build(lay(tmp_path_factory.mktemp(language), files)) for language, files in TREES.items()}


@pytest.mark.parametrize(("language", "from_path", "module", "path"), ROWS["meant"])
def test_an_import_resolves_to_a_file_by_the_rules_of_its_language(
    trees: dict[str, WorkspaceIndex], language: str, from_path: str, module: str, path: str
):
    assert trees[language].resolve_module(module, from_path) == (path or None)


def test_a_file_finds_its_test_and_its_importers_and_a_test_its_file(trees: dict[str, WorkspaceIndex]):
    python, script = trees["python"], trees["typescript"]
    assert python.counterparts("src/app/store.py") == ["tests/test_store.py"]
    assert python.counterparts("tests/test_store.py") == ["src/app/store.py"]
    assert script.counterparts("src/a.ts") == ["src/a.test.ts"]
    assert trees["java"].counterparts("src/main/java/a/b/C.java") == ["src/test/java/a/b/CTest.java"]
    assert python.importers("src/app/store.py") == ["src/app/__init__.py", "tests/test_store.py"]
    assert set(script.importers("src/a.ts")) == {"src/a.test.ts", "src/b/index.ts"}
    assert python.files_like("src/app/sub/deep.py") == ["src/app/sub/__init__.py", "src/app/sub/json.py"]


@given(st.text("ab_T.", min_size=1, max_size=8).filter(lambda stem: stem.strip(".")))
def test_the_twin_relation_of_file_names_is_symmetric(stem: str):
    for twin in twins(stem):
        assert stem in twins(twin) or stem.lstrip("_") in twins(twin)
    assert stem_of("a/b/__init__.py") == "b" and stem_of("a/b/x.d.ts") == "x" and stem_of("x.test.ts") == "x.test"


def test_importers_are_sorted_by_distance_and_only_of_compatible_languages(root: Path):
    lay(root, dict.fromkeys(("far/away/x.py", "near/x.py", "near/by/x.py"), "import same\n"))
    lay(root, {"near/x.js": "import '../same.js'\n", "near/y.ts": "import '../same'\n", "same.py": "", "same.js": ""})
    index = build(root)
    assert index.importers("same.py") == ["near/x.py", "far/away/x.py", "near/by/x.py"]
    assert index.importers("same.js") == ["near/x.js", "near/y.ts"]
    assert index.importers("same.py", limit=2) == ["near/x.py", "far/away/x.py"]


def test_the_text_of_a_file_is_returned_only_while_it_matches_the_index(root: Path):
    lay(root, {"a.py": "x = 1\r\ndef f():\r\n    return 2\r\ny = 3\r\n", "a.sql": "SELECT (((\n"})
    index = build(root)
    stale: list[str] = []
    index.on_stale = stale.append
    assert index.text("a.py") == "x = 1\ndef f():\n    return 2\ny = 3\n"
    assert index.text("a.sql") == "SELECT (((\n", "a language without imports"
    lay(root, {"a.py": "def g(): ...\n"})
    assert index.text("a.py") == "" and stale == ["a.py"]
    (root / "a.py").unlink()
    (root / "a.py").symlink_to("/etc/passwd")
    assert index.text("a.py") == ""


@contextmanager
def hung_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    resume, read = threading.Event(), file_cache.read
    monkeypatch.setattr(file_cache, "read", lambda *given: (resume.wait(60), read(*given))[1])
    yield
    resume.set()


def test_a_hung_disk_is_waited_for_only_once(root: Path, monkeypatch: pytest.MonkeyPatch):
    index = build(lay(root, {"a.py": "x = 1\n"}))
    with hung_disk(monkeypatch):
        assert index.text("a.py", Deadline.after_ms(100)) == ""
        begun_s = time.monotonic()
        assert index.text("a.py") == "" and time.monotonic() - begun_s < 30, "not waited for"
    assert becomes_true(lambda: index.text("a.py") == "x = 1\n")


# ── updates ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PATHS = ("a.py", "pkg/__init__.py", "pkg/b.py", "pkg/c.ts", "lib/d.go", "notes.txt")
TEXTS = (
    "import one\n",
    "class Two:\n    x = 1\nfrom .b import one\n",
    "import { q } from './q'\nexport const three = 3;\n",
    "",
)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(PATHS), st.sampled_from(TEXTS)),
        st.tuples(st.just("delete"), st.sampled_from(PATHS), st.just("")),
        st.tuples(st.just("rename"), st.sampled_from(PATHS), st.sampled_from(PATHS)),
        st.tuples(st.just("ignore"), st.sampled_from((*PATHS, "pkg/", "lib/*")), st.just("")),
        st.tuples(st.just("look"), st.just(""), st.just("")),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(EDITS)
def test_after_any_edits_the_index_equals_a_new_one(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, str, str]]
):
    root = lay(tmp_path_factory.mktemp("edits"), {"a.py": TEXTS[0], "pkg/b.py": TEXTS[1]})
    index = WorkspaceIndex(str(root))
    reader = reader_of(index)
    reader.execute(Job(scan=True))
    for action, path, argument in edits:
        file = root / path
        if action == "write":
            lay(root, {path: argument})
        elif action == "delete":
            file.unlink(missing_ok=True)
        elif action == "rename" and file.exists() and path != argument:
            (root / argument).parent.mkdir(exist_ok=True)
            file.rename(root / argument)
        elif action == "ignore":
            lay(root, {".gitignore": f"{path}\n"})
        reader.execute(Job([path, argument], scan=action in ("ignore", "look")))
    reader.execute(Job(scan=True))
    assert contents(index) == contents(build(root))


def test_a_folder_that_is_temporarily_missing_keeps_its_index(root: Path):
    lay(root, {"a.py": "import f\n"})
    index = build(root)
    root.rename(root.with_name("unmounted"))
    reader_of(index).execute(Job(scan=True))
    assert modules(index, "a.py") == ["f"]


def test_a_scan_interrupts_another_and_both_begin_at_the_same_file(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise the limit of files would leave out other ones after each scan."""
    lay(root, {f"{place}/{n}.py": f"import f{n}\n" for place in ("far", "near", "zoo") for n in range(5)})
    monkeypatch.setattr(folder_reader, "MAX_FILES", 6)
    index = WorkspaceIndex(str(root))
    reader = reader_of(index, near="near/open.py")
    later = Job(["far/1.py"], scan=True, rules=1)
    reader.put(later)
    assert reader.execute(Job(scan=True)) == later and index.files() == []
    assert reader.execute(later) is None
    assert len(paths(index)) == 6 and {f"near/{n}.py" for n in range(5)} <= set(paths(index))


def test_the_reader_rests_after_every_slice_of_work(root: Path, monkeypatch: pytest.MonkeyPatch):
    lay(root, {f"{n}.py": "" for n in range(20)})
    monkeypatch.setattr(folder_reader, "SLICE_S", 0.0)
    rests: list[float] = []
    reader_of(WorkspaceIndex(str(root)), rest_s=lambda: rests.append(0.0) or 0.0).execute(Job(scan=True))
    assert len(rests) >= 3 * 20, "at the listing, the sorting and the reading of each file"


def test_a_lone_surrogate_breaks_no_query(root: Path):
    surrogate = "\ud800"
    lay(root, {"a.js": "import './f'"})
    index, path = build(root), f"{surrogate}.js"
    assert [index.resolve_module(f"./{surrogate}", "a.js"), index.text(path)] == [None, ""]
    assert index.imports(path) == index.importers(path) == index.counterparts(path) == index.files_like(path)[1:] == []
    assert modules(index, "a.js") == ["./f"]


# ── excluded files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_secret_ignored_foreign_linked_and_generated_files_are_not_in_the_index(root: Path):
    secret = f"import {CANARY}\n"
    outside = lay(root.parent / "outside", {"far.py": secret})
    lay(root, {"good.py": "import good\n", "src/.gitignore": "gen/\n*_pb2.py\n!keep_pb2.py\n"})
    lay(
        root,
        {"src/keep_pb2.py": "import kept\n", ".gitignore": "/dist\n", "hush/.aiexclude": "", ".ignore": "own.py\n"},
    )
    lay(root, {"src/x.py": f"import x\npassword = '{CANARY}'\ndef {CANARY}(a='{CANARY}'): ...\n"})
    for path in (
        *("dist/a.py", "src/gen/deep/b.py", "src/c_pb2.py", "hush/d.py", "own.py"),
        *(".env.py/e.py", "secrets/x.py", "node_modules/f/index.js", ".hidden/g.py", "__pycache__/h.py"),
        *("venv/lib/i.py", "target/debug/j.rs", "lib/k.min.js"),
    ):
        lay(root, {path: secret})
    (root / "venv/pyvenv.cfg").touch()
    (root / "target/CACHEDIR.TAG").touch()
    lay(root, {"made.go": f'// Code generated by protoc. DO NOT EDIT.\npackage p\nimport "{CANARY}"\n'})
    lay(root, {"binary.py": f"\0{secret}", "long.js": f"import '{CANARY}';" + "var a=1;" * 3000})
    lay(root, {"tail.js": "import 'tail';\n" + "// a line\n" * 1700 + "var a=1;" * 60_000})
    (root / "link.py").symlink_to(outside / "far.py")
    (root / "linked").symlink_to(outside)
    if hasattr(os, "mkfifo"):
        os.mkfifo(root / "pipe.py")
    index = WorkspaceIndex(str(root))
    reader = reader_of(index, disabled_globs=lambda: ["secrets/**"])
    reader.execute(Job(scan=True))
    reader.execute(
        Job(["link.py", "linked/far.py", "../outside/far.py", "dist/a.py", "secrets/x.py", "pipe.py", "/etc/a.py"])
    )
    assert [file for file in index.files() if CANARY in str(file)] == []
    imports = {path: modules(index, path) for path in paths(index) if index.imports(path)}
    assert imports == {"good.py": ["good"], "src/keep_pb2.py": ["kept"], "src/x.py": ["x"], "tail.js": ["tail"]}
    assert [path for path in paths(index) if path not in imports and index.text(path)] == []
    assert index.text("tail.js") == "", "its head does not show that it is generated"


def test_nothing_of_hidden_and_secret_files_is_shown_even_if_they_are_in_the_index(root: Path):
    lay(root, {"a.py": "import f\n", "b.py": "import f\n", "f.py": ""})
    index = build(root)
    assert index.importers("f.py") == ["a.py", "b.py"]
    secret = IndexedFile(".ssh/id_rsa.py", (0, 0), "import f", ("f",))
    index.apply([FileChange("a.py"), FileChange(secret.path, secret)])
    index.hidden_rule = lambda path: path == "b.py"
    assert index.importers("f.py") == index.files_like("f.py") == []
    assert index.imports("b.py") == index.imports(secret.path) == [] and index.text("b.py") == ""
    index.hidden_rule = lambda path: False
    assert index.importers("f.py") == ["b.py"], "no cached answer depends on the rule"


def test_hostile_folders_and_files_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch):
    lay(root, {"a.py": "\n".join(f"import f{n}" for n in range(5000)), "good.py": "import good\n"})
    lay(root, {"b.py": f"import {', '.join(f'a{n}' for n in range(600))}\n", "c.py": f"import {'x' * 5000}\n"})
    lay(root, {"d.py": "import (\n" * 3000, "e.rs": "mod x {\n" * 3000, "f.js": "const {" * 3000})
    (root / "loop").mkdir()
    (root / "loop/again").symlink_to(root)
    with (root / "huge.py").open("wb") as huge:
        huge.truncate(100 << 20)
    lay(root, {"gone/x.py": "", "gone/deep/y.py": ""})
    listed, indexable = [], scan.WorkspaceScan.is_indexable

    def vanishing(self: scan.WorkspaceScan, path: str, info: os.stat_result) -> bool:
        listed.append(path)
        if path == "gone/x.py":
            (root / "gone").rename(root / ".elsewhere")
        return indexable(self, path, info)

    monkeypatch.setattr(scan.WorkspaceScan, "is_indexable", vanishing)
    index = build(root)
    assert "huge.py" in listed and "gone/deep/y.py" not in listed and len(listed) == len(set(listed))
    assert modules(index, "good.py") == ["good"] and "huge.py" not in paths(index) and "gone/x.py" not in paths(index)
    assert 100 < len(index.imports("a.py")) <= 500
    assert (len(index.imports("b.py")), index.imports("c.py")) == (200, [])


def test_a_file_whose_imports_cannot_be_read_costs_only_itself(root: Path, monkeypatch: pytest.MonkeyPatch):
    lay(root, {"bad.py": "import bad\n", "good.py": "import good\n"})
    read = file_imports.read

    def fails(grammar: str, statement: str) -> list:
        if "bad" in statement:
            raise RecursionError(statement)
        return read(grammar, statement)

    monkeypatch.setattr(file_imports, "read", fails)
    index = build(root)
    assert paths(index) == ["good.py"] and modules(index, "good.py") == ["good"]


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_the_deadline_only_cached_answers_are_given(root: Path):
    lay(root, {"f.py": "", **{f"p{n}.py": "import f\n" for n in range(20)}})
    index = build(root)
    assert index.importers("f.py", deadline=PASSED) == [] and index.text("p1.py", PASSED) == ""
    assert index.resolve_module("f", "p1.py", PASSED) is None
    everything = index.importers("f.py", limit=15), index.text("p1.py"), index.resolve_module("f", "p1.py")
    assert len(everything[0]) == 15 and everything[1:] == ("import f\n", "f.py")
    assert index.importers("f.py", 15, PASSED) == everything[0]
    assert index.resolve_module("f", "p1.py", PASSED) == "f.py"


def test_a_file_below_the_root_of_the_file_system_is_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # "c:" alone would be this directory
    file = tmp_path.resolve() / "a.py"
    file.write_text("a = 1\n")
    info = file.stat()
    root, inside = file_path(file.anchor), file.relative_to(file.anchor).as_posix()
    assert file_cache.read(root, inside, (info.st_mtime_ns, info.st_size)) == "a = 1\n"
