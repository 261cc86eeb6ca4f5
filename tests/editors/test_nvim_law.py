"""Invariant of ghost text: a document changes only by typed text and by suggestions of the server.

Two Neovims get the same keys, one with our plugin and one without. A key must change the text of both equally, unless
it accepts. An accepting key must extend the text towards one that the server suggested, and do nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.editors.nvim_keys import ACCEPT, BANK, LINE, NEWEST, NEXT, OURS, WORD
from support.editors.nvim_screen import Neovim
from support.editors.nvim_session import NvimSession

TYPED = ("r", "self.", " = ", "(", ")", "if x:", "<CR>", "<BS>", "<Left>", "<End>", "<Up>", "<C-W>", "é", "漢", NEXT)
ACTIONS = {WORD: "accept_word", LINE: "accept_line", NEXT: "next"}  # keys with another meaning without our plugin
KEYS = st.lists(st.tuples(st.sampled_from([*TYPED, ACCEPT, ACCEPT, WORD, LINE]), st.booleans()), min_size=3, max_size=9)


@pytest.fixture(scope="module", params=NEWEST)
def pair(
    request: pytest.FixtureRequest,
    installed: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[NvimSession, NvimSession]]:
    program, folder = installed(request.param), tmp_path_factory.mktemp("n")
    with (
        NvimSession(program, folder / "ours", OURS, "--model", "tiny") as ours,
        NvimSession(program, folder / "plain", "") as plain,
    ):
        ours.open("bank.py", BANK)
        ours.ready()
        yield ours, plain


def state(neovim: Neovim) -> tuple[list[str], list[int]]:
    """Text and cursor after all keys so far."""
    neovim.until("vim.fn.getcharstr(1) == ''", "the keys to be done")
    return neovim.buffer(), neovim.call("nvim_win_get_cursor", 0)


def split(lines: list[str], cursor: list[int]) -> tuple[str, str]:
    """The text left and right of the cursor, whose column counts bytes."""
    row, column = cursor
    line = lines[row - 1].encode()
    return "\n".join([*lines[: row - 1], line[:column].decode()]), "\n".join([line[column:].decode(), *lines[row:]])


@settings(max_examples=8, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
@given(keys=KEYS)
def test_the_text_changes_only_by_typed_and_suggested_text(pair, keys):
    ours, plain = pair
    for neovim in pair:
        neovim.open("bank.py", BANK)
        neovim.keys("o")
    for key, patient in keys:
        if patient:
            ours.answered()
        if key in ACTIONS:
            ours.lua(f"require('speclsp').{ACTIONS[key]}()")
        else:
            for neovim in pair:
                neovim.keys(key)
        before, (lines, cursor) = plain.buffer(), state(ours)
        if (lines, cursor) == state(plain):
            continue
        assert key in (ACCEPT, WORD, LINE), f"{key} made {lines[-3:]} of {before[-3:]}, not {plain.buffer()[-3:]}"
        left, right = split(lines, cursor)
        suggested = [
            (answer.document.removesuffix("\n"), document)
            for answer in ours.wire.read().answers
            for document in answer.documents
        ]
        assert any(now.startswith(left) and then.endswith(right) for then, now in suggested), (
            f"{key} made {left[-80:]!r} before {right[:40]!r}, which was never suggested"
        )
        plain.call("nvim_buf_set_lines", 0, 0, -1, False, lines)
        plain.call("nvim_win_set_cursor", 0, cursor)
    ours.normal()
    ours.wire.wait(lambda _: ours.in_step(), "the text as it is")
    ours.check()
