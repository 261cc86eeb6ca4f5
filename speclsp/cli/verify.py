"""`speclsp verify`: repeats the last requests plainly and speculatively, and compares the texts.

The running engine keeps its last requests in memory and replays them itself (engine/http/replay.py). A difference is
exit code 1, with its position; with nothing to compare the exit code is 2, because that proves nothing.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from speclsp import config
from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.daemon import control, endpoint
from speclsp.daemon.endpoint import EngineEndpoint
from speclsp.engine.http.request_log import MAX_REQUESTS
from speclsp.errors import EngineError

Line = dict[str, Any]

ALL_SAME, DIFFERENT, NOT_SHOWN = 0, 1, 2  # exit codes
SILENCE_S = 300.0  # between two lines: it may have to load the model first
NAME_WIDTH = 30
HEAD = ("when", "file", "tokens", "plain", "speculative", "", "accepted", "text and tokens")


def main(settings: Config, as_json: bool = False) -> int:
    """Replay and show; the exit code. Raises SpeclspError: there is nothing that could be replayed."""
    running = engine(settings)
    what = f"of process {running.pid}" if running.pid else "of the engine"
    results: list[Line] = []
    colour = terminal.coloured(sys.stdout)
    for line in from_engine(running):
        results.append(line)
        if not as_json:
            if len(results) == 1:
                print(f"\nReplay of the last requests {what}:\n")
                print(terminal.paint(row(*HEAD), terminal.DIM, colour))
            print(shown(line, colour), flush=True)
    if as_json:
        print(json.dumps(sums(results) | {"requests": results}))
    elif results:
        print("\n" + "\n".join(in_words(results)))
    compared = [line for line in results if "skipped" not in line]
    if any(not line["identical"] for line in compared):
        return DIFFERENT
    if not results and not as_json:
        sys.stderr.write(
            "speclsp: this engine has completed no requests yet: request a completion in an editor first.\n"
        )
    return ALL_SAME if compared else NOT_SHOWN


# ── the engine that runs ─────────────────────────────────────────────────────────────────────────────────────


def engine(settings: Config) -> EngineEndpoint:
    """The engine with the requests: this user's, the one at engine.socket, or an editor's own. Raises EngineError."""
    if settings.engine.socket:
        return EngineEndpoint(pid=0, socket=settings.engine.socket)
    running = control.alive() or next(own_engines(), None)
    if running is not None:
        return running
    if settings.remote.url:
        host = urlsplit(settings.remote.url).hostname
        raise EngineError(
            f"requests go to {host} (remote.url), whose results cannot be replayed here, and no engine runs on this "
            "machine."
        )
    raise EngineError(
        "no engine runs, and the requests of the previous one are gone: request a completion in an editor first."
    )


def own_engines() -> Iterator[EngineEndpoint]:
    """The engines that editors with engine.shared = false started for themselves, the newest first."""
    changed_s: dict[Path, float] = {}
    for path in config.runtime_path().glob("lsp-*.sock"):
        with suppress(OSError):  # it has just ended
            changed_s[path] = path.lstat().st_mtime
    for path in sorted(changed_s, key=changed_s.__getitem__, reverse=True):
        try:
            candidate = endpoint.at(path)
            if candidate is None:
                continue
            endpoint.connect(candidate).close()
        except (OSError, EngineError):
            continue
        yield candidate


def from_engine(running: EngineEndpoint) -> Iterator[Line]:
    """The engine's replay, one line for each request, from POST /verify. Raises EngineError."""
    try:
        control.ask(running, "GET", "/health")  # an engine that hangs must not get the long timeout of one that loads
        with control.request(running, "POST", "/verify", {"last": MAX_REQUESTS}, timeout_s=SILENCE_S) as response:
            if response.status != 200:
                raise EngineError(complaint(response.read(2**16)))
            for data in response:
                if not data.startswith(b"data:"):
                    continue
                line = json.loads(data.removeprefix(b"data:"))
                if "error" in line:
                    raise EngineError(complaint(data.removeprefix(b"data:")))
                if line.get("end"):
                    return
                yield line
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EngineError(
            f"the engine does not answer or has ended ({type(error).__name__}): `speclsp engine status` shows "
            "its state."
        ) from error
    raise EngineError("the engine ended before the replay was complete.")


def complaint(body: bytes) -> str:
    """The message of an engine that refuses."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return "the engine does not support /verify: it may be another version; `speclsp engine stop` ends it."


# ── for a person ─────────────────────────────────────────────────────────────────────────────────────────────


def row(when: str, file: str, tokens: str, plain: str, fast: str, gain: str, accepted: str, verdict: str) -> str:
    """One line of the table."""
    return f"  {when:<8}  {file:<{NAME_WIDTH}} {tokens:>6} {plain:>10} {fast:>12} {gain:>6} {accepted:>10}  {verdict}"


def shown(line: Line, colour: bool) -> str:
    """One request."""
    when = time.strftime("%H:%M:%S", time.localtime(line["at_s"]))
    file = "".join(letter for letter in line["file"] if letter.isprintable())
    file = file if len(file) <= NAME_WIDTH else "..." + file[3 - NAME_WIDTH :]
    if "skipped" in line:
        return row(when, file or "-", str(line["given"]), "-", "-", "", "-", f"skipped: {line['skipped']}")
    plain, fast = line["plain_decode_ms"], line["speculative_decode_ms"]
    verdict, style = "identical", terminal.GREEN
    if not line["identical"]:
        verdict, style = f"DIFFERENT at token {line['differs_at'] + 1}: {line['differs']}", terminal.RED
    elif "rounded_otherwise_at" in line:
        verdict = f"identical; the prompt was cached differently then (token {line['rounded_otherwise_at'] + 1})"
    return row(
        when,
        file or "-",
        str(line["tokens"]),
        f"{plain:.0f} ms",
        f"{fast:.0f} ms",
        f"{plain / fast:.1f} x" if fast else "",
        f"{line['accepted']} of {line['drafted']}",
        terminal.paint(verdict, style, colour),
    )


def sums(results: Iterable[Line]) -> Line:
    """The totals over all requests."""
    compared = [line for line in results if "skipped" not in line]
    names = ("tokens", "plain_decode_ms", "speculative_decode_ms", "drafted", "accepted")
    whole: Line = {name: round(sum(line[name] for line in compared), 1) for name in names}
    identical = sum(line["identical"] for line in compared)
    why = Counter(line["skipped"] for line in results if "skipped" in line)
    return {"compared": len(compared), "identical": identical, "skipped": dict(why), **whole}


def in_words(results: list[Line]) -> list[str]:
    """The totals as sentences."""
    n = sums(results)
    words = []
    if n["compared"]:
        share = f"{n['accepted'] / n['drafted']:.0%}" if n["drafted"] else "none"
        plain, fast = n["plain_decode_ms"], n["speculative_decode_ms"]
        gain = f", {plain / fast:.1f} x as fast" if fast else ""
        words.append(
            f"{n['identical']} of {n['compared']} identical: {n['tokens']} tokens, decoded plainly in {plain:.0f} ms, "
            f"speculatively in {fast:.0f} ms{gain}; {share} of {n['drafted']} drafted tokens accepted."
        )
        if n["identical"] < n["compared"]:
            words.append("A difference is a bug: please report it with `speclsp verify --json` (it holds no text).")
    words += [f"Not compared: {count}, {why}." for why, count in n["skipped"].items()]
    return words
