# Every target says what it needs, prints what it skipped and why, and exits non-zero on failure.
# `make test` is the whole of what a machine can run; `.ci/run` is `make test` after installing what is missing.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Cargo's own fetches are retried: a registry that answers 503 once is not a failed build.
export CARGO_NET_RETRY ?= 5

# Where cargo builds, as cargo itself is told.
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Below the target folder, so that `cargo clean` takes it too.
TEST_LOG := $(TARGET)/test.log

# The path of the agent that `make build` built.
BUILT = $$(find "$(TARGET)/" -path '*release/stokehold' -type f -print -quit)

DENY_VERSION := 0.20.2

# One line out of the `test result` lines of all test binaries; no test at all is a failure.
FIGURE = awk '/^test result:/ { run += $$4 + $$6; failed += $$6; ignored += $$8 } \
	END { printf "tests: %d run, %d failed, %d ignored\n", run, failed, ignored; exit run == 0 }' "$(TEST_LOG)"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the agent, optimised, as one static binary
	cargo build --release --locked -p stokehold
	@echo "built: $(BUILT)"

.PHONY: install
install: ## copy the built agent and its unit to this machine (root); see systemd/README.md
	install -D -m 0755 "$(BUILT)" /usr/local/bin/stokehold
	install -D -m 0644 systemd/agent.service /etc/systemd/system/stokehold.service
	[ -e /etc/stokehold/agent.yaml ] || install -D -m 0644 systemd/agent.yaml /etc/stokehold/agent.yaml

.PHONY: fmt
fmt: ## check the formatting (cargo fmt --all repairs it)
	cargo fmt --all --check

.PHONY: clippy
clippy: ## all lints on all targets, warnings are errors
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: unit
unit: ## cargo test, with the number of tests run
	@mkdir -p "$(TARGET)"
	@status=0; rm -f "$(TEST_LOG)"; cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$(TEST_LOG)" || status=$$?; \
	$(FIGURE); exit $$status

.PHONY: deny
deny: ## banned crates, licences and sources; advisories where their database can be fetched
	@if ! cargo deny --version >/dev/null 2>&1; then \
		echo "skipped: deny, since cargo-deny is not installed (make deny-tool installs it in about 4 minutes)"; \
		[ "$${CI:-}" != true ]; exit; \
	fi; \
	cargo deny --locked check --hide-inclusion-graph bans licenses sources; \
	if timeout 60 cargo deny fetch db >/dev/null 2>&1; then \
		cargo deny --locked check advisories; \
	else \
		echo "skipped: advisories, since their database, kept on a public git host, could not be fetched from here"; \
	fi

# From the sources on crates.io, 225 s on two busy cores; a no-op when that version is there.
.PHONY: deny-tool
deny-tool: ## install cargo-deny, which make deny needs
	cargo install cargo-deny --locked --version $(DENY_VERSION)

.PHONY: docs
docs: ## rustdoc of every room, warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

.PHONY: test
test: ## all that this machine can run: fmt, clippy, tests, deny, docs
	@started=$$(date +%s); failed=""; \
	for step in fmt clippy unit deny docs; do \
		echo "== $$step"; \
		begun=$$(date +%s); \
		if $(MAKE) --no-print-directory $$step; then verdict=passed; else verdict=FAILED; failed="$$failed $$step"; fi; \
		echo "== $$step: $$verdict in $$(($$(date +%s) - begun)) s"; \
	done; \
	echo "== all steps in $$(($$(date +%s) - started)) s; failed:$${failed:- none}"; \
	$(FIGURE) && [ -z "$$failed" ]

.PHONY: demo
demo: ## stage a made model, kill and resume the agent, show it ready (no root, no cluster; needs python3 with pip)
	cargo run --locked -p stokehold-tests --bin demo

.PHONY: bench
bench: ## staging 2 GiB beside cp of the same bytes, and the idle agent; needs 10 GB of disk and python3 with pip; ROUNDS=5
	@cargo build --quiet --profile speed -p stokehold
	@STOKEHOLD_BIN=$$(realpath "$(TARGET)"/*/speed/stokehold | head -n 1) cargo run --quiet -p stokehold-tests --bin bench -- $(or $(ROUNDS),5)

.PHONY: demo-cluster
demo-cluster: ## a two-node Kubernetes cluster with the manifests as shipped
	@echo "demo-cluster: not in this release, which has no Kubernetes part yet; make demo shows the standalone agent" >&2; exit 1

.PHONY: test-vm
test-vm: ## NVMe, RAID and kernel quotas in a virtual machine
	@echo "test-vm: not in this release, which claims no disks and sets no kernel quotas yet" >&2; exit 1

.PHONY: test-images
test-images: ## image pulls on every supported containerd
	@echo "test-images: not in this release, which pulls no images yet" >&2; exit 1
