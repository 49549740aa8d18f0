# Everything for people: `make help`. Each target does its own set-up and repeats quickly.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := wattpack gpu actuator telemetry capacity forecasting controller scheduler_plugin console simulation
RUN := $(BIN)/python
ARGS ?=
.DEFAULT_GOAL := help
.PHONY: help demo test test-long mutations lint types format generate check-generated lock bench screenshots clean dashboard

help: ## list every target
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | sort | awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'

demo: $(VENV)/.runtime dashboard ## start everything on this machine against the twin (options: ARGS="…")
	@$(BIN)/wattpack demo $(ARGS)

test: $(VENV)/.dev dashboard ## every test tier that this machine can run; says at its end which ran
	@tests/run.sh $(ARGS)

test-long: $(VENV)/.dev dashboard ## the long forms too
	@LONG=1 tests/run.sh $(ARGS)

mutations: $(VENV)/.dev dashboard ## take guards away one by one and see a test turn red (ARGS="forecasting:")
	@PATH="$(CURDIR)/.cache/tools/bin:$$PATH" $(RUN) tools/mutations.py $(ARGS)

lint: $(VENV)/.dev ## ruff, format, import contracts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

types: $(VENV)/.dev ## mypy --strict
	@$(BIN)/mypy $(PACKAGES) benchmarks

format: $(VENV)/.dev ## format the code
	@$(BIN)/ruff check --fix-only . && $(BIN)/ruff format .

generate: $(VENV)/.dev ## write CRDs, wire messages and generated reference pages
	@$(RUN) -m wattpack.generate && $(RUN) tools/metrics_page.py && $(RUN) -m simulation.reference

check-generated: $(VENV)/.dev ## fail if something generated is stale
	@$(RUN) -m wattpack.generate --check && $(RUN) tools/metrics_page.py --check && $(RUN) -m simulation.reference --check

bench: $(VENV)/.dev ## run one benchmark: make bench NAME=allocation_scale ARGS="--quick"
	@test -n "$(NAME)" || { $(RUN) -m benchmarks --list; exit 2; }
	@$(RUN) -m benchmarks $(NAME) $(ARGS)

screenshots: $(VENV)/.dev dashboard system-tools ## take the console's pictures in docs/images anew
	@WATTPACK_UPDATE_SCREENSHOTS=1 $(RUN) -m pytest -q -p no:cacheprovider -m browser tests/console

lock: $(VENV)/.dev ## resolve requirements/*.in into locked versions with hashes (needs uv)
	@for set in dev runtime; do \
	  uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	    $$( [ $$set = runtime ] && echo "-c requirements/dev.lock" ) requirements/$$set.in -o requirements/$$set.lock; done

clean: ## remove what this Makefile built
	@rm -rf $(VENV) .cache build console/web/node_modules

$(VENV)/bin/python:
	@echo "creating the project's own environment in $(VENV)"
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing what the product imports (first time: about a minute)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.lock
	@$(RUN) tools/link.py
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing what building and testing need (first time: about a minute)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(RUN) tools/link.py
	@touch $@ $(VENV)/.runtime

# The front end: built once by Node, again when its sources change.
DASHBOARD_SOURCES := $(shell find console/web/src console/web/index.html console/web/package.json console/web/package-lock.json console/web/*.ts -type f 2>/dev/null)
dashboard: console/web/static/index.html ## build the front end
console/web/static/index.html: $(DASHBOARD_SOURCES)
	@echo "building the dashboard (first time: about half a minute)"
	@cd console/web && npm ci --silent --no-audit --no-fund --no-progress && npm run --silent build

include tests/cluster/tools.mk
