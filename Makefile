# `make help` lists the targets. Each target installs what it needs: the virtual environment in .venv from setup.cfg,
# and the binaries of the local control plane in the cache folder (devcluster/README.md).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# What pip writes about the checkout that is installed in the virtual environment.
INSTALLED := $(VENV)/lib/python3*/site-packages/spot_rescheduler-*.dist-info/direct_url.json
DOCS_READY := $(VENV)/docs-ready
DEMO_READY := build/demo/ready
LOCAL := $(BIN)/python -m devcluster

# Python 3.11 first: it is the oldest supported version, and mypy checks against it.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell \
	$(name) -c 'import sys; print("$(name)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))
N ?= 100000
ARGS ?=
SECONDS ?= 600
MINUTES ?=
HOURS ?= 100
SEED ?= 1
VERSION ?=
OWNER ?=
REGISTRY ?=
SITE ?=
NODES ?= 1000
PODS ?= 30000
# Tests mostly wait for a cluster, so more workers than processors are useful. Each worker has its own control plane.
WORKERS ?= 8

# Without cached bytecode, each worker and each process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-annotate --no-emit-index-url \
	--python-version 3.11 --custom-compile-command "make lock"

# The folders with tests of `make unit`, and those of the code that decides.
PURE := tests/planning tests/draining tests/predicates tests/pages
UNIT := $(PURE) tests/housekeeping tests/kube tests/observe tests/cli tests/release

# Values that replace those of deploy/release/project.toml.
PROJECT = $(if $(OWNER),--owner '$(OWNER)') $(if $(REGISTRY),--registry '$(REGISTRY)') $(if $(SITE),--site '$(SITE)')

GRPC := rescheduler/providers/externalgrpc

.PHONY: help test unit coverage mutants lint format demo demo-cluster demo-proxy bench fuzz soak agreement simulation scale faults conformance survival losses predictions landings autoscaler karpenter bad-days clusterapi proto build up down clean \
	lock bases audit release rendered docs screenshots owned

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Failed tests are run once more with little beside them, and named. With STRICT=1 that holds only for those that
# tests/second_try.txt lists: any other failure fails the run.
test: $(if $(ARGS),$(READY),build) ## run all tests; ARGS are passed to pytest: make test ARGS="tests/planning -x" WORKERS=0
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -p tests.second_try $(ARGS)

unit: $(READY) ## run the quick tests that need no control plane, in less than a minute
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not cluster and not slow" $(UNIT) $(ARGS)

coverage: $(READY) ## measure the coverage of the code that decides, which must not fall
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not cluster" --cov --cov-report=term:skip-covered $(PURE) $(ARGS)

mutants: $(READY) ## break one safeguard after the other, and check that its tests notice: make mutants ARGS="Lease"
	@$(BIN)/python -m tests.mutants $(ARGS)

lint: $(READY) ## check format, style, types, imports and unused code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

format: $(READY) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Only what the program needs is installed, unless the development environment is there.
demo: $(if $(wildcard $(READY)),owned,$(DEMO_READY)) ## simulate a day of the sample cluster: drains, lost spot nodes and a failed drain, in two minutes
	@mkdir -p build
	@$(if $(wildcard $(READY)),$(BIN),build/demo/bin)/rescheduler simulate --snapshot docs/sample.json.gz \
		--prices docs/sample-prices.csv --currency '$$' --events docs/sample-events.yaml --for 24h \
		--output-file build/simulation.html $(ARGS)
	@echo "The figures, and how to simulate your own cluster: docs/simulating.md"

demo-cluster: $(READY) ## drain on-demand nodes of a local control plane; ARGS="--keep" leaves the cluster running
	@$(LOCAL) build
	@$(BIN)/python -m devcluster.demo $(ARGS)

demo-proxy: $(READY) ## scale a cloudpool from 6 to 3 machines and back through the proxy, and list the moved pods
	@$(LOCAL) build
	@$(BIN)/python -m devcluster.demo.proxy

fuzz: $(READY) ## send random requests, calls and files to all HTTP and gRPC servers and commands: make fuzz SECONDS=600
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

soak: build ## run two replicas on a cluster with random changes and failures: make soak MINUTES=60 SEED=1; or one on N clusters: N=50
	@$(BIN)/python -m $(if $(MINUTES),tests.soak.churn --minutes $(MINUTES) --seed $(SEED),tests.soak $(if $(filter file,$(origin N)),,--clusters $(N))) $(ARGS)

agreement: build ## run twelve scenes on the real control plane and in the simulated cluster, and compare: make agreement ARGS="plain"
	@$(BIN)/python -m tests.agreement $(ARGS)

simulation: $(READY) ## run random simulated clusters with faults and kills, and check the invariants: make simulation HOURS=10000 SEED=1
	@$(BIN)/python -m tests.simulation --hours $(HOURS) --seed $(SEED) $(ARGS)

bench: build ## measure the performance, side by side with the scheduler's own plugins
	@$(BIN)/python -m tests.bench $(ARGS)

scale: build ## measure large clusters, live, beside client-go: make scale NODES=1000 PODS=30000; or ARGS="--growth"
	@$(BIN)/python -m tests.scale --nodes $(NODES) --pods $(PODS) $(ARGS)

faults: build ## fail every call of a drain with every fault, or kill the daemon at each: make faults ARGS="--kills"
	@$(BIN)/python -m tests.faults $(ARGS)

conformance: build ## compare N verdicts with the scheduler's plugins on random clusters: make conformance VERSION=1.35 N=1000000
	@$(BIN)/python -m tests.conformance --verdicts $(N) $(if $(VERSION),--kubernetes $(VERSION)) $(ARGS)

survival: build ## compare the certificate of losses with brute force by the scheduler's plugins: make survival N=1000
	@$(BIN)/python -m tests.conformance.survival $(if $(filter file,$(origin N)),,--clusters $(N))

losses: build ## delete a pool of spot nodes after drains of N random clusters, with --survive=pool and without: make losses N=30
	@$(BIN)/python -m tests.cluster.pool_losses $(if $(filter file,$(origin N)),,--scenes $(N)) $(ARGS)

predictions: build ## predict the pods that replace those of random workloads, and compare what is created: make predictions ARGS="--runs 5"
	@$(BIN)/python -m tests.cluster.predictions $(ARGS)

landings: build ## carry out the first plan of N random clusters with the real scheduler: make landings N=500
	@$(BIN)/python -m tests.cluster.landings $(if $(filter file,$(origin N)),,--clusters $(N)) $(ARGS)

autoscaler: build ## run the real Cluster Autoscaler with `rescheduler provider serve`; the first build takes minutes
	@$(BIN)/python -m pytest tests/cluster/real_autoscaler*.py $(ARGS)

karpenter: build ## run the real Karpenter beside the daemon; the first build takes about ten minutes
	@$(BIN)/python -m pytest tests/cluster/real_karpenter*.py $(ARGS)

bad-days: build ## run the failure tests with NodeClaims in place of plain nodes; ARGS are passed to pytest
	@BACKEND=karpenter $(BIN)/python -m pytest tests/cluster/test_bad_days_*.py $(ARGS)

clusterapi: build ## run the controllers of Cluster API beside the daemon; the first build takes some minutes
	@$(BIN)/python -m pytest tests/cluster/real_clusterapi.py $(ARGS)

proto: $(READY) ## compile the protobuf schemas after a change of a .proto file
	@mkdir -p build
	@$(BIN)/python -m grpc_tools.protoc -I$(GRPC) --include_imports --descriptor_set_out=$(GRPC)/wire.binpb \
		--pyi_out=build $(GRPC)/wire.proto $(GRPC)/core.proto
	@sed 's/^DESCRIPTOR: .*/from google.protobuf.descriptor_pool import DescriptorPool as _DescriptorPool\n\nPOOL: _DescriptorPool/' \
		build/wire_pb2.pyi > $(GRPC)/wire.pyi
	@sed '/^DESCRIPTOR: /d' build/core_pb2.pyi > $(GRPC)/core.pyi
	@$(BIN)/ruff format --quiet $(GRPC)/wire.pyi $(GRPC)/core.pyi
	@$(BIN)/python -m grpc_tools.protoc -Idevcluster/caller --descriptor_set_out=devcluster/caller/calls.binpb \
		devcluster/caller/calls.proto

lock: $(READY) ## update the dependencies of the image and the release tools, and pin them by hash
	@$(LOCK) --extra grpc --extra aws --output-file requirements.lock setup.cfg
	@$(LOCK) --output-file deploy/release/tools.lock deploy/release/tools.in

bases: $(READY) ## pin the images from which and with which a release is built by digest, in deploy/release/bases.lock
	@$(BIN)/python -m deploy.release.bases

audit: $(READY) ## compare the pinned packages with the known vulnerabilities of osv.dev; skipped without a network
	@$(BIN)/python -m deploy.release.audit

release: ## build wheel, sdist, chart, manifests and SBOM of the last commit into dist/: make release OWNER=… REGISTRY=…
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer on PATH; set it: make PYTHON=…" >&2; exit 1; }
	@rm -rf build/release && $(PYTHON) -m venv build/release
	@build/release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--requirement deploy/release/tools.lock
	@build/release/bin/python -m deploy.release --output dist $(PROJECT)

rendered: $(READY) ## write the last commit with owner, registry and site to build/rendered: make rendered OWNER=… REGISTRY=…
	@$(BIN)/python -m deploy.release.project --output build/rendered $(PROJECT)
	@echo build/rendered

screenshots: $(READY) ## render docs/plan.png, report.png, status.png and surviving.png from the sample; ARGS="--prices FILE" are options of report
	@$(BIN)/python -m tests.pages.screenshots $(ARGS)

docs: $(DOCS_READY) ## build the documentation site into build/site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

build: $(READY) ## build the binaries of the local control plane, once
	@$(LOCAL) build --prometheus --chromium

up: $(READY) ## start a local control plane and print its KUBECONFIG: make up ARGS="--on-demand 5 --spot 8"
	@$(LOCAL) up $(ARGS)

down: $(READY) ## stop and delete the local control plane; ARGS="--dir DIR" as for up
	@$(LOCAL) down $(ARGS)

clean: ## delete all generated files in this folder; the cache of binaries stays
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# An environment that is ready, or linked, may be that of another checkout: then its programs run the code there.
owned:
	@owner=$$({ cat $(INSTALLED) 2>/dev/null || true; } | sed -n 's|.*"url": *"file://\([^"]*\)".*|\1|p'); \
		test ! -d "$$owner" -o "$$owner" = "$(CURDIR)" || { echo "make: $(VENV) belongs to the checkout $$owner, which" \
		"would run the code of $(CURDIR); delete it, or set another: make VENV=…" >&2; exit 1; }

$(READY): setup.cfg pyproject.toml | owned
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer on PATH; install one, or set it: make PYTHON=…" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON) (once, and when setup.cfg changes)" >&2
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) >&2 || \
		{ echo "make: $(PYTHON) cannot create a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[grpc,dev]' >&2 || \
		{ echo "make: pip could not install the dependencies into $(VENV); see above" >&2; exit 1; }
	@touch $@

$(DEMO_READY): setup.cfg
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer on PATH; install one, or set it: make PYTHON=…" >&2; exit 1; }
	@echo "installing the program into build/demo (once)" >&2
	@$(PYTHON) -m venv --clear build/demo >&2 || \
		{ echo "make: $(PYTHON) cannot create a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@build/demo/bin/python -m pip install --quiet --disable-pip-version-check --editable . >&2
	@touch $@

$(DOCS_READY): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]' >&2 || \
		{ echo "make: pip could not install the documentation tools into $(VENV); see above" >&2; exit 1; }
	@touch $@
