"""Figures of `python -m benchmarks peers`: times of each engine, agreement of its tokens, and ratios to the best."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from speclsp.engine.model.kv_archive import common_prefix

METRICS = ("total_ms", "first_ms", "decode_ms")


@dataclass(slots=True)
class Way:
    """One peer in one mode, with its measurements: the runs of `kind` in `runs[kind]`."""

    peer: str
    mode: str
    settings: dict[str, Any]
    group: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"cold": [], "warm": []})
    failed: str = ""

    @property
    def name(self) -> str:
        return f"{self.peer} {self.mode}"

    def values(self, kind: str, metric: str, group: int | None = None) -> list[float]:
        """One measure of every run of a kind, of one group or of all."""
        return [run[metric] for run in self.runs[kind] if group in (None, run["group"])]

    def timings(self) -> dict[str, list[dict[str, Any]]]:
        """The times of each run, without its tokens."""
        names = ("hole", "group", *METRICS)
        return {kind: [{name: run[name] for name in names} for run in runs] for kind, runs in self.runs.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile (by rank: of few values, the largest)."""
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 1),
    }


def facts(way: Way, reference: Way, stops: frozenset[int]) -> dict[str, Any]:
    """One way's figures; its tokens as how far they agree with speclsp's plain ones."""
    spreads = {kind: {metric: spread(way.values(kind, metric)) for metric in METRICS} for kind in way.runs}
    about = {"peer": way.peer, "mode": way.mode, "group": way.group, "settings": way.settings, **way.about}
    return {**about, **spreads, "agreement": agreement(way, reference, stops)}


def agreement(way: Way, reference: Way, stops: frozenset[int]) -> dict[str, Any]:
    """Number of the reference's tokens, up to its first stop token, that each cold answer repeats."""
    first = {run["hole"]: run["tokens"] for run in reversed(reference.runs["cold"])}
    lengths, agreed = [], []
    for run in way.runs["cold"]:
        tokens = first[run["hole"]]
        until = next((n for n, token in enumerate(tokens) if token in stops), len(tokens))
        lengths.append(until)
        agreed.append(common_prefix(tokens[:until], run["tokens"]))
    return {
        "first_token_equal": sum(a > 0 or w == 0 for a, w in zip(agreed, lengths, strict=True)),
        "all_equal": sum(a == w for a, w in zip(agreed, lengths, strict=True)),
        "of": len(lengths),
        "equal_tokens": agreed,
        "of_tokens": lengths,
    }


def against(ours: Way, theirs: Sequence[Way]) -> dict[str, Any]:
    """For each measure, the middle of ours over the middle of each peer's in the same group, and the best peer."""
    ratios_by_metric: dict[str, Any] = {}
    for kind in ("cold", "warm"):
        for metric in METRICS:
            ratios = {
                way.name: round(
                    statistics.median(ours.values(kind, metric, way.group))
                    / max(statistics.median(way.values(kind, metric)), 0.001),
                    3,
                )
                for way in theirs
            }
            if ratios:
                best = max(ratios, key=lambda name: ratios[name])
                ratios_by_metric[f"{kind}_{metric}"] = {"ratio": ratios[best], "best_peer": best, "ratios": ratios}
    return ratios_by_metric
