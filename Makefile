# Start with `make run` and `make test`.
# Each sets up .venv by itself the first time, and again when pyproject.toml changes: `run` and
# `show` with Horae alone, the others with the packages for tests, checks and benchmarks.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PLAIN := .venv/.plain
READY := .venv/.ready
# An environment with everything also has Horae.
HORAE := $(if $(wildcard $(READY)),$(READY),$(PLAIN))
RELEASE := .venv/.release
# The tests start hundreds of short processes: without bytecode, each compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run show test torture check format golden pictures schemas bench site audit lock dist clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(READY)  ## create .venv with everything, and find or install a browser and a proxy for the tests
	@sh scripts/browser.sh
	@sh scripts/proxy.sh

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "horae needs Python 3.11 or newer; set PYTHON=...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot create a virtual environment;" \
		"on Debian and Ubuntu the package python3-venv is missing: sudo apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv

$(PLAIN): pyproject.toml | $(BIN)/pip
	$(PIP) --editable .
	@touch $@

$(READY): pyproject.toml | $(BIN)/pip
	$(PIP) --upgrade pip
	$(PIP) --editable '.[dev,bench,model]'
	@touch $@

run: $(HORAE)  ## run a demo plan until Ctrl-C, or for SECONDS=30
	@$(BIN)/horae demo $(if $(SECONDS),--seconds $(SECONDS))

show: $(HORAE)  ## show the fields, workflows and findings of the example plans
	@$(BIN)/python examples/show.py

# Many tests wait, for a second to begin or a process to end: six workers keep two cores busy.
# Their files are in memory; those of `torture` are on a disk.
# In a new clone each worker would compile every test: it is done once, before they begin.
test: $(READY)  ## run all tests
	@sh scripts/browser.sh
	@sh scripts/proxy.sh
	@[ -d tests/__pycache__ ] || $(BIN)/python -m pytest --collect-only -qq > /dev/null
	@place=$$(sh scripts/memory.sh) && trap 'rm -rf "$$place"' EXIT && \
		TMPDIR=$$place $(BIN)/python -m pytest -n 6 --dist worksteal --basetemp=$$place/tests
	@$(BIN)/python scripts/floor.py

torture: $(READY) $(RELEASE)  ## run all tests with every large number in full
	@sh scripts/browser.sh
	@sh scripts/proxy.sh
	HORAE_SCALE=1 $(BIN)/python -m pytest -n 2

check: $(READY)  ## check lint rules, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## format the code as `check` requires
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(READY)  ## record the machine-readable output again (tests/golden/README.md)
	$(BIN)/python tests/golden/record.py

pictures: $(READY)  ## make docs/pictures again: takes three minutes, and needs a browser
	HORAE_SHOTS=docs $(BIN)/python -m pytest tests/web/test_pictures.py

schemas: $(READY)  ## write schemas/ and the tables of settings in docs
	$(BIN)/python scripts/schemas.py

bench: $(READY)  ## run the benchmarks, compared with named alternatives
	@for program in bench/*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

site: $(READY)  ## build the documentation into build/site; a warning is an error
	$(PIP) --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict

audit: $(RELEASE)  ## check requirements-dev.lock for known vulnerabilities
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement requirements-dev.lock

lock: $(RELEASE)  ## write requirements-dev.lock with the newest allowed versions
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --upgrade \
		--custom-compile-command 'make lock' --quiet --output-file requirements-dev.lock

dist: $(RELEASE)  ## build wheel and sdist into dist/; the same commit gives the same bytes
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build

$(RELEASE): $(READY)
	$(PIP) --editable '.[release]'
	@touch $@

clean:  ## remove .venv, caches and dist/
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
