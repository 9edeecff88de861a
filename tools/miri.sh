#!/usr/bin/env bash
# The unsafe code of ring and pool under Miri, and what stands on it: the pipes of stacks, with
# elements that come and go.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=target/miri
cargo +nightly miri test --locked -p selvedge-stream
cargo +nightly miri test --locked -p selvedge-stack --lib -- pipe:: element::tests::locks \
  element::tests::ten_thousand_reassignments_on_threads
