# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-browser coverage fuzz lint docs bench guard dist dist-check clean

demo: $(VENV)/.installed
	@$(BIN)/rankrls demo -o build/demo

# With bytecode, whatever the environment says: the tests start many processes.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto

test-browser: $(VENV)/.installed-browser
	@sh tests/browser/chromium.sh
	$(BIN)/python -m pytest -m browser tests/browser

coverage: $(VENV)/.installed-coverage
	$(BIN)/python -m pytest -n auto --cov --cov-report=html:build/coverage --cov-report=term:skip-covered

# Damaged and forged files; `make fuzz FUZZ_SECONDS=600 FUZZ_SEED=1` for more, or for the same again.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz.py --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

bench: $(VENV)/.installed
	@mkdir -p build
	$(BIN)/python benchmarks/speed.py --sections core --output build/speed.md

guard: $(VENV)/.installed
	$(BIN)/python benchmarks/guard.py

dist: $(VENV)/.installed-dist
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*

# The wheel in an environment of its own runs the demo, then the tests of the sdist: all of them, or
# DIST_TESTS="tests/test_docs.py …".
DIST_TESTS ?= tests
CLEAN := build/dist-check
dist-check: dist
	rm -rf $(CLEAN)
	$(PYTHON) -m venv $(CLEAN)/venv
	$(CLEAN)/venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(CLEAN)/venv/bin/python -m pip install --quiet "$$(ls $(CURDIR)/dist/*.whl)[cli]"
	cd $(CLEAN) && venv/bin/rankrls demo -o demo
	mkdir $(CLEAN)/sdist && tar -xzf dist/*.tar.gz -C $(CLEAN)/sdist --strip-components=1
	$(CLEAN)/venv/bin/python -m pip install --quiet "$$(ls $(CURDIR)/dist/*.whl)[all]" --group $(CLEAN)/sdist/pyproject.toml:test
	cd $(CLEAN)/sdist && ../venv/bin/python -m pytest -n auto $(DIST_TESTS)

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankrls needs Python 3.11 or newer; set PYTHON=...")'
	@test -x $(BIN)/python || { echo "Making the environment in $(VENV) …"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing rankrls and its dependencies …"
	@$(PIP) install -e '.[cli]'
	@touch $@

# Dependency groups (pyproject.toml) need pip 25.1.
$(VENV)/.installed-%: $(VENV)/.installed
	@echo "Installing the tools for $* …"
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install -e '.[all]' --group $*
	@touch $@

clean:
	rm -rf docs/_build docs/api docs/gallery
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
