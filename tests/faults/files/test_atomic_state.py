"""State files hold the old or the new content whenever their writer dies; a damaged file is replaced once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.lsp.editor_client import Editor, Page
from support.weights.faulty_hub import FaultyHubRun

from speclsp import config
from speclsp.config import api_keys, toml_edit
from speclsp.errors import SpeclspError
from speclsp.observability import usage_db

SETTINGS = {"engine.max_draft_tokens": 7, "completion.max_tokens": 99}
OLD = '# mine\nmodel = "tiny"  # the small one\n\n[engine]\nmax_draft_tokens = 3\n'
WRITERS = {
    "config.toml": "from speclsp import config\nfrom speclsp.config import toml_edit as config_file\n"
    f"config_file.change(config.config_path(), {SETTINGS!r})",
    "keys.json": "from speclsp.config import api_keys as secret\nsecret.store('https://new.example', 'k2')",
}


def prepare(name: str) -> tuple[Path, bytes, bytes]:
    """Writes the file in its old state; returns its old and its new bytes."""
    path = config.config_path().with_name(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "config.toml":
        path.write_text(OLD)
        return path, OLD.encode(), (toml_edit.changed(OLD, SETTINGS) or "").encode()
    api_keys.write({"https://old.example:443": "k1"})
    new = json.dumps({"https://old.example:443": "k1", "https://new.example:443": "k2"}).encode()
    return path, path.read_bytes(), new


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_settings_and_keys_are_old_or_new_whenever_the_writer_is_killed(house: FaultyHubRun, name: str) -> None:
    path, old, new = prepare(name)
    folder = path.parent
    code, output = house.fork(program=WRITERS[name], below=folder)
    assert (code, path.read_bytes()) == (0, new), output
    steps = house.steps()
    assert steps >= 2
    contents = set()
    for at in range(1, steps + 1):
        prepare(name)
        code, output = house.fork(program=WRITERS[name], below=folder, at=at)
        assert code == -signal.SIGKILL, output
        assert path.read_bytes() in (old, new)
        assert path.stat().st_mode & 0o777 == (0o600 if name == "keys.json" else 0o644)
        contents.add(path.read_bytes())
        code, output = house.fork(program=WRITERS[name], below=folder)
        assert (code, path.read_bytes()) == (0, new), "what the killed one left is in nobody's way"
    assert old in contents


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda data: bytes(len(data)),
    "cut short": lambda data: data[: len(data) // 2 - 100],
    "a hole": lambda data: data[:100] + bytes(len(data) - 200) + data[-100:],
    "something else": lambda data: b"<!DOCTYPE html>" * 500,
}


@pytest.mark.parametrize("kind", sorted(SPOILT))
def test_a_damaged_usage_database_gives_one_error_with_its_fix(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "stats.db"
    usage_db.add(path, [usage_db.Row("2026-W47", f"tiny{number}", 1) for number in range(400)])
    path.write_bytes(SPOILT[kind](path.read_bytes()))
    for use in (usage_db.read, lambda path: usage_db.add(path, [usage_db.Row("2026-W48", "tiny", 1)])):
        with pytest.raises(SpeclspError, match=r"stats\.db cannot count suggestions: .*`speclsp stats --forget`"):
            use(path)
    assert usage_db.forget(path) and usage_db.read(path) == []


def output_lines(editor: Editor) -> list[str]:
    """All output beside answers: stderr lines, and log and show messages to the client."""
    shown = [message["params"]["message"] for message in editor.notifications if "essage" in message["method"]]
    return [*editor.stderr().splitlines(), *shown]


def use(editor: Editor) -> None:
    """Requests some completions and checks that all of them arrive."""
    editor.begin()
    text = "def add(a, b):\n    return "
    page = Page(editor, text)
    for _ in range(20):
        cursor = page.type(len(page.text), "x")
        assert editor.text(page.ask(cursor)) == page.expected(cursor)
    time.sleep(0.5)


@pytest.fixture
def full_disk(disk_of: Callable[[int], Path]) -> Path:
    place = disk_of(1)
    with (place / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            pass
    return place


@pytest.fixture
def no_directory(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("in the place of a directory")
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("place", "words"), [("no_directory", "{}"), ("full_disk", "cannot be written: the disk is full")]
)
def test_without_writable_state_suggestions_still_come_and_one_message_says_so(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: str, words: str
) -> None:
    state = request.getfixturevalue(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    with Editor() as editor:
        use(editor)
        lines = output_lines(editor)
    assert not [line for line in lines if "Traceback" in line or "Logging error" in line], lines
    assert len([line for line in lines if words.format(state) in line]) == 1, lines
