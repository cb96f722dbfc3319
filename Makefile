# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-browser fuzz lint docs bench guard clean

demo: $(VENV)/.installed
	@$(BIN)/rankrls demo -o build/demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto

test-browser: $(VENV)/.installed-browser
	@sh tests/browser/chromium.sh
	$(BIN)/python -m pytest -m browser tests/browser

# Damaged and forged files; `make fuzz FUZZ_SECONDS=600 FUZZ_SEED=1` for more, or for the same again.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz.py --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/core.py

guard: $(VENV)/.installed
	$(BIN)/python benchmarks/guard.py

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankrls needs Python 3.11 or newer; set PYTHON=...")'
	@test -x $(BIN)/python || { echo "Making the environment in $(VENV) …"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing rankrls and its dependencies …"
	@$(PIP) install -e '.[cli]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the tools for tests and checks …"
	@$(PIP) install -e '.[dev]'
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	@$(PIP) install -e '.[browser]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing the tools for the documentation …"
	@$(PIP) install -e '.[docs]'
	@touch $@

clean:
	rm -rf docs/_build docs/api docs/gallery
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
