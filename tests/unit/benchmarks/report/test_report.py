"""`python -m benchmarks report`: one self-contained page, with every aim and only measured figures."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.source_tree import ROOT

from benchmarks.__main__ import main
from benchmarks.keystrokes import figures
from benchmarks.report import aims, report
from benchmarks.report.aims import AIMS, NOT_MEASURED, PASS, SHORT, SMALL

pytestmark = pytest.mark.slow  # each page takes seconds to draw

ABOUT = {
    "made_utc": "2026-11-21T10:00:00+00:00",
    "machine": {"cpu": "A Processor", "cpu_features": ["amx_int8"], "cores": 2, "memory_gib": 23.5, "gpu": None},
    "versions": {"torch": "2.13.0"},
}


def completions(model: str) -> dict[str, Any]:
    way = {
        "source": "ngram", "gamma": 7, "runs": 12, "identical_runs": 12, "new_tokens": 12, "ms_per_token": 17.0,
        "ttft_ms": {"p50": 200.0, "p95": 240.0}, "decode_ms": {"p50": 300.0, "p95": 340.0},
        "total_ms": {"p50": 500.0, "p95": 580.0}, "decode_speed_up": 1.9, "total_speed_up": 1.4, "rounds": 60,
        "rounds_with_guesses": 50, "drafted": 300, "judged": 120, "accepted": 70, "rejected": 230, "alpha": 0.58,
        "tokens_per_round": 2.0, "tokens_per_guessing_round": 2.2, "tau_per_guessing_round": 2.3,
        "by_depth": [[50, 40], [40, 20], [20, 10]],
    }  # fmt: skip
    plain = way | {"source": "", "judged": 0, "by_depth": [], "ms_per_token": 33.0}
    ways = {"plain": plain, "n-grams, 7": way, "policy": way}
    lengths = {str(n): {"max_tokens": n, "identical": True, "ways": ways, "best": {}} for n in (12, 48)}
    return {"pair": model, "target": f"{model} (int8)", "draft": "", "holes": 12, "lengths": lengths}


def scale(model: str) -> dict[str, Any]:
    prompt = [
        {"prompt_tokens": n, "cold_first_ms": n * 0.9, "prefill_ms": n * 0.8, "warm_first_ms": 40.0, "step_ms": 30.0}
        for n in (128, 512, 2048)
    ]
    output = [{"tokens": n, "plain_ms": 33.0 * n, "speculative_ms": 18.0 * n} for n in (8, 32)]
    memory = {"before_loading": 300.0, "loaded": 1100.0, "after": 1200.0}
    return {"pair": model, "target": model, "prompt": prompt, "output": output, "memory_mib": memory}


def document() -> dict[str, Any]:
    names = ("first_parse_ms", "next_parse_ms", "next_context_ms", "answer_p50_ms", "answer_p95_ms", "server_mib")
    return {"document": [{"lines": lines, **dict.fromkeys(names, 5.0)} for lines in (100, 10_000)]}


def floor(model: str) -> dict[str, Any]:
    ms = {"weights_1": 24.0, "weights_16": 25.0, "round_1": 25.0, "round_16": 27.5}
    ratios = {"round_16_to_weights": 1.1, "round_16_to_round_1": 1.1, "cancel_p99_ms": 12.0}
    parts = {"round_1": {"qkv": 2.0, "head": 10.0}, "round_16": {"qkv": 2.5, "head": 11.0}}
    prefill = {"64": 32.5, "512": 186.0}
    return {
        "target": model,
        "context_tokens": 600,
        "ms": ms,
        "ratios": ratios,
        "parts_ms": parts,
        "prefill_ms": prefill,
    }


def peers(model: str) -> dict[str, Any]:
    spread = {name: {"p50": 900.0, "p95": 990.0} for name in ("total_ms", "first_ms", "decode_ms")}
    way = {"settings": {"num_assistant_tokens": 5}, "cold": spread, "warm": spread}
    ratios = {f"cold_{name}_ms": {"ratio": 0.48, "best_peer": "openvino prompt lookup"} for name in
              ("total", "first", "decode")}  # fmt: skip
    return {
        "pair": model, "new_tokens": 32, "prompt_tokens": [540, 560], "threads": 2, "not_measured": {"vllm": "memory"},
        "against_the_best_peer": ratios,
        "ways": {name: {"peer": name.split()[0], **way} for name in ("speclsp policy", "openvino prompt lookup")},
    }  # fmt: skip


def typed(model: str) -> dict[str, Any]:
    empty = figures.side_by_side([], [])
    empty["suggestion"] = {"count": 9, "p50_ms": 280.0, "p95_ms": 900.0}
    return {"pair": model, "recorded_minutes": 6.0, **empty, "languages": {"python": empty, "rust": empty}}


def gpu() -> dict[str, Any]:
    completion = {"plain_ms": 170.0, "modelled": {"gamma": 4, "ms": 70.0}, "replayed": {"gamma": 3, "ms": 60.0}}
    rounds = {
        "draft": "0.5b nf4", "target": "7b bf16", "context_tokens": 1024, "completion": completion,
        "by_gamma": {"1": {"ms": 5.0}, "4": {"ms": 7.0, "percent_of_limit": 60.0}},
    }  # fmt: skip
    row = {"ms": 4.4, "least_ms": 3.6, "percent_of_limit": 82.0}
    figures: dict[str, Any] = {
        "passes": {"7b bf16": {"rows": {"1": row, "16": row}}},
        "rounds": {"0.5b-7b, nf4 draft": rounds},
        "cancel": {"0.5b-7b": {"prefill": {"p50": 1.0, "p99": 8.0}, "rounds": {"p50": 1.0, "p99": 6.0}}},
        "transformers": {"0.5b-7b": {"plain_ms": 400.0, "assisted_replayed": {"gamma": 5, "ms": 300.0}}},
    }
    return {"device": "cuda", "parts": {name: {"status": "done", "figures": of} for name, of in figures.items()}}


EVERYTHING: dict[str, dict[str, Any]] = {
    f"completions-{SMALL}": {"bench": "completions", **ABOUT, **completions(SMALL)},
    f"scale-{SMALL}": {"bench": "scale", **ABOUT, **scale(SMALL)},
    f"floor-{SMALL}-amx": {"bench": "floor", **ABOUT, **floor(SMALL)},
    "scale-editor": {"bench": "scale-editor", **ABOUT, **document()},
    f"peers-{SMALL}-amx": {"bench": "peers", **ABOUT, **peers(SMALL)},
    f"keystrokes-{SMALL}": {"bench": "keystrokes", **ABOUT, **typed(SMALL)},
    "gpu-h100": {"bench": "gpu", **ABOUT, **gpu()},
    "run-bench": {"bench": "run", **ABOUT, "run": "bench", "minutes": 27.5},
}


def put(directory: Path, results: dict[str, dict[str, Any]]) -> Path:
    for name, data in results.items():
        (directory / f"{name}.json").write_text(json.dumps(data))
    return directory


class PageContent(HTMLParser):
    """Content of a page: its text, its pictures and its links."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "srcset", "href") and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data + "\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of everything."""
    return report.write(put(tmp_path_factory.mktemp("results"), EVERYTHING), tmp_path_factory.mktemp("report"))


@pytest.mark.slow
def test_the_page_is_self_contained_and_its_pictures_are_small(page: Path):
    content = PageContent(page.read_text(encoding="utf-8"))
    assert content.open == []
    assert all(link.startswith("data:image/png;base64,") for link in content.links)
    pictures = sorted(file.name for file in page.parent.glob("*.png"))
    assert pictures == [
        f"report-completions-{SMALL}.png",
        f"report-floor-{SMALL}-amx.png",
        "report-gpu-0.5b-7b-nf4-draft.png",
        f"report-keystrokes-{SMALL}.png",
        f"report-peers-{SMALL}-amx.png",
        "report-scale-editor.png",
        f"report-scale-{SMALL}.png",
    ]
    assert len(content.links) == 2 * len(pictures), "each for light and for dark"
    assert all((page.parent / name).stat().st_size < 200_000 for name in pictures)


def test_the_page_shows_each_aim_with_its_verdict_and_each_plot_with_its_machine(page: Path):
    text = PageContent(page.read_text(encoding="utf-8")).text
    for aim in AIMS:
        assert aim.what in text
    assert text.count("A Processor, 2 cores (amx_int8)") == 7
    assert text.count("pass\n") == report.verdicts(EVERYTHING)[PASS] > 3
    assert "nothing cached" in text
    assert "vllm\nmemory" in text.replace("\n\n", "\n"), "what could not be measured says why"


def test_a_page_without_results_marks_every_section_as_not_measured(tmp_path: Path):
    text = PageContent(report.write(tmp_path, tmp_path).read_text(encoding="utf-8")).text
    titles = [section.title for section in report.sections({})]
    assert all(title in text for title in titles)
    assert text.count("Not measured.") == len(titles)
    assert text.count("not measured\n") == len(AIMS)
    assert list(tmp_path.glob("*.png")) == []


@given(st.sets(st.sampled_from(sorted(EVERYTHING))))
def test_missing_results_do_not_hide_the_others(names: set[str]):
    results = {name: EVERYTHING[name] for name in names}
    drawn = [plot.name for section in report.sections(results) for plot in section.plots]
    assert {name.replace("gpu-0.5b-7b-nf4-draft", "gpu-h100") for name in drawn} == names - {"run-bench"}
    assert sum(report.verdicts(results).values()) == len(AIMS)


def test_old_results_are_left_out_and_broken_results_are_reported(tmp_path: Path):
    put(tmp_path, {"old": {"pair": "x", "ways": {}}, **EVERYTHING})
    assert set(report.read(tmp_path)) == set(EVERYTHING)
    (tmp_path / "cut.json").write_text('{"bench": ')
    with pytest.raises(report.SpeclspError, match=r"cut\.json cannot be read: .* run its benchmark again\."):
        report.read(tmp_path)


def test_an_aim_is_compared_with_the_figure_of_its_own_pair_only():
    found = {aim.what: aim.measured(EVERYTHING) for aim in AIMS}
    assert found["round of 16 rows ÷ round of 1, AMX, 0.5B"] == 1.1
    assert found["round of 16 rows ÷ round of 1, AMX, 1.5B"] is None
    assert found["32 tokens, cold ÷ the best peer's, amx, 0.5B"] == 0.48
    assert found["32 tokens, cold ÷ the best peer's, avx512-bf16, 0.5B"] is None
    assert found["key to suggestion, p50, 0.5B"] == 280
    assert found["make bench"] == 27.5
    assert (found["cancel to stop, p99, 7B"], found["plain 1.5B step"]) == (8, None)
    assert found["transformers' assisted generation ÷ ours, 7B, acceptance replayed"] == 5
    assert found["first token above one round, prompt cached but for one character, 0.5B"] == 10


@given(limit=st.floats(0.1, 100), value=st.floats(0, 200), at_least=st.booleans())
def test_a_verdict_depends_only_on_the_limit(limit: float, value: float, at_least: bool):
    aim = aims.Aim(group="", what="", limit=limit, unit="", measured=lambda results: None, at_least=at_least)
    assert aim.verdict(None) == NOT_MEASURED
    assert aim.verdict(limit) == PASS
    assert aim.verdict(value) == (PASS if value == limit or (value > limit) == at_least else SHORT)


@pytest.mark.parametrize(
    ("value", "words"), [(0.4823, "0.482"), (5.214, "5.21"), (20, "20"), (20.0, "20"), (312.7, "313"), (1, "1")]
)
def test_numbers_have_three_significant_digits(value: float, words: str):
    assert aims.number(value) == words


def test_the_command_stores_the_duration_of_a_run_and_counts_the_aims(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folders = ["--results", str(tmp_path), "--out", str(tmp_path / "report")]
    assert main(["report", *folders, "--took", "bench-quick=200"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"aims: 1 pass, 0 short, \d+ not measured", output)
    assert json.loads((tmp_path / "run-bench-quick.json").read_text())["minutes"] == 3.3
    assert (tmp_path / "report/report.html").is_file()
    assert main(["report", "--results", str(tmp_path / "nowhere")]) == 2


@pytest.mark.soak
def test_the_page_can_be_made_of_the_results_in_the_repository(tmp_path: Path):
    written = report.write(ROOT / "benchmarks" / "results", tmp_path)
    shown = PageContent(written.read_text(encoding="utf-8")).text
    assert "Newest figure from 20" in shown and "redesign-before-after" in shown
