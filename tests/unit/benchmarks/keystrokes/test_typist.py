"""Generator of synthetic typing: its keys write the source at human speed, reproducibly from a seed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.keystrokes.recording import FASTEST_MS, MAX_PAUSE_MS, Recording, rates
from benchmarks.keystrokes.typist import record

RECORDINGS = sorted((Path(__file__).parents[4] / "benchmarks/keystrokes/recordings").glob("*.jsonl"))

LINES = st.sampled_from(
    [
        "",
        "",
        "    ",
        "def parse(self, words):",
        "    return [name for name in words if name]",
        "if (ready) {",
        "\tcall(function () {",
        '\t\tprint("it\'s", {"a": [1, 2]})',
        "\t})",
        "}",
        "        parse(identifier_name, 'x',",
        "              identifier_name)  # ready",
        "local function go() return {} end",
        "   π = “naïve” + 😀",
    ]
)
SOURCES = st.lists(LINES, max_size=40).map("\n".join) | st.text("ab(){}[]'\":\n\t ,é😀", max_size=200)
LANGUAGES = st.sampled_from(["python", "go", "lua"])


@given(SOURCES, LANGUAGES, st.integers(0, 10_000), st.floats(0, 2))
def test_the_keys_write_the_source(source: str, language: str, seed: int, minutes: float):
    made = record(source, language=language, seed=seed, minutes=minutes)
    assert made.source() == source


@given(SOURCES, LANGUAGES, st.integers(0, 10_000))
def test_the_same_seed_makes_the_same_keys(source: str, language: str, seed: int):
    assert record(source, language=language, seed=seed, minutes=1) == record(
        source, language=language, seed=seed, minutes=1
    )


@given(SOURCES, LANGUAGES, st.integers(0, 10_000))
def test_typing_speed_in_a_burst_is_2_to_15_keys_per_second(source, language, seed):
    keys = record(source, language=language, seed=seed, minutes=2).keys
    assert all(FASTEST_MS <= key.wait_ms <= MAX_PAUSE_MS for key in keys)
    assert all(2 <= rate <= 15 for rate in rates(keys))


@given(SOURCES, LANGUAGES, st.integers(0, 10_000))
def test_every_key_applies_to_the_text_at_its_time(source: str, language: str, seed: int):
    made = record(source, language=language, seed=seed, minutes=2)
    text, cursor = made.start, 0
    for key in made.keys:
        assert 0 <= key.start <= key.end <= len(text)
        before, text = text, key.on(text)
        assert 0 <= key.cursor <= len(text)
        assert (text != before or key.text == before[key.start : key.end]) or key.kind == "jump"
        if key.kind == "jump":
            assert (key.text, key.start) == ("", key.end) and key.cursor != cursor
        elif key.kind in ("char", "typo", "indent", "paste"):
            assert key.start == key.end == cursor, "typed at the cursor"
        elif key.kind in ("backspace", "pick", "enter"):
            assert key.end == cursor
        cursor = key.cursor


@given(SOURCES, st.integers(0, 10_000))
def test_a_recording_is_unchanged_after_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, source: str, seed: int
):
    file = tmp_path_factory.mktemp("keys") / "one.jsonl"
    made = record(source, language="lua", seed=seed, minutes=1, path="a/b.lua", origin="b 1.0", licence="MIT")
    made.write(file)
    assert Recording.read(file) == made


def test_automatic_closing_brackets_are_typed_over():
    source = 'x\n\n\ncall(first, ["a", {"b": (1)}])\ncall("two")\nif (a) {\n\tb();\n}\nend\n'
    kinds = Counter(key.kind for seed in range(40) for key in record(source, language="go", seed=seed, minutes=1).keys)
    assert kinds["overtype"] > 40 and kinds["jump"] > 40
    assert {"char", "enter", "typo", "backspace", "cut"} <= set(kinds)


# ── what is committed ────────────────────────────────────────────────────────────────────────────────────────


def recordings() -> list[Recording]:
    return [Recording.read(file) for file in RECORDINGS]


def test_the_committed_recordings_hold_30_minutes_in_5_languages_below_3_mb():
    everything = recordings()
    assert len({made.language for made in everything}) >= 5
    busy_ms = sum(min(key.wait_ms, 2000) for made in everything for key in made.keys)  # long thought is not typing
    assert busy_ms >= 30 * 60_000
    assert sum(file.stat().st_size for file in RECORDINGS) < 3_000_000
    kinds = Counter(key.kind for made in everything for key in made.keys)
    wanted = {"char", "typo", "backspace", "enter", "indent", "overtype", "pick", "paste", "cut", "jump"}
    assert set(kinds) == wanted and min(kinds.values()) >= 10


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_a_committed_recording_equals_the_generators_output(file: Path):
    made = Recording.read(file)
    fields = {item.name: getattr(made, item.name) for item in dataclasses.fields(made)}
    again = record(made.source(), **{k: v for k, v in fields.items() if k not in ("start", "keys")})
    assert again == made, "run `python -m benchmarks make-recordings`"
    assert made.origin in (file.parents[1] / "README.md").read_text(encoding="utf-8"), "its origin and licence are told"
