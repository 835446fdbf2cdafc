# Each target makes the virtual environment that it needs. PYTHON chooses the interpreter (3.11 or newer).
# `make help` prints the lines that begin with `##`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Most tests wait for other processes: more of them run at once than there are cores.
JOBS ?= 6
FAST_JOBS ?= 3

.PHONY: help demo test test-fast check wheel bench mutants reliability clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(VENV)/.base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("mam needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,live]'
	@touch $@

## make demo         the main job: broker, monitor, a creator and two reviewers, in a repository that is thrown away
demo: $(VENV)/.base
	$(BIN)/mam demo

## make test         every test
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests

## make test-fast    the tests that start no agent, broker or monitor, and are quick
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(FAST_JOBS) --dist worksteal -m "not end_to_end and not slow" tests

## make check        format, lint, types, layers, and the built wheel installed elsewhere
check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.coverage_of_requirements --summary
	$(BIN)/python -m tests.wheel $(VENV)

## make wheel        builds the wheel, installs it elsewhere, and runs the demo from there
wheel: $(VENV)/.dev
	$(BIN)/python -m tests.wheel $(VENV)

## make bench        measures this installation against its budgets: the table of docs/benchmarks.md
bench: $(VENV)/.dev
	$(BIN)/mam bench all

## make mutants      breaks one rule after the other in a copy of the code: a test must notice each
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants --workers $(FAST_JOBS)

## make reliability  attacks everything in full length, and writes the table of docs/reliability.md
reliability: $(VENV)/.dev
	rm -f $(VENV)/figures
	MAM_TEST_FULL=1 $(BIN)/python -m pytest -n $(JOBS) tests/agents
	MAM_TEST_FULL=1 MAM_TEST_FIGURES=$(abspath $(VENV)/figures) $(BIN)/python -m pytest -m scorecard --timeout 600 tests
	$(BIN)/python -m tests.scorecard $(VENV)/figures docs/reliability.md

## make clean        removes the virtual environment and everything that was built
clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
