"""Runs each `async def` test in an event loop of its own, for a minute at most, and then the checks that it registered.

A test with hypothesis is a plain function: it calls `run` for each example.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest

LIMIT_S = 60.0
_at_end: list[Callable[[], object]] = []


def check_at_end(check: Callable[[], object]) -> None:
    """Call `check`, which may raise AssertionError, in the event loop at the end of the running test or example."""
    _at_end.append(check)


def run(work: Awaitable[object]) -> None:
    """Run `work` in an event loop of its own, then the registered checks."""

    async def run_and_check() -> None:
        await asyncio.wait_for(work, LIMIT_S)
        for check in _at_end:
            check()

    try:
        asyncio.run(run_and_check())
    finally:
        _at_end.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True
