"""Former names of settings: an error from each source, and no document that still uses one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speclsp import config
from speclsp.cli import entry
from speclsp.config.old_names import RENAMED_FLAGS, RENAMED_SETTINGS

ROOT = Path(__file__).resolve().parents[3]
KEYS = [pytest.param(old, new, id=old) for old, new in RENAMED_SETTINGS.items()]
HISTORY = ("reliability.md",)  # generated from past results


@pytest.mark.parametrize(("old", "new"), KEYS)
def test_an_old_name_in_config_toml_is_one_sentence_and_keeps_the_other_settings(isolated: Path, old: str, new: str):
    path = config.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'"{old}" = 1\n[completion]\nmax_tokens = 7\n')
    settings, problems = config.gather()
    assert settings.completion.max_tokens == 7
    assert problems == [f'{path}: "{old}" is now "{new}": rename it.']


@pytest.mark.parametrize(("old", "new"), KEYS)
def test_an_old_name_from_an_editor_is_one_sentence(old: str, new: str):
    section, _, name = old.rpartition(".")
    nested = {section: {name: 1}} if section else {name: 1}
    for sent in ({old: 1}, nested, {"speclsp": nested}, {f"speclsp.{old}": 1}):
        parsed, problems = config.parse(sent | {"device": "cpu"}, fixed=config.THE_USERS_OWN)
        assert parsed.device == "cpu"
        assert problems == [f'"{old}" is now "{new}": rename it.']


@pytest.mark.parametrize(("old", "new"), KEYS)
def test_an_old_name_on_the_command_line_is_one_sentence(
    isolated: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
):
    assert entry.main(["lsp", "--set", f"{old}=1"]) == 2
    assert capsys.readouterr().err == f'speclsp: "{old}" is now "{new}": rename it.\n'


@pytest.mark.parametrize(("old", "new"), RENAMED_FLAGS.items())
def test_an_old_flag_is_one_sentence(capsys: pytest.CaptureFixture[str], old: str, new: str):
    assert entry.main(["doctor", old, "echo"]) == 2
    assert f"{old} is now {new}: rename it" in capsys.readouterr().err


def test_every_new_name_is_a_setting_and_no_old_name_is():
    known = {*config.KNOWN, *config.SECTIONS, config.KEY}
    assert set(RENAMED_SETTINGS.values()) <= known
    assert not set(RENAMED_SETTINGS) & known


def test_no_document_uses_an_old_name():
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("editors/*/*.md")]
    pages += [*ROOT.glob("editors/nvim/doc/*.txt"), ROOT / "editors/vscode/package.json"]
    dotted = "|".join(re.escape(old) for old in RENAMED_SETTINGS if "." in old)
    old_name = re.compile(rf"(?<![\w/])(?:speclsp\.)?(?:{dotted})\b(?![_\w])|\bspeclsp\.pair\b|(?<![\w-])--pair\b")
    uses = [
        f"{page.relative_to(ROOT)}: {match.group()}"
        for page in pages
        if page.name not in HISTORY
        for match in old_name.finditer(page.read_text(encoding="utf-8"))
    ]
    assert uses == []
