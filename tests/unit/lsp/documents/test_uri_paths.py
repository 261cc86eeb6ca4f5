"""Paths of URIs: every spelling of a file is one path and one document, as Windows' own rules say."""

from __future__ import annotations

import string
import sys
from pathlib import PureWindowsPath
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speclsp.lsp.documents.uri_paths import (
    document_key,
    file_path,
    folded,
    is_same_path,
    path_inside,
    system_path,
)
from speclsp.lsp.documents.windows_names import (
    MAX_PLAIN_PATH,
    is_link,
    is_placeholder,
    is_reserved,
    real_folder,
    real_path,
    without_prefix,
)
from speclsp.lsp.index.scan import is_special
from speclsp.lsp.protocol.document_sync import DocumentSync
from speclsp.lsp.visibility import secret_files

NAMES = st.text(
    st.characters(exclude_characters='<>:"/\\|?*~', exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
).filter(lambda name: name.rstrip(". ") == name)
PARTS = st.lists(NAMES, min_size=1, max_size=5)
DRIVES = st.sampled_from(string.ascii_letters)


def spellings(drive: str, parts: list[str]) -> list[str]:
    """The path C:\\a\\b as VS Code and Neovim send it, and as a person or a system call writes it."""
    path = "/".join(parts)
    return [
        f"file:///{drive.lower()}%3A/{quote(path)}",
        f"file:///{drive.upper()}:/{quote(path, safe='/!$&()*+,;=@')}",
        f"file://localhost/{drive}:/{quote(path)}",
        f"file://%3F/{drive}%3A/{quote(path)}",
        f"{drive}:/{path}",
        PureWindowsPath(f"{drive}:/{path}").__str__(),
        f"\\\\?\\{drive}:\\" + "\\".join(parts),
        f"//./{drive}:/{path}",
    ]


@given(DRIVES, PARTS)
@example("C", ["Users", "a b", "größe #1 100%.py"])
def test_every_spelling_of_a_drive_is_one_path(drive: str, parts: list[str]):
    expected = PureWindowsPath(f"{drive.lower()}:/" + "/".join(parts)).as_posix()
    assert {file_path(spelling, windows=True) for spelling in spellings(drive, parts)} == {expected}
    uris = [spelling for spelling in spellings(drive, parts) if spelling.startswith("file:")]
    uris += [uri.swapcase().replace("FILE:", "file:") for uri in uris if uri.isascii()]
    assert len({document_key(uri, windows=True) for uri in uris}) == 1, "one document"


@given(PARTS, st.text(string.ascii_letters + string.digits, min_size=1, max_size=8))
def test_every_spelling_of_a_share_is_one_path(parts: list[str], server: str):
    path = f"{server}/share/" + "/".join(parts)
    uris = [
        f"file://{quote(path)}",
        f"file:////{quote(path)}",
        f"file://{quote(chr(92) * 2 + path.replace('/', chr(92)))}",
    ]
    paths = [*uris, f"//{path}", f"\\\\{path}".replace("/", "\\"), f"\\\\?\\UNC\\{path}".replace("/", "\\")]
    assert {file_path(spelling, windows=True) for spelling in paths} == {f"//{path}"}
    assert len({document_key(uri, windows=True) for uri in uris}) == 1


@given(PARTS, PARTS)
@example(["a.py"], ["A.PY"])
@example(["a.py"], ["a.pyi"])
def test_documents_are_as_different_as_the_files(parts: list[str], others: list[str]):
    left, right = ("C:/" + "/".join(names) for names in (parts, others))
    keys = {document_key(f"file:///{quote(path)}", windows=True) for path in (left, right)}
    assert (len(keys) == 1) is (PureWindowsPath(left) == PureWindowsPath(right))
    keys = {document_key(f"file:///{quote(path)}", windows=False) for path in (left, right)}
    assert (len(keys) == 1) is (left == right)


def test_a_host_is_a_server_on_windows_and_no_part_of_a_path_elsewhere():
    uri = "file://host/home/u/s.py"
    assert file_path(uri, windows=False) == "/home/u/s.py"
    assert file_path(uri, windows=True) == "//host/home/u/s.py"


def test_a_stream_a_fragment_and_another_scheme_are_documents_of_their_own():
    uris = ["file:///c:/a.py", "file:///c:/a.py:x", "file:///c:/a.py#x", "file:///c:/a.py?x", "untitled:/c:/a.py"]
    for windows in (True, False):
        assert len({document_key(uri, windows) for uri in uris}) == len(uris)
    assert document_key("file:///p/a%5Cb.py", windows=False) != document_key("file:///p/a/b.py", windows=False)


@given(PARTS, st.sampled_from(["", ".", " ", ". .", ":stream", "::$DATA", ":a:$DATA"]))
def test_a_stream_and_trailing_dots_lead_to_the_file(parts: list[str], end: str):
    path = "c:/" + "/".join(parts)
    assert file_path(path + end, windows=True) == path
    assert file_path(f"{path}{end}/x.py", windows=True) == f"{path}/x.py"
    assert file_path(f"file:///p/{quote(parts[0] + end)}", windows=False) == f"/p/{parts[0]}{end}", "POSIX has none"


@given(PARTS, PARTS, st.booleans())
def test_a_path_lies_in_its_folder_in_any_case(parts: list[str], below: list[str], swapped: bool):
    folder, inside = "c:/" + "/".join(parts), "/".join(below)
    spelled = "".join(letter.swapcase() if swapped and letter.isascii() else letter for letter in folder)
    assert path_inside(f"{folder}/{inside}", spelled, windows=True) == inside
    assert path_inside(f"{folder}/{inside}", f"{spelled}/", windows=True) == inside
    assert path_inside(f"{folder}x/{inside}", spelled, windows=True) is None
    assert (path_inside(f"{folder}/{inside}", spelled, windows=False) == inside) is (spelled == folder)
    assert is_same_path(f"\\\\?\\{spelled}".replace("/", "\\"), folder, windows=True)


@given(st.lists(NAMES, min_size=1, max_size=40), st.sampled_from(["c:/", "//server/share/"]))
def test_only_a_long_path_gets_the_prefix_for_system_calls(parts: list[str], top: str):
    path = top + "/".join(parts)
    system = system_path(path, windows=True)
    assert system.startswith("\\\\?\\") is (len(path) > MAX_PLAIN_PATH)
    assert without_prefix(system.replace("\\", "/")) == path
    assert system_path(system, windows=True) == system and system_path(path, windows=False) == path


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("file:///d%3A/", "D:"),
        (r"\\?\D:" + "\\", "D:"),
        ("file://server/share/", "//server/share"),
        ("file:///d%3A/work/", "D:/work"),
    ],
)
def test_a_file_below_the_root_of_a_drive_or_share_is_no_link(uri: str, root: str):
    """`real`: as ntpath.realpath on a Windows whose current directory is D:\\elsewhere."""

    def real(path: str) -> str:
        backslashes = path.replace("/", "\\").replace("d:", "D:")
        if backslashes == "D:":
            return r"D:\elsewhere"
        is_root = backslashes.rstrip("\\") in ("D:", r"\\server\share")
        return backslashes.rstrip("\\") + ("\\" if is_root else "")

    folder = file_path(uri, windows=True)
    assert real_folder(folder, True, real) == root
    assert is_same_path(real_path(f"{folder}/a b.py", True, real), f"{root}/a b.py", windows=True)
    assert path_inside(real_path(f"{folder}/a b.py", True, real), real_folder(folder, True, real), True) == "a b.py"


def test_only_names_of_devices_are_reserved():
    devices = ("con", "NUL", "nul.py", "Aux.tar.gz", "com1", "LPT9.txt", "prn ", "con:x", "COM²")
    others = ("console.py", "null.py", "com10", "auxiliary", "x.con", "", "con-1.py")
    assert [name for name in (*devices, *others) if is_reserved(name)] == [*devices]


@pytest.mark.parametrize(
    ("tag", "attributes", "link", "placeholder"),
    [
        (0, 0x20, False, False),
        (0xA000000C, 0x420, True, False),  # a symbolic link
        (0xA0000003, 0x410, True, False),  # a junction
        (0x9000601A, 0x420, False, False),  # of OneDrive, on this machine
        (0x9000601A, 0x401620, False, True),  # of OneDrive, to be fetched
    ],
)
def test_junctions_are_links_and_files_in_the_cloud_are_placeholders(
    tag: int, attributes: int, link: bool, placeholder: bool
):
    info: Any = SimpleNamespace(st_mode=0o100666, st_reparse_tag=tag, st_file_attributes=attributes)
    assert (is_link(info), is_placeholder(info)) == (link, placeholder)
    assert is_special("nul.py", info) and is_special("a.py", info) == (link or placeholder)


@pytest.mark.parametrize(
    "path",
    [
        r"C:\Users\x\.ssh\config",
        r"C:\Users\x\AppData\Roaming\gcloud\credentials.json",
        r"C:\Users\x\AppData\Roaming\GitHub CLI\hosts.yml",
        r"C:\Users\x\AppData\Roaming\Microsoft\UserSecrets\1\secrets.json",
        r"C:\Users\x\AppData\Roaming\Microsoft\Windows\PowerShell\PSReadLine\ConsoleHost_history.txt",
        r"C:\Users\x\AppData\Roaming\postgresql\pgpass.conf",
        r"C:\Users\x\AppData\Local\speclsp\config.toml",
        r"C:\Users\x\_netrc",
        r"C:\Windows\Panther\Unattend.xml",
        r"C:\work\.ENV",
        r"C:\work\.env::$DATA",
        r"C:\work\.env.",
        r"C:\work\.ssh::$INDEX_ALLOCATION\config",
        r"\\server\share\id_rsa",
        r"\\?\C:\work\server.pem",
        "file:///c%3A/work/.env%3Ax",
    ],
)
def test_secret_files_are_known_by_their_windows_names(path: str):
    assert secret_files.pattern_of(file_path(path, windows=True))


@pytest.mark.skipif(sys.platform != "win32", reason="only Windows has short names")
def test_a_short_name_leads_to_the_long_one(tmp_path):
    import ctypes

    (tmp_path / "a long name.credentials").write_text("x")
    short = ctypes.create_unicode_buffer(1000)
    ctypes.windll.kernel32.GetShortPathNameW(str(tmp_path / "a long name.credentials"), short, len(short))
    assert "~" in short.value
    assert folded(file_path(short.value)) == folded(file_path(str(tmp_path / "a long name.credentials")))
    new = short.value.rpartition("\\")[0] + "\\NEW~1.py"
    assert file_path(new).endswith("/NEW~1.py")


def test_messages_about_an_open_document_may_spell_its_uri_otherwise():
    sync = DocumentSync()
    for method, uri, fields in (
        ("didOpen", "file:///p/a%2Db.py", {"languageId": "python", "version": 1, "text": "x"}),
        ("didChange", "file:///p/a-b.py", {"version": 2}),
        ("didChange", "file:///p/%61-b.py", {"version": 3}),
    ):
        params = {"textDocument": {"uri": uri, **fields}, "contentChanges": [{"text": method}]}
        sync.unify_spelling(params)
        assert sync.apply(f"textDocument/{method}", params, "utf-16")
    (document,) = sync.documents
    assert (document.uri, document.version, document.text) == ("file:///p/a%2Db.py", 3, "didChange")
    other = {"textDocument": {"uri": "file:///p/a-c.py"}}
    sync.unify_spelling(other)
    assert other == {"textDocument": {"uri": "file:///p/a-c.py"}}, "another document"
    closing = {"textDocument": {"uri": "file:///p/a-b.py"}}
    sync.unify_spelling(closing)
    assert sync.apply("textDocument/didClose", closing, "utf-16") and not list(sync.documents)
