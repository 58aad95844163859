# One command per intention.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test again quick nightly coverage proof faults celery-suites up bench bench-peers flame docs screenshots pgbouncer matrix dist image check format clean

help: ## What there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	@touch $@

SYSTEM ?= instasites
demo: $(READY) ## A system at work, judged at the end: SYSTEM=instasites, thumbnails, stores, subreddits or all
	$(BIN)/python -m demo $(SYSTEM)

# T=tests/pure/test_fairness.py, or any other part of them.
T ?=
test: $(READY) ## Every promise, or a part: T=tests/postgres
	$(BIN)/python -m pytest -n 4 $(T)

again: $(READY) ## The tests that failed in the last run, once more, by themselves
	$(BIN)/python -m tests.again

nightly: $(READY) ## What takes its time: benchmarks, plans at full size, all looks of pages, long fuzzing, other Pythons
	$(BIN)/python -m tests.nightly

quick: $(READY) ## What needs no server: lint, types, import contracts and the pure tests, side by side
	$(BIN)/python -m tests.quick

coverage: $(READY) ## The tests, or a part (T=tests/postgres), and which lines of the engine they reach, processes included
	$(BIN)/python -m pytest -n 3 --cov --cov-report=term:skip-covered --cov-report=html:build/coverage $(T)

proof: $(READY) ## The proof under load, at full size: schedules, races and floods for many minutes
	$(BIN)/python -m pytest tests/faults --full --timeout 1800

# F=--guards, "--only kill-workers --minutes 5 --seed 7", --list: see docs/faults.md.
F ?=
faults: $(READY) ## Everything fails under load and nothing is lost, for 15 minutes: F=--guards proves that it can fail
	$(BIN)/python -m faults $(F)

celery-suites: $(READY) ## Celery's own integration suites, on plain Celery and on Celeriac: T=test_inspect.py
	$(BIN)/python -m tests.stock $(T)

# The sandbox's addresses, and how the application finds it; DUDA_… and the like set outside win.
up: export SANDBOX_HTTP_PORT ?= 8800
up: export SANDBOX_SMTP_PORT ?= 8825
up: export SANDBOX_DNS_PORT ?= 8853
up: export DUDA_BASE_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/api
up: export DUTCHIE_BASE_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/graphql
up: export WEBMENUS_BASE_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/webmenus
up: export PROXY_ECHO_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/echo
up: export DUDA_SITE_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/preview/%s
up: export DUDA_API_USER ?= sandbox
up: export DUDA_API_PASSWORD ?= sandbox-password
up: export SMTP_HOST ?= 127.0.0.1
up: export SMTP_PORT ?= $(SANDBOX_SMTP_PORT)
up: export MAIL_FROM ?= sites@sandbox.example
up: export DNS_NAMESERVER ?= 127.0.0.1:$(SANDBOX_DNS_PORT)
up: export CLOUDFLARE_BASE_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/client/v4
up: export CLOUDFLARE_API_TOKEN ?= sandbox-cloudflare-token
up: export REDDIT_CLIENT_ID ?= sandbox
up: export REDDIT_CLIENT_SECRET ?= sandbox-password
up: export REDDIT_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/reddit
up: export REDDIT_OAUTH_URL ?= http://127.0.0.1:$(SANDBOX_HTTP_PORT)/reddit/oauth
up: export CELERIAC_API_PORT ?= 6002
up: FLOWER_PORT ?= 5555
up: $(READY) ## Run the whole stack in the foreground: servers, sandbox, worker, beat, API, Flower
	@echo "sandbox   http://127.0.0.1:$(SANDBOX_HTTP_PORT)/_sandbox/state"
	@echo "api       http://127.0.0.1:$(CELERIAC_API_PORT) (a token: $(BIN)/celeriac tokens create NAME --scope operate)"
	@$(BIN)/celeriac up --flower-port $(FLOWER_PORT) --with sandbox="$(BIN)/python -m sandbox"

bench: $(READY) ## Measure against plain Celery, side by side
	$(BIN)/python -m bench

bench-peers: $(READY) ## Measure against other task queues, in an environment of theirs
	$(BIN)/python -m bench.peers

flame: $(READY) ## A drain of no-op tasks as a flame graph, in build/flame.svg
	$(BIN)/python -m bench.flame

docs: export NO_MKDOCS_2_WARNING ?= 1
docs: $(READY) ## The site of README.md and docs, in build/site; fails where a link or an anchor leads nowhere
	$(BIN)/python -m mkdocs build --strict

screenshots: $(READY) ## The dashboard's pages, light and dark, wide and narrow, in build/screenshots: for the eye
	$(BIN)/python -m pytest tests/dashboard/screenshots.py

pgbouncer: $(READY) ## The engine's tests with PgBouncer between, which has to be installed: T=tests/postgres
	$(BIN)/python -m tests.matrix.pooled $(T)

matrix: $(READY) ## The engine's tests on old and new servers and Pythons, as far as they are there
	$(BIN)/python -m tests.matrix $(T)

dist: $(READY) ## What is released, made twice and tried: sdist, wheel, and what the wheel needs (CycloneDX)
	$(BIN)/python deploy/release.py

image: $(READY) ## The container image of what is committed, made twice with buildah and tried: B=CHROMIUM=chromium
	$(BIN)/python deploy/image.py $(B)

check: $(READY) ## Lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the virtual environment and local data
	rm -rf $(VENV) .celeriac .cache build
