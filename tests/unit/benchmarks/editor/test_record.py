"""Recording of editors: frames merged with true times, limits of the committed pictures, and the typed story."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from benchmarks.editor.record import PICTURES
from benchmarks.editor.recording.frames import Frame, broken_limits, sampled, write_gif
from speclsp.errors import InputError

MAX_STILL_BYTES = 200_000


def plain(colour: str, width: int = 760) -> Image.Image:
    return Image.new("RGB", (width, 8), colour)


def test_frames_keep_their_times_and_equal_neighbours_are_merged():
    frames = [Frame(1000, plain("red")), Frame(1210, plain("red")), Frame(1430, plain("blue"))]
    timed = sampled(frames, 1000, 2000)
    assert [(picture.getpixel((0, 0)), ms) for picture, ms in timed] == [((255, 0, 0), 450), ((0, 0, 255), 550)]


def test_a_picture_beyond_its_limits_is_not_written(tmp_path: Path):
    with pytest.raises(InputError, match=r"12\.5 s, at most 12 s; 100 px wide, not 740 to 800"):
        write_gif(tmp_path / "a.gif", [(plain("red", 100), 500), (plain("blue", 100), 12_000)])
    assert not (tmp_path / "a.gif").exists()


def test_the_committed_moving_pictures_are_within_their_limits():
    committed = [path for path in PICTURES.values() if path.suffix == ".gif" and path.exists()]
    assert {path.name: problems for path in committed if (problems := broken_limits(path))} == {}


def test_the_committed_still_pictures_are_small():
    committed = [path for path in PICTURES.values() if path.suffix == ".png" and path.exists()]
    assert {path.name for path in committed if path.stat().st_size > MAX_STILL_BYTES} == set()
