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
.PHONY: help demo test lint format bench interop clean

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

interop: $(READY) $(VENV)-paddle262/.ready $(VENV)-paddle185/.ready ## compare with real Paddle, numbers and files
	PADDLE262=$(CURDIR)/$(VENV)-paddle262/bin/python PADDLE185=$(CURDIR)/$(VENV)-paddle185/bin/python \
		OMP_NUM_THREADS=1 $(BIN)/python -m pytest interop $(ARGS)

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

# Real Paddles, each in an environment of its own: they want other versions of NumPy and protobuf.
$(VENV)-paddle262/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q paddlepaddle==2.6.2 numpy==1.26.4 protobuf==4.25.9 setuptools==84.2.1
	@touch $@

# 1.8.5 is the version of the documents and needs Python 3.7.
PYTHON37 ?= $(shell for p in python3.7 $(HOME)/.pyenv/versions/3.7.*/bin/python; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 7))' 2>/dev/null && echo $$p && break; done)

$(VENV)-paddle185/.ready:
	@test -n "$(PYTHON37)" || { echo "Paddle 1.8.5 needs Python 3.7, and none was found:" \
		"install one (pyenv install 3.7) or name it: make interop PYTHON37=/path/to/python3.7"; exit 1; }
	$(PYTHON37) -m venv $(@D)
	$(@D)/bin/python -m pip install -q paddlepaddle==1.8.5 numpy==1.21.6 protobuf==3.20.3
	@touch $@
