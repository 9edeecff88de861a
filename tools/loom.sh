#!/usr/bin/env bash
# Every interleaving that loom can reach of the ring's and the pool's atomics, of a stack's pipes
# while their users come and go, and of its wake-ups.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
  cargo test --locked -p selvedge-data-memory -p selvedge-comm-stack --release --test loom
