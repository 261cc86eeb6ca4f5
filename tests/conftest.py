"""Keeps every test out of the user's own settings, logs, sockets and caches, and hands the real weights to some.

A test marked `real` sees the user's weights cache (fetched once by `make test`); all others see an empty one. A test
that leaves an engine behind fails, and the engine is ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest

import speclsp.engine  # noqa: F401 - before any test imports torch: it sets how OpenMP waits
from speclsp.errors import EngineError

pytest_plugins = ["promises"]

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ci")

USERS_CACHE = os.environ.get("XDG_CACHE_HOME")
LEAVING_S = 10.0  # for an engine whose last user has gone
PLACES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME")


def isolate(root: Path) -> dict[str, str]:
    """{variable: new private directory under `root`}. Short names: a Unix socket's path has 103 bytes."""
    places = {name: root / name.split("_")[1][:3].lower() for name in PLACES}
    for place in places.values():
        place.mkdir(mode=0o700)
    return {name: str(place) for name, place in places.items()}


def pytest_configure(config: pytest.Config) -> None:
    """Isolate what runs between tests too: fixtures of a wider scope start processes there."""
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    config.add_cleanup(lambda: shutil.rmtree(root, ignore_errors=True))
    config.add_cleanup(lambda: end_engines(root))
    os.environ.update(isolate(root))


def end_engines(root: Path) -> list[str]:
    """End the engine under `root`, if nobody uses it; else kill all that were started there, and say what they are."""
    if not (root / "run" / "speclsp" / "engine.lock").exists():
        return []
    from speclsp.daemon import control, endpoint

    until_s = time.monotonic() + LEAVING_S
    while endpoint.is_locked():
        if time.monotonic() > until_s:
            return [kill(pid) for pid in users_of(root)]
        with suppress(OSError, EngineError):
            found = endpoint.find()
            if found is not None:
                control.ask(found, "POST", "/leave")  # it waits for its first user, or for the end of its grace
        time.sleep(0.05)
    return []


def users_of(root: Path) -> list[int]:
    """Processes that were started with a runtime directory under `root`."""
    mine = b"XDG_RUNTIME_DIR=" + os.fsencode(root / "run")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mine in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill(pid: int) -> str:
    """Kill it; its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return f"process {pid}"
    return " ".join(words)


def use_users_cache(patch: pytest.MonkeyPatch) -> None:
    """Point the cache at the user's own again."""
    if USERS_CACHE is None:
        patch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        patch.setenv("XDG_CACHE_HOME", USERS_CACHE)


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh private place for settings, logs, sockets and caches; yields its root."""
    root = Path(tempfile.mkdtemp(prefix="spec-"))
    for name, place in isolate(root).items():
        monkeypatch.setenv(name, place)
    if request.node.get_closest_marker("real"):
        use_users_cache(monkeypatch)
    yield root
    left = end_engines(root)
    shutil.rmtree(root, ignore_errors=True)
    assert not left, f"left behind by the test, and killed: {left}"


@pytest.fixture(scope="session")
def coder_0_5b() -> Path:
    """The directory of Qwen2.5-Coder-0.5B-Instruct, fetched and converted once; for tests marked `real`."""
    from speclsp.weights import cards, store

    with pytest.MonkeyPatch.context() as patch:
        use_users_cache(patch)
        return store.ensure(cards.load("qwen2.5-coder-0.5b-instruct").target)
