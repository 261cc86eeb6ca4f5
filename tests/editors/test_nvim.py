"""Neovim from the user's side: keys go in, every screen frame is compared with the messages on the wire.

One Neovim of each version runs all of these tests; `NvimSession.check` inspects every frame of every test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.editors.nvim_keys import ACCEPT, BANK, OURS, VERSIONS
from support.editors.nvim_screen import Frame
from support.editors.nvim_session import NvimSession

ONE_LINE = ("Goreturn self.", "Goself.balance", "Goif amount", "Goraise Val")
LINES = (
    "Go<C-U><CR>    def total(self, accounts):<CR>    ",
    "Go<C-U><CR>    def close(self):<CR>    ",
    "Gofor name in names:<CR>",
    "Goif amount > 0:<CR>",
)


@pytest.fixture(scope="module", params=VERSIONS)
def chair(
    request: pytest.FixtureRequest,
    installed: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[NvimSession]:
    program = installed(request.param)
    with NvimSession(program, tmp_path_factory.mktemp("n"), OURS, "--model", "tiny") as seat:
        seat.open("bank.py", BANK)
        seat.ready()
        yield seat


@pytest.fixture
def seat(chair: NvimSession) -> Iterator[NvimSession]:
    chair.open("bank.py", BANK)
    yield chair
    chair.check()


def suggested(
    seat: NvimSession, places: tuple[str, ...], wanted: Callable[[Frame], bool] = lambda frame: True, text: str = BANK
) -> Frame:
    """Types at one place after the other until a matching suggestion is shown."""
    for keys in places:
        seat.open("bank.py", text)
        seat.keys(keys)
        seat.answered()
        if seat.answer().texts and wanted(frame := seat.suggestion()):
            return frame
    raise AssertionError(f"no such suggestion after any of {places}")


def lines(seat: NvimSession) -> Frame:
    return suggested(seat, LINES, lambda frame: len(frame.ghost) > 1)


def one_line(seat: NvimSession) -> Frame:
    return suggested(seat, ONE_LINE, lambda frame: len(frame.ghost) == 1 and len(frame.ghost[0]) > 4)


@pytest.mark.parametrize("place", [one_line, lines])
def test_the_screen_shows_the_servers_suggestion_and_tab_inserts_it(seat, place):
    place(seat)
    wanted, last = seat.accepted(), seat.answer().lines()[-1]
    seat.keys(ACCEPT)
    frame = seat.becomes(wanted)
    assert frame.mode == "insert"
    assert frame.left == last, "the cursor is behind it"


def test_typing_through_a_suggestion_never_hides_it(seat):
    ghost = one_line(seat).ghost[0]
    whole = seat.accepted()[-1]
    for character in ghost[:-1]:
        since = seat.keys(character.replace("<", "<LT>"))
        seat.suggestion()
        for frame in seat.frames[since - 1 :]:
            assert frame.ghost, f"the suggestion went away for a moment:\n{frame.text}"
            assert frame.promised[0].startswith(whole), f"it moved:\n{frame.text}"


def test_a_block_on_the_windows_last_row_is_fully_visible(seat):
    """New code is written there, and lines below the cursor's would lie outside the window."""
    frame = suggested(seat, LINES, lambda frame: len(frame.ghost) > 1, "# above\n" * 80 + BANK)
    assert len(frame.ghost) == len(seat.answer().texts[0].splitlines())
    assert seat.lua("return vim.fn.winline() < vim.api.nvim_win_get_height(0)"), "it was scrolled up for it"


def test_a_file_with_crlf_keeps_it(seat):
    for keys in LINES:
        seat.open("bank.py", BANK.replace("\n", "\r\n"))
        assert seat.lua("return vim.bo.fileformat") == "dos"
        seat.keys(keys)
        seat.answered()
        if seat.answer().texts and len(seat.suggestion().ghost) > 1:
            break
    wanted = seat.accepted()
    seat.keys(ACCEPT)
    seat.becomes(wanted)
    seat.keys("<Esc>:write<CR>")
    seat.until("not vim.bo.modified", "the file to be written")
    assert (seat.home / "bank.py").read_bytes() == "".join(f"{line}\r\n" for line in wanted).encode()
