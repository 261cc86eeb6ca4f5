"""Metrics of one process: counters, gauges and latencies, for Prometheus. No source text.

    counters   only grow, one number for each set of labels        completions{stop="eos"}
    gauges     a number as it is now                               kv_tokens
    timings    durations in ms: their number, sum, and the quantiles of the last 512   ttft_ms

Written from the engine's thread and read from the HTTP server's, so each call takes a lock for a few microseconds.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping

WINDOW = 512  # timings remembered for the quantiles
RECENT = 20  # completions in "acceptance" and "tokens per round": the user's current experience
QUANTILES = (0.5, 0.9, 0.99)

MEANING: Mapping[str, str] = {
    "requests_total": "completion requests, by outcome",
    "prompt_tokens_total": "prompt tokens, cached ones included",
    "cached_tokens_total": "prompt tokens found in the KV cache",
    "prefilled_tokens_total": "prompt tokens computed, including those of cancelled requests",
    "predicted_tokens_total": "tokens completed",
    "rounds_total": "verification passes of the target",
    "drafted_tokens_total": "drafted tokens, by drafter",
    "accepted_tokens_total": "drafted tokens that the target accepted, by drafter",
    "oom_total": "requests that failed because memory ran out",
    "stale_work_ms": "time from the cancellation of a running request to its end",
    "ttft_ms": "time from the request to its first tokens",
    "predicted_ms": "time from the first tokens to the last",
    "round_ms": "mean time of a request's verification passes, drafts included",
    "latency_ms": "time from the request to its answer",
    "acceptance": "accepted / drafted tokens over the last completions",
    "tokens_per_round": "tokens per verification pass over the last completions",
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """One process's counters, gauges and timings. Every name gets the prefix `speclsp_` when rendered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, float]] = {}
        self._gauges: dict[str, dict[Labels, float]] = {}
        self._timings: dict[str, Timing] = {}
        self._recent: deque[tuple[int, int, int, int]] = deque(maxlen=RECENT)  # tokens, rounds, drafted, accepted

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add `by` to a counter; it starts at 0."""
        with self._lock:
            series = self._counters.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            series[key] = series.get(key, 0) + by

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._gauges.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    def time(self, name: str, ms: float) -> None:
        """Add one timing, in milliseconds."""
        with self._lock:
            self._timings.setdefault(name, Timing()).add(ms)

    def speculated(self, tokens: int, rounds: int, by_source: Mapping[str, Mapping[str, int]]) -> None:
        """Count one completion's tokens and rounds; `by_source` is {drafter: {"drafted": n, "accepted": n}}."""
        self.count("predicted_tokens_total", tokens)
        self.count("rounds_total", rounds)
        drafted = accepted = 0
        for source, counts in by_source.items():
            self.count("drafted_tokens_total", counts.get("drafted", 0), source=source)
            self.count("accepted_tokens_total", counts.get("accepted", 0), source=source)
            drafted, accepted = drafted + counts.get("drafted", 0), accepted + counts.get("accepted", 0)
        with self._lock:
            self._recent.append((tokens, rounds, drafted, accepted))

    @property
    def acceptance(self) -> float | None:
        """Accepted / drafted tokens over the last completions; None when nothing was drafted."""
        with self._lock:
            drafted = sum(row[2] for row in self._recent)
            return sum(row[3] for row in self._recent) / drafted if drafted else None

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens per verification pass over the last completions; None before the first."""
        with self._lock:
            rounds = sum(row[1] for row in self._recent)
            return sum(row[0] for row in self._recent) / rounds if rounds else None

    def total(self, name: str) -> float:
        """A counter's sum over all its labels."""
        with self._lock:
            return sum(self._counters.get(name, {}).values())

    def render(self) -> str:
        """Everything, in Prometheus' text format."""
        ratios = {"acceptance": self.acceptance, "tokens_per_round": self.tokens_per_round}
        lines: list[str] = []
        with self._lock:
            gauges = {name: dict(series) for name, series in self._gauges.items()}
            gauges |= {name: {(): value} for name, value in ratios.items() if value is not None}
            for kind, table in (("counter", self._counters), ("gauge", gauges)):
                for name, series in sorted(table.items()):
                    lines += head(name, kind)
                    lines += [line(name, labels, value) for labels, value in sorted(series.items())]
            for name, timing in sorted(self._timings.items()):
                lines += head(name, "summary")
                lines += [line(name, (("quantile", str(q)),), timing.quantile(q)) for q in QUANTILES]
                lines += [line(f"{name}_sum", (), timing.sum_ms), line(f"{name}_count", (), timing.count)]
        return "\n".join(lines) + "\n" if lines else ""


class Timing:
    """Timings of one name: their number, their sum, and the last WINDOW of them."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.window: deque[float] = deque(maxlen=WINDOW)

    def add(self, ms: float) -> None:
        self.count += 1
        self.sum_ms += ms
        self.window.append(ms)

    def quantile(self, q: float) -> float:
        """The smallest remembered timing that at least `q` of them do not exceed."""
        ordered = sorted(self.window)
        return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def head(name: str, kind: str) -> list[str]:
    """The HELP and TYPE lines of one metric."""
    meaning = MEANING.get(name, name.replace("_", " "))
    return [f"# HELP speclsp_{name} {meaning}", f"# TYPE speclsp_{name} {kind}"]


def line(name: str, labels: Labels, value: float) -> str:
    """One sample."""
    inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels)
    number = str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))
    return f"speclsp_{name}{'{' + inside + '}' if inside else ''} {number}"


def escaped(text: str) -> str:
    """A label's value as Prometheus wants it."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
