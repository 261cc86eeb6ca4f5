"""pyproject.toml: each dependency has one lower bound, and constraints.txt has a version that satisfies it."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.source_tree import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REQUIREMENTS = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
REQUIREMENTS += PROJECT["project"]["optional-dependencies"]["gpu"]
TESTED = {
    canonicalize_name(tested.name): next(iter(tested.specifier)).version
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    if line.strip() and not line.startswith("#")
    for tested in [Requirement(line)]
}


def script():
    """tests/lower_bounds.py as a module."""
    spec = importlib.util.spec_from_file_location("lower_bounds", ROOT / "tests/lower_bounds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_a_requirement_has_one_lower_bound_and_the_tested_version_satisfies_it(requirement: str):
    pinned = Requirement(script().pinned(requirement))
    [bound] = pinned.specifier
    parsed = Requirement(requirement)
    assert (pinned.name, str(pinned.marker), bound.operator) == (parsed.name, str(parsed.marker), "==")
    assert parsed.specifier.contains(bound.version)
    name = canonicalize_name(parsed.name)
    assert name not in TESTED or parsed.specifier.contains(TESTED[name])


@pytest.mark.parametrize("requirement", ["name", "name<2", "name>=1,>=2"])
def test_a_requirement_without_one_lower_bound_is_refused(requirement: str):
    with pytest.raises(ValueError, match=r"lower bounds: give it one with >=\."):
        script().pinned(requirement)


def test_every_dependency_is_pinned_for_the_soak():
    build, dependencies = script().lower_bounds(PROJECT)
    assert len(build) + len(dependencies) == len(REQUIREMENTS)
