# Every target makes the virtual environment and installs what it needs.
PYTHON ?= python3
SERVE ?= 1
VENV := .venv
BIN := $(VENV)/bin
# All of the users' extras, which the default tests test.
ALL := train,raw,milvus,ray,mcp,otel
# What an installation is made from: the package is editable, but its kernel is compiled.
INSTALLED_FROM := pyproject.toml hatch_build.py $(wildcard index/aladin_index/kernel/*.[ch])

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser test-clients test-cluster test-torch check bench wheel image docker-check lock

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed-train ## train, index and serve the demo on http://127.0.0.1:8000 (SERVE=0: stop after its table)
	$(BIN)/aladin demo $(if $(filter 0,$(SERVE)),--no-serve)

test: $(VENV)/.installed-dev ## run the default tests: no network, no weights, no GPU
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-browser: $(VENV)/.installed-dev ## run the tests of the page in Chromium; skipped where there is none
	$(BIN)/python -m pytest -m browser tests/browser tests/benchmarks/service/test_quick_forms.py

# Some of these packages leave their sockets to the garbage collector.
test-clients: $(VENV)/.installed-clients ## run docs/INTEGRATIONS.md and MCP with the real client packages, offline
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m clients -W ignore::ResourceWarning

test-cluster: $(VENV)/.installed-cluster ## run the tests against a real Milvus server and two Ray nodes, all on this machine
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster

# Ends of the range of torch in pyproject.toml, each in a virtual environment outside this folder.
TORCH_VERSIONS ?= 2.6.0 2.15.0
TORCH_VENVS ?= $(HOME)/.cache/aladin-search/torch
TORCH_TESTS := tests/aladin tests/training/losses tests/index/search tests/service/aladin_search

test-torch: ## run the core tests with the oldest and the newest torch that are supported (TORCH_VERSIONS)
	@set -e; for version in $(TORCH_VERSIONS); do \
		venv="$(TORCH_VENVS)/$$version"; \
		$(PYTHON) -m venv "$$venv"; \
		"$$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'pip>=25.1'; \
		"$$venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$$version" '.[$(ALL)]' --group dev; \
		OMP_NUM_THREADS=1 "$$venv/bin/python" -m pytest -q $(TORCH_TESTS); \
	done

check: $(VENV)/.installed-clients ## formatting, lint, strict types, import contracts, rules of the tree
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.house --check

BENCH_ITEMS ?= 10000 100000

bench: $(VENV)/.installed-dev ## measure search on this machine (BENCH_ITEMS="10000 100000 1000000")
	$(BIN)/python -m benchmarks.search.rerank
	$(BIN)/python -m benchmarks.engines.comparison
	set -e; for items in $(BENCH_ITEMS); do $(BIN)/python -m benchmarks.search.scale --items "$$items"; done

wheel: $(VENV)/.installed-release ## build the sdist and a manylinux wheel from it, in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist/plain .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist dist/plain/*.whl
	mv dist/plain/*.tar.gz dist/ && rm -r dist/plain
	$(BIN)/python -m twine check --strict dist/*

image: ## build the service's image with Docker (the GPU's: docker/Dockerfile)
	docker compose -f docker/compose.yaml build

docker-check: ## build the images and run all of them, with Docker or with podman (DOCKER_CHECK="--host-pip")
	$(PYTHON) docker/check.py $(DOCKER_CHECK)

# uv (PyPI: uv) keeps the versions that a lock file names already: `make lock UPGRADE=--upgrade` takes
# the newest ones. The others have the versions of the service's image, which is resolved first.
UV ?= uv
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet $(UPGRADE) --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --python-version 3.11 --python-platform x86_64-manylinux_2_28
# What both images have besides: traces, camera RAW, agents, Milvus.
IMAGE_EXTRAS := --extra otel --extra raw --extra mcp --extra milvus

lock: ## write the lock files anew, with the sha256 of every file (needs uv; UPGRADE=--upgrade: newest versions)
	$(COMPILE) pyproject.toml $(IMAGE_EXTRAS) --output-file docker/lock-serve.txt
	$(COMPILE) pyproject.toml docker/lock-gpu.in --extra train $(IMAGE_EXTRAS) --no-emit-package faiss-cpu --constraint docker/lock-serve.txt --output-file docker/lock-gpu.txt
	$(COMPILE) docker/lock-build.in --constraint docker/lock-serve.txt --output-file docker/lock-build.txt

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1' # which knows groups

$(VENV)/.installed-train: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train]'
	@touch $@

$(VENV)/.installed-dev: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(ALL)]' --group dev
	@touch $@ $(VENV)/.installed-train

$(VENV)/.installed-release: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group release
	@touch $@

# The generator of a client needs an older typer than the command line: it has an environment of its own.
$(VENV)/.installed-clients: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(ALL)]' --group dev --group clients
	$(PYTHON) -m venv $(VENV)/generator
	$(VENV)/generator/bin/python -m pip install --quiet --disable-pip-version-check 'openapi-python-client>=0.29,<0.30'
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-train

$(VENV)/.installed-cluster: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(ALL)]' --group dev --group cluster-test
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-train
