# What one does with Holdfast from a clone. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BUILD ?= build/release

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2} /^##@/ {print "\n" substr($$0, 5)}' $(MAKEFILE_LIST)

##@ See it work (Debian 12, root)
.PHONY: demo demo-down test
demo: deps cluster-build ## local cluster, Holdfast, a counter, three drains, nothing lost
	@HF_FAULT_POINTS= scripts/install-local.sh
	@python3 scripts/demo.py
demo-down: cluster-down ## remove what demo started

test: deps cluster-build ## the gate: unit, integration (real kube-apiserver), and an end-to-end test for every promise (real clusters)
	@scripts/test.py

##@ Build
.PHONY: deps build build-test image clean
deps: ## Debian packages and Go, where missing
	@scripts/install-deps.sh
build: ## release build in build/release
	@scripts/build.sh release
build-test: ## build with tests, AddressSanitizer and fault points in build/test
	@scripts/build.sh test
image: cluster-build ## the image as an OCI archive, without an image engine (BUILD=build/faults: another build than build/release)
	@scripts/build.sh $(notdir $(BUILD))
	@scripts/make-image.sh $(BUILD)
clean: ## remove build folders; what ~/.cache holds stays
	rm -rf build

##@ Local cluster: three nodes on this machine
.PHONY: cluster-build cluster cluster-down
cluster-build: deps
	@tests/cluster/build.sh
cluster: cluster-build ## build what is missing and start it (HF_SLOT=1: a second one beside the first)
	@tests/cluster/up.sh
cluster-down: ## stop it and remove all its state but the binaries
	@tests/cluster/down.sh

##@ Parts of the tests
.PHONY: test-all broken broken-sim sim unit tsan integration e2e compat hub fuzz soak skew bench
test-all: deps cluster-build ## every test, and a minute of fuzzing each target (an hour)
	@scripts/test.py --all
broken: deps cluster-build ## break a promise after another on purpose (tests/gate): a test must see each (BROKEN=skip_a_freeze: this one)
	@tests/gate/broken.py $(BROKEN)
broken-sim: deps ## the same, by faults that were mended once (tests/gate/sim): the simulation must find each again
	@tests/gate/broken.py --sim $(BROKEN)
sim: deps ## the whole product in one process and virtual time: the story of one seed (SEED=42), or many (SIM="--seeds 1000 --shrink")
	@scripts/build.sh sim holdfast-sim
	@build/sim/tests/sim/holdfast-sim seed=$(or $(SEED),1) $(or $(SIM),--story)
unit: deps ## seconds; needs no cluster
	@scripts/test.py unit
tsan: deps ## the controller runtime's unit tests under ThreadSanitizer (TSAN=-Lease*: without these; a gtest filter)
	@scripts/build.sh tsan kube_test
	@build/tsan/tests/unit/kube/kube_test --gtest_brief=1 --gtest_filter='$(or $(TSAN),*)'
integration: deps cluster-build ## against a real kube-apiserver and etcd on loopback, also what make test leaves out
	@scripts/test.py integration
e2e: deps cluster-build ## all end-to-end tests, on two local clusters
	@scripts/test.py e2e
compat: deps cluster-build ## the real software of docs/compatibility.md, also what needs big packages (COMPAT=redis,jvm: these only)
	@HF_FAULT_POINTS=1 scripts/install-local.sh
	@HF_INSTALLED=1 HF_HEAVY=1 HF_WORKLOADS=$(COMPAT) python3 -B -m pytest -q -s -p no:cacheprovider tests/e2e/test_compatibility.py
hub: deps cluster-build ## a real JupyterHub whose servers sleep on the local cluster (jupyterhub/)
	@HF_FAULT_POINTS=1 scripts/install-local.sh
	@scripts/hub.sh
fuzz: deps ## hostile input, a minute each target (FUZZ="600 watch": ten, that target)
	@scripts/fuzz.sh $(FUZZ)
soak: deps cluster-build ## hours of drains and faults (SOAK="--minutes 60"); writes bench/results/soak.json
	@HF_FAULT_POINTS=1 scripts/install-local.sh
	@python3 scripts/soak.py $(SOAK)
skew: deps cluster-build ## this tree and the release before side by side (REF=tag: another one)
	@HF_FAULT_POINTS=1 scripts/install-local.sh
	@python3 scripts/skew.py $(REF)
bench: deps ## BENCH=name: measure afresh (bench/name) and write bench/results/name.json
	@[ -x "bench/$(BENCH)" ] || { echo "make bench BENCH=name; there are: $$(cd bench 2>/dev/null && find . -maxdepth 1 -type f -executable -printf '%f ')"; exit 2; }
	@bench/$(BENCH)

##@ Code
.PHONY: format format-check lint
SOURCES = $(shell git ls-files -co --exclude-standard '*.cc' '*.h' '*.c')
SCRIPTS = $(shell git ls-files -co --exclude-standard | grep -v '^tests/cluster/components/' | xargs grep -lE '^\#!/bin/(ba)?sh|^\# shellcheck shell=' 2>/dev/null)
format: ## clang-format, in place
	@clang-format-14 -i $(SOURCES)
format-check: ## clang-format (check only), shellcheck, and that tests/gate's patches apply; make test begins with it
	@clang-format-14 --dry-run -Werror $(SOURCES)
	@shellcheck -x -P SCRIPTDIR $(SCRIPTS)
	@for patch in tests/gate/*.patch tests/gate/sim/*.patch; do git apply --check "$$patch" || exit 1; done
lint: format-check ## the same, and clang-tidy
	@CC=clang-14 CXX=clang++-14 cmake -S . -B build/tidy -G Ninja -DHOLDFAST_FAULT_POINTS=ON -DHOLDFAST_BENCH=ON -DHOLDFAST_FUZZ=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
	@git ls-files '*.cc' | xargs -P2 -n4 clang-tidy-14 --quiet --extra-arg=-Wno-unknown-warning-option -p build/tidy
