"""The speculative decoder of docs/speculative-decoding.md: it runs, and its text is that of plain decoding."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from typing import Any

import pytest
import torch
from support.markdown_pages import code_block

PROMPTS = ["def add(a, b):\n", "import os\n\n\ndef read(path):\n    with open(", "class Stack:\n    def "]
TOKENS = 40
DRAWS = 20_000


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the code block defines; `printed` is its output."""
    names: dict[str, Any] = {}
    torch.manual_seed(1)
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        exec(compile(code_block("speculative-decoding.md"), "speculative-decoding.md", "exec"), names)
    return names | {"printed": stdout.getvalue()}


def plain(target: Any, prompt: list[int]) -> list[int]:
    """Greedy decoding, one token a pass."""
    target.forget()
    ids = list(prompt)
    for _ in range(TOKENS):
        ids.append(int(target.forward(ids[len(target.ids) :])[-1].argmax()))
    return ids[len(prompt) :]


def test_the_code_has_about_fifty_lines_and_prints_a_completion(page: dict[str, Any]):
    assert sum(bool(line.strip()) for line in code_block("speculative-decoding.md").splitlines()) <= 55
    assert page["printed"].strip()


@pytest.mark.parametrize("text", PROMPTS)
def test_its_greedy_tokens_are_those_of_plain_decoding_in_fewer_passes(page: dict[str, Any], text: str):
    target, prompt, passes = page["target"], page["tokenizer"].encode(text).ids, []
    forward = target.forward
    expected = plain(target, prompt)
    target.forget()
    page["helper"].forget()
    target.forward = lambda new: passes.append(len(new)) or forward(new)
    try:
        assert page["generate"](target, page["helper"], prompt, TOKENS) == expected
    finally:
        target.forward = forward
    assert len(passes) < TOKENS, "no guess was accepted"


def test_its_rejection_sampling_draws_from_the_target(page: dict[str, Any]):
    torch.manual_seed(2)
    q, p = torch.tensor([[0.6, 0.3, 0.1]]), torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    counts = Counter(page["accept"]([page["draw"](q[0])], q, p)[0] for _ in range(DRAWS))
    for token, share in enumerate(p[0].tolist()):
        assert counts[token] / DRAWS == pytest.approx(share, abs=5 * (share / DRAWS) ** 0.5)
