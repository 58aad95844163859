# One command per intention.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test up bench check format clean

help: ## What there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[local,systems,sandbox,test]'
	@touch $@

demo: $(READY) ## Have 261 InstaSites built for six accounts, and judge how it went
	$(BIN)/python -m demo

test: $(READY) ## Run the tests
	$(BIN)/python -m pytest

up: $(READY) ## Run the whole stack in the foreground
	$(BIN)/python -m sandbox.up

bench: $(READY) ## Measure against plain Celery, side by side
	$(BIN)/python -m bench

check: $(READY) ## Lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the virtual environment and local data
	rm -rf $(VENV) .celeriac
