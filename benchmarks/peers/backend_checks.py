"""Checks of a server behind `remote.url`: texts and times beside the local engine, cancelling, refusals, a crash."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from benchmarks.peers.remote_editor import ANSWER_S, Editor, editing
from benchmarks.peers.upstreams import KEY, Upstream
from benchmarks.speed import rounds
from benchmarks.speed.holes import MODULES, holes_and_rests, source

STOP_S = 20
POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Place:
    """A document, a cursor in it, and the true rest of the line."""

    text: str
    cursor: int
    rest: str


def places(count: int) -> list[Place]:
    result = []
    for request, rest in holes_and_rests(count):
        before = request.prefix + request.line_prefix
        result.append(Place(before + "\n" + request.suffix, len(before), rest.rstrip("\n")))
    return result


def side_by_side(editors: Mapping[str, Editor], count: int) -> dict[str, Any]:
    """The same holes with every engine in turn: times, and the texts' agreement with the first engine's."""
    measured: dict[str, dict[str, list[Any]]] = {name: {"cold": [], "warm": [], "text": []} for name in editors}
    for number, place in enumerate(places(count)):
        key = place.rest[:1] or "x"
        for name, editor in editors.items():
            ms, text = editor.complete(f"file:///backends/{number}.py", place.text, place.cursor)
            # a key the suggestion does not begin with: otherwise it is answered without the server
            odd = key if not text.startswith(key) else "_"
            typed = place.text[: place.cursor] + odd + place.text[place.cursor :]
            warm_ms, _ = editor.complete(f"file:///backends/{number}.py", typed, place.cursor + 1)
            measured[name]["cold"].append(ms)
            measured[name]["warm"].append(warm_ms)
            measured[name]["text"].append(text)
    first = next(iter(measured.values()))["text"]
    return {
        name: {**times(result), **agreement(first, result["text"]), "texts": result["text"]}
        for name, result in measured.items()
    }


def times(found: Mapping[str, list[float]]) -> dict[str, Any]:
    return {
        f"{kind}_p{share * 100:.0f}_ms": round(rounds.quantile(found[kind], share), 1)
        for kind in ("cold", "warm")
        for share in (0.5, 0.95)
    }


def agreement(wanted: list[str], got: list[str]) -> dict[str, Any]:
    """Counts of equal texts and of equal first lines, and the mean similarity by characters."""
    pairs = list(zip(wanted, got, strict=True))
    alike = [difflib.SequenceMatcher(None, a, b).ratio() if a or b else 1.0 for a, b in pairs]
    return {
        "holes": len(pairs),
        "suggested": sum(bool(b) for _, b in pairs),
        "equal": sum(a == b for a, b in pairs),
        "same_first_line": sum(a.split("\n")[0] == b.split("\n")[0] for a, b in pairs),
        "likeness": round(sum(alike) / len(alike), 3),
    }


def until(true: Callable[[], bool], timeout_s: float) -> float:
    """Seconds until the condition was true; -1 after the time limit."""
    began_s = perf_counter()
    while not true():
        if perf_counter() - began_s > timeout_s:
            return -1.0
        sleep(POLL_S)
    return perf_counter() - began_s


def long_place(number: int) -> Place:
    """Much text before the cursor and a block to write: a prompt that takes long to read, an answer that takes long."""
    text = source(MODULES[number]) + f'\n\ndef every_part_{number}(value):\n    """All parts, sorted, by kind."""\n    '
    return Place(text, len(text), "")


def cancelling(editor: Editor, servers: list[Upstream], after_s: float, number: int) -> dict[str, Any]:
    """Cancel `after_s` into the servers' work; how long they went on, by their own account."""

    def at_work() -> int:
        return sum(server.at_work() for server in servers)

    place, uri = long_place(number), f"file:///backends/long{number}-{after_s:g}.py"
    request = editor.ask(uri, place.text, place.cursor)
    waited_s = until(lambda: at_work() > 0 or request in editor.answers, ANSWER_S)
    sleep(after_s)
    running = at_work()
    cancelled_s = perf_counter()
    editor.send({"method": "$/cancelRequest", "params": {"id": request}})
    stopped_s = until(lambda: at_work() == 0, STOP_S)
    looked_s = perf_counter()
    at_work()
    return {
        "after_ms": round(after_s * 1000),
        "seen_at_work": waited_s >= 0 and running > 0,
        "server_idle_ms": round(stopped_s * 1000, 1) if stopped_s >= 0 else None,
        "a_look_takes_ms": round((perf_counter() - looked_s) * 1000, 1),
        "editor_answered_ms": answered_ms(editor, request, cancelled_s),
    }


def answered_ms(editor: Editor, request: int, since_s: float) -> float | None:
    if not editor.answered(request, ANSWER_S):
        return None
    return round((editor.answers[request][0] - since_s) * 1000, 1)


def refused(settings: Mapping[str, object], place: Path, key: str = KEY) -> dict[str, Any]:
    """The status with a wrong setting, and the result of a completion then."""
    with editing(settings, place, key) as editor:
        ms, text = editor.complete("file:///backends/refused.py", "def add(a, b):\n    return ", 26)
        return {
            "state": editor.phase,
            "message": editor.shown[-1][1].get("message", ""),
            "suggestion": text,
            "answered_ms": round(ms, 1),
            "popups": editor.messages,
        }


def killed(editor: Editor, upstream: Upstream, restart: bool) -> dict[str, Any]:
    """The server dies while it answers, and comes back."""
    place = long_place(7)
    request = editor.ask("file:///backends/killed.py", place.text, place.cursor)
    until(lambda: upstream.at_work() > 0 or request in editor.answers, ANSWER_S)
    at_s = perf_counter()
    upstream.kill()
    report: dict[str, Any] = {"answered_ms": answered_ms(editor, request, at_s)}
    report["error"] = editor.answers[request][1].get("error")
    ms, text = editor.complete("file:///backends/after.py", "def add(a, b):\n    return ", 26)
    report |= {"next_answer_ms": round(ms, 1), "next_suggestion": text}
    editor.wait(lambda: editor.phase == "error", 20)
    report |= {"state": editor.phase, "message": editor.shown[-1][1].get("message", ""), "popups": editor.messages}
    if restart:
        upstream.start()
        back_s = perf_counter()
        ready = editor.wait(lambda: editor.phase == "ready", 90)
        report["ready_again_after_ms"] = round((perf_counter() - back_s) * 1000) if ready else None
        report["suggestion_again"] = editor.complete("file:///backends/again.py", "def add(a, b):\n    return ", 26)[1]
    return report
