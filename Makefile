# Everything runs from .venv, which `install` makes and keeps up to date. `make help` lists the targets.

PYTHON ?= python3
SEEDS ?= 20000
CRASHES ?= 1000
ROUNDS ?= 4

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt

# Tests start hundreds of processes. Where the first is set, each would compile all of Outrider
# again; without the second, each would start a thread a core for linear algebra that it never does.
unexport PYTHONDONTWRITEBYTECODE
export OPENBLAS_NUM_THREADS = 1

# Scripts outside of pytest that use the servers and fleets of the tests.
WITH_SUPPORT := PYTHONPATH=$(CURDIR)/tests/support

.DEFAULT_GOAL := help
.PHONY: help install demo test stress cover check format twin reference bench bench-counts bench-crawl bench-listings bench-scorers bench-stores bench-waiters faults plans pooler soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with the pinned dependencies

# Hatchling comes first and builds without isolation: the builder is pinned like the rest, and
# installing again after an edit of pyproject.toml needs no network.
$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	        echo "Outrider needs Python 3.11 or newer, and '$(PYTHON)' is not. Name one that is: make PYTHON=python3.12" >&2; \
	        exit 1; \
	    }; \
	    echo "Making $(VENV)…"; \
	    $(PYTHON) -m venv --clear $(VENV); \
	}
	@echo "Installing Outrider and its tools into $(VENV)…"
	@$(PIP_INSTALL) hatchling
	@$(PIP_INSTALL) --no-build-isolation -e '.[all,dev]'
	@touch $@

demo: install ## crawl a synthetic web, served by this machine to itself
	@$(BIN)/outrider demo

# What is in PYTEST_ADDOPTS comes later than these options, so it wins.
# Two processes more than cores: many tests wait for real time. Each begins with its share of the
# long tests (see tests/conftest.py), and takes over from the others when it has done its own.
PYTEST := PYTEST_ADDOPTS="-n $$(( $$(nproc 2>/dev/null || echo 2) + 2 )) --dist=worksteal $$PYTEST_ADDOPTS" \
    $(BIN)/pytest

test: install ## run every test, on all cores, with real servers (PYTEST_ADDOPTS is honoured)
	@$(PYTEST)

stress: install ## repeat the randomised tests with more seeds, kills and faults (ROUNDS=4)
	@OUTRIDER_ROUNDS=$(ROUNDS) OUTRIDER_CLUSTER=all $(PYTEST) tests/fault tests/property tests/simulation \
	    tests/conformance tests/unit/output/test_kills.py

cover: install ## run the tests with coverage: all of the core's branches, a report of the rest
	@PYTEST_ADDOPTS="-n auto $$PYTEST_ADDOPTS" $(BIN)/pytest -q --cov --cov-report=
	@$(BIN)/coverage report
	@$(BIN)/coverage report --include='src/outrider/core/*' --fail-under=100

check: install ## check format, lint, types and import contracts
	@failed=''; \
	for step in 'ruff format --check .' 'ruff check .' 'mypy' 'lint-imports --no-logo'; do \
	    echo "── $$step"; \
	    $(BIN)/$$step || failed="$$failed, $${step%% -*}"; \
	done; \
	if [ -n "$$failed" ]; then echo "check failed: $${failed#, }" >&2; exit 1; fi

format: install ## format the code and mend what the linter can mend safely
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

twin: install ## generate outrider.blocking from the async frontier
	@$(BIN)/python tests/support/blocking_twin.py

reference: install ## write docs/reference/settings.md from the schema of the settings
	@$(BIN)/python -c 'import outrider.settings as s; print(end=s.render_reference())' > docs/reference/settings.md

bench: install ## measure the stores and their peers beside what is promised; also benchmarks/latest.json
	@$(BIN)/outrider bench --json benchmarks/latest.json

bench-crawl: install ## measure whole crawls beside Scrapy and Crawlee: some 20 minutes, two quiet cores
	@$(BIN)/python benchmarks/crawl/bench.py --json benchmarks/$$(date +%F)-crawl.json

bench-stores: install ## measure PostgreSQL and Redis beside the raw engine and peers: some 20 minutes (BENCH=--quick)
	@$(WITH_SUPPORT) $(BIN)/python benchmarks/stores/bench.py --json benchmarks/$$(date +%F)-stores.json $(BENCH)

bench-scorers: install ## what each scorer finds first, on synthetic webs and real documentation: some 5 minutes
	@$(BIN)/python benchmarks/scorers.py --json benchmarks/$$(date +%F)-scorers.json $(BENCH)

bench-listings: install ## the tasks of a queue, and queues in order, of a million, on every store: some 20 minutes
	@$(WITH_SUPPORT) $(BIN)/python benchmarks/listings.py --json benchmarks/$$(date +%F)-listings.json $(BENCH)

bench-waiters: install ## a thousand claims that wait and one add, on every store: seconds and calls
	@$(WITH_SUPPORT) $(BIN)/python benchmarks/waiters.py --json benchmarks/$$(date +%F)-waiters.json $(BENCH)

bench-counts: install ## counts of a million queues, read and by a census, on every store: some 10 minutes
	@$(WITH_SUPPORT) $(BIN)/python benchmarks/counts.py --json benchmarks/$$(date +%F)-counts.json $(BENCH)

plans: install ## look at PostgreSQL's plans with a million queues
	@OUTRIDER_PLAN_ROWS=1000000 $(BIN)/pytest -q -n 0 tests/integration/test_postgres_plans.py

faults: install ## workers, servers and lines fail under a crawl of several processes: some 10 minutes
	@$(WITH_SUPPORT) $(BIN)/python benchmarks/faults/play.py --json benchmarks/$$(date +%F)-faults.json

pooler: install ## the PostgreSQL suites through PgBouncer (PGBOUNCER=program, else Debian's package)
	@$(WITH_SUPPORT) $(BIN)/python tests/pooler/run.py

soak: install ## many fresh seeds: simulated, compared with the model, killed (SEEDS=20000 CRASHES=1000)
	@from=$$(date +%s)000; echo "seeds from $$from"; \
	$(BIN)/outrider simulate --seeds $(SEEDS) --from $$from --jobs $$(nproc 2>/dev/null || echo 2) && \
	OUTRIDER_FROM=$$from OUTRIDER_EXAMPLES=$(SEEDS) $(BIN)/pytest -q -n auto tests/property/test_model.py && \
	OUTRIDER_FROM=$$from OUTRIDER_CRASHES=$(CRASHES) $(BIN)/pytest -q -n auto tests/fault/test_kills.py

clean: ## remove .venv, caches and everything built
	@rm -rf $(VENV) .venv-peers build dist .coverage .coverage.* htmlcov .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
