"""Conformance with sidekick.nvim and copilot-lsp themselves: their own Lua against `speclsp lsp --copilot`.

SPECLSP_SIDEKICK_DIR and SPECLSP_COPILOT_LSP_DIR name git checkouts at the revisions below. Neither plugin is part of
this repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.editors.copilot_plugins import COMMAND, COPILOT_LSP, REQUEST, SIDEKICK, PluginSession
from support.editors.nvim_keys import VERSIONS

REVISIONS = {
    SIDEKICK.name: "8ad0ede3ff9065878a853e4b037ba6ac88231fb0",
    COPILOT_LSP.name: "1b6d8273594643f51bb4c0c1d819bdb21b42159d",
}
FIRST_USE = 2  # line of the first place to change, from 0


def places(*uses: str) -> list[str]:
    """A Python file with these uses, each on line FIRST_USE and after."""
    return ["import lib", "", *(line for use in uses for line in use.split("\n")), "", "last = 1"]


def numbered(use: str, times: int = 4) -> list[str]:
    """The same use with the numbers 0, 1, ... in place of #."""
    return [use.replace("#", str(number)) for number in range(times)]


# name -> (use before, use after, changes that a user makes before an edit is offered)
CASES = {
    "same line": (
        "name = '𐐀é'; result_# = lib.read(open_file, #)",
        "name = '𐐀é'; result_# = lib.read(shared.file, #)",
        2,
    ),
    "several lines": (
        "def work_#(lock, value):\n    lock.acquire()\n    lib.run(lock, value)\n    lock.release()",
        "def work_#(lock, value):\n    with lock:\n        lib.run(lock, value)",
        2,
    ),
    "pure removal": ("result_# = lib.fetch(address, 10)", "result_# = lib.fetch(address)", 2),
    "pure addition": ("result_# = lib.fetch(address_#)", "result_# = lib.fetch(address_#, timeout=5)", 3),
}
PAIRS = [(plugin, version) for plugin in (SIDEKICK, COPILOT_LSP) for version in VERSIONS]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1]}")
def chair(
    request: pytest.FixtureRequest, installed: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PluginSession]:
    plugin, version = request.param
    revision = REVISIONS[plugin.name]
    if plugin.directory() is None:
        pytest.skip(f"NOT COVERED: {plugin.name}: {plugin.variable} names no checkout of it at {revision}")
    assert plugin.state() == (revision, ""), f"{plugin.directory()} is not {plugin.name} {revision} as committed"
    if version in plugin.silent_in:
        pytest.skip(f"NOT COVERED: {plugin.name} shows no edit of any server in {version}")
    with PluginSession(installed(version), tmp_path_factory.mktemp("n"), plugin) as seat:
        yield seat


@pytest.fixture
def seat(chair: PluginSession) -> Iterator[PluginSession]:
    yield chair
    chair.normal()
    chair.undisturbed()


def changed(seat: PluginSession, file: str, case: str) -> tuple[list[str], list[str]]:
    """Opens a file with four uses and changes the first of them. Returns the uses before and after."""
    before, after, times = CASES[case]
    olds, news = (numbered(use.replace("lib.", f"{file}.")) for use in (before, after))
    seat.edits(f"{file}.py", places(*olds))
    for number in range(times):
        make(seat, olds, news, number)
    return olds, news


def make(seat: PluginSession, olds: list[str], news: list[str], number: int) -> None:
    """Changes one use; those above are changed already."""
    first = FIRST_USE + sum(use.count("\n") + 1 for use in news[:number])
    seat.change(first, olds[number].count("\n") + 1, news[number].split("\n"))


@pytest.mark.parametrize("case", CASES)
def test_an_edit_is_requested_shown_and_applied_until_none_is_left(seat: PluginSession, case: str):
    olds, news = changed(seat, case.replace(" ", "_"), case)
    for number in range(CASES[case][2], len(olds)):
        edit = seat.offered()
        is_empty = edit["range"]["start"] == edit["range"]["end"]
        assert (edit["text"] == "", is_empty) == (case == "pure removal", case == "pure addition")
        seat.apply()
        seat.becomes(places(*news[: number + 1], *olds[number + 1 :]))
    seat.request()
    seat.all_answered(REQUEST)
    seat.until(f"{seat.plugin.pending} == nil", "no edit to be left")


def test_the_command_of_an_applied_edit_is_executed_and_its_display_is_reported(seat: PluginSession):
    executed, displayed = len(seat.wire.sent(COMMAND)), len(seat.wire.sent("textDocument/didShowInlineEdit"))
    changed(seat, "command", "same line")
    edit = seat.offered()
    seat.apply()
    if seat.plugin.executes:
        seat.wire.wait(lambda wire: len(wire.sent(COMMAND)) > executed, "the command")
        params, response = seat.all_answered(COMMAND)[-1]
        assert params["arguments"] == edit["command"]["arguments"] and response["result"] is None
    else:
        seat.until(f"{seat.plugin.pending} == nil", "the edit to be applied")
        assert len(seat.wire.sent(COMMAND)) == executed, "copilot-lsp never executes a command"
        shown = seat.wire.sent("textDocument/didShowInlineEdit")[displayed:]
        assert edit["command"]["arguments"] in [params["item"]["command"]["arguments"] for params in shown]


def test_an_answer_about_an_older_text_is_never_applied(seat: PluginSession):
    olds, news = changed(seat, "meanwhile", "same line")
    seat.offered()
    version = seat.lua("return vim.lsp.util.buf_versions[vim.api.nvim_get_current_buf()]")
    seat.lua(f"{seat.plugin.request} vim.api.nvim_buf_set_lines(0, 0, 0, true, {{ 'import other' }})")
    for params, response in seat.all_answered(REQUEST):
        for edit in response["result"]["edits"]:
            assert edit["textDocument"]["version"] == params["textDocument"].get("version")
    seat.wire.wait(
        lambda wire: wire.sent(REQUEST)[-1]["textDocument"]["version"] > version, "the plugin to request again"
    )
    seat.all_answered(REQUEST)
    seat.offered()
    seat.apply()
    seat.becomes(["import other", *places(*news[:3], *olds[3:])])
