"""Hunks between two releases: all of them applied to the older text give the newer one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.quality import edits

lines = st.lists(st.sampled_from(["alpha = 1", "beta(2)", "    gamma.delta", "", "return epsilon"]), max_size=12)
texts = lines.map(lambda listed: "".join(line + "\n" for line in listed))


@settings(deadline=None, max_examples=60)
@given(texts, texts)
def test_applying_all_hunks_gives_the_newer_text(old: str, new: str) -> None:
    assert edits.made_of(old, edits.hunks(old, new)) == new
