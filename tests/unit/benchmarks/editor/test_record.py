"""Recording of editors: frames merged with true times, limits of the committed pictures, and the typed story."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from benchmarks.editor.record import PICTURES
from benchmarks.editor.recording import story
from benchmarks.editor.recording.frames import Frame, broken_limits, sampled, seconds, write_gif
from speclsp.errors import InputError

MAX_STILL_BYTES = 200_000


def plain(colour: str, width: int = 760) -> Image.Image:
    return Image.new("RGB", (width, 8), colour)


class SlowModel:
    """A person whose suggestions appear a second after the last key."""

    def __init__(self, comes: bool = True) -> None:
        self.comes, self.now_s, self.last_key_s, self.keys = comes, 0.0, 0.0, ""

    def type(self, character: str) -> None:
        self.keys += character
        self.last_key_s = self.now_s

    def press(self, key: str) -> None:
        self.type(f"<{key}>")

    def suggested(self) -> bool:
        return self.comes and self.now_s >= self.last_key_s + 1

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_frames_keep_their_times_and_equal_neighbours_are_merged():
    frames = [Frame(1000, plain("red")), Frame(1210, plain("red")), Frame(1430, plain("blue"))]
    timed = sampled(frames, 1000, 2000)
    assert [(picture.getpixel((0, 0)), ms) for picture, ms in timed] == [((255, 0, 0), 450), ((0, 0, 255), 550)]


def test_frames_between_two_ticks_show_the_newest_only():
    frames = [Frame(0, plain("red")), Frame(10, plain("green")), Frame(20, plain("blue"))]
    assert [(picture.getpixel((0, 0)), ms) for picture, ms in sampled(frames, 0, 100)] == [
        ((255, 0, 0), 50),
        ((0, 0, 255), 50),
    ]


def test_a_written_picture_has_the_duration_of_its_frames(tmp_path: Path):
    write_gif(tmp_path / "a.gif", [(plain("red"), 450), (plain("blue"), 1550)])
    assert seconds(tmp_path / "a.gif") == 2.0


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


def test_a_story_types_and_waits_for_each_suggestion():
    hand = SlowModel()
    story.play(hand, (story.Step("type", "ab"), story.Step("read", seconds=0.5), story.Step("press", "Tab")))
    assert hand.keys == "ab<Tab>"
    assert hand.now_s == pytest.approx(2.1, abs=0.4), "about two keys, a second for the model, and time to read"


def test_a_missing_suggestion_ends_the_story_and_names_its_step():
    with pytest.raises(InputError, match=r"step 1 of the story had no suggestion within 20 s"):
        story.play(SlowModel(comes=False), (story.Step("type", "a"), story.Step("read")))


def test_a_recording_waits_for_a_quiet_processor(monkeypatch: pytest.MonkeyPatch):
    busy = iter([0.0, 90.0, 10.0, 95.0, 5.0, 5.0, 5.0])
    monkeypatch.setattr("psutil.cpu_percent", lambda: next(busy))
    hand = SlowModel()
    story.wait_until_quiet(hand)
    assert hand.now_s == 6.0


def test_a_busy_machine_records_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda: 100.0)
    with pytest.raises(InputError, match=r"busy for 10 minutes. Close other programs, then record again."):
        story.wait_until_quiet(SlowModel())
