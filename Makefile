# Every target sets up .venv from nothing; only Python (>= 3.11), pip and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/pip --quiet --disable-pip-version-check

.PHONY: demo docs test test-slow bench reproduce format lock clean

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

# Everything but torch and the CUDA libraries that it asks for comes with the hashes of requirements.lock. torch is pinned
# by version alone: its wheel differs by platform and index. What else it needs is there already when it is installed.
$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pdadmm needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@if $(PYTHON) -c 'import sys; sys.exit((*sys.version_info[:2], sys.platform) != (3, 11, "linux"))'; then set -ex; \
	    $(PIP) install --no-deps --only-binary :all: --require-hashes -r requirements.lock; \
	    $(PIP) install -c constraints.txt torch; \
	    $(PIP) install --no-deps --no-build-isolation -e .; \
	else set -e; \
	    echo "note: requirements.lock is for Python 3.11 on Linux; here the newest versions are installed, without hashes"; \
	    $(PIP) install -c constraints.txt -e '.[all,dev]'; \
	fi
	$(PIP) check
	touch $(READY)

# Renews requirements.lock: only what pyproject.toml asks for anew, or with UPGRADE=1 the newest of everything.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check 'pip-tools>=7.5'
	CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/pip-compile --quiet --no-config $(if $(UPGRADE),--upgrade) \
	    --extra all --extra dev --build-deps-for editable -c constraints.txt --generate-hashes --strip-extras \
	    --no-allow-unsafe --unsafe-package torch --no-emit-index-url --no-emit-find-links --no-emit-options \
	    --no-emit-trusted-host --output-file requirements.lock pyproject.toml
	awk '/^[a-z0-9]/ {skip = /^(cuda|nvidia|triton)/} /^# The following/ {exit} NF && !skip' requirements.lock > build/lock/kept
	cp build/lock/kept requirements.lock
	@echo "requirements.lock is renewed; that torch is not in it is meant: constraints.txt pins it"

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
