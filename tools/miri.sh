#!/usr/bin/env bash
# The unsafe code of ring and pool under Miri, and what stands on it: the pipes of stacks with elements
# that come and go, and slaves (rayon, whose own queues need the borrow rules of trees).
set -euo pipefail
cd "$(dirname "$0")/.."
CARGO_TARGET_DIR=target/miri cargo +nightly miri test --locked -p selvedge-stream
