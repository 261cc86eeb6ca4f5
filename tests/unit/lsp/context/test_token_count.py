"""Token estimate by script: near the tokenizer's count in every script, and a sum of its parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import ContextConfig
from speclsp.lsp.context import build, token_count
from speclsp.lsp.documents.document import Snapshot

# script -> (tokens by the tokenizer of Qwen2.5-Coder, code with comments and strings in it)
SAMPLES = {
    script: (int(count), text)
    for script, count, text in re.findall(
        r"(?ms)^=== ([^:\n]+): (\d+)\n(.*?)(?=^=== |\Z)",
        Path(__file__).with_name("script_samples.txt").read_text("utf-8"),
    )
}

texts = st.text(st.sampled_from("aZ09 (\n_é—中文かなабвאבابअआ가✨🐛┌→ก"), max_size=60)


@pytest.mark.parametrize("script", SAMPLES)
def test_the_estimate_is_within_a_fifth_of_the_tokenizers_count(script: str):
    counted, text = SAMPLES[script]
    assert abs(token_count.tokens(text) / counted - 1) < 0.2


@given(st.text(), st.text())
def test_the_size_of_a_text_is_the_sum_of_its_parts(text: str, more: str):
    assert token_count.size(text + more) == token_count.size(text) + token_count.size(more)


@given(st.text())
def test_a_token_has_at_most_as_many_characters_as_in_ascii(text: str):
    assert len(text) <= token_count.tokens(text) * token_count.CHARACTERS_PER_TOKEN
    assert token_count.size(text.encode("ascii", "replace").decode()) == 50 * len(text)


@given(texts, st.integers(0, 9000), st.data())
def test_the_first_and_the_last_part_within_a_size_are_the_longest_ones(text: str, room: int, data: st.DataObject):
    at = data.draw(st.integers(0, len(text)))
    start, end = token_count.start_of_last(text, at, room), token_count.end_of_first(text, at, room)
    assert 0 <= start <= at <= end <= len(text)
    assert token_count.size(text[start:at]) <= room and token_count.size(text[at:end]) <= room
    assert start == 0 or token_count.size(text[start - 1 : at]) > room
    assert end == len(text) or token_count.size(text[at : end + 1]) > room


@given(st.lists(texts, max_size=4), st.integers(0, 9000))
def test_texts_fit_when_their_sizes_do(parts: list[str], room: int):
    assert token_count.fits(parts, room) == (sum(map(token_count.size, parts)) <= room)


@pytest.mark.parametrize("script", SAMPLES)
def test_a_prompt_stays_within_its_budget_in_every_script(script: str):
    counted, text = SAMPLES[script]
    config = ContextConfig(prefix_tokens=1000, suffix_tokens=300)
    document, cursor = text * 60, len(text) * 30
    snapshot = Snapshot("file:///p/a.py", "python", 1, document, cursor)
    context = build.build(snapshot, None, config)
    by_tokenizer = counted / len(text)
    assert 400 < len(context.prefix) * by_tokenizer < 1200
    assert 150 < len(context.suffix) * by_tokenizer < 360


@pytest.mark.parametrize("script", ["Chinese", "Russian", "emoji"])
def test_the_window_of_any_script_moves_in_steps_while_lines_are_added(script: str):
    _counted, text = SAMPLES[script]
    config, document, starts = ContextConfig(), text * 60, list[str]()
    for row in range(300, 340):
        cursor = sum(len(line) + 1 for line in document.split("\n")[:row])
        snapshot = Snapshot("file:///p/a.py", "python", 1, document[:cursor] + "x", cursor + 1)
        starts.append(str(cursor - len(build.build(snapshot, None, config).prefix)))
    assert 2 <= len(set(starts)) <= 8
