# make demo | make test | make test-full: each sets itself up in .venv, from Python 3.11, make and a package index.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-full lint benchmarks text-benchmarks clean

demo: .venv/base
	$(BIN)/python examples/paper_grid.py

test: lint
	$(BIN)/pytest -n auto

test-full: lint
	$(BIN)/pip install -q -c constraints.txt -e '.[full]'
	mkdir -p docs/measured
	set -o pipefail; $(BIN)/pytest -n auto -m 'full or not full' -rs --durations=10 | tee docs/measured/test-full.txt

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

benchmarks: .venv/dev
	mkdir -p docs/measured
	$(BIN)/python benchmarks/fit.py | tee docs/measured/fit.md
	$(BIN)/python benchmarks/optimum.py | tee docs/measured/optimum.md
	$(BIN)/python benchmarks/coverage.py | tee docs/measured/coverage.md
	$(BIN)/python benchmarks/train.py --against float32,bfloat16 | tee docs/measured/train.md
	$(BIN)/python benchmarks/train.py --widths 16,24,32,48 --contexts 128 --batch 1024 | tee -a docs/measured/train.md
	$(BIN)/python benchmarks/stacking.py | tee docs/measured/stacking.md

# Real text as bytes, packed by `loopworth pack`: make text-benchmarks PACK=edu
text-benchmarks: .venv/dev
	$(BIN)/python benchmarks/precision.py $(PACK) | tee docs/measured/precision.md
	$(BIN)/python benchmarks/curve.py $(PACK) | tee docs/measured/curve.md

# The stamps say what is installed; a change of pyproject or pins installs again.
.venv/base: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("loopworth needs Python 3.11 or newer: make PYTHON=...") if sys.version_info < (3, 11) else 0'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

.venv/dev: .venv/base
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
