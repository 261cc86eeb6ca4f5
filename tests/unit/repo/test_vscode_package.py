"""The VS Code extension's package: its settings equal the server's, and a workspace may set only few of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speclsp import __version__, config

HERE = Path(__file__).parents[3] / "editors/vscode"
PACKAGE: dict[str, Any] = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
GROUPS: list[dict[str, Any]] = PACKAGE["contributes"]["configuration"]
SETTINGS: dict[str, dict[str, Any]] = {key: made for group in GROUPS for key, made in group["properties"].items()}
SERVER = {f"speclsp.{known.key}": known for known in config.KNOWN.values() if not known.key.startswith("echo.")}
TASTE = ("speclsp.completion.", "speclsp.context.")


def test_every_setting_of_the_server_is_declared_with_its_name_and_default():
    assert {key for key in SETTINGS if key not in SERVER} == {"speclsp.server.command", "speclsp.install.source"}
    for key, known in SERVER.items():
        default = list(known.default) if isinstance(known.default, tuple) else known.default
        assert SETTINGS[key]["default"] == default
        assert SETTINGS[key].get("items", SETTINGS[key]).get("enum", []) == list(known.rule.choices)


def test_the_settings_page_has_a_group_for_each_heading_and_a_sentence_for_each_choice():
    assert [group["title"] for group in GROUPS] == [*config.by_group(), "Installation"]
    for key, declared in SETTINGS.items():
        text, listed = declared["markdownDescription"], declared.get("items", declared)
        assert text[0].isupper() and text.endswith("."), key
        assert len(listed.get("enumDescriptions", ())) == len(listed.get("enum", ())), key
        assert ("advanced" in declared.get("tags", ())) == (key in SERVER and SERVER[key].rule.advanced), key


def test_the_editor_accepts_exactly_the_values_that_the_server_accepts():
    for key, known in SERVER.items():
        declared = SETTINGS[key]
        for bound, step in (("minimum", -1), ("maximum", 1)):
            if bound in declared:
                name = key.removeprefix("speclsp.")
                assert config.parse({name: declared[bound]})[1] == []
                assert config.parse({name: declared[bound] + step})[1] != [], f"{key}'s {bound} is not the server's"
        assert declared.get("minimum") == known.rule.low and declared.get("maximum") == known.rule.high


@pytest.mark.promise(30)
def test_a_workspace_may_set_only_preferences():
    of_the_machine = {key for key in SETTINGS if not key.startswith(TASTE)} | {"speclsp.completion.disabled_globs"}
    assert {key for key, declared in SETTINGS.items() if declared["scope"] == "machine"} == of_the_machine
    trust = PACKAGE["capabilities"]["untrustedWorkspaces"]
    assert trust["supported"] == "limited" and trust["description"]
    assert set(trust["restrictedConfigurations"]) == of_the_machine


@pytest.mark.promise(30)
def test_settings_of_commands_paths_addresses_models_and_devices_have_machine_scope():
    for word in ("command", "dir", "url", "model", "device", "source"):
        named = [key for key in SETTINGS if key.rpartition(".")[2].endswith(word)]
        assert named, f"no setting ends in {word}: is this list still right?"
        assert all(SETTINGS[key]["scope"] == "machine" for key in named)


def test_only_stable_api_of_the_promised_version_is_used():
    assert "enabledApiProposals" not in PACKAGE
    assert PACKAGE["engines"]["vscode"] == "^1.91.0"
    assert PACKAGE["devDependencies"]["@types/vscode"] == "1.91.0"
    sources = {path.name: path.read_text(encoding="utf-8") for path in (HERE / "src").glob("*.ts")}
    assert sources and not any("vscode.proposed" in text for text in sources.values())


def test_every_command_is_registered_and_every_registered_one_has_a_title():
    titled = {command["command"] for command in PACKAGE["contributes"]["commands"]}
    extension = (HERE / "src/extension.ts").read_text(encoding="utf-8")
    table = extension.partition("actions: Record")[2].partition("};")[0]
    registered = {f"speclsp.{line.strip().partition(':')[0].rstrip(',')}" for line in table.splitlines()[1:-1]}
    assert registered == titled


def test_the_extension_has_the_packages_version():
    assert PACKAGE["version"] == __version__


def test_the_lockfile_names_no_registry():
    lock = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))
    assert len(lock["packages"]) > 1
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    locked = {name.removeprefix("node_modules/"): package.get("version") for name, package in lock["packages"].items()}
    wanted = PACKAGE["devDependencies"]
    assert {name: locked[name] for name in wanted} == wanted


def test_the_icon_is_small_and_every_picture_of_the_guide_is_packed():
    assert (HERE / PACKAGE["icon"]).stat().st_size < 20_000
    for guide in PACKAGE["contributes"]["walkthroughs"]:
        for step in guide["steps"]:
            assert (HERE / (step["media"].get("markdown") or step["media"]["image"])).is_file()
