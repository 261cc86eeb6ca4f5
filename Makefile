# speclsp from nothing: every target makes what it needs (.venv, the packages, the model) and does it once.
# Needs GNU make, Python >= 3.10 and, the first time, a package index. PYTHON=python3.12 picks another interpreter.

SHELL  := bash
PYTHON ?= python3
PAIR   ?= auto
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt
TEST_PAIR := qwen2.5-coder-0.5b-instruct

.DEFAULT_GOAL := help
.PHONY: help demo test lint type clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.installed  ## fetch a model, complete code with it, and show that speculation changes the time and not the text
	@$(BIN)/speclsp demo --pair '$(PAIR)'

test: lint type  ## everything CI runs: lint, types, the model once, all tests with coverage
	@$(BIN)/speclsp models pull $(TEST_PAIR)
	@$(BIN)/python -m pytest --cov --cov-branch --cov-report=term

lint: .venv/.installed-dev  ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

type: .venv/.installed-dev  ## mypy --strict
	@$(BIN)/mypy

clean:  ## remove what was made here; weights in the user's cache stay
	rm -rf .venv build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.venv/bin/python:
	@command -v '$(PYTHON)' >/dev/null || { echo "$(PYTHON) was not found: install Python 3.10 or newer, or name one: make $(MAKECMDGOALS) PYTHON=..."; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$$('$(PYTHON)' --version) is too old: speclsp needs 3.10 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@'$(PYTHON)' -m venv .venv

# The stamps are younger than what they depend on, so a second run starts no pip and opens no connection.
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing speclsp and its dependencies into .venv (once, a few minutes)"
	@$(PIP) -e .
	@touch $@

.venv/.installed-dev: .venv/.installed
	@$(PIP) -e '.[dev]'
	@touch $@
