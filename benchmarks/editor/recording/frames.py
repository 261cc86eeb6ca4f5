"""Frames with their true times, made into one animated picture.

Frames are sampled every 50 ms, equal neighbours become one longer frame, and all frames share one palette.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from speclsp.errors import InputError

TICK_MS = 50  # GIF counts in 10 ms; browsers show frames below 20 ms for 100 ms
COLOURS = 96
MAX_BYTES, MAX_SECONDS, WIDTHS = 1_500_000, 12.0, range(740, 801)  # limits of an animated picture
PALETTE_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Frame:
    """One complete picture of the screen."""

    ms: float  # the time when the screen changed to it
    picture: Image.Image


def sampled(frames: Sequence[Frame], start_ms: float, end_ms: float) -> list[tuple[Image.Image, int]]:
    """(picture, duration in ms): the newest picture at each tick, equal neighbours merged."""
    merged: list[tuple[Image.Image, int]] = []
    ordered = sorted(frames, key=lambda frame: frame.ms)
    shown = 0
    for tick in range(int((end_ms - start_ms) // TICK_MS)):
        now_ms = start_ms + tick * TICK_MS
        while shown + 1 < len(ordered) and ordered[shown + 1].ms <= now_ms:
            shown += 1
        picture = ordered[shown].picture
        if merged and same(merged[-1][0], picture):
            merged[-1] = (merged[-1][0], merged[-1][1] + TICK_MS)
        else:
            merged.append((picture, TICK_MS))
    return merged


def same(left: Image.Image, right: Image.Image) -> bool:
    return left is right or (left.size == right.size and left.tobytes() == right.tobytes())


def quantized(pictures: Sequence[Image.Image], colours: int = COLOURS) -> list[Image.Image]:
    """The pictures with one shared palette, without dithering: text stays sharp and the file small."""
    step = max(1, len(pictures) // PALETTE_SAMPLES)
    samples = [*pictures[::step], pictures[-1]]
    width, height = samples[0].size
    montage = Image.new("RGB", (width, height * len(samples)))
    for number, sample in enumerate(samples):
        montage.paste(sample, (0, number * height))
    palette = montage.quantize(colours, method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    return [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]


def write_gif(path: Path, timed: Sequence[tuple[Image.Image, int]]) -> None:
    """Write an endless GIF. Raises InputError when it breaks a limit."""
    pictures = quantized([picture for picture, _ in timed])
    durations = [duration for _, duration in timed]
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate = path.with_suffix(".new.gif")  # replaces the former picture only if it is within the limits
    pictures[0].save(
        candidate, save_all=True, append_images=pictures[1:], duration=durations, loop=0, disposal=1, optimize=False
    )
    if problems := broken_limits(candidate):
        candidate.unlink()
        raise InputError(f"{path.name} breaks its limits: {'; '.join(problems)}. Shorten the story.")
    candidate.replace(path)


def write_still(path: Path, picture: Image.Image, colours: int = 255) -> None:
    """Write a PNG with a palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    quantized([picture.convert("RGB")], colours)[0].save(path, optimize=True)


def seconds(path: Path) -> float:
    """The duration of an animated picture."""
    total_ms = 0
    with Image.open(path) as picture:
        for number in range(getattr(picture, "n_frames", 1)):
            picture.seek(number)
            total_ms += int(picture.info.get("duration", 0))
    return total_ms / 1000


def broken_limits(path: Path) -> list[str]:
    """The limits that an animated picture exceeds, with its values."""
    problems = []
    size = path.stat().st_size
    if size > MAX_BYTES:
        problems.append(f"{size} bytes, at most {MAX_BYTES}")
    if (duration := seconds(path)) > MAX_SECONDS:
        problems.append(f"{duration:.1f} s, at most {MAX_SECONDS:.0f} s")
    with Image.open(path) as picture:
        if picture.width not in WIDTHS:
            problems.append(f"{picture.width} px wide, not {WIDTHS.start} to {WIDTHS.stop - 1}")
    return problems
