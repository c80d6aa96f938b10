# The two main targets: `make run` shows the hot and cold memory of a real program, `make test` runs every
# check.

CARGO := scripts/cargo.sh
RUN_SECONDS ?= 25

PREFIX ?= /usr/local
TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)

.PHONY: help run test python fleet soak kills strangers faults fuzz nightly deps build install lint guest guest-damo contest bench dashboard story top dist clean

help:
	@echo "make run         monitor a real program (redis-server), reclaim its cold memory, print the effect"
	@echo "make test        format, lints, documentation and every test"
	@echo "make python      the Python module with Python 3.11 to 3.13: types and tests"
	@echo "make fleet       the package for fleets: types and tests, with a standalone cluster of Spark (Java 17)"
	@echo "make soak        run schemes for minutes and check their effect by the kernel's counters (root)"
	@echo "make fuzz        fuzz every parser and protocol, FUZZ_SECONDS each (60)"
	@echo "make nightly     what takes too long for make test: each fuzz target for 10 s"
	@echo "make build       thermo, thermo-nbd and thermo-lab in target/release"
	@echo "make install     install thermo and thermo-nbd with man pages, completions and scheme files in"
	@echo "                 DESTDIR/PREFIX (/usr/local)"
	@echo "make deb         build Debian packages in target/debian"
	@echo "make image       build the container image of the agent in target/image"
	@echo "make kubernetes  start the image as the Helm chart describes it, in an emulated Debian 12 (root)"
	@echo "make packages    install, upgrade and purge the packages in emulated Debian 12 and 13"
	@echo "make helm        check the Helm chart: schemas of Kubernetes, security properties (builds helm once)"
	@echo "make kills       kill every command 1,000 times at random moments, and check what is left (root)"
	@echo "make faults      make system calls of each command fail, and check what it does (root)"
	@echo "make strangers   hostile clients at every socket and control file (root)"
	@echo "make deps        install the missing Debian packages"
	@echo "make lint        format and lints only"
	@echo "make guest       test the commands on Debian's 6.1 and 6.12 kernels, in emulated machines"
	@echo "make guest-damo  damo with the kernel's DAMON and with thermo, in an emulated 6.12 (up to an hour)"
	@echo "make contest     compare in-kernel DAMON with thermo on Debian's 6.12 (about 45 minutes)"
	@echo "make story       the agent with redis and MariaDB, from observing to undoing (root, 8 minutes)"
	@echo "make docs        build the documentation site in target/docs (compiles mdBook once)"
	@echo "make docs-test   run the command lines of the documentation (root, 2 minutes)"
	@echo "make top         check thermo top in tmux, at two sizes"
	@echo "make dashboard   check the agent's dashboard in Chromium, against made-up figures"
	@echo "make bench       run the benchmarks, print the results and save them in lab/results"
	@echo "make dist        a release in target/dist: source that builds offline, binaries, SBOM, checksums"
	@echo "make clean       remove the build output"

run:
	@scripts/run.sh $(RUN_SECONDS)

test: deps-test
	@scripts/test.sh

# `make test` checks it with one version of Python.
python: deps-test
	@$(CARGO) build --locked -p thermo-cli --bin thermo -p thermo-web --example fake_agent
	@scripts/python.sh

# Not part of `make test`: Spark takes minutes.
fleet:
	@scripts/fleet.sh

.PHONY: deps-test
deps-test:
	@echo "test: about 15 minutes on two CPUs the first time, 8 once it is built; missing Debian packages are named and installed"
	@scripts/deps.sh build test

deps:
	@scripts/deps.sh build test demo

build:
	@scripts/deps.sh build
	@$(CARGO) build --release --locked

# Installs the output of `make build`, so that nothing is compiled as root.
install:
	@TARGET_DIR=$(TARGET_DIR) PREFIX=$(PREFIX) packaging/install.sh

# Debian packages, in TARGET_DIR/debian.
.PHONY: deb packages
deb:
	@scripts/deps.sh build
	@scripts/small.sh
	@scripts/deps.sh packages
	@TARGET_DIR=$(TARGET_DIR) packaging/deb.sh

# The container image of the agent, from the package. Built twice, and compared.
.PHONY: image kubernetes
image: deb
	@scripts/deps.sh machines
	@TARGET_DIR=$(TARGET_DIR) scripts/image.sh --check

# Not part of `make test`: it needs an image and helm, and emulation takes minutes.
kubernetes:
	@scripts/deps.sh guest machines
	@TARGET_DIR=$(TARGET_DIR) tests/kubernetes.sh

# Not part of `make test`: it downloads packages of Debian 12 and 13, and emulation takes minutes.
packages:
	@scripts/deps.sh build packages guest machines
	@scripts/small.sh
	@tests/packages.sh

# Not part of `make test`: it builds helm with Go, which takes minutes once.
.PHONY: helm
helm:
	@TARGET_DIR=$(TARGET_DIR) scripts/helm.sh

lint:
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --locked --all-targets -- -D warnings

soak: build
	@scripts/deps.sh demo
	@for script in tests/soak/*.sh; do echo "== $$script"; $$script || exit 1; done

kills: build
	@scripts/deps.sh demo
	@tests/kills/kills.sh

strangers: build
	@tests/strangers/strangers.sh

faults: build
	@tests/faults/faults.sh

# libFuzzer makes up inputs; the targets are in fuzz/. `make test` only replays their corpus.
fuzz:
	@scripts/deps.sh build fuzz
	@scripts/fuzz.sh

nightly:
	@scripts/deps.sh build fuzz
	@FUZZ_SECONDS=10 scripts/fuzz.sh

# Not part of `make test`: it downloads kernels once, and emulation takes minutes.
guest:
	@tests/guest/guest.sh all

# Slow: damo starts Python about fifty times in an emulated machine.
guest-damo:
	@tests/guest/damo.sh

# Slow: DAMON and thermo monitor every pattern one after the other in an emulated machine.
contest: build
	@tests/guest/contest.sh

story: build
	@tests/story.sh

top: build
	@tests/top.sh

# Builds twice in different folders and compares, which takes twice the time: `scripts/dist.sh` builds once.
dist:
	@scripts/deps.sh build
	@scripts/dist.sh --check

.PHONY: docs docs-test
docs:
	@scripts/book.py $(TARGET_DIR)/docs

# Not part of `make test`, which parses the command lines: running them takes minutes.
docs-test: build
	@scripts/deps.sh demo
	@tests/documents/run.py

# Not part of `make test`: it needs a browser.
dashboard:
	@scripts/deps.sh build dashboard
	@$(CARGO) build --locked -p thermo-web --example fake_agent
	@tests/dashboard.sh

bench: build
	@for script in benches/*.sh; do echo "== $$script"; $$script || exit 1; done

clean:
	@$(CARGO) clean
