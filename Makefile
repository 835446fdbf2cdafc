# Each target makes the virtual environment that it needs. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test check bench reliability clean

$(VENV)/.base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("mam needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,live]'
	@touch $@

# The main job: broker, monitor, a creator and two reviewers, in a repository that is thrown away.
demo: $(VENV)/.base
	$(BIN)/mam demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) tests

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.coverage_of_requirements --summary
	$(BIN)/python -m tests.wheel $(VENV)

# Prints the table that docs/benchmarks.md holds.
bench: $(VENV)/.dev
	$(BIN)/mam bench all

# Runs the scorecard's tests in full, one after the other, and writes its table into docs/reliability.md.
reliability: $(VENV)/.dev
	rm -f $(VENV)/figures
	MAM_TEST_FULL=1 MAM_TEST_FIGURES=$(abspath $(VENV)/figures) $(BIN)/python -m pytest -m scorecard --timeout 600 tests
	$(BIN)/python -m tests.reliability.table $(VENV)/figures docs/reliability.md

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
