"""`speclsp doctor`: checks everything that a completion depends on, in order, and says how to fix a failure.

    ok     fine        warn   works, but not as well as it could
    todo   a download is missing; its command follows        fail   no completions until this is fixed

It fetches nothing. The exit code is 0 when nothing fails, else 1; a download to do is no failure.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import speclsp
from speclsp import config as settings
from speclsp import process_resources
from speclsp.cli import complete, terminal
from speclsp.cli.first_run.doctor_check import FAIL, OK, SLOW_MS, TODO, WARN, DoctorCheck, guarded, remote
from speclsp.cli.first_run.doctor_system import copilot_servers, program
from speclsp.config import Config
from speclsp.errors import SpeclspError
from speclsp.private_files.os_errors import message
from speclsp.process_resources import gpu_extra, gpus

if TYPE_CHECKING:
    from speclsp.engine.api import Completer
    from speclsp.weights.cards import Card

STYLES = {OK: terminal.GREEN, WARN: terminal.YELLOW, TODO: terminal.YELLOW, FAIL: terminal.RED}
PACKAGES = ("tree-sitter", "pygls")
KNOWN_HOLE, KNOWN_ANSWER = "def add(a, b):\n    return ", "a + b"
UNTRAINED = ("echo", "tiny/")  # the models for tests: any text shows that they run
SAMPLE, SAMPLE_MARK = Path(__file__).with_name("doctor_sample.txt"), "<cursor>"  # Python source of usual size


def main(flags: Mapping[str, object], as_json: bool = False) -> int:
    """Print every check as it ends; 0 when none fails."""
    colour, results = terminal.coloured(sys.stdout), []
    for check in checks(flags):
        results.append(check)
        if not as_json:
            status = terminal.paint(f"{check.status:<4}", STYLES[check.status], colour)
            print(f"{status}  {check.name:<12}  {check.found}" + (f"  -> {check.fix}" if check.fix else ""), flush=True)
    failed = [check.name for check in results if check.status == FAIL]
    if as_json:
        print(
            json.dumps(
                {"ok": not failed, "version": speclsp.__version__, "checks": [asdict(check) for check in results]}
            )
        )
    return 1 if failed else 0


def checks(flags: Mapping[str, object]) -> Iterator[DoctorCheck]:
    """Every check; each comes after those that it depends on. One that ends with an exception ends no other."""
    yield from guarded("python", python)
    if sys.platform == "win32":
        yield from guarded("program", program)
    packages = [line for name in PACKAGES for line in guarded(name, partial(package, name))]
    yield from packages
    yield from guarded("pytorch", pytorch)
    config, problems = gathered(flags)
    from speclsp.weights import locations

    problems += filter(None, [locations.models_dir_problem(config.models_dir)])
    yield from guarded("settings", partial(of_settings, problems))
    yield from places()
    yield from guarded("shared", shared_engine)
    if config.next_edit.enabled:
        yield from guarded("next edit", copilot_servers)
    lost = {check.name for check in packages if check.status == FAIL}
    if "tree-sitter" not in lost:
        yield from guarded("grammars", grammars)
    if config.remote.url:
        yield from guarded("remote", partial(remote, config))
        return  # no model runs here
    if "tree-sitter" not in lost:
        yield from guarded("device", partial(device, config))
        yield from guarded("model", partial(of_model, config))


def gathered(flags: Mapping[str, object]) -> tuple[Config, list[str]]:
    """The settings and their problems; the defaults with the flags where config.toml cannot be looked for."""
    try:
        return settings.gather(flags)
    except (SpeclspError, OSError) as error:
        config, problems = settings.parse(flags)
        return config, [message(error), *problems]


def of_model(config: Config) -> Iterator[DoctorCheck]:
    """Check the chosen model: its weights, its adapter, and a completion with it."""
    card, why = None, "no model"
    if config.model != "echo":
        try:
            card, why = complete.choose_card(config)
        except SpeclspError as error:
            yield DoctorCheck("model", FAIL, str(error), "`speclsp models list` shows all models")
            return
    yield DoctorCheck("model", OK, why if card is not None else f"{config.model} ({why})")
    if card is not None:
        yield from of_confidence(card)
        files = list(guarded("weights", partial(of_weights, config, card)))
        yield from files
        if any(check.status in (TODO, FAIL) for check in files):
            return
        yield from guarded("adapter", partial(of_adapters, config, card))
    yield from guarded("engine", partial(completion, config, card))


def python() -> DoctorCheck:
    """Check the interpreter's version."""
    versions = (
        f"speclsp {speclsp.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    good = sys.version_info >= (3, 10)
    return DoctorCheck("python", OK if good else FAIL, versions, "" if good else "install Python 3.10 or newer")


def package(name: str) -> DoctorCheck:
    """Check a package's version without importing it: some imports take seconds."""
    try:
        return DoctorCheck(name, OK, metadata.version(name))
    except metadata.PackageNotFoundError:
        return DoctorCheck(name, FAIL, "not installed", f"python -m pip install {name}")


def pytorch() -> DoctorCheck:
    """Report the packages of the extra `gpu`, without importing them; `device` says if this machine needs them."""
    installed = {}
    for name in gpu_extra.PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    missing = [name for name in gpu_extra.PACKAGES if name not in installed]
    if len(missing) == len(gpu_extra.PACKAGES):
        return DoctorCheck("pytorch", OK, "not installed; a CPU needs it for few models and number formats only")
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    summary = f"{versions}; {', '.join(missing)} not installed" if missing else versions
    return DoctorCheck("pytorch", WARN if missing else OK, summary, f"`{gpu_extra.command()}`" if missing else "")


def of_settings(problems: list[str]) -> DoctorCheck:
    """Report problems in config.toml and the flags."""
    path = settings.config_path()
    if problems:
        return DoctorCheck("settings", FAIL, " ".join(problems), f"correct {path} or the flags of this command")
    return DoctorCheck("settings", OK, str(path) if path.exists() else f"the defaults (no {path})")


def places() -> Iterator[DoctorCheck]:
    """Check the directories of sockets, logs and weights."""
    try:
        directory = settings.runtime_path()
        spare_bytes = settings.SOCKET_PATH_BYTES - len(os.fsencode(directory / "lsp-1234567-99.sock"))
        has_sockets = sys.platform != "win32"  # Windows' engine listens on a port
        status = OK if spare_bytes >= 0 or not has_sockets else WARN
        shorter = "set XDG_RUNTIME_DIR to a shorter path; until then sockets go to a temporary directory"
        fix = "" if status == OK else shorter
        if not settings.accepts_files(settings.nearest_existing(directory)):
            raise SpeclspError(f"{directory} cannot be made or written")
        yield DoctorCheck("runtime", status, str(directory), fix)
    except SpeclspError as error:
        yield DoctorCheck("runtime", FAIL, str(error), "set XDG_RUNTIME_DIR to a directory of your own")
    yield from guarded("cache", lambda: writable("cache", settings.cache_dir()))
    yield from guarded("logs", lambda: writable("logs", settings.log_dir()))


def writable(name: str, place: Path) -> DoctorCheck:
    """Check that a directory can be written, or made."""
    is_writable = settings.accepts_files(settings.nearest_existing(place))
    fix = "" if is_writable else f"make {place} writable"
    return DoctorCheck(name, OK if is_writable else FAIL, str(place), fix)


def shared_engine() -> DoctorCheck:
    """Report on the engine that this user's editors share, if one runs."""
    from speclsp.daemon import control

    try:
        status = control.status()
    except SpeclspError as error:
        return DoctorCheck("shared", WARN, str(error), "follow the message")
    if status is None:
        return DoctorCheck("shared", OK, "no engine runs; the first editor starts it")
    if "pid" not in status:
        return DoctorCheck("shared", OK, "an engine is starting or stopping")
    state, clients = status["status"], int(status.get("clients", 0))
    summary = (
        f"process {status['pid']}, {status['pair'] or 'auto'}, {state}, used by {clients} editor{'s'[: clients != 1]}"
    )
    fix = {"silent": "`speclsp engine stop` ends it", "error": "`speclsp engine status` shows the cause"}.get(state, "")
    return DoctorCheck("shared", WARN if fix else OK, summary, fix, facts={"pid": status["pid"]})


def grammars() -> DoctorCheck:
    """Parse a text, to check that tree-sitter and its grammars fit together."""
    try:
        from speclsp.lsp.syntax.parser import SyntaxParser

        tree = SyntaxParser().parse("python", KNOWN_HOLE, 1000)
    except (ImportError, ValueError, TypeError) as error:  # a grammar of another ABI
        return DoctorCheck("grammars", WARN, str(error), "python -m pip install -U tree-sitter-python")
    return DoctorCheck("grammars", OK if tree else WARN, "python parses" if tree else "python did not parse")


def device(config: Config) -> DoctorCheck:
    """Check the model's device and report its free memory."""
    from speclsp.engine.loading import load_plan

    cpus, memory = process_resources.cpus(), process_resources.memory()
    facts: dict[str, object] = {"free_mib": memory.free_mib, "cores": cpus.cores}
    facts |= {"cpu_quota": cpus.quota, "memory_limit_mib": memory.limit_mib}
    chosen, problem = gpus.pick_device(config.device)
    if config.device.startswith("cuda") and chosen == "cpu":
        _, reason, fix = gpus.find_gpu(config.device)
        return DoctorCheck("device", FAIL, f"{reason}: {fix}", 'device = "auto"')
    if chosen != "cpu":
        name, free = load_plan.describe_device(chosen, 0), process_resources.free_mib(chosen)
        summary = f"{name}, {free} MiB free" + (f"; {problem}" if problem else "")
        return DoctorCheck("device", WARN if problem else OK, summary, facts=facts | {"gpu_free_mib": free})
    from speclsp.engine.model.int8 import native
    from speclsp.engine.model.int8.library import load_problem
    from speclsp.engine.model.int8.peaks import measure_peaks

    try:
        native.use(config.engine.cpu_path)
    except SpeclspError as error:
        return DoctorCheck("device", FAIL, str(error), 'engine.cpu_path = "auto"')
    path, speed = native.best_path(), ""
    problem = " ".join(filter(None, (problem, load_problem(native.best_path()))))
    if path:
        facts |= {"path": path}
        try:
            peaks = measure_peaks(path, load_plan.cpu_threads(config), turns=1)
            facts |= {"peaks": asdict(peaks)}
            speed = f"; {peaks.text}"
        except MemoryError as error:
            speed = f"; {error}"
    instructions = path or "no compiled forward pass"
    quota = f", a quota of {cpus.quota:g} CPUs" if cpus.quota is not None and cpus.quota < cpus.logical else ""
    limit = f" of a limit of {memory.limit_mib} MiB" if memory.limit_mib is not None else ""
    cores = f"{cpus.cores} core{'s'[: cpus.cores != 1]} ({instructions}){quota}"
    summary = f"cpu, {cores}, {memory.free_mib} MiB free{limit}{speed}" + (f"; {problem}" if problem else "")
    return DoctorCheck("device", WARN if problem else OK, summary, facts=facts)


def of_weights(config: Config, card: Card) -> Iterator[DoctorCheck]:
    """Check that the weights are here, and hash them."""
    from speclsp.weights import installation, locations, store

    for weights in complete.needed(config, card):
        began_s = time.monotonic()
        try:
            state = installation.state(weights, config.models_dir)
            if state in (installation.MISSING, installation.PARTIAL):
                fix = f"`speclsp models pull {card.name}`"
                if file := locations.local_gguf(weights, config.models_dir):
                    summary, fix = f"{weights.name} is here and not installed yet, {file}", f"{fix}, or the first start"
                else:
                    part = " completely" if state == installation.PARTIAL else ""
                    size = terminal.in_size(weights.download_bytes())
                    summary = f"{weights.name} is not downloaded{part} yet ({size})"
                yield DoctorCheck("weights", TODO, summary, fix)
                continue
            directory = store.path(weights, config.models_dir)
            result = store.verify(weights, config.models_dir)
        except (SpeclspError, OSError) as error:
            yield DoctorCheck("weights", FAIL, message(error), f"`speclsp models pull {card.name}`")
            continue
        seconds = time.monotonic() - began_s
        yield DoctorCheck("weights", OK, f"{weights.name} is checked in {seconds:.1f} s: {result}, {directory}")


def of_adapters(config: Config, card: Card) -> DoctorCheck:
    """Check the adapters that the settings select for the model and its draft model."""
    from speclsp.engine.loading import adapter_choice

    summary, problem = adapter_choice.describe(config, complete.needed(config, card))
    fix = "follow the message" if problem else ""
    return DoctorCheck("adapter", WARN if problem else OK, problem or summary, fix)


def of_confidence(card: Card) -> Iterator[DoctorCheck]:
    """Report a model whose confidence is not calibrated."""
    from speclsp.lsp.completion.confidence import CURVES, UNJUDGED

    if card.name not in CURVES and card.name not in UNJUDGED:
        summary = f"{card.name} has no curve of its own: its plain log-probability decides what is shown"
        yield DoctorCheck("confidence", OK, summary)


def completion(config: Config, card: Card | None) -> Iterator[DoctorCheck]:
    """Load the model and complete a hole whose answer is known."""
    offline = settings.parse({"engine.offline": True, "completion.max_tokens_single_line": 8}, config)[0]
    began_s = time.monotonic()
    with terminal.progress() as bar:
        completer, _ = complete.open_engine(offline, bar, card)
    about, seconds = complete.about(completer), time.monotonic() - began_s
    loaded = f"{about['target']} on {about['device']} loaded in {seconds:.1f} s"
    yield DoctorCheck("engine", OK, loaded, facts=about)
    if card is not None and card.draft is not None and about["draft"]:
        yield DoctorCheck("tokenizer", OK, f"{card.target.name} and {card.draft.name} share it")
    yield from guarded("completion", partial(known_completion, completer, offline))
    yield from guarded("speed", partial(measured_speed, completer, config))


def known_completion(completer: Completer, config: Config) -> DoctorCheck:
    """Check the suggestion at a hole whose answer is known."""
    fix = "run `speclsp models verify`; a model not trained for fill-in-the-middle cannot complete it"
    text = known_hole(completer, config)
    good = KNOWN_ANSWER in text or (bool(text) and completer.target.startswith(UNTRAINED))
    drafted = complete.about(completer)["draft"] or "n-grams of the text"
    summary = f"{KNOWN_HOLE!r} is completed with {text!r}; drafts: {drafted}"
    return DoctorCheck("completion", OK if good else FAIL, summary, "" if good else fix)


def measured_speed(completer: Completer, config: Config) -> DoctorCheck:
    """Check the times of completions."""
    numbers = speed(completer, config)
    first, next_ms = numbers["first_ms"], numbers["next_ms"]
    summary = (
        f"{numbers['ms_per_token']} ms per token; {first} ms for the first completion in a file, then {next_ms} ms"
    )
    slow = next_ms > SLOW_MS
    hint = "close other programs, or choose a smaller model (`speclsp models list`)" if slow else ""
    return DoctorCheck("speed", WARN if slow else OK, summary, hint, facts=dict(numbers))


def known_hole(completer: Completer, config: Config) -> str:
    """The suggestion at KNOWN_HOLE, which should contain KNOWN_ANSWER."""
    hole = complete.prepare(complete.snapshot_of(Path("add.py"), KNOWN_HOLE, len(KNOWN_HOLE)), config)
    if not isinstance(hole, complete.CompletionPoint):
        return hole.reason.meaning
    return complete.answer(completer, hole).text


def speed(completer: Completer, config: Config) -> dict[str, float]:
    """Milliseconds for a one-line completion in a file of usual size: with a new prompt, then with a cached one.

    The file is SAMPLE, which never changes, so that figures of different versions and machines compare.
    """
    before, after = SAMPLE.read_text(encoding="utf-8").split(SAMPLE_MARK)
    point = complete.prepare(complete.snapshot_of(Path("stations.py"), before + after, len(before)), config)
    if not isinstance(point, complete.CompletionPoint):
        return {"ms_per_token": 0.0, "first_ms": 0.0, "next_ms": 0.0}
    cold = replace(point, request=replace(point.request, cache_prompt=False))
    results = [complete.answer(completer, request).result for request in (cold, cold, point, point)]
    fastest = min(results, key=lambda result: result.decode_ms)
    return {
        "ms_per_token": round(fastest.decode_ms / max(len(fastest.tokens), 1), 1),
        "first_ms": round(results[1].prompt_ms + results[1].decode_ms),
        "next_ms": round(results[3].prompt_ms + results[3].decode_ms),
    }
