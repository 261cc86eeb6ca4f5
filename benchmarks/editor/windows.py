"""One shared engine: two VS Code windows and a Neovim use it and are closed in every way, and then it exits.

    python -m benchmarks windows [--model NAME] [--grace SECONDS]

Prints a log of what happened, with the processes and their memory after each step: the running processes, the
number of the engine's leases, and the free memory. Each step waits for its expected state; one that is not reached ends
the run with exit code 1. The editors are those of tests/support/editors/install.py, the extension `make vsix`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from support.editors import install
from support.editors import vscode_screen as editor
from support.editors.nvim_session import SPECLSP, NvimSession

from benchmarks import results_file
from benchmarks.editor.latency import BEFORE, OWN, PLAIN_KEYS
from benchmarks.results_file import CHECKOUT
from speclsp import process_resources
from speclsp.daemon import endpoint

PAIR = "qwen2.5-coder-0.5b-instruct"
PATIENCE_S = 120.0
MIB = 2**20
TYPED = "    def withdraw(self, amount):\n        if amount > "


class Story:
    """Log of the run, step by step, printed and kept for the result file."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.steps: list[dict[str, object]] = []
        self.log: list[str] = []  # output of the engines

    def tell(self, what: str, **more: object) -> None:
        """One step, with the machine as it is now."""
        engine = the_engine()
        servers = language_servers()
        step = {
            "s": round(time.monotonic() - self.start, 1),
            "what": what,
            "engine_pid": engine.pid if engine else None,
            "engine_mib": uss_mib(engine) if engine else 0,
            "engines": len(engines()),
            "clients": clients() if engine else 0,
            "servers": len(servers),
            "servers_mib": sum(map(uss_mib, servers)),
            "free_mib": process_resources.memory().free_mib,
            **more,
        }
        self.steps.append(step)
        memory = f"engine {step['engine_mib']} MiB, servers {step['servers_mib']} MiB"
        print(
            f"{step['s']:>7.1f} s  {what:<58} {step['engines']} engine, {step['clients']} leases, "
            f"{step['servers']} servers; {memory}; {step['free_mib']} MiB free",
            flush=True,
        )


def engines() -> list[psutil.Process]:
    """Every engine of this run."""
    return processes("engine")


def language_servers() -> list[psutil.Process]:
    """Every `speclsp lsp` of this run, without the tap before it."""
    return processes("lsp")


def processes(command: str) -> list[psutil.Process]:
    """Python processes that run `speclsp COMMAND` and share our runtime directory."""
    matching = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            ours = process.environ().get("XDG_RUNTIME_DIR") == os.environ["XDG_RUNTIME_DIR"]
        except psutil.Error:
            continue
        named = [at for at, word in enumerate(words[:-1]) if Path(word).name == "speclsp" and words[at + 1] == command]
        if ours and named and "lsp_tap.py" not in " ".join(words):
            matching.append(process)
    return matching


def the_engine() -> psutil.Process | None:
    """The one that engine.json tells of, while it lives."""
    record = endpoint.find()
    try:
        process = psutil.Process(record.pid) if record else None
        return process if process and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def clients() -> int:
    """Number of client connections (leases) that the engine counts."""
    status = subprocess.run([SPECLSP, "engine", "status", "--json"], capture_output=True, text=True, check=False)
    try:
        leases = json.loads(status.stdout)["clients"]
    except (ValueError, KeyError):
        return 0
    return len(leases) if isinstance(leases, list) else int(leases)


def uss_mib(process: psutil.Process) -> int:
    """Memory that would be free if it ended."""
    try:
        return int(process.memory_full_info().uss // MIB)
    except psutil.Error:
        return 0


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"waited {PATIENCE_S:.0f} s in vain: {what}")
        time.sleep(0.1)


def write(window: editor.Window) -> None:
    """Type in a VS Code window until it shows a suggestion that the wire agrees with."""
    window.focus()
    window.press("Control+End")
    window.type(TYPED, pace_ms=60)
    window.agreed()


def write_in_neovim(seat: NvimSession) -> None:
    seat.keys("Go<C-U>" + TYPED.replace("\n", "<CR>").replace("<CR>        ", "<CR><C-U>        "))
    seat.answered()


def server_of(parent_words: str) -> psutil.Process:
    """The language server whose ancestors' command lines have these words."""
    for server in language_servers():
        lineage = " ".join(word for process in server.parents() for word in process.cmdline())
        if parent_words in lineage:
            return server
    raise SystemExit(f"no language server under {parent_words}")


def share_with_neovim(story: Story, pid: int, model: str, grace_s: float, root: Path) -> None:
    """Two Neovim sessions use the windows' engine, whose process is `pid`: one is killed, the other one quits."""
    arguments = ("--model", model, "--set", f"engine.shutdown_delay_seconds={grace_s}")
    with NvimSession(install.install("nvim-0.12"), root / "n", OWN, *arguments, lawful=False) as seat:
        seat.open("account.py", BEFORE)
        seat.ready()
        write_in_neovim(seat)
        until(lambda: clients() == 3, "three leases")
        story.tell("Neovim: a suggestion is answered")
        assert the_engine().pid == pid and len(engines()) == 1  # type: ignore[union-attr]
        seat.process.send_signal(signal.SIGKILL)
        until(lambda: clients() == 2, "Neovim's lease ends")
        story.tell("Neovim was killed (kill -9)")
    with NvimSession(install.install("nvim-0.12"), root / "q", OWN, *arguments, lawful=False) as seat:
        seat.open("account.py", BEFORE)
        seat.ready()
        until(lambda: clients() == 3, "three leases again")
        seat.normal()
        seat.keys(":qa!<CR>")
        until(lambda: clients() == 2, "the second Neovim's lease ends")
        story.tell("another Neovim was opened and quit (:qa!)")


def wait_for_exit(story: Story, grace_s: float) -> None:
    """Wait until the engine has ended, after its idle shutdown delay."""
    last = time.monotonic()
    until(lambda: not engines(), "the engine leaves")
    story.tell(f"the engine has left (grace {grace_s:g} s)", after_last_lease_s=round(time.monotonic() - last, 1))


def keep_engine_logs(story: Story, *folders: Path) -> None:
    """Print the engines' own logs below some folders, and keep them in `story`."""
    print("\nthe engine's own log:")
    for log in (file for folder in folders for file in folder.rglob("engine.log")):
        text = log.read_text(encoding="utf-8").replace(os.environ["XDG_RUNTIME_DIR"], "$XDG_RUNTIME_DIR")
        story.log += text.splitlines()
    print("\n".join(story.log))


def run(model: str, grace_s: float, root: Path) -> Story:
    story = Story()
    os.environ["XDG_RUNTIME_DIR"] = str(root / "run")
    (root / "run").mkdir(mode=0o700)
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    programs = {name: install.install(name) for name in ("node", "code-server", "chromium")}
    shared = {"XDG_CACHE_HOME": cache, "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]}
    story.tell("nothing runs")
    with (
        editor.browsing(programs["chromium"]) as browser,
        editor.running(programs, CHECKOUT / "build/speclsp.vsix", browser, **shared) as studio,
    ):
        server = studio.server
        ours = {**server.ours, "speclsp.model": model, "speclsp.engine.shutdown_delay_seconds": grace_s}
        server.settings(ours, PLAIN_KEYS)
        first = studio.window(studio.folder(account_py=BEFORE), "account.py")
        first.says("ready", patience_s=300)
        write(first)
        story.tell("VS Code, first window: a suggestion is shown")
        pid = the_engine().pid  # type: ignore[union-attr]
        second = studio.window(studio.folder(account_py=BEFORE), "account.py")
        second.says("ready", patience_s=300)
        write(second)
        story.tell("VS Code, second window: a suggestion is shown")
        share_with_neovim(story, pid, model, grace_s, root)
        write(first)
        story.tell("the first window goes on")
        server_of(str(server.root)).kill()
        until(lambda: clients() == 1, "the killed server's lease ends")
        story.tell("a window's language server was killed (kill -9)")
        until(lambda: clients() == 2, "the extension starts the server again")
        story.tell("the extension has started it again")
        engine = the_engine()
        assert engine is not None and engine.pid == pid
        engine.kill()
        until(lambda: the_engine() is not None and the_engine().pid != pid and clients() == 2, "a new engine")  # type: ignore[union-attr]
        first.says("ready", patience_s=300)
        second.says("ready", patience_s=300)
        story.tell("the engine was killed (kill -9): one new engine for both")
        pid = the_engine().pid  # type: ignore[union-attr]
        write(first)
        second.close()
        until(lambda: clients() == 1, "the second window's lease ends")
        story.tell("the second window was closed")
        first.close()
        until(lambda: clients() == 0, "the last lease ends")
        story.tell("the last window was closed")
        wait_for_exit(story, grace_s)
        keep_engine_logs(story, server.root, root)
    return story


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks windows`."""
    parser.add_argument("--model", default=PAIR, metavar="NAME")
    parser.add_argument("--grace", type=float, default=10.0, metavar="SECONDS", help="engine.shutdown_delay_seconds")


def main(options: argparse.Namespace) -> int:
    """Exit code 0; a step that does not happen in time ends the run with 1."""
    with tempfile.TemporaryDirectory(prefix="win-") as folder:
        story = run(options.model, options.grace, Path(folder))
    print(
        results_file.write(
            "windows", {"pair": options.model, "grace_s": options.grace, "steps": story.steps, "log": story.log}
        )
    )
    return 0
