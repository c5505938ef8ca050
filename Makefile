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

test: deps cluster-build ## every test: unit, integration (real kube-apiserver), end to end (real cluster)
	@scripts/test.sh

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
.PHONY: unit tsan integration e2e fuzz soak skew bench
unit: deps ## seconds; needs no cluster
	@scripts/test.sh unit
tsan: deps ## the controller runtime's unit tests under ThreadSanitizer (TSAN=-Lease*: without these; a gtest filter)
	@scripts/build.sh tsan kube_test
	@build/tsan/tests/unit/kube/kube_test --gtest_brief=1 --gtest_filter='$(or $(TSAN),*)'
integration: deps cluster-build ## against a real kube-apiserver and etcd on loopback
	@scripts/test.sh integration
e2e: deps cluster-build ## on the local cluster
	@scripts/test.sh e2e
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
.PHONY: format lint
SOURCES = $(shell git ls-files '*.cc' '*.h' '*.c')
SCRIPTS = $(shell git ls-files | grep -v '^tests/cluster/modules/' | xargs grep -lE '^\#!/bin/(ba)?sh|^\# shellcheck shell=' 2>/dev/null)
format: ## clang-format, in place
	@clang-format-14 -i $(SOURCES)
lint: ## clang-format (check only), shellcheck, clang-tidy
	@clang-format-14 --dry-run -Werror $(SOURCES)
	@shellcheck -x -P SCRIPTDIR $(SCRIPTS)
	@cmake -S . -B build/tidy -G Ninja -DHOLDFAST_FAULT_POINTS=ON -DHOLDFAST_BENCH=ON -DHOLDFAST_FUZZ=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
	@git ls-files '*.cc' | xargs -P2 -n4 clang-tidy-14 --quiet --extra-arg=-Wno-unknown-warning-option -p build/tidy
