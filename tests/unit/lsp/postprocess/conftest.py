"""Time for the syntax check: its verdicts must not depend on the speed of a machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from speclsp.lsp.postprocess import plan


@pytest.fixture(autouse=True, scope="package")
def time_enough() -> Iterator[None]:
    """Give the syntax check enough time on a slow machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CHECK_MS", 10_000.0)
        yield
