"""Workspace index: imports, updates, excluded files, queries, and damage to the database file."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import stat
import threading
import time
from contextlib import closing, suppress
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import rows

from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.index import file_cache, index_schema
from speclsp.lsp.index.file_imports import stem_of, twins
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.index.writer import Budget, IndexWriter
from speclsp.lsp.syntax.languages.import_rules import Import

ROWS = rows(__file__)

CANARY = "canary_in_the_index"
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
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits: no query is cut short on a busy machine."""
    monkeypatch.setattr("speclsp.lsp.index.query_cache.BUDGET_MS", 60_000.0)
    monkeypatch.setattr("speclsp.lsp.index.file_cache.RECHECK_S", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "index.sqlite"


ALL = (
    "SELECT path, stem, size, state FROM files",
    "SELECT f.path, number, module, names FROM imports i LEFT JOIN files f ON f.id = i.file",
    "SELECT f.path, leaf FROM leaves l LEFT JOIN files f ON f.id = l.file",
    "SELECT kind, name, path FROM roots",
)


def everything(database: Path) -> list[str]:
    """All rows of an index, sorted."""
    with closing(sqlite3.connect(database)) as rows:
        return sorted(str(row) for query in ALL for row in rows.execute(query))


def paths(database: Path) -> list[str]:
    """Files of an index, skipped ones included."""
    with closing(sqlite3.connect(database)) as rows:
        return sorted(path for (path,) in rows.execute("SELECT path FROM files"))


def modules(index: IndexReader, path: str) -> list[str]:
    return [statement.module for statement in index.imports(path)]


# ── imports ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TREES = ROWS["trees"]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, IndexReader]:
    readers = {}
    for language, files in TREES.items():
        folder = tmp_path_factory.mktemp(language)
        readers[language] = IndexReader.build(lay(folder / "work", files), folder / "index.sqlite")
        readers[language].cache.query_ms = 60_000.0  # `no_hurry` comes later than a module's fixtures
    return readers


@pytest.mark.parametrize(("language", "from_path", "module", "path"), ROWS["meant"])
def test_an_import_resolves_to_a_file_by_the_rules_of_its_language(
    trees: dict[str, IndexReader], language: str, from_path: str, module: str, path: str
):
    assert trees[language].resolve_module(module, from_path) == (path or None)


def test_a_file_finds_its_test_and_its_importers_and_a_test_its_file(trees: dict[str, IndexReader]):
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


def test_importers_are_sorted_by_distance_and_only_of_compatible_languages(root: Path, database: Path):
    lay(root, dict.fromkeys(("far/away/x.py", "near/x.py", "near/by/x.py"), "import same\n"))
    lay(root, {"near/x.js": "import '../same.js'\n", "near/y.ts": "import '../same'\n", "same.py": "", "same.js": ""})
    index = IndexReader.build(root, database)
    assert index.importers("same.py") == ["near/x.py", "far/away/x.py", "near/by/x.py"]
    assert index.importers("same.js") == ["near/x.js", "near/y.ts"]
    assert index.importers("same.py", limit=2) == ["near/x.py", "far/away/x.py"]


def test_the_text_of_a_file_is_returned_only_while_it_matches_the_index(root: Path, database: Path):
    lay(root, {"a.py": "x = 1\r\ndef f():\r\n    return 2\r\ny = 3\r\n"})
    index = IndexReader.build(root, database)
    stale: list[str] = []
    index.on_stale = stale.append
    assert index.text("a.py") == "x = 1\ndef f():\n    return 2\ny = 3\n"
    lay(root, {"a.py": "def g(): ...\n"})
    assert index.text("a.py") == "" and stale == ["a.py"]
    (root / "a.py").unlink()
    (root / "a.py").symlink_to("/etc/passwd")
    assert index.text("a.py") == ""


def test_a_file_of_a_language_without_imports_is_indexed_without_a_parse(root: Path, database: Path):
    lay(root, {"a.sql": "SELECT (((\n", "b.sql": "SELECT 1;\n"})
    index = IndexReader.build(root, database)
    assert index.files_like("b.sql") == ["a.sql"] and index.imports("a.sql") == []
    assert index.text("a.sql") == "SELECT (((\n"


def test_a_hung_disk_is_waited_for_only_once(root: Path, database: Path, monkeypatch: pytest.MonkeyPatch):
    lay(root, {"a.py": "x = 1\n"})
    index = IndexReader.build(root, database)
    resume, read = threading.Event(), file_cache.read
    monkeypatch.setattr(file_cache, "read", lambda *given: (resume.wait(), read(*given))[1])
    index.cache.query_ms = 100
    assert index.text("a.py") == ""
    index.cache.query_ms, begun_s = 60_000, time.monotonic()
    assert index.text("a.py") == "" and time.monotonic() - begun_s < 30, "not waited for"
    resume.set()
    while not (text := index.text("a.py")) and time.monotonic() - begun_s < 60:
        time.sleep(0.01)
    assert text == "x = 1\n"


# ── updates ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PATHS = ("a.py", "pkg/__init__.py", "pkg/b.py", "pkg/c.ts", "lib/d.go", "lib/package.json", "notes.txt")
TEXTS = (
    "import one\n",
    "class Two:\n    x = 1\nfrom .b import one\n",
    "import { q } from './q'\nexport const three = 3;\n",
    '{"name": "lib"}',
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
    base = tmp_path_factory.mktemp("edits")
    root = lay(base / "work", {"a.py": TEXTS[0], "pkg/b.py": TEXTS[1]})
    with IndexWriter(str(root), base / "kept.sqlite") as writer:
        writer.build()
        for action, path, argument in edits:
            file = root / path
            if action == "write":
                lay(root, {path: argument})
            elif action == "delete":
                file.unlink(missing_ok=True)
            elif action == "rename" and file.exists() and path != argument:
                (root / argument).parent.mkdir(exist_ok=True)
                file.rename(root / argument)
                writer.update(argument)
            elif action == "ignore":
                lay(root, {".gitignore": f"{path}\n"})
                writer.build()
                continue
            elif action == "look":
                writer.build()
                continue
            writer.update(path)
        writer.build()
    IndexReader.build(root, base / "new.sqlite")
    assert everything(base / "kept.sqlite") == everything(base / "new.sqlite")


def test_an_update_reads_the_file_again(root: Path, database: Path):
    lay(root, {"a.py": "import before\n"})
    index = IndexReader(str(root), database)
    with IndexWriter(str(root), database) as writer:
        writer.build()
        assert modules(index, "a.py") == ["before"]
        lay(root, {"a.py": "import after\n"})
        writer.update("a.py")
        assert modules(index, "a.py") == ["after"] and index.text("a.py") == "import after\n"


def test_a_budget_is_kept_and_the_files_nearest_to_the_open_file_come_first(root: Path, database: Path):
    lay(root, {f"{place}/{n}.py": f"import f{n}\n" for place in ("far", "near", "zoo") for n in range(5)})
    with IndexWriter(str(root), database, budget=Budget(files=6)) as writer:
        writer.build("near/open.py")
    assert len(paths(database)) == 6 and {f"near/{n}.py" for n in range(5)} <= set(paths(database))


def test_a_lone_surrogate_breaks_neither_the_index_nor_its_process(root: Path, database: Path):
    surrogate = "\ud800"
    lay(
        root,
        {"a.js": "import './f'", "package.json": '{"name": "\\ud800"}', "b/package.json": '{"name": "b"}'},
    )
    index, broken = IndexReader.build(root, database), []
    index.on_broken = lambda: broken.append(True)
    assert [index.resolve_module(f"./{surrogate}", "a.js"), index.text(f"{surrogate}.js")] == [None, ""]
    path = f"{surrogate}.js"
    assert index.imports(path) == index.importers(path) == index.counterparts(path) == index.files_like(path)[1:] == []
    assert modules(index, "a.js") == ["./f"] and not broken and index.package_roots("npm") == [("b", "b")]


def test_a_truncated_database_crashes_no_process(root: Path, database: Path):
    lay(root, {f"{n}.py": "".join(f"import f{n}_{m}\n" for m in range(200)) for n in range(30)})
    index, broken = IndexReader.build(root, database), []
    index.on_broken = lambda: broken.append(True)
    assert modules(index, "7.py")[7] == "f7_7"
    with closing(index_schema.open_to_read(database)) as rows:
        assert rows.execute("PRAGMA mmap_size").fetchone()[0] == 0, "SIGBUS, else"
    os.truncate(database, 8192)
    index.clear_cache()
    assert [index.imports(f"{n}.py") for n in range(9, 20)] == [[]] * 11 and broken


# ── excluded files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_secret_ignored_foreign_linked_and_generated_files_are_not_in_the_index(root: Path, database: Path):
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
    lay(root, {"huge.py": secret + "#" * (600 * 1024)})
    (root / "link.py").symlink_to(outside / "far.py")
    (root / "linked").symlink_to(outside)
    if hasattr(os, "mkfifo"):
        os.mkfifo(root / "pipe.py")
    with IndexWriter(str(root), database, disabled_globs=["secrets/**"]) as writer:
        writer.build()
        for path in (
            "link.py",
            "linked/far.py",
            "../outside/far.py",
            "dist/a.py",
            "secrets/x.py",
            "pipe.py",
            "huge.py",
        ):
            writer.update(path)
    assert [row for row in everything(database) if CANARY in row] == []
    index = IndexReader(str(root), database)
    imports = {path: modules(index, path) for path in paths(database) if index.imports(path)}
    assert imports == {"good.py": ["good"], "src/keep_pb2.py": ["kept"], "src/x.py": ["x"]}


def test_imports_of_secret_files_are_hidden_even_if_the_database_has_them(root: Path, database: Path):
    lay(root, {"a.py": "import f\n", "b.py": "import f\n", "f.py": ""})
    index = IndexReader.build(root, database)
    assert index.importers("f.py") == ["a.py", "b.py"]
    index.close()
    with closing(sqlite3.connect(database)) as rows, rows:
        rows.execute("UPDATE files SET path = '.ssh/id_rsa.py' WHERE path = 'a.py'")
        rows.execute("UPDATE files SET path = 'config/secrets.json' WHERE path = 'a.py'")
    reader = IndexReader(str(root), database, hidden_rule=lambda path: path == "b.py")
    assert reader.importers("f.py") == reader.files_like("f.py") == []
    assert reader.imports("b.py") == reader.imports(".ssh/id_rsa.py") == [] and reader.text("b.py") == ""


# ── the database file ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_only_its_user_can_read_an_index(root: Path, database: Path):
    lay(root, {"a.py": "import f\n"})
    IndexReader.build(root, database)
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in database.parent.iterdir()} == {0}


def test_without_an_index_every_answer_is_empty(root: Path, database: Path):
    index = IndexReader(str(root), database)
    assert (index.imports("a.py"), index.text("a.py"), index.resolve_module("a", "b.py")) == ([], "", None)
    assert (index.importers("a.py"), index.counterparts("a.py"), index.files_like("a.py")) == ([], [], [])


OLDER = f"""
PRAGMA application_id = {index_schema.APPLICATION}; PRAGMA user_version = 2;
CREATE TABLE files(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, stem TEXT NOT NULL, grammar TEXT NOT NULL,
    mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL, state INTEGER NOT NULL);
CREATE TABLE symbols(
    file INTEGER NOT NULL, number INTEGER NOT NULL, line INTEGER NOT NULL, end_line INTEGER NOT NULL,
    name TEXT NOT NULL, container TEXT NOT NULL, kind TEXT NOT NULL, signature TEXT NOT NULL,
    PRIMARY KEY(file, number)) WITHOUT ROWID;
CREATE TABLE imports(
    file INTEGER NOT NULL, number INTEGER NOT NULL, line INTEGER NOT NULL, module TEXT NOT NULL, alias TEXT NOT NULL,
    names TEXT NOT NULL, PRIMARY KEY(file, number)) WITHOUT ROWID;
INSERT INTO files VALUES(1, 'a.py', 'a', 'python', 1, 1, 0);
INSERT INTO symbols VALUES(1, 0, 0, 0, 'f', '', 'function', 'def f()');
INSERT INTO imports VALUES(1, 0, 0, 'old', '', '[["b", "b"]]');
"""
DAMAGE = {
    "noise": lambda path: path.write_bytes(os.urandom(50_000)),
    "empty": lambda path: path.write_bytes(b""),
    "a page gone": lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096)),
    "another's database": lambda path: replace(path, "CREATE TABLE symbols(x)"),
    "an older version": lambda path: replace(path, OLDER),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.unlink(), path.symlink_to(path.with_name("elsewhere"))),
}


def replace(path: Path, script: str) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.executescript(script)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_index_answers_nothing_and_is_rebuilt(root: Path, database: Path, damage: str):
    lay(root, {"a.py": "import f\n"})
    index = IndexReader.build(root, database)
    for ending in index_schema.SIDE_FILES:
        database.with_name(database.name + ending).unlink(missing_ok=True)
    DAMAGE[damage](database)
    called: list[bool] = []
    index.on_broken = lambda: called.append(True)
    assert index.imports("a.py") == []
    index.close()
    elsewhere = database.with_name("elsewhere")
    if damage == "a directory":
        database.rmdir()
    assert modules(IndexReader.build(root, database), "a.py") == ["f"]
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (PureWindowsPath(r"\\server\share\a b\x.sqlite"), "file:////server/share/a%20b/x.sqlite"),
        (PureWindowsPath(r"C:\a b\x.sqlite"), "file:///C:/a%20b/x.sqlite"),
        (PurePosixPath("/a b/%.sqlite"), "file:///a%20b/%25.sqlite"),
    ],
)
def test_the_uri_of_an_index_has_no_host_because_sqlite_refuses_one(path: PurePath, uri: str):
    assert index_schema.sqlite_uri(path) == uri
    with pytest.raises(sqlite3.OperationalError, match="unable to open"), closing(sqlite3.connect(uri, uri=True)):
        pass


def test_a_file_below_the_root_of_the_file_system_is_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # "c:" alone would be this directory
    file = tmp_path.resolve() / "a.py"
    file.write_text("a = 1\n")
    info = file.stat()
    root, inside = file_path(file.anchor), file.relative_to(file.anchor).as_posix()
    assert file_cache.read(root, inside, (info.st_mtime_ns, info.st_size)) == "a = 1\n"


def test_a_reader_never_sees_an_index_that_is_being_created(tmp_path: Path):
    for number in range(50):
        database = tmp_path / f"{number}.sqlite"
        creation = threading.Thread(target=lambda path=database: index_schema.open_to_write(path).close())
        creation.start()
        index = None
        while index is None:
            with suppress(sqlite3.OperationalError):  # locked; half an index is a plain sqlite3.DatabaseError
                index = index_schema.open_to_read(database)
        creation.join()
        assert index.execute("SELECT count(*) FROM files").fetchone() == (0,)
        index.close()
    assert not list(tmp_path.glob("*-new"))


def test_a_query_over_its_time_limit_returns_nothing(root: Path, database: Path):
    lay(root, {"f.py": "", **{f"p{n}.py": "import f\n" * 300 for n in range(20)}})
    index = IndexReader.build(root, database)
    index.cache.query_ms = 1e-6
    assert index.importers("f.py") == []
    index.cache.query_ms = 60_000
    assert len(index.importers("f.py", limit=15)) == 15


def test_old_indexes_are_removed_and_the_current_one_is_kept(tmp_path: Path, monkeypatch):
    current, old, new = (tmp_path / f"{name}{index_schema.SUFFIX}" for name in ("mine", "old", "new"))
    for path in (current, old, new):
        path.write_bytes(b"x" * 100)
    for path in (current, old):
        os.utime(path, (1, 1))
    index_schema.remove_old(tmp_path, current)
    assert current.exists() and new.exists() and not old.exists()
    monkeypatch.setattr(index_schema, "MAX_ALL_BYTES", 50)
    index_schema.remove_old(tmp_path, current)
    assert current.exists() and not new.exists()


def test_a_folder_that_is_temporarily_missing_keeps_its_index(root: Path, database: Path):
    lay(root, {"a.py": "import f\n"})
    IndexReader.build(root, database)
    root.rename(root.with_name("unmounted"))
    IndexReader.build(root, database)
    assert modules(IndexReader(str(root), database), "a.py") == ["f"]


def test_a_file_that_fails_to_parse_is_skipped_until_it_changes(root: Path, database: Path):
    lay(root, {"bad.py": "import f\n", "good.py": "import g\n"})
    read: list[str] = []

    def failing(grammar: str, text: str, path: str) -> list[Import]:
        read.append(path)
        if path == "bad.py":
            raise RecursionError(text)
        return [Import("g")]

    for _ in range(2):
        with IndexWriter(str(root), database, read_imports=failing) as writer:
            writer.build()
    assert read == ["bad.py", "good.py"]
    index = IndexReader(str(root), database)
    assert (modules(index, "bad.py"), modules(index, "good.py")) == ([], ["g"])


def test_the_indexed_data_of_a_file_is_bounded(root: Path, database: Path):
    lay(root, {"a.py": "\n".join(f"import f{n}" for n in range(5000))})
    lay(root, {"b.py": f"import {', '.join(f'a{n}' for n in range(600))}\n", "c.py": f"import {'x' * 5000}\n"})
    lay(root, {"tsconfig.json": "[" * 20_000, "package.json": json.dumps({"name": ["x"]}), "Cargo.toml": "\0"})
    index = IndexReader.build(root, database)
    assert 2000 < len(index.imports("a.py")) < 3000
    assert (len(index.imports("b.py")), index.imports("c.py")) == (200, [])
