"""`speclsp tune`: it measures each possible choice, selects the fastest and gives the reason."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp import config
from speclsp.cli import complete, entry, measure, terminal
from speclsp.cli.first_run import prompt_trial, tune
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Piece, Request, Result
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.loading import cpu_speed, prompt_choice
from speclsp.engine.model.int8.peaks import Peaks
from speclsp.errors import InputError
from speclsp.weights import auto_choice, cards

CODE = "def area(width, height):\n    total = width * height\n    return total\n\n\n"
FAST = Costs(verify_ms={8: 40.0, 16: 44.0, 24: 60.0}, guess_ms={"model": 8.0})
NO_USE = replace(FAST, guess_ms={"model": 60.0})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Source files and other files."""
    for name in ("a.py", "b.rs", "deep/c.go"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(CODE * 10)
    (tmp_path / "data.json").write_text("[" + "1,\n" * 500 + "1]")
    (tmp_path / "notes.txt").write_text("words " * 200)
    (tmp_path / "tiny.py").write_text("x = 1\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "d.js").write_text(CODE * 10)
    (tmp_path / "binary.py").write_bytes(b"\0" * 5000)
    return tmp_path


def measured(way: tune.TuneCandidate, ms: float, tokens: int = 2, drafted: int = 0) -> tune.TuneMeasurement:
    """A way whose rounds of `tokens` tokens take `ms`: 40 tokens at each of three completion points."""
    source = "" if not drafted else "model" if way.draft else "ngram"
    piece = Piece(text="", tokens=(1,) * tokens, source=source, drafted=drafted, accepted=tokens - 1, ms=ms)
    run = measure.Run(result=Result(tokens=[1] * 40), total_ms=0, rounds=(piece,) * (40 // tokens))
    return tune.TuneMeasurement(way=way, runs=[run] * 3)


def with_times(*times: float) -> list[tune.TuneMeasurement]:
    """The ways of a model with a draft model, in the order of `tune.ways`, with these ms per token."""
    return [measured(way, ms * 2, drafted=4) for way, ms in zip(tune.ways(True), times, strict=True)]


# ── the model ────────────────────────────────────────────────────────────────────────────────────────────────


def test_tune_measures_the_processor_again_before_auto_chooses_a_model(monkeypatch: pytest.MonkeyPatch):
    speeds = iter([(10.0, 100.0), (60.0, 2000.0)])

    monkeypatch.setattr(cpu_speed, "measure_peaks", lambda path, threads: Peaks(*next(speeds)))
    speeds_used = []
    for again in (False, False, True):
        complete.choose_card(Config(), measure_again=again)
        recorded = auto_choice.recorded()
        assert recorded is not None
        speeds_used.append(recorded.read_gb_s)
    assert speeds_used == [10.0, 10.0, 60.0]


# ── the user's files ─────────────────────────────────────────────────────────────────────────────────────────


def test_only_source_files_of_known_languages_are_used(project: Path):
    files = {file.relative_to(project).as_posix() for file in tune.source_files(project) if tune.usable(file)}
    assert files == {"a.py", "b.rs", "deep/c.go", "binary.py"}
    assert len(tune.own_holes(project, Config())) == 3, "binary.py is found out when it is read"


def test_in_a_git_repository_only_tracked_files_are_used(project: Path):
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(project), *words], check=True, capture_output=True)

    git("init")
    git("add", "a.py", "data.json")
    assert [file.name for file in tune.source_files(project)] == ["a.py", "data.json"]


def test_completion_points_are_the_same_every_time_with_the_line_cut_off(project: Path):
    holes = tune.own_holes(project, Config())
    assert holes == tune.own_holes(project, Config())
    assert all(hole.max_tokens == tune.LONG_TOKENS and hole.temperature == 0 for hole in holes)
    for hole in holes:
        whole = hole.prefix + hole.line_prefix + hole.suffix
        assert len(whole) < len(CODE * 10), "something is missing"


@given(seed=st.integers(0, 999))
def test_a_completion_point_lies_inside_a_line(seed: int):
    file = Path(__file__)
    request = tune.hole_in(file, Config(), random.Random(seed))
    if request is None:
        return  # an editor would send no request there
    lines = file.read_text().splitlines()
    assert any(line.startswith(request.line_prefix) and line != request.line_prefix for line in lines)


@pytest.mark.parametrize(("place", "says"), [("nowhere", "no such directory"), ("empty", "no source files")])
def test_a_directory_without_code_is_named_before_any_model_is_loaded(tmp_path: Path, place: str, says: str):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=says):
        tune.main(Config(model="qwen2.5-coder-32b"), tmp_path / place)


def test_the_echo_pair_has_nothing_to_tune(project: Path):
    with pytest.raises(InputError, match="has no model to tune"):
        tune.main(Config(model="echo"), project)


# ── the choice ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_draft_too_slow_to_pay_even_if_always_right_is_not_measured():
    assert tune.at_best(FAST) == pytest.approx(3.9, abs=0.05), "16 tokens for 15 drafts and a wide pass"
    assert tune.at_best(NO_USE) < 1
    assert not any(way.draft for way in tune.ways(False))
    assert "its acceptance was not measured" in "\n".join(tune.latency(NO_USE, True))
    assert "not measured" not in "\n".join(tune.latency(FAST, True))


@given(st.lists(st.floats(1, 100), min_size=7, max_size=7))
def test_no_clearly_faster_way_is_rejected(times: list[float]):
    measurements = with_times(*times)
    best = tune.chosen(measurements)
    assert all(best.score <= one.score * tune.MARGIN**3 for one in measurements)
    if best.way.draft:
        free = min((one for one in measurements if not one.way.draft), key=lambda one: one.score)
        assert best.score * tune.MARGIN < free.score, "a draft model must earn its memory"


def test_speculation_off_is_a_candidate_and_its_choice_has_a_reason():
    measurements = with_times(40, 41, 42, 43, 50, 51, 52)
    best = tune.chosen(measurements)
    assert best.way.settings(True) == {
        "engine.speculative_decoding": False, "engine.max_draft_tokens": 64, "engine.draft": False,
        "engine.max_model_draft_tokens": 0,
    }  # fmt: skip
    assert tune.why(measurements, best) == (
        "Speculation off: its best variant, n-grams, up to 3, is 0.98 x as fast as plain decoding, within the noise."
    )


def test_n_grams_alone_are_chosen_where_the_draft_model_adds_nothing():
    measurements = with_times(40, 25, 21, 20.5, 20, 22, 24)
    best = tune.chosen(measurements)
    assert best.way.name == "n-grams, up to 64"
    assert tune.why(measurements, best) == (
        "n-grams, up to 64: 1.95 x as fast as plain decoding. The draft model is not used: with it, 2.00 x."
    )
    assert "engine.draft" not in best.way.settings(has_draft=False), "nothing is said of a model there is not"


def test_a_disturbed_round_counts_as_long_as_similar_rounds():
    way = tune.ways(False)[0]
    piece = Piece(text="", tokens=(1,), source="", drafted=0, accepted=0, ms=10.0)
    run = measure.Run(result=Result(tokens=[1] * 5), total_ms=0, rounds=(*[piece] * 4, replace(piece, ms=900.0)))
    measurement = tune.TuneMeasurement(way=way, runs=[run, run])
    assert measurement.ms_per_token(40) == 10
    assert measurement.ms_per_token(2) == 10


def test_on_a_busy_machine_no_setting_is_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(tune.complete, "open_engine", lambda *_: (Ready(), ""))
    monkeypatch.setattr(prompt_trial, "remember", lambda engine, bar: "the default order")
    monkeypatch.setattr(tune, "measure", lambda engine, holes, bar: with_times(40, 30, 28, 27, 20, 17, 22))
    assert tune.main(Config(model="tiny"), project) == 0
    config.config_path().unlink()
    monkeypatch.setattr(tune, "unsteadiness", lambda plain: 2.0)
    assert tune.main(Config(model="tiny"), project) == 1
    assert "other programs use the processor" in capsys.readouterr().out
    assert not config.config_path().exists()


class Ready:
    """The state reported by an engine."""

    model, target, draft, device, costs = "tiny", "tiny (fp32)", "tiny (fp32)", "cpu", FAST


def test_the_draft_model_is_chosen_with_its_best_gamma_where_it_pays():
    best = tune.chosen(with_times(40, 30, 28, 27, 20, 17, 22))
    assert best.way.settings(True) == {
        "engine.speculative_decoding": True, "engine.max_draft_tokens": 64, "engine.draft": True,
        "engine.max_model_draft_tokens": 4,
    }  # fmt: skip


def test_every_setting_that_tune_writes_can_be_read():
    for way in tune.ways(True):
        for has_draft in (True, False):
            read, problems = config.parse(way.settings(has_draft))
            assert problems == []
            assert read.engine.max_draft_tokens == way.max_gamma


def test_the_table_marks_the_choice_and_the_fastest_of_each_length():
    measurements = with_times(40, 30, 28, 27, 20, 17, 22)
    lines = tune.table(measurements, tune.chosen(measurements))
    (chosen,) = [line for line in lines if line.startswith("* ")]
    assert "+ draft model, up to 4" in chosen
    assert chosen.count("17.0 ms/token<") == 2
    assert sum(line.count("ms/token<") for line in lines) == 2
    assert len({len(line) for line in lines[1:-1]}) == 1, "columns stand in line"


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def tiny() -> CompletionEngine:
    settings = Config(model="tiny", engine=EngineConfig(context_tokens=1024))
    with terminal.progress() as bar:
        opened, _ = complete.open_engine(settings, bar)
    assert isinstance(opened, CompletionEngine)
    return opened


def test_all_ways_give_the_same_text_and_each_follows_its_settings(tiny: CompletionEngine):
    before = tiny.policy
    holes = [Request(prefix=CODE * n, line_prefix="    total = ", max_tokens=12) for n in (1, 2)]
    tiny.costs, own = replace(FAST), tiny.costs
    with terminal.progress() as bar:
        measurements = tune.measure(tiny, holes, bar)
    tiny.costs = own
    assert tiny.policy is before, "the engine is left as it was"
    assert [measurement.way for measurement in measurements] == tune.ways(True)
    for measurement in measurements:
        assert [run.result.tokens for run in measurement.runs] == [run.result.tokens for run in measurements[0].runs]
        pieces = [piece for run in measurement.runs for piece in run.rounds]
        sources = {piece.source for piece in pieces if piece.drafted}
        assert sources <= (
            {"ngram", "model"} if measurement.way.draft else {"ngram"} if measurement.way.speculation else set()
        )
        assert max(piece.drafted for piece in pieces) <= (
            measurement.way.max_gamma if measurement.way.speculation else 0
        )
        assert max((p.drafted for p in pieces if p.source == "model"), default=0) <= measurement.way.model_gamma


def test_a_dry_run_says_what_would_be_measured_and_written_and_loads_no_model(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(complete, "open_engine", lambda *_: pytest.fail("a model was loaded"))
    path = config.config_path()
    path.parent.mkdir(parents=True)
    path.write_text('model = "tiny"  # mine\n[engine]\nmax_draft_tokens = 5\n')
    before = path.read_bytes()
    assert entry.main(["tune", str(project), "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert re.search(rf"positions +[1-9]\d*, in the source files of {re.escape(str(project))}\n", output)
    for way in tune.ways(True):
        assert way.name in output
    assert "engine.max_draft_tokens (now 5)" in output and f", in {path}\n" in output
    assert "Nothing was loaded, measured or written" in output
    assert path.read_bytes() == before and not prompt_choice.path().exists()
    assert entry.main(["tune", str(project), "--dry-run", "--set", "engine.draft=false"]) == 0
    output = capsys.readouterr().out
    assert "draft model" not in output and "engine.max_model_draft_tokens" not in output


@pytest.mark.slow
def test_the_command_prints_its_table_and_adds_its_choice_to_the_users_file(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tune, "HOLES", 1)
    monkeypatch.setattr(prompt_trial, "PLACES", 1)
    monkeypatch.setattr(prompt_trial, "MIN_PLACES", 1)
    monkeypatch.setattr(tune, "LONG_TOKENS", 16)
    monkeypatch.setattr(tune, "STEADY", 1e9)  # tests run on a shared machine
    path = config.config_path()
    path.parent.mkdir(parents=True)
    path.write_text('model = "tiny"  # mine\n')
    assert entry.main(["tune", str(project)]) == 0
    output = capsys.readouterr().out
    assert "prompt: order " in output
    assert prompt_choice.recorded(cards.load("tiny")) is not None
    assert "a pass of the target" in output
    assert "* " in output
    assert f"Written to {path}: engine.speculative_decoding = " in output
    assert path.read_text().startswith('model = "tiny"  # mine\n')
    assert {"speculative_decoding", "max_draft_tokens"} <= set(config.from_toml(path.read_text())["engine"])  # type: ignore[call-overload]
    assert config.load().model == "tiny"
