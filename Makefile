# Every target sets up .venv from nothing; only Python (>= 3.11), pip and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo docs test test-slow bench reproduce format clean

demo: $(READY)
	$(BIN)/pdadmm train --data digits --hidden 9x100 --epochs 100 --workers 2 --out runs/demo --overwrite
	$(BIN)/pdadmm evaluate runs/demo
	$(BIN)/pdadmm report runs/demo

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto --dist worksteal -m "not slow"

test-slow: $(READY)
	$(BIN)/pytest -m slow

# Not --quiet: it drops warnings before strict mode counts them.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean
	@echo open build/site/index.html

bench: $(READY)
	$(BIN)/python -m benchmarks.all $(if $(FULL),--full)

# The paper's six data sets must be in the cache: pdadmm data fetch mnist fashion kmnist svhn cifar10 cifar100
reproduce: $(READY)
	$(BIN)/pdadmm reproduce all --scale small --out runs/reproduce
	$(BIN)/pdadmm report runs/reproduce

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pdadmm needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
