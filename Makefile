# Every target sets up what it needs in .venv; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python3.14,$(shell $(p) -c 'import sys; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run-installed
DEV := $(VENV)/.dev-installed
PARALLEL := -n auto --maxprocesses=4 --dist=worksteal
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# the build backend is pinned too: older pips read the first, newer ones the second
export PIP_CONSTRAINT := requirements/dev.txt
export PIP_BUILD_CONSTRAINT := requirements/dev.txt

.PHONY: help demo test check e2e cluster bench soak image plugins pins proto manifests picture clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUN) ## the whole product on an embedded cluster: no Kubernetes, no GPU, no root
	@$(BIN)/aliquot demo $(ARGS)

test: $(DEV) ## unit and integration tests (no root, no compiler)
	$(if $(STALLS),$(BIN)/python -m tests.stalls )$(BIN)/pytest $(PARALLEL) $(ARGS)

check: $(DEV) ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

e2e: $(DEV) ## the same path on a real Kubernetes with a real kubelet and containerd (root)
	$(BIN)/pytest --durations=15 tests/e2e $(ARGS)
	$(BIN)/pytest -q $(PARALLEL) --real-api $(addprefix tests/integration/,kube embedded $(if $(ALL),control endpoints))
	$(BIN)/pytest -q --prometheus tests/integration/monitoring

cluster: $(DEV) ## bring up the real Kubernetes of `make e2e` for a person (root); Ctrl-C takes it down
	@$(BIN)/python -m tests.rig cluster $(ARGS)

bench: $(DEV) ## every benchmark, with ratios against a peer; ONLY=name runs one
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

soak: $(DEV) ## the property tests for hours; EXAMPLES= per property, MINUTES= per history test, PODS= on real nodes, PROPERTIES= files
	ALIQUOT_SOAK_EXAMPLES=$(or $(EXAMPLES),100000) ALIQUOT_SOAK_MINUTES=$(or $(MINUTES),60) ALIQUOT_SOAK_PODS=$(or $(PODS),1000) $(BIN)/pytest -s tests/soak $(ARGS)
	ALIQUOT_SOAK_EXAMPLES=$(or $(EXAMPLES),100000) $(BIN)/pytest --hypothesis-profile=soak -m hypothesis $(or $(PROPERTIES),tests/unit/dialects tests/unit/engine) $(ARGS)

image: $(DEV) ## container images of all programs as one OCI archive: no Docker, no root (docs/image.md)
	@$(BIN)/python -m image $(ARGS)

plugins: $(DEV) ## each kubectl plug-in as one file in dist/, for Python 3.11 and later (docs/kubectl.md)
	@$(BIN)/python -m plugins $(ARGS)

pins: $(DEV) ## refresh the exact versions in requirements/ from pyproject.toml
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --no-annotate --no-header pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --no-annotate --no-header --group dev pyproject.toml -o requirements/dev.txt

proto: $(DEV) ## generate the gRPC messages of src/aliquot/agent/proto again
	$(BIN)/python -m tests.proto

manifests: $(DEV) ## write the dialects' resources and the admission policies into deploy/ again
	$(BIN)/python -m tests.manifests

picture: $(DEV) ## draw docs/demo.svg again, from a real run of the demo
	$(BIN)/python -m tests.picture

clean: ## remove .venv and caches of the tree
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Aliquot needs Python 3.11 or newer; none of python3, python3.11 ... python3.14 is. Install one, or run: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setting up $(VENV) (once; packages come from PyPI)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(RUN): requirements/run.txt pyproject.toml | $(BIN)/python
	@$(BIN)/pip install -q -r requirements/run.txt || { echo "pip cannot install what Aliquot needs: is PyPI, or the index that pip is configured for, reachable?" >&2; exit 1; }
	@$(BIN)/pip install -q --no-deps -e .
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	@echo "adding the development tools to $(VENV) (once)"
	@$(BIN)/pip install -q -r requirements/dev.txt
	@touch $@
