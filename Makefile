# speclsp from nothing: every target makes what it needs (.venv, the packages, the model) and does it once.
# Needs GNU make, Python >= 3.10 and, the first time, a package index. PYTHON=python3.12 picks another interpreter.

SHELL  := bash
# Tests start Python a thousand times: its compiled files are kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
MODEL  ?= auto
BIN    := .venv/bin
BENCH  := $(BIN)/python -m benchmarks
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt
# With an NVIDIA driver, the program is installed with PyTorch (the extra gpu). Tests have it on every machine: without a
# driver, the CPU build of PyTorch's own index, 0.7 GB on disk instead of several. An index that cannot be reached is a
# warning, and pip takes the build of the package index. PIP_ variables that name an index or links decide themselves.
DRIVER := $(wildcard /proc/driver/nvidia/version)
OWN_INDEX := $(PIP_INDEX_URL)$(PIP_EXTRA_INDEX_URL)$(PIP_FIND_LINKS)
TORCH  := $(if $(DRIVER)$(OWN_INDEX),,--extra-index-url https://download.pytorch.org/whl/cpu --retries 1)
TEST_MODEL := qwen2.5-coder-0.5b-instruct
LARGE_MODEL := qwen2.5-coder-1.5b-instruct
QUICK := build/bench-quick
QUALITY := full,plain

.DEFAULT_GOAL := help
.PHONY: help demo docs check test coverage soak windows lint type vsix dist .test-model .test-editors .test-quick .test-unit .test-windows bench bench-quick bench-quality gpu clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.installed  ## fetch a model, complete code with it, and show that speculation changes the time and not the text
	@$(BIN)/speclsp demo --model '$(MODEL)'

docs: .venv/.installed  ## write the generated pages: settings, command line, the editors' settings
	@$(BIN)/python docs/generate.py

# Workers get whole files: a file's tests share engines and editors. Tests wait more than they compute, so four workers
# keep two cores busy.
WORKERS ?= 4
XDIST   := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
UNIT    := $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/unit
# Unit tests run while the model, the editors and the extension are fetched. Those of these files use or list what is
# fetched, so they run after it.
AFTER_SETUP := tests/unit/repo/test_no_telemetry.py tests/unit/repo/test_citations.py tests/unit/benchmarks/editor/test_renames.py
FOLDERS := $(filter-out tests/unit/ tests/support/ tests/windows/ tests/__pycache__/,$(wildcard tests/*/))

check: .venv/.installed-dev  ## lint, types and the unit tests that are not slow (1.5 min on 2 cores)
	@$(MAKE) --no-print-directory -k -j3 .test-quick lint type

# Set-up steps wait for the network, so all run side by side, beside lint, types and unit tests. A failed step stops
# no other one.
SETUP := .test-editors .test-model build/speclsp.vsix .test-unit .test-windows lint type
test: .venv/bin/python  ## everything CI runs: lint, types, the model and the editors once, all tests (about 9 min on 2 cores)
	@code=0; $(MAKE) --no-print-directory -k -j8 $(SETUP) || code=$$?; \
	$(BIN)/python -m pytest -q $(XDIST) $(FOLDERS) $(AFTER_SETUP) || code=$$?; exit $$code

coverage: .venv/.installed-dev build/speclsp.vsix .test-model .test-editors  ## all tests, one after the other, with coverage
	@$(BIN)/python -m pytest --cov --cov-branch --cov-report=term

# One test at a time, because their figures are times; then those whose figures are memory and counts, side by side.
# Writes docs/reliability.md from the results. Then the lower bounds of pyproject.toml are installed and built.
SOAK := $(BIN)/python -m pytest -m "promise or soak or hypothesis" --soak --durations=12
SIDE_BY_SIDE := tests/faults/processes/test_no_leaks.py tests/faults/messages/test_fuzzed_messages.py
soak: .venv/.installed-dev build/speclsp.vsix .test-model .test-editors  ## promise tests, laws and long tests at full length (over 42 min on 2 cores), then windows
	@code=0; $(SOAK) $(SIDE_BY_SIDE:%=--ignore=%) || code=$$?; $(BIN)/python tests/promises.py; \
	$(SOAK) -n 4 --dist worksteal $(SIDE_BY_SIDE) || code=$$?; $(BIN)/python tests/promises.py --part; \
	$(BIN)/python tests/lower_bounds.py || code=$$?; \
	$(MAKE) --no-print-directory windows || code=$$?; exit $$code

# Wine and a Windows Python in the user's cache; nothing is installed into the system. SUITES="tests/lsp/protocol" runs a
# part. tests/windows/not_run.toml lists what cannot pass there.
windows: .venv/.installed-dev .test-model  ## the suites with the program of Windows under Wine (about an hour on 2 cores)
	@PYTHONPATH=tests $(BIN)/python -m windows.harness.run $(SUITES)

# The libraries for Windows, and one session of the language server with the model echo, without PyTorch.
.test-windows: .venv/.installed-dev
	@PYTHONPATH=tests $(BIN)/python -m windows.harness.run --light

.test-model: .venv/.installed-dev
	@$(BIN)/speclsp models pull $(TEST_MODEL)

.test-editors: .venv/bin/python
	@$(BIN)/python tests/support/editors/install.py --all

.test-quick: .venv/.installed-dev
	@$(UNIT) -m 'not slow'

.test-unit: .venv/.installed-dev
	@$(UNIT) $(AFTER_SETUP:%=--ignore=%)

lint: .venv/.installed-dev  ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

type: .venv/.installed-dev  ## mypy --strict
	@$(BIN)/mypy

# npm brings a few build tools, once; after that packaging needs no connection.
VSCODE := editors/vscode
NODE_BIN = $$($(BIN)/python tests/support/editors/install.py node)
NODE = node="$(NODE_BIN)" && export PATH="$$node:$$PATH"

vsix: build/speclsp.vsix  ## the VS Code extension, ready for `code --install-extension build/speclsp.vsix`

# The extension carries the server's wheel for this machine: it installs its own version, and a user needs no compiler.
SERVER := $(shell git ls-files speclsp models 2>/dev/null) pyproject.toml hatch_build.py constraints.txt
build/speclsp.vsix: $(SERVER) $(VSCODE)/node_modules/.installed $(wildcard $(VSCODE)/src/*.ts $(VSCODE)/walkthrough/*.md $(VSCODE)/images/*.* $(VSCODE)/*.md $(VSCODE)/*.json $(VSCODE)/.vscodeignore)
	@mkdir -p build
	@rm -rf $(VSCODE)/server && $(BIN)/python -m hatchling build -t wheel -d $(VSCODE)/server >/dev/null && cp constraints.txt $(VSCODE)/server
	@$(NODE) && cd $(VSCODE) && npm run -s package -- --target "$$(node -p 'process.platform + "-" + process.arch')" --out '$(CURDIR)/$@'

$(VSCODE)/node_modules/.installed: $(VSCODE)/package-lock.json | .venv/.installed-dev
	@$(NODE) && cd $(VSCODE) && npm ci --ignore-scripts --loglevel=error
	@touch $@

# REUSE_CACHES=1 uses the models of this machine; without it the tests download the 0.5B into an empty home directory.
dist: .test-editors $(VSCODE)/node_modules/.installed  ## what a release uploads, in dist/, installed in clean places and used (5 min, with 1.5 GB of downloads and those of a Windows Python)
	@$(NODE) && $(BIN)/python release/build_artifacts.py --node "$$node" --nvim "$$($(BIN)/python tests/support/editors/install.py nvim-0.11)"
	@SPECLSP_WINDOWS_PYTHON="$$(PYTHONPATH=tests $(BIN)/python -m windows.harness.install)" \
	$(BIN)/python -m pytest -q release

# A benchmark that fails (a text that differs, a peer that does not run) ends with 1. The others still run, and make names
# what failed. The quick run keeps its figures in build/bench-quick: those in benchmarks/results are from whole runs.
bench: .venv/.installed-dev  ## measure everything beside other engines (under 40 min on 2 cores, after their installation)
	@$(BIN)/speclsp models pull $(TEST_MODEL)
	@$(BIN)/speclsp models pull $(LARGE_MODEL)
	@$(BENCH) install-peers || true
	@failed=; trap 'exit 130' INT; \
	$(BENCH) completions --model $(TEST_MODEL) --holes 12 || failed="$$failed completions-0.5b"; \
	$(BENCH) completions --model $(LARGE_MODEL) --holes 4 || failed="$$failed completions-1.5b"; \
	$(BENCH) start --model $(TEST_MODEL) || failed="$$failed start"; \
	$(BENCH) lines --model $(TEST_MODEL) || failed="$$failed lines"; \
	$(BENCH) floor $(TEST_MODEL) $(LARGE_MODEL) || failed="$$failed floor"; \
	$(BENCH) peers --model $(TEST_MODEL) || failed="$$failed peers-0.5b"; \
	$(BENCH) peers --model $(LARGE_MODEL) --holes 4 || failed="$$failed peers-1.5b"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

bench-quick: .venv/.installed  ## the same for the 0.5B model in little, and with no peers (under 8 min on 2 cores)
	@$(BIN)/speclsp models pull $(TEST_MODEL)
	@failed=; trap 'exit 130' INT; \
	$(BENCH) completions --results $(QUICK) --model $(TEST_MODEL) --holes 6 || failed="$$failed completions"; \
	$(BENCH) lines --results $(QUICK) --model $(TEST_MODEL) --quick || failed="$$failed lines"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

# Packages and generated texts stay in the user's cache: a second run only scores the texts again.
bench-quality: .venv/.installed  ## suggestions beside what people wrote, 60 tasks, with and without other files and speculation
	@$(BIN)/speclsp models pull $(TEST_MODEL)
	@$(BIN)/python tests/support/editors/install.py node >/dev/null
	@$(BENCH) quality --model $(TEST_MODEL) --set quick --variants $(QUALITY)

gpu: .venv/.installed-dev .test-model  ## on a machine with a GPU: shares of its limit, rounds, tests, equal texts (at most 9 min)
	@$(BENCH) gpu

clean:  ## remove what was made here; weights in the user's cache stay
	rm -rf .venv build dist $(VSCODE)/node_modules $(VSCODE)/dist $(VSCODE)/server .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.venv/bin/python:
	@command -v '$(PYTHON)' >/dev/null || { echo "$(PYTHON) was not found: install Python 3.10 or newer, or name one: make $(MAKECMDGOALS) PYTHON=..."; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$$('$(PYTHON)' --version) is too old: speclsp needs 3.10 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@'$(PYTHON)' -m venv .venv

# The stamps are younger than what they depend on, so a second run starts no pip and opens no connection.
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing speclsp$(if $(DRIVER), with PyTorch for the GPU (5.9 GB on disk)) into .venv (once, a few minutes)"
	@$(PIP) -e '.$(if $(DRIVER),[gpu])'
	@touch $@

# One pip run for developers: it installs the package, too. A module is compiled when it is imported, and most of the
# 15,000 that are installed never are.
.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing speclsp and the development tools into .venv (once, a few minutes)"
	@$(PIP) $(TORCH) --no-compile -e '.[dev]'
	@touch .venv/.installed $@
