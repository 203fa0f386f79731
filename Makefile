# Two commands for a fresh clone on a fresh machine (root or sudo): make demo, make test.

.DEFAULT_GOAL := help
SHELL := /bin/sh
ifneq ($(words $(CURDIR)),1)
$(error PostgreSQL's build system cannot work below a folder whose name has spaces; move the clone)
endif

PYTHON := .dpsql/venv/bin/python
DPSQL := $(PYTHON) -m dpsql.client.cli
PYTEST := $(PYTHON) -m pytest
DB ?= postgres
USER_ROLE := $(if $(filter command line,$(origin USER)),$(USER),postgres)
export PYTHONPATH := $(CURDIR)

.PHONY: help packages venv up down dsn

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

packages: ## Install the Debian packages that are missing
	@scripts/bootstrap.sh packages

venv: packages
	@scripts/bootstrap.sh venv demo test lint

up: venv ## Start the private cluster in .dpsql/ (idempotent)
	@$(DPSQL) up

down: ## Stop it
	@if [ -x $(PYTHON) ]; then $(DPSQL) down; fi

dsn: ## make -s dsn [DB=...] [USER=...] prints a connection string
	@$(DPSQL) dsn --db '$(DB)' --user '$(USER_ROLE)'
