# What can be done here; `make help` lists it.

CARGO ?= cargo
# The tree `make demo` copies.
TREE ?= /usr/share/doc
# Cuts of the campaign and which share of it to judge, i/n.
CUTS ?= 1000000
SHARD ?= 1/1

# $(call tool,COMMAND,CRATE@VERSION): programs that cargo can install stay in the target folder.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)
tool = command -v $(1) >/dev/null || $(CARGO) install --locked --root target/tools $(2)
CARGO_DEB = $(call tool,cargo-deb,cargo-deb@3.8.0)

.PHONY: help demo campaign figures-check test test-all test-kernel lint bench docs deb dist check-targets
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: ## cut the power 1,000 times per mode and report (TREE=/usr/share/doc)
	$(CARGO) build --release --package strandline
	target/release/strandline lab run demo --tree $(TREE) --out target/demo

# Each drive, workload and mode has the same share of the cuts. Several machines take a share each;
# `strandline crash merge target/campaign/*.jsonl` adds up what they found.
campaign: STRANDLINE = target/release/strandline
campaign: SHARE = target/campaign/$(subst /,-of-,$(SHARD)).jsonl
campaign: ## 1,000,000 power cuts over all OPRW modes and drives (CUTS=10000 SHARD=1/4)
	$(CARGO) build --release --package strandline
	mkdir -p target/campaign && : > $(SHARE)
	@for on in zn540-noplp:oprw,oprw-nobarrier,oprw-strict zn540:oprw,oprw-nobarrier,oprw-strict \
	    conventional-noplp:oprw-strict; do \
	  for workload in pattern random-overwrite varmail versions; do \
	    echo "$${on%:*}, $$workload, shard $(SHARD)"; \
	    $(STRANDLINE) crash --drive $${on%:*} --workload $$workload \
	      --modes $${on#*:} --cuts $$((($(CUTS) + 27) / 28)) \
	      --shard $(SHARD) >> $(SHARE) || [ $$? -eq 1 ] || exit; \
	  done; \
	done
ifeq ($(SHARD),1/1)
	$(STRANDLINE) crash merge $(SHARE)
endif

lint: ## formatting, clippy, the rules of the house
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features --release --target-dir target/test \
	  -- --deny warnings
	$(CARGO) xtask tidy

# The heavy suites need optimised code. Checks stay on, and the linker's optimisation off: it would
# take longer than the tests it speeds up. A panic says its line without symbols for a debugger.
# The lint has the same profile, so that what runs in the compiler is built once.
lint test test-all test-kernel docs: export CARGO_PROFILE_RELEASE_LTO = off
lint test test-all test-kernel docs: export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS = true
lint test test-all test-kernel docs: export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS = true
lint test test-all test-kernel docs: export CARGO_PROFILE_RELEASE_DEBUG = 0
# The command would be compiled anew after every commit if it said which one it is of.
lint test test-all test-kernel docs figures-check: export STRANDLINE_COMMIT =

test: lint ## everything that fits in ten minutes
	$(CARGO) test --workspace --release --all-features --target-dir target/test

# Built together, packages share the features of their dependencies, and with those that only tests
# ask for. So the command is built alone, too, and some tests use that one: mounted/shipped.rs.
SHIPPED = target/test/shipped/strandline
test-all: test ## that, the long suites, and the licences of all dependencies
	judges/prepare
	$(CARGO) build --package strandline --release --target-dir target/test
	install -D target/test/release/strandline $(SHIPPED)
	STRANDLINE=$(CURDIR)/$(SHIPPED) $(CARGO) test --package strandline --release --all-features \
	  --test it --test mounted --target-dir target/test -- shipped:: docs:: check_program::
	$(CARGO_DEB)
	$(CARGO) test --workspace --release --all-features --target-dir target/test -- --ignored
	@if ! command -v cargo-deny >/dev/null; then \
	  echo "test-all: cargo-deny is not installed, licences not checked"; exit; fi; \
	$(CARGO) deny check --hide-inclusion-graph bans licenses sources || exit; \
	if $(CARGO) deny fetch db 2>/dev/null; then $(CARGO) deny check advisories; \
	else echo "test-all: no way to the advisory database, advisories not checked"; fi

# The kernel's verdicts. `test-all` runs them too, but for the last: speed as users have it.
test-kernel: ## the Linux kernel as judge, in QEMU (guest/prepare --install gets what it needs)
	guest/prepare
	guest/suites
	$(CARGO) test --package strandline-linux --release --target-dir target/test -- --ignored
	$(CARGO) test --package strandline --test it --features auth --release \
	  --target-dir target/test -- --ignored nvme_kernel:: nvme_suites:: nvme_auth:: \
	  kernel_crash:: kernel_fsync:: bench::
	env -u CARGO_PROFILE_RELEASE_LTO -u CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS \
	  -u CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS \
	  $(CARGO) test --package strandline-linux --test verdicts --release speed -- --ignored

bench: ## the measured figures
	$(CARGO) bench --workspace

figures-check: export CARGO_PROFILE_RELEASE_LTO = off
figures-check: ## whether the book's figures are what their commands print (make test has the quick ones)
	$(CARGO) test --package strandline --test it --release --target-dir target/test docs::figures -- \
	  --include-ignored

# The links are checked by tidy, and the commands by a test, so both are part of `make test`, too.
docs: ## the book, in target/book, and whether its links and commands are good
	$(CARGO) xtask tidy
	$(CARGO) test --package strandline --test it --release --target-dir target/test docs::
	$(call tool,mdbook,mdbook@0.5.4 --no-default-features --features search)
	mdbook build docs

deb: ## the Debian package
	$(CARGO_DEB)
	$(CARGO) xtask package

# rustup adds the standard library of a target once.
MUSL = x86_64-unknown-linux-musl
IMAGE = target/dist/strandline-oci.tar
dist: export CARGO_PROFILE_RELEASE_STRIP = symbols
dist: ## target/dist: a static binary, an OCI image of it, the Debian package
	rustup target add $(MUSL)
	$(CARGO) build --release --package strandline --target $(MUSL) --target-dir target
	rm -rf target/dist && mkdir -p target/dist
	cp target/$(MUSL)/release/strandline target/dist/strandline-x86_64
	packaging/oci-image target/dist/strandline-x86_64 $(IMAGE)
	packaging/try-oci-image target/dist/strandline-x86_64 $(IMAGE)
	$(CARGO_DEB)
	cp "$$($(CARGO) xtask package)" target/dist/
	@echo "dist: the Debian package is untested (make test-all installs it into an overlay)"
	cd target/dist && sha256sum * >SHA256SUMS

# The file system and its tools, without mounts. Only checked: nothing runs the result here.
TARGETS = x86_64-apple-darwin x86_64-pc-windows-gnu
check-targets: ## whether the library compiles for macOS and Windows, the command without features
	rustup target add $(TARGETS)
	$(CARGO) check --package strandline-f2fs $(TARGETS:%=--target %)
	$(CARGO) check --package strandline --no-default-features
