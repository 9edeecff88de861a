#!/usr/bin/env bash
# Runs every experiment in virtual time, the quick way, and fails if a claim does. What they leave
# goes to out/repro, and so does the record of outcomes: the user's own is not touched.
set -euo pipefail
cd "$(dirname "$0")/.."
export XDG_STATE_HOME=$PWD/out/repro/state
# As all tests are built: without an example among the targets, cargo would choose fewer features.
cargo build --quiet --locked --workspace --all-features --bin selvedge-lab --example fake_node
exec "${CARGO_TARGET_DIR:-target}/debug/selvedge-lab" repro --all --kind V --quick --out out/repro
