"""A completion tells where it might have gone on otherwise, and one that begins there is the target's own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engine.tiny_tasks import HOLES

from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Branch, Cancel, Request, Result
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.http import llamacpp_api
from speclsp.engine.loading import loading
from speclsp.errors import InputError
from speclsp.weights import cards

pytestmark = pytest.mark.usefixtures("one_thread")
PARTIAL = ("        self._it", "    return f.re", "    print(sys.ar", "        self.mess")  # a word that is being typed
FEW = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def engine() -> CompletionEngine:
    options = EngineConfig(context_tokens=512, threads=1, quantization="fp32")
    loaded = loading.load(Config(pair="tiny", engine=options), cards.load("tiny"))
    assert isinstance(loaded, CompletionEngine)
    return loaded


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A hole, with or without a partial word before the cursor."""
    prefix, suffix = draw(st.sampled_from(HOLES))
    before, _, line = prefix.rpartition("\n")
    line = draw(st.sampled_from((line, *PARTIAL)))
    return Request(prefix=before + "\n", line_prefix=line, suffix=suffix, max_tokens=16, branches=3)


def made(engine: CompletionEngine, request: Request) -> tuple[Result, list[Branch]]:
    """A completion and all its branches."""
    running = engine.complete(request, Cancel())
    branches = [branch for piece in running for branch in piece.branches or ()]
    return running.result, [branch for branch in branches if branch.at + 1 < request.max_tokens]


def forked(request: Request, result: Result, branch: Branch) -> Request:
    return replace(request, begin=(*result.tokens[: branch.at], branch.token))


@FEW
@given(requests())
def test_asking_for_branches_changes_no_token(engine: CompletionEngine, request: Request) -> None:
    plain = replace(request, speculate=False, branches=0)
    result, branches = made(engine, request)
    assert result.tokens == made(engine, plain)[0].tokens
    assert branches == made(engine, replace(request, speculate=False))[1], "nor does drafting change the branches"
    for branch in branches:
        assert 0 < branch.p <= 1 and branch.text and branch.chars <= len(result.text)
        assert branch.token not in result.tokens[branch.at : branch.at + 1]


@FEW
@given(requests(), st.randoms(use_true_random=False))
def test_a_completion_that_begins_with_a_branch_goes_on_as_the_target_would(
    engine: CompletionEngine, request, random
) -> None:
    result, branches = made(engine, request)
    for branch in random.sample(branches, min(3, len(branches))):
        fork = forked(request, result, branch)
        fast, further = made(engine, fork)
        slow, _ = made(engine, replace(fork, speculate=False, branches=0))
        assert fast.tokens == slow.tokens and fast.text == slow.text, "drafting costs it no token"
        assert tuple(fast.tokens[: len(fork.begin)]) == fork.begin
        assert fast.text.startswith(result.text[: branch.chars] + branch.text.rstrip("\ufffd")), "what was typed stands"
        assert all(one.at >= len(fork.begin) for one in further), "it tells of its own places"
        if len(fork.begin) + 1 < request.max_tokens:  # greedy from there: one that begins with more of it is the same
            longer = replace(fork, begin=tuple(fast.tokens[: len(fork.begin) + 1]))
            if len(fast.tokens) > len(fork.begin):
                assert made(engine, longer)[0].tokens == fast.tokens


@FEW
@given(requests())
def test_the_prompt_is_read_once_for_all_alternatives(engine: CompletionEngine, request: Request) -> None:
    result, branches = made(engine, request)
    for branch in branches[:3]:
        fork = forked(request, result, branch)
        further, _ = made(engine, fork)
        assert further.cached_tokens >= result.prompt_tokens - 1
        assert further.prefilled_tokens <= len(fork.begin) + 1, "and of what was said no more than was rewound"


@FEW
@given(requests())
def test_probabilities_of_all_beginnings_told_are_not_more_than_one(engine: CompletionEngine, request: Request) -> None:
    result, branches = made(engine, request)
    first = [branch.p for branch in branches if branch.at == 0]
    assert sum(first) <= 1 + 1e-4
    for branch in branches[:2]:
        fork = forked(request, result, branch)
        assert all(one.p <= 1 + 1e-4 for one in made(engine, fork)[1]), "from its own beginning on"


@pytest.mark.parametrize(
    ("begin", "wrong"),
    [((10**6,), "none of the text's"), ((1,) * 16, "fewer than 16"), ((5,), "partial word")],
)
def test_a_beginning_that_no_completion_can_have_is_refused(
    engine: CompletionEngine, begin: tuple[int, ...], wrong: str
) -> None:
    request = Request(prefix="import os\n", line_prefix="import syss_yz", max_tokens=16, begin=begin)
    if wrong == "fewer than 16":
        letter = next(i for i, said in enumerate(engine.prompter.vocabulary.bytes) if said == b"a")
        request = replace(request, begin=(letter,) * 16, heal=False)
    with pytest.raises(InputError, match=wrong):
        engine.complete(request, Cancel())


def test_branches_and_a_beginning_travel_over_infill(engine: CompletionEngine) -> None:
    body = {"input_prefix": "a", "begin": [3, 4], "n_branches": 2, "idle": True}
    asked = llamacpp_api.infill(json.dumps(body).encode(), Config()).request
    assert (asked.begin, asked.branches, asked.idle) == ((3, 4), 2, True)
    for wrong in ([1.5], [-1], [True], "x", [None], {}):
        with pytest.raises(InputError, match="begin"):
            llamacpp_api.infill(json.dumps(body | {"begin": wrong}).encode(), Config())
    running = engine.complete(Request(prefix="import os\n", line_prefix="import ", max_tokens=8, branches=3), Cancel())
    told = [llamacpp_api.piece_json(0, piece) for piece in running if piece.tokens]
    assert all("branches" in one for one in told), "also where there are none: so it is known that they are told of"
    assert json.loads(json.dumps(told))
