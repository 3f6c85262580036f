# Two commands matter to a newcomer: `make run` and `make test`.
# Each sets up .venv by itself the first time, and again when pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup run show test torture check format bench clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(READY)  ## make .venv with everything in it

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "horae needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench,model]'
	@touch $@

run: $(READY)  ## keep the hours of a small plan, until Ctrl-C or for SECONDS=30
	@$(BIN)/python examples/demo.py $(SECONDS)

show: $(READY)  ## show what Horae reads out of the example plans
	@$(BIN)/python examples/show.py

test: $(READY)  ## run all tests
	$(BIN)/python -m pytest -n 2

torture: $(READY)  ## run all tests with every large number in full
	HORAE_SCALE=1 $(BIN)/python -m pytest -n 2

check: $(READY)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## write the code as `check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## print what is claimed about speed, measured now against named peers
	@for program in bench/*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

clean:  ## remove what make made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
