"""Isolates every test from the user's settings, logs, sockets and caches; provides the real weights to marked tests.

A test marked `real` uses the user's weights cache (`make test` downloads them once). All other tests see an empty
cache. A test that leaves an engine running fails, and the engine is stopped.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores, and threads that wait for a core take time

from windows.harness.program import IS_FOREIGN, end_processes

import speclsp.engine  # noqa: F401 - before any test imports torch: it sets the OpenMP wait policy
from speclsp.errors import EngineError

pytest_plugins = ["promises", "async_tests"]

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ci")

CACHE_VARIABLE = "SPECLSP_TESTS_USERS_CACHE"  # an xdist worker inherits the isolated XDG_CACHE_HOME of its controller
USERS_CACHE = os.environ.setdefault(CACHE_VARIABLE, os.environ.get("XDG_CACHE_HOME", ""))
# Zig builds the libraries of its compiler for each machine once; a cache of each test's own would build them again.
os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(Path(USERS_CACHE or "~/.cache").expanduser() / "zig"))
SHARE_OF_EXAMPLES, MIN_EXAMPLES = 0.25, 2  # of a law's, without --soak
ENGINE_EXIT_S = 60.0  # for an engine whose last client has disconnected
VARIABLES = {  # no "con", which Windows reserves
    "XDG_CONFIG_HOME": "cfg",
    "XDG_STATE_HOME": "sta",
    "XDG_RUNTIME_DIR": "run",
    "XDG_CACHE_HOME": "cac",
}
ONE_WORKER = "tests/editors/vscode"
# Parallel workers get whole files in this order: files that take minutes first, so no worker ends with one.
SLOW_FIRST = (
    ONE_WORKER,
    "tests/editors",
    "tests/faults/messages",
    "tests/faults/processes",
    "tests/faults",
    "tests/lsp",
    "tests/engine",
)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of the soak to `--soak`, and order files by SLOW_FIRST when xdist distributes them.

    A test that asks whether this is a soak is longer in one, so it belongs to the soak too.
    """
    if config.getoption("--soak"):
        for item in items:
            if "soak" in getattr(item, "fixturenames", ()):
                item.add_marker("soak")
    else:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
        for item in items:
            shorten(item)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((i for i, top in enumerate(SLOW_FIRST) if item.nodeid.startswith(top)), 99))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while modules are imported: they make none, and each collection walks over all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exempt all tests and modules from garbage collection: a full collection then takes milliseconds, not a second.

    The engine unfreezes all objects before it returns memory, and freezes them after. In a test process that would
    undo the exemption, so both do nothing from here on: what a test makes is not frozen, and is collected.
    """
    gc.collect()
    gc.freeze()
    gc.freeze = gc.unfreeze = lambda: None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one worker all files of VS Code, which share a code-server; other files go to any worker."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneEditorScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return ONE_WORKER if nodeid.startswith(ONE_WORKER) else super()._split_scope(nodeid)

    return OneEditorScheduling(config, log)


def shorten(item: pytest.Item) -> None:
    """Give a law a part of its examples; they are the same in each run, and the soak has all."""
    law = getattr(item, "obj", None)
    law = getattr(law, "__func__", law)
    given = getattr(law, "_hypothesis_internal_use_settings", None)
    if given is not None and not hasattr(law, "shortened"):
        fewer = min(given.max_examples, max(MIN_EXAMPLES, round(given.max_examples * SHARE_OF_EXAMPLES)))
        law._hypothesis_internal_use_settings = hypothesis.settings(given, max_examples=fewer)
        law.shortened = True


def isolate(root: Path) -> dict[str, str]:
    """{variable: new private directory under `root`}. Short names: a Unix socket's path has 103 bytes."""
    directories = {name: root / short for name, short in VARIABLES.items()}
    for directory in directories.values():
        directory.mkdir(mode=0o700)
    return {name: str(directory) for name, directory in directories.items()}


def pytest_configure(config: pytest.Config) -> None:
    """Isolate the time between tests too: fixtures of a wider scope start processes there."""
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    config.add_cleanup(lambda: shutil.rmtree(root, ignore_errors=True))
    config.add_cleanup(lambda: stop_engines(root))
    os.environ.update(isolate(root))


def stop_engines(root: Path) -> list[str]:
    """Stop the engines under `root` without a client; else kill all engines started there. Returns their commands."""
    if IS_FOREIGN:
        return end_processes(lambda: processes_under(root))
    if not list(root.glob("run/speclsp/engine-*.lock")):
        return []
    from speclsp.daemon import control, engine_files

    until_s = time.monotonic() + ENGINE_EXIT_S
    while running := [files for files in engine_files.present() if files.is_locked()]:
        engines = [engine for files in running if (engine := files.read()) is not None]
        if time.monotonic() > until_s:  # a fork of warm_server.py has the environment of its parent in /proc
            return [kill(pid) for pid in {*processes_under(root), *(engine.pid for engine in engines)}]
        for engine in engines:
            with suppress(OSError, EngineError):
                control.ask(engine, "POST", "/leave")  # otherwise it waits for a first client or its idle delay
        time.sleep(0.05)
    return []


def processes_under(root: Path) -> list[int]:
    """Processes that were started with a runtime directory under `root` (Linux)."""
    variable = b"XDG_RUNTIME_DIR=" + os.fsencode(root / "run")
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


def kill(pid: int) -> str:
    """Kill a process; return its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return f"process {pid}"
    return " ".join(words)


def use_users_cache(patch: pytest.MonkeyPatch) -> None:
    """Point the cache at the user's own directory again."""
    if USERS_CACHE:
        patch.setenv("XDG_CACHE_HOME", USERS_CACHE)
    else:
        patch.delenv("XDG_CACHE_HOME", raising=False)


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Fresh private directories for settings, logs, sockets and caches; yields their root."""
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    for name, directory in isolate(root).items():
        monkeypatch.setenv(name, directory)
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    if request.node.get_closest_marker("real"):
        use_users_cache(monkeypatch)
    yield root
    left_running = stop_engines(root)
    shutil.rmtree(root, ignore_errors=True)
    assert not left_running, f"the test left engines running; they were killed: {left_running}"


@pytest.fixture(scope="session")
def coder_0_5b() -> Path:
    """The directory of Qwen2.5-Coder-0.5B-Instruct, downloaded once; for tests marked `real`."""
    from speclsp.weights import cards, store

    with pytest.MonkeyPatch.context() as patch:
        use_users_cache(patch)
        return store.ensure(cards.load("qwen2.5-coder-0.5b-instruct").target)


@pytest.fixture(scope="session")
def qemu_aarch64() -> Path:
    """The emulator of ARM64, installed into the user's cache once."""
    from support.editors import install

    with pytest.MonkeyPatch.context() as patch:
        use_users_cache(patch)
        return install.install("qemu-aarch64")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One torch thread, for modules with small models, which are slower on two."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
