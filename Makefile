# Two commands do everything: `make demo` and `make test`. Both install what is missing first.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)
ARGS ?=
PREFIX ?= /usr/local
PROGRAMS = -p selvedge -p selvedge-place-coprocessor -p selvedge-media-plugin -p selvedge-comm-frames-c

.PHONY: help demo build lab experiments plugin manual install uninstall deb test fuzz soak arm64 sbom clean

help: ## what there is
	@sed -n 's/^\([a-z0-9]*\):.*## /\1  /p' $(MAKEFILE_LIST) | column -t -s '  ' -l 2

demo: build ## install what is missing, build, run the main job on real media (ARGS="--share 0.53")
	target/release/selvedge demo $(ARGS)

build: ## target/release/selvedge, and selvedge-coproc and the GStreamer element beside it
	@tools/setup.sh build
	cargo build --release --locked $(PROGRAMS)

# Figures are taken as packages are built: with optimisation across crates.
lab: ## target/release/selvedge-lab: benchmarks and the papers' experiments
	@tools/setup.sh build
	cargo build --profile dist --locked -p selvedge-lab -p selvedge-place-coprocessor
	@mkdir -p target/release
	ln -sf ../dist/selvedge-lab target/release/selvedge-lab

experiments: lab ## docs/experiments.md: the first three papers' rows, two hours of an idle machine (ARGS="--quick": minutes)
	target/release/selvedge-lab repro --report docs/experiments.md $(ARGS) \
	  $$(target/release/selvedge-lab repro --list | grep -oE '^(ni|ss|ca)-[a-z0-9]+')

plugin: ## target/release/libgstselvedge.so, the GStreamer element
	@tools/setup.sh build
	cargo build --release --locked -p selvedge-media-plugin

# The programs are built without what makes the manual.
manual: ## target/release/selvedge-manual, which makes man pages and completions
	@tools/setup.sh build
	cargo build --release --locked $(PROGRAMS) --features selvedge/manual
	mv target/release/selvedge target/release/selvedge-manual

install: ## copy programs, man pages, completions and a systemd unit into PREFIX (/usr/local), after `make manual build`
	@PREFIX=$(PREFIX) tools/install.sh install

uninstall: ## remove what `make install` copied into PREFIX
	@PREFIX=$(PREFIX) tools/install.sh uninstall

deb: manual build ## target/selvedge_VERSION_ARCHITECTURE.deb
	@tools/deb.sh

test: ## install what is missing, run every check, print one line that sums up
	@tools/setup.sh test
	@tools/check.sh

fuzz: build ## fuzz networks (SEEDS=100000), then each target for a long time (SECONDS_EACH=600)
	@tools/setup.sh test
	target/release/selvedge sim fuzz --seeds $${SEEDS:-100000}
	tools/fuzz.sh $${SECONDS_EACH:-600}

soak: ## what takes long, ten minutes each or more (ARGS="--quick": a minute each)
	@tools/setup.sh soak
	tools/soak.sh $(ARGS)

arm64: ## build for 64-bit ARM on another machine, and run that under QEMU's user mode
	@tools/arm64.sh

sbom: ## target/sbom.json: what is in the programs, with versions, licences and checksums (CycloneDX)
	@tools/setup.sh build
	@mkdir -p target
	tools/sbom.sh > target/sbom.json

clean: ## remove what was built
	cargo clean
	rm -rf out tests/page/node_modules fuzz/target
