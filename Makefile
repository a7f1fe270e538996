# The two commands of the README are `make demo` and `make test`. `make help` lists the rest.

PREFIX ?= /usr/local
RELEASE := target/release/homenode

.PHONY: help demo test test-long explore fuzz lab build guest dependencies bench documentation install clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: build ## install what is needed, build, run STREAM on this host and in VMs, print the tables
	$(RELEASE) evaluate experiments/stream.toml

test: dependencies guest ## run the tests: format, lints, units, real QEMU, real guests, a real libvirt, the lab
	@scripts/install-dependencies test
	scripts/test

test-long: dependencies guest ## run the tests that take long: more of the lab, the clouds' own code
	@scripts/install-dependencies test
	scripts/test-long

explore: dependencies ## run the properties with new cases for SECONDS (default 300)
	nice scripts/explore $(or $(SECONDS),300)

fuzz: dependencies ## give every reader what a fuzzer draws, for SECONDS (default 300) together
	@scripts/install-dependencies fuzz
	nice scripts/fuzz $(or $(SECONDS),300)

build: dependencies guest ## build homenode and its tiny guest
	HOMENODE_COMMIT="$$(git rev-parse --short HEAD 2>/dev/null)" scripts/cargo build --release --workspace --locked

guest: dependencies ## fetch the guest's kernel and build its init
	scripts/guest-image

dependencies: ## install the Debian packages that are missing (needs root only if one is)
	@scripts/install-dependencies

lab: build ## check homenode on an emulated machine of four NUMA nodes, with KVM inside
	scripts/lab --boot

bench: build ## print every figure of docs/speed.md; asserts nothing
	@scripts/install-dependencies bench
	bench/run

documentation: build ## completions and the manual page, into target/documentation
	scripts/documentation

install: documentation ## install into PREFIX (default /usr/local)
	scripts/install "$(PREFIX)"

clean: ## remove everything that was built
	rm -rf target
