#!/usr/bin/env bash
# Every interleaving that loom can reach of the ring's and the pool's atomics.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
  cargo test --locked -p selvedge-stream --release --test loom
