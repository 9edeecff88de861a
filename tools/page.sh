#!/usr/bin/env bash
# The page in a real browser, against nodes that the tests start; and its types. PAGE_SECONDS=600 plays for
# ten minutes, and asks that no gap between two pictures is over 200 ms. A long run runs one file at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
# As the tests build them.
cargo build --locked --workspace --all-features --bin selvedge --example fake_node
export SELVEDGE="${SELVEDGE:-$(realpath "${CARGO_TARGET_DIR:-target}")/debug/selvedge}"
cd tests/page
npm run --silent types
# Each file may take 180 s. A long run needs more: its videos play for PAGE_SECONDS.
npm test --silent -- --test-reporter=tap \
  ${PAGE_SECONDS:+--test-concurrency=1 --test-timeout=$(((PAGE_SECONDS + 240) * 1000))}
