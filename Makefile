PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

.DEFAULT_GOAL := help
.PHONY: help demo gallery docs install test test-full fuzz soak format bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/bare  ## set everything up, and see what the model that ships knows
	$(BIN)/python examples/demo.py $(addprefix --sentences ,$(wildcard ../shared/data/tasks/visualizing_elmo.json))

gallery: install  ## draw the pictures of docs/gallery.md again
	$(BIN)/python examples/gallery.py

docs: $(VENV)/docs  ## build the documentation in build/docs, with the notebooks' results
	rm -rf build/docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs . build/docs
	@echo build/docs/index.html

install: $(VENV)/installed  ## make .venv and install elmokit in it

$(VENV)/bare: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) '.[fast,serve]'
	@touch $@

$(VENV)/installed: $(VENV)/bare
	$(PIP) '.[dev]'
	@touch $@

$(VENV)/docs: $(VENV)/bare
	$(PIP) '.[docs]'
	@touch $@

test: install  ## lint, check types, run the quick tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not full"

test-full: install  ## run every test: kills, documents, browser, PostgreSQL, all tasks
	$(BIN)/python -m pytest -n 2 --dist worksteal

MINUTES := 10
fuzz: install  ## read damaged and malicious files: make fuzz MINUTES=60 TARGETS="hdf5 http"
	$(BIN)/python tests/fuzz/fuzz.py $(TARGETS) --minutes $(MINUTES) --findings fuzz-findings

KILLS := 100
FULL := 20
soak: install  ## kill resumable work, fill its disk, serve among bad clients: make soak KILLS=100 FULL=20 MINUTES=60
	$(BIN)/python tests/soak/soak.py $(WORKS) --kills $(KILLS) --full $(FULL)
	$(BIN)/python tests/soak/service.py --minutes $(MINUTES)

format: install  ## lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## measure the speed of embedding
	$(BIN)/python benchmarks/embed.py

clean:  ## remove .venv and caches
	rm -rf $(VENV) build/docs .mypy_cache .pytest_cache .ruff_cache .hypothesis
