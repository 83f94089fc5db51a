# `make demo` and `make test` need Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint format install clean

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "decodetop needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/decodetop demo

lint: $(STAMP)
	$(BIN)/ruff check src tui tests benchmarks
	$(BIN)/ruff format --check src tui tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n auto

format: $(STAMP)
	$(BIN)/ruff check --fix src tui tests benchmarks
	$(BIN)/ruff format src tui tests benchmarks

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
