# Two commands matter to a newcomer: `make run` and `make test`.
# Each sets up .venv by itself the first time, and again when pyproject.toml changes: `run` and
# `show` with Horae alone, the others with what tests, checks and benchmarks need.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PLAIN := .venv/.plain
READY := .venv/.ready
# What has everything has Horae, too.
HORAE := $(if $(wildcard $(READY)),$(READY),$(PLAIN))
RELEASE := .venv/.release

.PHONY: help setup run show test torture check format golden bench site audit lock dist clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(READY)  ## make .venv with everything in it, and find or install a browser and a proxy for the tests
	@sh scripts/browser.sh
	@sh scripts/proxy.sh

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "horae needs Python 3.11 or newer; set PYTHON=...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment;" \
		"on Debian and Ubuntu the package python3-venv is missing: sudo apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv

$(PLAIN): pyproject.toml | $(BIN)/pip
	$(PIP) --editable .
	@touch $@

$(READY): pyproject.toml | $(BIN)/pip
	$(PIP) --upgrade pip
	$(PIP) --editable '.[dev,bench,model]'
	@touch $@

run: $(HORAE)  ## keep the hours of a small plan that has everything, until Ctrl-C or for SECONDS=30
	@$(BIN)/horae demo $(if $(SECONDS),--seconds $(SECONDS))

show: $(HORAE)  ## show what Horae reads out of the example plans
	@$(BIN)/python examples/show.py

test: $(READY)  ## run all tests
	@sh scripts/browser.sh
	@sh scripts/proxy.sh
	$(BIN)/python -m pytest -n 2
	@$(BIN)/python scripts/floor.py

torture: $(READY) $(RELEASE)  ## run all tests with every large number in full
	@sh scripts/browser.sh
	@sh scripts/proxy.sh
	HORAE_SCALE=1 $(BIN)/python -m pytest -n 2

check: $(READY)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## write the code as `check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(READY)  ## record anew what programs can read (tests/golden/README.md)
	$(BIN)/python tests/golden/record.py

bench: $(READY)  ## print what is claimed about speed, measured now against named peers
	@for program in bench/*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

site: $(READY)  ## build the documents as a site into build/site; a warning is an error
	$(PIP) --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict

audit: $(RELEASE)  ## ask whether a package of requirements-dev.lock is known to be unsafe
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement requirements-dev.lock

lock: $(RELEASE)  ## write requirements-dev.lock anew, from pyproject.toml and what there is today
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --upgrade \
		--custom-compile-command 'make lock' --quiet --output-file requirements-dev.lock

dist: $(RELEASE)  ## build wheel and sdist into dist/, the same bytes for the same commit
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build

$(RELEASE): $(READY)
	$(PIP) --editable '.[release]'
	@touch $@

clean:  ## remove what make made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
