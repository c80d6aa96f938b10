# Two commands: `make run` shows where the hot and cold memory of a real program is, `make test` proves the build.

CARGO := scripts/cargo.sh
RUN_SECONDS ?= 25

PREFIX ?= /usr/local
# The commands for servers. thermo-lab, which sets up load, swap and control groups, stays in the source tree.
INSTALLED = thermo thermo-nbd
TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)

.PHONY: help run test soak deps build install lint guest guest-damo contest bench clean

help:
	@echo "make run     watch a real program (redis-server), reclaim its cold memory, show what came of it"
	@echo "make test    format, lints, documentation and every test"
	@echo "make soak    minutes of schemes at work, checked by what the kernel says (root)"
	@echo "make build   thermo, thermo-nbd and thermo-lab in target/release"
	@echo "make install  puts the first two and the scheme files below PREFIX (/usr/local), DESTDIR before that"
	@echo "make deps    install the Debian packages that are missing"
	@echo "make lint    format and lints only"
	@echo "make guest   tests of the real command on Debian's 6.1 and 6.12 kernels, in emulated machines"
	@echo "make guest-damo damo over the kernel's DAMON and over ours, in an emulated 6.12 (up to an hour)"
	@echo "make contest in-kernel DAMON and ours side by side, on Debian's 6.12 (about 45 minutes)"
	@echo "make bench   measurements, printed and kept below lab/results"
	@echo "make clean   remove what was built"

run:
	@scripts/run.sh $(RUN_SECONDS)

test: deps-test
	@scripts/test.sh

.PHONY: deps-test
deps-test:
	@scripts/deps.sh build test

deps:
	@scripts/deps.sh build test demo

build:
	@scripts/deps.sh build
	@$(CARGO) build --release --locked

# Of what `make build` made: nothing is compiled as root.
install:
	@for command in $(INSTALLED); do [ -x $(TARGET_DIR)/release/$$command ] || { echo "install: run  make build  first" >&2; exit 2; }; done
	@for command in $(INSTALLED); do install -D -s -m 755 $(TARGET_DIR)/release/$$command $(DESTDIR)$(PREFIX)/bin/$$command || exit 1; done
	@install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/thermocline/schemes schemes/*
	@echo "installed $(INSTALLED) in $(DESTDIR)$(PREFIX)/bin, scheme files in $(DESTDIR)$(PREFIX)/share/thermocline/schemes"

lint:
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --locked --all-targets -- -D warnings

soak: build
	@scripts/deps.sh demo
	@for script in tests/soak/*.sh; do echo "== $$script"; $$script || exit 1; done

# Not a part of `make test`: fetches kernels once, and emulates for minutes.
guest:
	@tests/guest/guest.sh all

# Long: damo starts Python some fifty times, in an emulated machine.
guest-damo:
	@tests/guest/damo.sh

# Long: every pattern is watched by each in turns, in an emulated machine.
contest: build
	@tests/guest/contest.sh

bench: build
	@for script in benches/*.sh; do echo "== $$script"; $$script || exit 1; done

clean:
	@$(CARGO) clean
