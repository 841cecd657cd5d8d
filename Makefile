# Everything starts here: `make demo` to see it run, `make test` to check it, `make help` for the rest.
# Each target first creates .venv and installs the versions pinned in constraints.txt, once.

VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
WORKERS ?= 2
ARGS    ?=

# The first interpreter that runs, is new enough and can create environments. Override: make PYTHON=...
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## train, save, load and use a small network on handwritten digits
	$(BIN)/python examples/digits/train.py $(ARGS)

test: $(READY) ## run all tests (ARGS="-k name" to choose)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(READY) ## style and types: ruff, mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY) ## rewrite the sources in the project's layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## measure speed; figures go to bench/results
	$(BIN)/python bench/import_time.py

clean: ## remove the environment, caches and everything that was generated
	rm -rf $(VENV) .venv-* build dist output src/*.egg-info compat/*.egg-info compat/build
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml compat/pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "FleetX needs Python 3.11 or newer with the venv module, and none was found:" \
		"install one (Debian, Ubuntu: apt install python3.11 python3.11-venv) or name it: make PYTHON=/path/to/python"; exit 1; }
	@echo "Setting up $(VENV) with PyTorch and the tools: once, about a minute plus the download."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt setuptools torch==2.13.0
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]' -e compat
	@touch $@
