# Two commands for a fresh clone on a fresh machine (root or sudo): make demo, make test.
# PG_MAJOR=nn chooses among several PostgreSQL majors, DPSQL_VENV=dir uses that virtual environment.

.DEFAULT_GOAL := help
SHELL := /bin/sh
ifneq ($(words $(CURDIR)),1)
$(error PostgreSQL's build system cannot work below a folder whose name has spaces; move the clone)
endif

PYTHON := .dpsql/venv/bin/python
DPSQL := $(PYTHON) -m dpsql.client.cli
# Each worker has a server of its own; a file's tests stay together.
WORKERS ?= 2
PYTEST := $(PYTHON) -m pytest --durations=15 -n $(WORKERS) --dist loadfile $(PYTEST_ARGUMENTS)
DB ?= postgres
ROLE := $(if $(filter command line,$(origin USER)),$(USER),postgres)
# At least so many server tests must pass: raise it with the suite.
SERVER_FLOOR := 5000
QUARTER = $(shell sed '/^\#/d' tests/server/majors.txt)
QUARTER_FLOOR := 850
# One pip at a time; what is slow runs its own workers.
.NOTPARALLEL:
export PYTHONPATH := $(CURDIR)
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: help packages venv extras tools clients up down dsn demo shards test check hunt lint format unit stat server-test quarter majors \
	docs bench audit core-suite cron-suite report-suite bi test-citus test-docker build clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r name text; do printf '  %-17s %s\n' "$$name" "$$text"; done

packages: ## Install the Debian packages that are missing
	@scripts/bootstrap.sh packages

venv: packages
	@scripts/bootstrap.sh venv demo test lint report

extras: packages ## Install what only some servers and the site need: mbi, for postprocess => 'pgm' and aim_pgm; mkdocs
	@scripts/bootstrap.sh venv demo test lint report pgm docs

tools:
	@scripts/bootstrap.sh packages clients
	@scripts/bootstrap.sh venv demo test lint report pgm docs clients

build: venv ## Build extension and hook into the private PostgreSQL tree
	@$(DPSQL) build

up: venv ## Start the private cluster with the demo databases (idempotent)
	@$(DPSQL) up $(if $(SF),--sf $(SF))

down: ## Stop the private cluster
	@if [ -x $(PYTHON) ]; then $(DPSQL) down; fi

dsn: ## Print a connection string; make -s dsn [DB=tpch] [USER=alice]
	@$(DPSQL) dsn --db '$(DB)' --user '$(ROLE)'

demo: venv ## From nothing to an analyst's session; make demo [SF=1] (TPC-H scale factor)
	@$(DPSQL) demo $(if $(SF),--sf $(SF))

shards: ## Orders and lines on three servers of their own, to try; make shards [SHARDS=3]
	@$(MAKE) --no-print-directory up
	@$(PYTHON) -m bench.shards $(if $(SHARDS),--shards $(SHARDS))

test: tools lint build ## Lint and every test
	$(PYTEST) --server-floor $(SERVER_FLOOR) tests

lint: venv ## ruff, mypy, import-linter
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(dir $(PYTHON))lint-imports --no-cache

format: venv ## Let ruff format the sources
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

unit: extras ## Tests without a server
	$(PYTEST) -m 'not server and not stat' tests

stat: extras ## Statistical tests
	$(PYTEST) -m stat tests

server-test: tools build ## Tests on a throw-away server
	$(PYTEST) -m 'server' --server-floor $(SERVER_FLOOR) tests

quarter: build ## Server tests where PostgreSQL's majors differ most, or QUARTER='files'
	$(PYTEST) -m server --server-floor $(QUARTER_FLOOR) $(QUARTER)

majors: ## Demo, server tests and core suite on PostgreSQL 17 and 18 in roots of other Debian releases (root; hours)
	@MAJORS='$(MAJORS)' STAGES='$(STAGES)' TESTS='$(TESTS)' scripts/majors.sh

hunt: extras ## Property tests with other, more examples than make test, which repeats its own; 100,000 random statements; an hour of hostile sessions
	$(PYTEST) --hypothesis-profile hunt --hypothesis-seed random -m 'not server and not stat' tests
	FUZZ_SEED=random FUZZ_SCRIPTS=68000 $(PYTEST) -m server tests/server/test_fuzz.py
	HOSTILE_SEED=random HOSTILE_SECONDS=3600 $(PYTEST) -m server tests/server/test_hostile_random.py

audit: extras ## Claimed and measured epsilon of every mechanism, and of its mutant (an hour)
	$(PYTHON) -m tests.audit $(AUDIT_ARGUMENTS)

check: test stat hunt ## Everything but benchmarks and PostgreSQL's own suite

# Without --quiet, which hides warnings from strict mode, too.
docs: venv ## The documentation as a site, in .dpsql/site/index.html; needs no network to be read
	@scripts/bootstrap.sh venv demo test lint docs
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build
	@echo "dpsql: open $(CURDIR)/.dpsql/site/index.html"

bench: ## make bench NAME=joins runs bench/joins.py on the private cluster
	@test -f 'bench/$(NAME).py' || { echo 'make bench NAME=one of: $(notdir $(basename $(shell grep -l __main__ bench/*.py)))'; exit 2; }
	@$(MAKE) --no-print-directory up
	@scripts/bootstrap.sh venv demo test lint report bench pgm
	@$(PYTHON) -m bench.$(NAME) $(BENCH_ARGUMENTS)

core-suite: build ## PostgreSQL's own regression suite with the library loaded (slow)
	@scripts/bootstrap.sh packages source
	sql/hook/core_suite.sh

cron-suite: venv ## Schedules that pg_cron runs; installs it (slow)
	@scripts/bootstrap.sh packages cron
	$(PYTEST) --server-floor 29 tests/slow/cron_suite.py

report-suite: venv ## The report in a browser; installs Chromium (screenshots in .dpsql/report)
	@scripts/bootstrap.sh packages browser
	$(PYTEST) --server-floor 6 tests/slow/report_suite.py

bi: venv ## Dashboards of Apache Superset in a browser; installs both (slow)
	@scripts/bootstrap.sh packages browser
	@scripts/bootstrap.sh venv demo test lint bi
	@scripts/bootstrap.sh superset
	$(PYTEST) --server-floor 12 tests/slow/bi_suite.py

clients: tools ## dbt builds models over exposed views; installs it (the other clients are in make test)
	@scripts/bootstrap.sh dbt
	$(PYTEST) --server-floor 10 tests/slow/dbt_suite.py

test-citus: tools build ## Distributed tables, where Citus is installed; reports its tests as skipped elsewhere
	$(PYTEST) -rs tests/slow/citus_suite.py tests/slow/citus_cluster_suite.py

test-docker: venv ## The image: builds and runs it where a Docker engine is; fails where none is
	@scripts/bootstrap.sh venv demo test lint docker
	$(PYTEST) --server-floor 8 tests/slow/docker_suite.py

clean: down ## Remove .dpsql/ and caches
	@scripts/majors.sh unmount
	@if [ -e .dpsql ]; then rm -rf --one-file-system "$$(cd .dpsql && pwd -P)"; rm -rf .dpsql; fi
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis sql/build
