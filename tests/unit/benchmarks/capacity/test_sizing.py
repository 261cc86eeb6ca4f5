"""`python -m benchmarks sizing`: the cost model against published figures, and laws of queueing."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.__main__ import main
from benchmarks.capacity import sizing
from benchmarks.capacity.roofline import (
    GPUS,
    MAX_BATCH,
    MODELS,
    Serving,
    anchors,
    off_above,
    pass_ms,
    schedule,
    speedup,
    tau,
)
from benchmarks.capacity.simulator import NEVER_MS, FleetRequest, Session, developers, route, run, serve

H100 = GPUS["H100 SXM"]
PLAIN = Serving(gpu=H100, target=MODELS["7B"])
ENDLESS_MS = 1e9


def speculating(gamma: int = 3, alpha: float = 0.7, gpu: str = "H100 SXM", target: str = "7B") -> Serving:
    return Serving(gpu=GPUS[gpu], target=MODELS[target], draft=MODELS["0.5B"], gamma=gamma, alpha=alpha)


@st.composite
def fleet_requests(draw: st.DrawFn, patient: bool = False) -> list[FleetRequest]:
    """Up to 60 requests within two seconds, of up to six developers, in the order of their times."""
    dice = random.Random(draw(st.integers(0, 10**6)))
    count, within_ms = draw(st.integers(1, 60)), draw(st.sampled_from([50, 500, 2000]))
    wanted = [ENDLESS_MS] if patient else [20.0, 80.0, 400.0, ENDLESS_MS]
    made = []
    for _ in range(count):
        prompt = dice.randint(1, 3000)
        cached = {1: dice.randrange(prompt), 4: dice.randrange(prompt) // 4}
        times = dice.uniform(0, within_ms), dice.choice(wanted)
        made.append(FleetRequest(times[0], prompt, dice.randint(1, 40), times[1], cached, dice.randrange(6)))
    return sorted(made, key=lambda one: one.at_ms)


SERVERS = st.sampled_from(
    [PLAIN, speculating(1), speculating(5, 0.4), speculating(3, 0.8, "RTX 4090"), speculating(2, 0.6, "L40S", "1.5B")]
)


# ── the cost model ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("anchor", anchors(), ids=lambda anchor: anchor.what)
def test_the_cost_model_is_within_ten_percent_of_published_measurements(anchor: Any):
    assert anchor.modelled_ms == pytest.approx(anchor.measured_ms, rel=0.1)


def test_pass_time_is_flat_for_few_rows_and_linear_for_many():
    def ms(rows: int) -> float:
        return pass_ms(H100, MODELS["7B"], rows)

    assert ms(8) < 1.05 * ms(1)
    assert ms(20_000) == pytest.approx(2 * ms(10_000), rel=0.05)


@given(st.floats(0, 1), st.integers(0, 8))
def test_tau_lies_between_one_and_gamma_plus_one(alpha: float, gamma: int):
    assert 1 <= tau(alpha, gamma) <= gamma + 1
    assert tau(alpha, gamma + 1) >= tau(alpha, gamma)


@given(
    st.sampled_from(list(GPUS)),
    st.sampled_from(["1.5B", "7B", "14B", "32B"]),
    st.integers(1, 6),
    st.floats(0.3, 0.9),
    st.floats(0, 50),
)
def test_a_better_draft_pays_up_to_a_larger_batch(gpu: str, target: str, gamma: int, alpha: float, reading: float):
    worse, better = (speculating(gamma, share, gpu, target) for share in (alpha, alpha + 0.09))
    assert off_above(worse, 600, reading) <= off_above(better, 600, reading)


def test_speculation_pays_only_in_small_batches_and_prefill_lowers_the_limit():
    serving = speculating(3, 0.7)
    alone, reading = off_above(serving, 600), off_above(serving, 600, 16)
    assert 0 < reading < alone < MAX_BATCH
    assert speedup(serving, 1, 600) > 1 > speedup(serving, alone + 1, 600)


def test_a_target_about_as_fast_as_its_draft_gains_nothing_at_any_batch():
    assert off_above(speculating(5, 0.7, "H200", "1.5B"), 600) == 0


@given(st.sampled_from(list(GPUS)), st.sampled_from(["1.5B", "7B", "32B"]), st.integers(1, 6), st.floats(0.3, 0.9))
@settings(max_examples=25)
def test_gamma_by_batch_covers_every_batch_once_and_never_slows_it_down(
    gpu: str, target: str, gamma: int, alpha: float
):
    serving = speculating(gamma, alpha, gpu, target)
    found = schedule(serving, 600)
    assert [low for low, _, _ in found] == [1, *(high + 1 for _, high, _ in found[:-1])]
    assert found[-1][1] == MAX_BATCH
    for low, high, best in found:
        for batch in (low, high):
            assert best == 0 or speedup(replace(serving, gamma=best), batch, 600) >= 1
            assert replace(serving, by_batch=tuple(found)).gamma_at(batch) == best


# ── one server ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
def test_a_single_sequence_gets_tau_tokens_per_round_and_takes_the_time_of_its_rounds(alpha: float):
    serving, tokens = speculating(4, alpha), 20_000
    (outcome,), replica = serve([FleetRequest(0.0, 100, tokens, ENDLESS_MS)], serving)
    assert (tokens - 1) / outcome.rounds == pytest.approx(tau(alpha, 4), rel=0.03)
    assert outcome.first_ms == pytest.approx(serving.round_ms(0, 0, 0, 100))
    assert outcome.last_ms - outcome.first_ms == pytest.approx(outcome.rounds * serving.round_ms(1, 4, 100))
    assert replica.mean_batch == 1


@given(fleet_requests(), SERVERS)
@settings(max_examples=60)
def test_every_request_ends_once_and_the_token_counts_add_up(requests: list[FleetRequest], serving: Serving):
    outcomes, replica = serve(requests, serving)
    for one, outcome in zip(requests, outcomes, strict=True):
        finished = outcome.last_ms < NEVER_MS
        assert outcome.tokens == one.output_tokens if finished else outcome.tokens < one.output_tokens
        assert finished or outcome.left_ms >= one.wanted_ms
        assert 1 <= outcome.read_tokens <= one.prompt_tokens
        assert outcome.first_ms <= outcome.last_ms
    assert sum(outcome.tokens for outcome in outcomes) == replica.made_tokens
    assert replica.read_tokens <= sum(outcome.read_tokens for outcome in outcomes)
    assert replica.busy_ms + replica.idle_ms == pytest.approx(replica.end_ms), "it rests only when nobody is there"


@given(fleet_requests(), SERVERS)
@settings(max_examples=60)
def test_littles_law_holds(requests: list[FleetRequest], serving: Serving):
    outcomes, replica = serve(requests, serving)
    present = replica.present_ms / replica.end_ms  # L, by watching who is there
    rate, sojourn_ms = len(requests) / replica.end_ms, sum(outcome.left_ms for outcome in outcomes) / len(outcomes)
    assert present == pytest.approx(rate * sojourn_ms)


@given(fleet_requests(patient=True), SERVERS, st.integers(1, 4))
@settings(max_examples=60)
def test_twice_the_replicas_are_no_slower_on_average(requests: list[FleetRequest], serving: Serving, replicas: int):
    def mean_ms(count: int) -> float:
        outcomes = run(requests, serving, count, 2000).outcomes
        return sum(outcome.last_ms for outcome in outcomes) / len(outcomes)

    longest_ms = serving.round_ms(60, serving.gamma, 3000, 2048)  # what arrives in the middle of a round waits for it
    assert mean_ms(2 * replicas) <= mean_ms(replicas) + longest_ms


def test_a_key_ends_a_request_within_the_current_round():
    (outcome,), replica = serve([FleetRequest(0.0, 100, 10_000, 50.0)], PLAIN)
    assert outcome.last_ms == NEVER_MS
    assert 50 <= outcome.left_ms <= 50 + PLAIN.round_ms(1, 0, 100)
    assert replica.end_ms == outcome.left_ms


def test_an_evicted_prompt_is_read_again():
    small = Serving(gpu=replace(H100, memory_gib=14.2 / 0.9), target=MODELS["7B"])
    assert 10_000 < small.cache_tokens < 30_000
    mine = [FleetRequest(at_ms, 1000, 1, ENDLESS_MS, {1: 900}) for at_ms in (0.0, 1000.0, 9000.0)]
    others = [FleetRequest(5000.0 + number, 1000, 1, ENDLESS_MS, {}, 1 + number) for number in range(40)]
    afterwards = [replace(others[0], at_ms=9200.0), replace(mine[0], at_ms=9500.0)]
    outcomes, _ = serve(sorted([*mine, *others, *afterwards], key=lambda one: one.at_ms), small)
    assert [outcomes[at].read_tokens for at in (0, 1, -3, -2, -1)] == [1000, 100, 1000, 1000, 100]


# ── the fleet ────────────────────────────────────────────────────────────────────────────────────────────────


def typed(seed: int = 1) -> list[Session]:
    """Made-up sessions of the kind that is recorded."""
    dice = random.Random(seed)
    return [
        Session(
            20.0,
            [
                FleetRequest(
                    900.0 * number,
                    500,
                    dice.choice([3, 8, 16, 24]),
                    dice.choice([120.0, 300.0, 900.0, 3000.0]),
                    {1: 448, 2: 400, 4: 320},
                )
                for number in range(20)
            ],
        )
        for _ in range(3)
    ]


@given(st.integers(1, 20), st.sampled_from([0.2, 0.5, 1.0]), st.integers(0, 5))
@settings(max_examples=10)
def test_developers_type_their_share_of_the_time(count: int, share: float, seed: int):
    horizon_ms = 200_000.0
    made = list(developers(typed(), count, share, horizon_ms, seed))
    expected = count * share * horizon_ms / 1000
    assert all(0 <= one.at_ms < horizon_ms and one.developer < count for one in made)
    assert made == list(developers(typed(), count, share, horizon_ms, seed)), "the same from the same seed"
    assume(expected > 1000)
    assert len(made) == pytest.approx(expected, rel=0.35)


def test_affinity_keeps_a_developer_on_one_replica_and_reads_fewer_tokens():
    made = sorted(developers(typed(), 60, 0.5, 30_000.0), key=lambda one: one.at_ms)
    for numbers in zip(route(made, 4, affinity=True), route(made, 4, affinity=False), strict=True):
        assert all(numbers)
    homes: dict[int, set[int]] = {}
    for replica, numbers in enumerate(route(made, 4, affinity=True)):
        for number in numbers:
            homes.setdefault(made[number].developer, set()).add(replica)
    assert all(len(home) == 1 for home in homes.values())

    def read(affinity: bool) -> int:
        return sum(one.read_tokens for one in run(made, PLAIN, 4, 30_000.0, affinity).replicas)

    assert read(affinity=True) < read(affinity=False)


def test_latency_grows_with_developers_and_capacity_with_the_time_limit():
    def late(count: int) -> float:
        return sizing.simulate(typed(), PLAIN, count, 1, 0.5, 8_000.0).quantile_ms("last", 0.95, 500.0)

    assert late(10) < late(200) < late(400)
    assert (
        0 < sizing.capacity(typed(), PLAIN, 0.5, 3_000.0, 200.0) < sizing.capacity(typed(), PLAIN, 0.5, 3_000.0, 800.0)
    )


def test_a_server_too_slow_for_one_developer_has_no_capacity():
    assert sizing.capacity(typed(), PLAIN, 0.5, 10_000.0, 25.0) == 0


def test_a_server_that_loses_its_requests_to_keys_has_insufficient_capacity():
    alone = sizing.shown_alone(typed(), PLAIN, 2_000.0)
    few, many = (sizing.simulate(typed(), PLAIN, count, 1, 0.5, 8_000.0) for count in (10, 2000))
    nobody_waits_so_long_ms = 1e6
    assert many.answered_within(nobody_waits_so_long_ms, 20.0) == 1.0
    assert sizing.enough(few, nobody_waits_so_long_ms, alone)
    assert not sizing.enough(many, nobody_waits_so_long_ms, alone)


# ── recording the load ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    file = Path(__file__).parents[4] / "benchmarks/keystrokes/traffic.py"
    spec = importlib.util.spec_from_file_location("traffic", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["traffic"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@given(st.lists(st.integers(0, 2), max_size=80), st.lists(st.integers(0, 2), max_size=80), st.integers(0, 80))
def test_a_prefix_cache_shares_whole_blocks_and_never_the_last_token(
    recorder: ModuleType, ids: list[int], tail: list[int], cut: int
):
    other = ids[:cut] + tail
    cached_tokens = recorder.shared(ids, other)
    assert cached_tokens % recorder.BLOCK_TOKENS == 0
    assert cached_tokens == 0 or cached_tokens < len(ids)
    assert ids[:cached_tokens] == other[:cached_tokens]
    assert cached_tokens + recorder.BLOCK_TOKENS > min(cut, len(ids) - 1), (
        "nothing that is common and whole is left out"
    )


def test_a_stream_closed_before_its_answer_counts_as_overtaken_by_a_key(recorder: ModuleType):
    words = SimpleNamespace(encode=lambda text, **_: SimpleNamespace(ids=[ord(letter) for letter in text]))
    presses = [
        SimpleNamespace(sent_s=10.0, heard_s=10.31, error=0),
        SimpleNamespace(sent_s=11.0, heard_s=11.21, error=-32800),
        SimpleNamespace(sent_s=11.2, heard_s=11.205, error=0),
        SimpleNamespace(sent_s=11.9, heard_s=12.5, error=0),
    ]
    calls = [
        recorder.Call(10.01, "x" * 40, 32, first_s=10.1, closed_s=10.3, text="abc"),
        recorder.Call(11.01, "x" * 41, 32, first_s=11.1, closed_s=11.5, text="a"),
    ]
    found = [
        dict(zip(recorder.COLUMNS, map(int, row.split()), strict=True)) for row in recorder.rows(presses, calls, words)
    ]
    assert [row["overtaken"] for row in found] == [0, 1]
    assert [row["output_tokens"] for row in found] == [3, 1]
    assert [row["cached_tokens_1"] for row in found] == [0, 32]
    assert [row["wanted_ms"] for row in found] == [990, 490], "until the next key, or until one ended it"


# ── the recorded load and the command ────────────────────────────────────────────────────────────────────────

COLUMNS = ("at_ms", "prompt_tokens", "max_tokens", "output_tokens", "first_ms", "open_ms", "overtaken", "wanted_ms")


def traffic(rows: Sequence[str]) -> dict[str, Any]:
    session = {"language": "go", "path": "a.go", "seconds": 20.0, "keys": 50, "seen": 30, "requests": list(rows)}
    about = {"bench": "traffic", "pair": "p", "minutes": 1, "made_utc": "2026", "block_tokens": 16}
    columns = [*COLUMNS, "cached_tokens_1", "cached_tokens_4"]
    return about | {"columns": columns, "servers": [{"slower_ms": 0.0, "sessions": [session]}]}


def test_the_load_is_per_second_of_typing_and_cut_answers_get_a_full_length():
    made = traffic(
        ["0 400 32 20 90 300 0 900 0 0", "500 402 32 2 80 100 1 100 384 320", "900 410 32 12 70 200 0 700 400 0"]
    )
    found = sizing.load(made, made["servers"][0])
    assert found["requests_per_second"] == 0.15
    assert found["prompt_tokens"] == 404
    assert found["new_prompt_tokens"] == pytest.approx((400 + 18 + 10) / 3, abs=0.05)
    assert found["overtaken"] == pytest.approx(1 / 3, abs=0.001)
    (session,) = sizing.sessions(made, made["servers"][0])
    assert [one.output_tokens for one in session.requests][::2] == [20, 12]
    assert session.requests[1].output_tokens in (12, 20), "it would have gone on"
    assert session.requests[1].cached_tokens == {1: 384, 4: 320}


def test_the_command_prints_every_table_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sizing, "QUICK_HORIZON_MS", 4000.0)
    monkeypatch.setattr(sizing, "TARGETS", ("7B",))
    dice = random.Random(3)
    rows = [f"{900 * n} 500 32 {dice.choice([4, 20])} 90 200 0 {dice.choice([200, 2000])} 448 320" for n in range(20)]
    (tmp_path / "traffic.json").write_text(json.dumps(traffic(rows)))
    assert main(["sizing", "--quick", "--traffic", "traffic.json"]) == 0
    out = capsys.readouterr().out
    for words in ("requests/s while typing", "published 15.73", "γ = 3", "developers on one GPU", "without affinity"):
        assert words in out
    written = json.loads((tmp_path / "results/sizing.json").read_text())
    assert [row["developers"] for row in written["teams"]] == [10, 10, 100, 100]
    assert all(row["affinity"]["answered_within"] >= 0.95 for row in written["teams"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--traffic", "nothing.json"], "python -m benchmarks traffic"),
        (["--typing", "61"], "minutes of an hour"),
        (["--within", "20"], "network"),
    ],
)
def test_an_invalid_simulation_is_refused_with_the_fix(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(["sizing", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_target_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traffic.json").write_text(json.dumps(traffic(["0 400 32 20 90 300 0 900 0 0"])))
    assert main(["sizing", "--traffic", "traffic.json", "--gpu", "L40S", "--target", "32B"]) == 2
    assert "does not fit" in capsys.readouterr().err
