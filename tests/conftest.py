"""Keeps every test out of the user's own settings, logs, sockets and caches, and hands the real weights to some.

A test marked `real` sees the user's weights cache (fetched once by `make test`); all others see an empty one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import speclsp.engine  # noqa: F401 - before any test imports torch: it sets how OpenMP waits

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ci")

USERS_CACHE = os.environ.get("XDG_CACHE_HOME")
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
    os.environ.update(isolate(root))


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
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def coder_0_5b() -> Path:
    """The directory of Qwen2.5-Coder-0.5B-Instruct, fetched and converted once; for tests marked `real`."""
    from speclsp import cards, weights

    with pytest.MonkeyPatch.context() as patch:
        use_users_cache(patch)
        return weights.ensure(cards.load("qwen2.5-coder-0.5b-instruct").target)
