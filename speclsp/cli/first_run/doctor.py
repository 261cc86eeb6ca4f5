"""`speclsp doctor`: checks everything that a completion depends on, in order, and says how to fix a failure.

    ok     fine        warn   works, but not as well as it could
    todo   a download is missing; its command follows        fail   no completions until this is fixed

It fetches nothing. The exit code is 0 when nothing fails, else 1; a download to do is no failure.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import speclsp
from speclsp import config as settings
from speclsp import process_resources
from speclsp.cli import terminal
from speclsp.cli.complete import answers, own_model, positions
from speclsp.cli.first_run import doctor_installation as installation
from speclsp.cli.first_run.doctor_check import FAIL, OK, SLOW_MS, TODO, WARN, DoctorCheck, guarded
from speclsp.cli.terminal import streams
from speclsp.config import Config
from speclsp.errors import SpeclspError
from speclsp.private_files.os_errors import message
from speclsp.process_resources import gpus

if TYPE_CHECKING:
    from speclsp.engine.api import Completer
    from speclsp.weights.cards import Card

STYLES = {OK: terminal.GREEN, WARN: terminal.YELLOW, TODO: terminal.YELLOW, FAIL: terminal.RED}
KNOWN_HOLE, KNOWN_ANSWER = "def add(a, b):\n    return ", "a + b"
UNTRAINED = ("echo", "tiny/")  # the models for tests: any text shows that they run
SAMPLE, SAMPLE_MARK = Path(__file__).with_name("doctor_sample.txt"), "<cursor>"  # Python source of usual size


def main(flags: Mapping[str, object], as_json: bool = False) -> int:
    """Print every check as it ends; 0 when none fails."""
    colour, results = streams.coloured(sys.stdout), []
    for check in checks(flags):
        results.append(check)
        if not as_json:
            status = terminal.paint(f"{check.status:<4}", STYLES[check.status], colour)
            print(f"{status}  {check.name:<12}  {check.found}" + (f"  -> {check.fix}" if check.fix else ""), flush=True)
    is_good = all(check.status != FAIL for check in results)
    if as_json:
        report = {"ok": is_good, "version": speclsp.__version__, "checks": [asdict(check) for check in results]}
        print(json.dumps(report))
    return 0 if is_good else 1


def checks(flags: Mapping[str, object]) -> Iterator[DoctorCheck]:
    """Every check; each comes after those that it depends on. One that ends with an exception ends no other."""
    yield guarded("python", installation.python)
    packages = guarded("packages", installation.packages)
    yield packages
    config, problems = gathered(flags)
    yield guarded("settings", installation.of_settings, problems)
    yield guarded("directories", installation.directories)
    if packages.status == FAIL:
        return
    if config.remote.url:
        yield guarded("remote", lambda: asyncio.run(remote_completion(config)))
        return  # no model runs here
    yield guarded("device", device, config)
    yield from of_model(config)


def gathered(flags: Mapping[str, object]) -> tuple[Config, list[str]]:
    """The settings and their problems; the defaults with the flags where config.toml cannot be looked for."""
    from speclsp.weights import locations

    try:
        config, problems = settings.gather(flags)
    except (SpeclspError, OSError) as error:
        config, problems = settings.parse(flags)
        problems = [message(error), *problems]
    return config, [*problems, *filter(None, [locations.models_dir_problem(config.models_dir)])]


def device(config: Config) -> DoctorCheck:
    """Check the model's device and report its free memory."""
    from speclsp.engine.loading import load_plan

    cpus, memory = process_resources.cpus(), process_resources.memory()
    chosen, problem = gpus.pick_device(config.device)
    if config.device.startswith("cuda") and chosen == "cpu":
        _, reason, fix = gpus.find_gpu(config.device)
        return DoctorCheck("device", FAIL, f"{reason}: {fix}", 'device = "auto"')
    if chosen != "cpu":
        summary = f"{load_plan.describe_device(chosen, 0)}, {process_resources.free_mib(chosen)} MiB free"
    else:
        instructions, problem = use_instructions(config, problem)
        quota = f", a quota of {cpus.quota:g} CPUs" if cpus.quota is not None and cpus.quota < cpus.logical else ""
        limit = f" of a limit of {memory.limit_mib} MiB" if memory.limit_mib is not None else ""
        summary = f"cpu, cores: {cpus.cores} ({instructions}){quota}, {memory.free_mib} MiB free{limit}"
    summary, fix = (f"{summary}; {problem}", "follow the message") if problem else (summary, "")
    return DoctorCheck("device", WARN if problem else OK, summary, fix)


def use_instructions(config: Config, problem: str) -> tuple[str, str]:
    """The processor's instructions that are used, and `problem` with that of the library.

    Raises SpeclspError: engine.cpu_path names instructions that the processor lacks.
    """
    from speclsp.engine.model.int8 import native
    from speclsp.engine.model.int8.library import load_problem

    native.use(config.engine.cpu_path)
    path = native.best_path()
    return path or "no compiled forward pass", " ".join(filter(None, (problem, load_problem(path))))


def of_model(config: Config) -> Iterator[DoctorCheck]:
    """Check the chosen model: its weights, and a completion with it."""
    from speclsp.engine.loading import cpu_speed

    card, why = None, "echo (no model)"
    if config.model != "echo":
        try:
            card, why = cpu_speed.choose_card(config)
        except SpeclspError as error:
            yield DoctorCheck("model", FAIL, str(error), "`speclsp models list` shows all models")
            return
    yield DoctorCheck("model", OK, why)
    if card is not None:
        weights = guarded("weights", of_weights, config, card)
        yield weights
        if weights.status in (TODO, FAIL):
            return
    yield guarded("completion", completion, config, card)


def of_weights(config: Config, card: Card) -> DoctorCheck:
    """Check that the weights are here, and hash them."""
    from speclsp.weights import installation, store

    results = []
    for weights in own_model.needed(config, card):
        began_s = time.monotonic()
        state = installation.state(weights, config.models_dir)
        if state in (installation.MISSING, installation.PARTIAL):
            part = " completely" if state == installation.PARTIAL else ""
            size = terminal.in_size(store.download_bytes(weights, config.models_dir))
            summary = f"{weights.name} is not downloaded{part} yet ({size})"
            return DoctorCheck("weights", TODO, summary, f"`speclsp models pull {card.name}`")
        try:
            result = store.verify(weights, config.models_dir)
        except (SpeclspError, OSError) as error:
            return DoctorCheck("weights", FAIL, message(error), f"`speclsp models pull {card.name}`")
        seconds, directory = time.monotonic() - began_s, store.path(weights, config.models_dir)
        results.append(f"{weights.name} is checked in {seconds:.1f} s: {result}, {directory}")
    return DoctorCheck("weights", OK, "; ".join(results))


def completion(config: Config, card: Card | None) -> DoctorCheck:
    """Load the model, complete a hole whose answer is known, and measure the times of a usual file."""
    offline = settings.parse({"engine.offline": True, "completion.max_tokens_single_line": 8}, config)[0]
    with terminal.progress() as bar:
        completer, _ = own_model.open_engine(offline, bar, card)
    text, about, numbers = known_hole(completer, offline), answers.about(completer), speed(completer, config)
    summary = f"{KNOWN_HOLE!r} is completed with {text!r} by {about['target']} on {about['device']}"
    if not (KNOWN_ANSWER in text or (text and completer.target.startswith(UNTRAINED))):
        fix = "run `speclsp models verify`; a model not trained for fill-in-the-middle cannot complete it"
        return DoctorCheck("completion", FAIL, summary, fix)
    summary += (
        f"; {numbers['ms_per_token']} ms per token, {numbers['first_ms']} ms for the first completion in a file, "
        f"then {numbers['next_ms']} ms"
    )
    fix = "follow the message" if (note := getattr(completer, "note", "")) else ""
    if numbers["next_ms"] > SLOW_MS:
        fix = "close other programs, or choose a smaller model (`speclsp models list`)"
    summary += f"; {note}" if note else ""
    return DoctorCheck("completion", WARN if fix else OK, summary, fix)


def known_hole(completer: Completer, config: Config) -> str:
    """The suggestion at KNOWN_HOLE, which should contain KNOWN_ANSWER."""
    hole = answers.prepare(positions.snapshot_of(Path("add.py"), KNOWN_HOLE, len(KNOWN_HOLE)), config)
    if not isinstance(hole, answers.CompletionPoint):
        return hole.reason.meaning
    return answers.answer(completer, hole).text


def speed(completer: Completer, config: Config) -> dict[str, float]:
    """Milliseconds for a one-line completion in a file of usual size: with a new prompt, then with a cached one.

    The file is SAMPLE, which never changes, so that figures of different versions and machines compare.
    """
    before, after = SAMPLE.read_text(encoding="utf-8").split(SAMPLE_MARK)
    point = answers.prepare(positions.snapshot_of(Path("stations.py"), before + after, len(before)), config)
    if not isinstance(point, answers.CompletionPoint):
        return {"ms_per_token": 0.0, "first_ms": 0.0, "next_ms": 0.0}
    cold = replace(point, request=replace(point.request, cache_prompt=False))
    results = [answers.answer(completer, request).result for request in (cold, cold, point, point)]
    fastest = min(results, key=lambda result: result.decode_ms)
    return {
        "ms_per_token": round(fastest.decode_ms / max(len(fastest.tokens), 1), 1),
        "first_ms": round(results[1].prompt_ms + results[1].decode_ms),
        "next_ms": round(results[3].prompt_ms + results[3].decode_ms),
    }


async def remote_completion(config: Config) -> DoctorCheck:
    """Check the server at remote.url: its type, and its time for a few tokens."""
    from speclsp.lsp.backend.remote.remote import RemoteBackend
    from speclsp.lsp.backend.types import FimRequest, without_retry

    ask = FimRequest(path="add.py", prefix="def add(a, b):\n", line_prefix="    return ", suffix="\n", max_tokens=8)
    changed = asyncio.Event()
    backend = RemoteBackend(config, lambda status: changed.set(), config.remote.url)
    backend.start()
    try:
        while backend.status.state == "starting":
            await changed.wait()
            changed.clear()
        status, kind = backend.status, backend.server.kind or "a server of unknown kind"
        if status.state != "ready":
            return DoctorCheck("remote", FAIL, without_retry(status.message), "follow the message")
        began_s, text = time.monotonic(), ""
        async for piece in backend.stream(replace(ask, deadline_ms=config.completion.timeout_ms)):
            text += piece.text
        whole_ms = round((time.monotonic() - began_s) * 1000)
        summary = f"{kind} at {status.remote}, {status.target}, by {backend.server.style}: {text!r} after {whole_ms} ms"
        slow = whole_ms > SLOW_MS
        fix = "choose a smaller model or a nearer server" if slow else ""
        return DoctorCheck("remote", WARN if slow else OK, summary, fix)
    except SpeclspError as error:
        summary = without_retry(backend.status.message) or str(error)
        return DoctorCheck("remote", FAIL, summary, "follow the message")
    finally:
        await backend.close()
