"""A completion reports likely alternatives, and one that begins with an alternative is the target's own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engine.tiny_engine import FAST, tiny_engine
from support.engine.tiny_tasks import HOLES
from support.soak import in_soak

from speclsp.config import Config
from speclsp.engine.api import Branch, Cancel, Request, Result
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.http import llamacpp_api
from speclsp.errors import InputError

pytestmark = pytest.mark.usefixtures("one_thread")
PARTIAL = ("        self._it", "    return f.re", "    print(sys.ar", "        self.mess")  # a partial word
FEW = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=[FAST, *in_soak("fp32")])
def engine(request: pytest.FixtureRequest) -> CompletionEngine:
    return tiny_engine(request.param)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A completion point, with or without a partial word before the cursor."""
    prefix, suffix = draw(st.sampled_from(HOLES))
    before, _, line = prefix.rpartition("\n")
    line = draw(st.sampled_from((line, *PARTIAL)))
    return Request(prefix=before + "\n", line_prefix=line, suffix=suffix, max_tokens=16, branches=3)


def complete(engine: CompletionEngine, request: Request) -> tuple[Result, list[Branch]]:
    """A completion and all its branches."""
    running = engine.complete(request, Cancel())
    branches = [branch for piece in running for branch in piece.branches or ()]
    return running.result, [branch for branch in branches if branch.at + 1 < request.max_tokens]


def forked(request: Request, result: Result, branch: Branch) -> Request:
    return replace(request, begin=(*result.tokens[: branch.at], branch.token))


@FEW
@given(requests())
def test_reporting_branches_changes_no_token(engine: CompletionEngine, request: Request) -> None:
    plain = replace(request, speculate=False, branches=0)
    result, branches = complete(engine, request)
    assert result.tokens == complete(engine, plain)[0].tokens
    assert branches == complete(engine, replace(request, speculate=False))[1], "nor does drafting change the branches"
    for branch in branches:
        assert 0 < branch.p <= 1 and branch.text and branch.chars <= len(result.text)
        assert branch.token not in result.tokens[branch.at : branch.at + 1]
    assert sum(branch.p for branch in branches if branch.at == 0) <= 1 + 1e-4


@FEW
@given(requests(), st.randoms(use_true_random=False))
def test_a_completion_that_begins_with_a_branch_continues_as_the_target_would(
    engine: CompletionEngine, request, random
) -> None:
    result, branches = complete(engine, request)
    for branch in random.sample(branches, min(3, len(branches))):
        fork = forked(request, result, branch)
        fast, further = complete(engine, fork)
        slow, _ = complete(engine, replace(fork, speculate=False, branches=0))
        assert fast.tokens == slow.tokens and fast.text == slow.text, "drafting costs it no token"
        assert fast.cached_tokens >= result.prompt_tokens - 1, "the prompt is prefilled once"
        assert all(other.p <= 1 + 1e-4 for other in further), "counted from its own start"
        assert tuple(fast.tokens[: len(fork.begin)]) == fork.begin
        assert fast.text.startswith(result.text[: branch.chars] + branch.text.rstrip("\ufffd")), "the typed text stays"
        assert all(other.at >= len(fork.begin) for other in further), "it reports its own positions only"
        if len(fork.begin) + 1 < request.max_tokens:  # greedy from there: a longer begin gives the same text
            longer = replace(fork, begin=tuple(fast.tokens[: len(fork.begin) + 1]))
            if len(fast.tokens) > len(fork.begin):
                assert complete(engine, longer)[0].tokens == fast.tokens


@pytest.mark.parametrize(
    ("begin", "wrong"),
    [((10**6,), "no text contains"), ((1,) * 16, "fewer than 16"), ((5,), "partial word")],
)
def test_a_begin_without_possible_tokens_is_refused(
    engine: CompletionEngine, begin: tuple[int, ...], wrong: str
) -> None:
    request = Request(prefix="import os\n", line_prefix="import syss_yz", max_tokens=16, begin=begin)
    if wrong == "fewer than 16":
        letter = next(i for i, raw in enumerate(engine.prompter.vocabulary.bytes) if raw == b"a")
        request = replace(request, begin=(letter,) * 16, heal=False)
    with pytest.raises(InputError, match=wrong):
        engine.complete(request, Cancel())


def test_branches_and_begin_are_fields_of_infill() -> None:
    body = {"input_prefix": "a", "begin": [3, 4], "n_branches": 2, "idle": True}
    request = llamacpp_api.infill(json.dumps(body).encode(), Config()).request
    assert (request.begin, request.branches, request.idle) == ((3, 4), 2, True)
    for wrong in ([1.5], [-1], [True], "x", [None], {}):
        with pytest.raises(InputError, match="begin"):
            llamacpp_api.infill(json.dumps(body | {"begin": wrong}).encode(), Config())
