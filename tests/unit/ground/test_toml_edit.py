"""Editing a setting in the user's config.toml changes that setting and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp import config
from speclsp.config import toml_edit
from speclsp.errors import SpeclspError


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


WANTED: dict[str, object] = {"engine.speculative_decoding": False, "engine.context_tokens": 777}

parts = {
    "model": 'model = "tiny"  # the small one\n',
    "dotted": "engine.threads = 2 # two\n",
    "inline": "engine = { threads = 2, context_tokens = 3 }\n",
    "comment": "# mine, keep\n\n",
    "engine": "[engine]\n# why\ncontext_tokens = 4 # tried\nthreads=2\n",
    "completion": "[completion]\nmax_tokens = 50\ndisabled_languages = [\n  'go', # no\n]\n",
    "wrapped": "[speclsp.engine]\nspeculative_decoding = true\n",
    "editor": "[speclsp.completion]\nenabled = false\n",
}
layouts = st.lists(st.sampled_from(sorted(parts)), unique=True, max_size=5).map(
    lambda names: "".join(parts[name] for name in sorted(names, key=lambda name: parts[name].startswith("[")))
)


@given(layouts, st.sampled_from(["\n", "\r\n"]))
def test_every_other_setting_comment_and_line_stays(text: str, newline: str):
    """For any layout of the file: changed as requested or, rarely, not at all."""
    text = text.replace("\n", newline)
    try:
        before = config.from_toml(text)
    except ValueError:
        return
    new = toml_edit.changed(text, WANTED)
    if new is None:
        assert "engine = {" in text or "speclsp" in text or "engine.threads" in text, "usual layouts are always changed"
        return
    read, _ = config.parse(config.from_toml(new))
    assert (read.engine.speculative_decoding, read.engine.context_tokens) == (False, 777)
    kept, _ = config.parse(before)
    assert (read.model, read.engine.threads, read.completion) == (kept.model, kept.engine.threads, kept.completion)
    for comment in ("# the small one", "# two", "# mine, keep", "# why", "# tried", "# no"):
        assert (comment in new) == (comment in text)


def test_a_changed_line_keeps_its_place_and_a_new_one_ends_its_section():
    text = "# top\n[engine]\ncontext_tokens = 4 # tried\n\n[completion]\nmax_tokens = 50\n"
    assert toml_edit.changed(text, WANTED) == (
        "# top\n[engine]\ncontext_tokens = 777 # tried\nspeculative_decoding = false\n\n[completion]\nmax_tokens = 50\n"
    )


def test_permissions_are_kept_and_a_link_stays_a_link(tmp_path: Path):
    real, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_text('model = "tiny"\n')
    real.chmod(0o600)
    link.symlink_to(real)
    toml_edit.change(link, WANTED)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert "context_tokens = 777" in real.read_text()
    assert names(tmp_path) == ["config.toml", "dotfiles.toml"], "nothing is left lying about"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"engine = 5\n", "Change it yourself: engine.speculative_decoding = false, engine.context_tokens = 777."),
        (b"[engine\n", "cannot be changed safely"),
        (b"\xff\xfe", "is not UTF-8 text (byte 0)."),
    ],
)
def test_a_file_it_cannot_change_safely_is_left_as_it_was(tmp_path: Path, data: bytes, says: str):
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    with pytest.raises(SpeclspError) as caught:
        toml_edit.change(path, WANTED)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == data
    assert names(tmp_path) == ["config.toml"]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "config.toml"
    path.write_text('model = "tiny"\n')
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SpeclspError, match="cannot be changed: the disk is full"):
        toml_edit.change(path, WANTED)
    assert names(tmp_path) == ["config.toml"]
    assert path.read_text() == 'model = "tiny"\n'
