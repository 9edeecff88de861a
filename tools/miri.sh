#!/usr/bin/env bash
# The unsafe code of ring and pool under Miri.
set -euo pipefail
cd "$(dirname "$0")/.."
CARGO_TARGET_DIR=target/miri cargo +nightly miri test --locked -p selvedge-stream
