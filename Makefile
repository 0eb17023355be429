# `make help` lists the targets. Each sets up what it needs: the virtual environment in .venv from setup.cfg,
# and the binaries of the local control plane in the cache folder (deploy/local/README.md).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
LOCAL := $(BIN)/python -m deploy.local

# Python 3.11 first: it is the oldest that works, and the one that the types are checked against.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell \
	$(name) -c 'import sys; print("$(name)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))
N ?= 100000
ARGS ?=
SECONDS ?= 600
MINUTES ?=
SEED ?= 1
# Tests mostly wait for a cluster; each worker has a control plane of its own.
WORKERS ?= 4

LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-annotate --no-emit-index-url \
	--python-version 3.11 --custom-compile-command "make lock"

GRPC := rescheduler/backends/externalgrpc

.PHONY: help test lint format demo demo-proxy bench fuzz soak faults conformance autoscaler proto build up down clean \
	lock release

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

test: build ## run all tests; ARGS go to pytest, as in make test ARGS="tests/planning -x" WORKERS=0
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(READY) ## check format, style, types and imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: $(READY) ## show the main job on a real local control plane; ARGS="--keep" leaves the cluster up
	@$(LOCAL) build
	@$(BIN)/python -m deploy.local.demo $(ARGS)

demo-proxy: $(READY) ## scale a cloudpool from 6 to 3 machines and back through the proxy, and show what moved
	@$(LOCAL) build
	@$(BIN)/python -m deploy.local.demo.proxy

fuzz: $(READY) ## throw requests, calls and files of every kind at our HTTP and gRPC faces and commands, as in make fuzz SECONDS=600
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

soak: build ## let two daemons run on a cluster that changes and breaks: make soak MINUTES=60 SEED=1; or on clusters: N=50
	@$(BIN)/python -m $(if $(MINUTES),tests.soak.churn --minutes $(MINUTES) --seed $(SEED),tests.soak --clusters $(N)) $(ARGS)

bench: build ## measure how fast it is, side by side with the scheduler's own plugins
	@$(BIN)/python -m tests.bench $(ARGS)

faults: build ## fail every call of a drain with every fault, or kill the daemon at each: make faults ARGS="--kills"
	@$(BIN)/python -m tests.faults $(ARGS)

conformance: build ## compare N verdicts with the scheduler's plugins on random clusters, as in make conformance N=1000000
	@$(BIN)/python -m tests.conformance --verdicts $(N) $(ARGS)

autoscaler: build ## let the real Cluster Autoscaler drive `rescheduler provider serve`; its first build takes minutes
	@$(BIN)/python -m pytest tests/cluster/real_autoscaler.py $(ARGS)

proto: $(READY) ## compile the protobuf schemas again, after a change of one of their .proto files
	@mkdir -p build
	@$(BIN)/python -m grpc_tools.protoc -I. --descriptor_set_out=rescheduler/kube/schema.binpb --pyi_out=build \
		rescheduler/kube/schema.proto
	@mv build/rescheduler/kube/schema_pb2.pyi rescheduler/kube/schema.pyi
	@$(BIN)/python -m grpc_tools.protoc -I$(GRPC) --include_imports --descriptor_set_out=$(GRPC)/wire.binpb \
		--pyi_out=build $(GRPC)/wire.proto $(GRPC)/core.proto
	@sed 's/^DESCRIPTOR: .*/from google.protobuf.descriptor_pool import DescriptorPool as _DescriptorPool\n\nPOOL: _DescriptorPool/' \
		build/wire_pb2.pyi > $(GRPC)/wire.pyi
	@sed '/^DESCRIPTOR: /d' build/core_pb2.pyi > $(GRPC)/core.pyi
	@$(BIN)/ruff format --quiet $(GRPC)/wire.pyi $(GRPC)/core.pyi
	@$(BIN)/python -m grpc_tools.protoc -Ideploy/local/caller --descriptor_set_out=deploy/local/caller/calls.binpb \
		deploy/local/caller/calls.proto

lock: $(READY) ## resolve the dependencies of the image and the tools of a release again, and pin them by hash
	@$(LOCK) --extra grpc --output-file requirements.lock setup.cfg
	@$(LOCK) --output-file deploy/release/tools.lock deploy/release/tools.in

release: ## build wheel, sdist, chart and SBOM of the last commit into dist/, and check them in a fresh environment
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer on PATH; name it: make PYTHON=…" >&2; exit 1; }
	@rm -rf build/release && $(PYTHON) -m venv build/release
	@build/release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--requirement deploy/release/tools.lock
	@build/release/bin/python -m deploy.release --output dist

build: $(READY) ## build the binaries of the local control plane, once
	@$(LOCAL) build --prometheus

up: $(READY) ## bring a local control plane up and print its KUBECONFIG, as in make up ARGS="--on-demand 5 --spot 8"
	@$(LOCAL) up $(ARGS)

down: $(READY) ## take the local control plane down; ARGS as for up --dir
	@$(LOCAL) down $(ARGS)

clean: ## delete what was made in this folder; the cache of binaries stays
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(READY): setup.cfg pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer on PATH; install one, or name it: make PYTHON=…" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON) (once, and when setup.cfg changes)" >&2
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) >&2 || \
		{ echo "make: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[grpc,dev]' >&2 || \
		{ echo "make: pip could not install the dependencies into $(VENV); see above" >&2; exit 1; }
	@touch $@
