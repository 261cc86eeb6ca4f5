"""Pictures of a real Neovim: its grid, drawn with Pillow in a monospace font.

Neovim reports every complete screen with its time. The drawing happens after the recording and costs no time in it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image, ImageDraw, ImageFont
from support.editors import install, nvim_screen
from support.editors.copilot_plugins import RECORDS, Plugin
from support.editors.nvim_session import NvimSession

from benchmarks.editor.recording.frames import Frame, sampled, write_gif, write_still
from benchmarks.editor.recording.story import (
    DEMO,
    FILE,
    INVENTORY,
    METHODS,
    PAIR,
    RENAME,
    RENAME_TWICE,
    RENAMED_FIELD,
    RENAMED_PARAMETER,
    SIGNATURE,
    WARM_UP,
    Step,
    play,
    typed,
    wait_until_quiet,
)
from speclsp.errors import InputError

NAME = "nvim-0.12"
COLUMNS, LINES = 84, 26
FONT_PX, LINE_PX, MARGIN_PX = 15, 18, 2
SERVER = ("--model", PAIR, "--set", "engine.shared=false")
REAL_TIME = ("--set", "completion.timeout_ms=3000")  # the default; a still picture waits for the whole text
SETUP = """
vim.cmd('filetype indent on')
vim.o.background, vim.o.number, vim.o.laststatus, vim.o.showmode = '{background}', true, 2, false
vim.o.cmdheight, vim.o.expandtab, vim.o.shiftwidth = 0, true, 4
vim.o.statusline = ' %f %= %l:%c '
"""
OWN_PLUGIN = "vim.opt.runtimepath:prepend(plugin) require('speclsp').setup({ cmd = cmd })\n"
NEXT_EDITS_ONLY = ("--set", "completion.enabled=false")  # no model runs
KEYS = {"\n": "<CR>", "<": "<LT>", "Enter": "<CR>", "Outdent": "0<C-D>"}  # 0 CTRL-D deletes all indentation


class Session(NvimSession):  # type: ignore[misc]  # mypy does not read tests/support
    """A Neovim that also keeps the colours of its highlight groups."""

    def __init__(self, home: Path, background: str, *arguments: str, plugin: str = OWN_PLUGIN) -> None:
        """`plugin`: lines of init.lua that start the plugin with `cmd` as its server."""
        self.attributes: dict[int, dict[str, Any]] = {}
        self.foreground, self.background = 0xFFFFFF, 0
        program, setup = install.install(NAME), SETUP.format(background=background) + plugin
        super().__init__(program, home, setup, *SERVER, *arguments, lawful=False)
        self.call("nvim_ui_try_resize", COLUMNS, LINES)

    def normal(self) -> None:
        """Leaves insert mode. With cmdheight=0, Neovim draws nothing for a key that does not change the mode."""
        if not self.frames or self.screen.mode != "normal":
            super().normal()

    def _draw(self, event: str, call: list[Any]) -> None:
        if event == "hl_attr_define":
            self.attributes[call[0]] = call[1]
        elif event == "default_colors_set":
            self.foreground, self.background = call[0], call[1]
        super()._draw(event, call)

    def colours(self, group: int) -> tuple[int, int]:
        """(foreground, background) of a highlight group, as 0xRRGGBB."""
        attributes = self.attributes.get(group, {})
        pair = attributes.get("foreground", self.foreground), attributes.get("background", self.background)
        return (pair[1], pair[0]) if attributes.get("reverse") else pair


class Fingers:
    """A person at Neovim."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def type(self, character: str) -> None:
        self.session.keys(KEYS.get(character, character))

    def press(self, key: str) -> None:
        self.session.keys(KEYS.get(key, f"<{key}>"))

    def suggested(self) -> bool:
        return bool(self.session.screen.ghost)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Drawing:
    """Draws screens of one session at a scale."""

    def __init__(self, session: Session, scale: int = 1) -> None:
        folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
        size = FONT_PX * scale
        self.session, self.scale = session, scale
        self.fonts = {
            style: ImageFont.truetype(folder / f"DejaVuSansMono{suffix}.ttf", size)
            for style, suffix in {"": "", "bold": "-Bold", "italic": "-Oblique"}.items()
        }
        self.cell_px = round(self.fonts[""].getlength("M"))
        self.line_px, self.margin_px = LINE_PX * scale, MARGIN_PX * scale

    def picture(self, frame: nvim_screen.Frame) -> Image.Image:
        """The screen as an image, with the cursor."""
        size = (COLUMNS * self.cell_px + 2 * self.margin_px, LINES * self.line_px + 2 * self.margin_px)
        image = Image.new("RGB", size, rgb(self.session.background))
        draw = ImageDraw.Draw(image)
        for number, row in enumerate(frame.rows):
            for column, (text, group) in enumerate(row):
                self._cell(draw, number, column, text, group)
        self._cursor(draw, frame)
        return image

    def _cell(self, draw: ImageDraw.ImageDraw, row: int, column: int, text: str, group: int) -> None:
        left, top = self.margin_px + column * self.cell_px, self.margin_px + row * self.line_px
        foreground, background = self.session.colours(group)
        if background != self.session.background:
            draw.rectangle((left, top, left + self.cell_px - 1, top + self.line_px - 1), rgb(background))
        if text.strip():
            attributes = self.session.attributes.get(group, {})
            style = "bold" if attributes.get("bold") else "italic" if attributes.get("italic") else ""
            baseline = top + round(self.line_px * 0.78)
            draw.text((left, baseline), text, rgb(foreground), self.fonts[style], anchor="ls")

    def _cursor(self, draw: ImageDraw.ImageDraw, frame: nvim_screen.Frame) -> None:
        row, column = frame.cursor
        left, top = self.margin_px + column * self.cell_px, self.margin_px + row * self.line_px
        width = 2 * self.scale if frame.mode == "insert" else self.cell_px
        draw.rectangle((left, top, left + width - 1, top + self.line_px - 1), rgb(self.session.foreground))


class FingersAtNextEdits(Fingers):
    """A person who renames, and waits for next edits."""

    def suggested(self) -> bool:
        return "edit at" in str(self.session.lua("return require('speclsp').statusline()"))


def rgb(colour: int) -> tuple[int, int, int]:
    return colour >> 16 & 255, colour >> 8 & 255, colour & 255


@contextmanager
def opened(background: str, *arguments: str, text: str = INVENTORY) -> Iterator[Session]:
    """Neovim with the sample file, a loaded model and the cursor at the end, in insert mode."""
    with (
        tempfile.TemporaryDirectory(prefix="record-") as folder,
        Session(Path(folder) / "n", background, *arguments) as session,
    ):
        session.open(FILE, text)
        session.ready()
        session.keys("Go")
        play(Fingers(session), WARM_UP)
        session.answered()
        session.keys("<C-U>")
        session.answered()
        yield session


def record(path: Path) -> None:
    """Record the story."""
    with opened("dark", *REAL_TIME, text=METHODS) as session:
        wait_until_quiet(Fingers(session))
        write_story(path, session, Fingers(session), DEMO)


def write_story(path: Path, session: Session, hand: Fingers, story: tuple[Step, ...]) -> None:
    """Perform a story, and write its frames."""
    start_ms = time.monotonic_ns() / 1e6
    first = max(0, len(session.frames) - 1)
    play(hand, story)
    end_ms = time.monotonic_ns() / 1e6
    drawing = Drawing(session)
    frames = [Frame(frame.ms, drawing.picture(frame)) for frame in list(session.frames[first:])]
    write_gif(path, sampled(frames, start_ms, end_ms))


def record_next_edits(path: Path) -> None:
    """Record the rename of a parameter. Without a model, the machine's load delays it little."""
    with (
        tempfile.TemporaryDirectory(prefix="record-") as folder,
        Session(Path(folder) / "n", "dark", *NEXT_EDITS_ONLY) as session,
    ):
        session.open("frames.py", RENAMED_PARAMETER)
        session.lua("vim.o.signcolumn, vim.o.hlsearch = 'yes', false")
        # The defaults of the plugin, which INIT replaces.
        for group, link in {"Add": "DiffAdd", "Hint": "DiagnosticInfo"}.items():
            session.lua("vim.api.nvim_set_hl(0, ...)", f"SpeclspEdit{group}", {"link": link})
        session.records()
        write_story(path, session, FingersAtNextEdits(session), RENAME)


def still_of_plugin(path: Path, plugin: Plugin) -> None:
    """A next edit as another plugin draws it, at twice the size. It is the plugin of the environment's variable."""
    if plugin.directory() is None:
        raise InputError(f"{plugin.variable} is not set: let it name a checkout of {plugin.name}.")
    with (
        tempfile.TemporaryDirectory(prefix="record-") as folder,
        Session(Path(folder) / "n", "dark", "--copilot", plugin=plugin.init()) as session,
    ):
        session.open(FILE, RENAMED_FIELD)
        session.lua("vim.o.signcolumn, vim.o.hlsearch, vim.o.swapfile = 'yes', false, false")
        session.until(RECORDS, "the server to record edits")
        play(Fingers(session), RENAME_TWICE)
        session.until(f"{plugin.pending} ~= nil", "an edit in the plugin")
        session.lua("vim.cmd('nohlsearch') vim.cmd('echo')")
        frame = session.wait(lambda frame: frame.text.count("quantity") > 2, "the edit on the screen")
        write_still(path, Drawing(session, scale=2).picture(frame))


def still(path: Path, background: str) -> None:
    """A suggestion of several lines, at twice the size."""
    with opened(background) as session:
        play(Fingers(session), typed(SIGNATURE))
        write_still(path, Drawing(session, scale=2).picture(session.screen))
