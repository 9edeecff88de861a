#!/usr/bin/env bash
# The page in a real browser, against nodes that the tests start; and its types. PAGE_SECONDS=600 plays for
# ten minutes, after the other tests and not beside them, and asks that no gap between two pictures is over 200 ms.
set -euo pipefail
cd "$(dirname "$0")/.."
# As the tests build them.
cargo build --locked --workspace --all-features --bin selvedge --example fake_node
export SELVEDGE="${SELVEDGE:-$(realpath "${CARGO_TARGET_DIR:-target}")/debug/selvedge}"
cd tests/page
npm run --silent types
# No file takes longer than the one that plays for PAGE_SECONDS, a minute of it with the tab stopped.
npm test --silent -- --test-reporter=tap --test-timeout=$(((${PAGE_SECONDS:-8} + 240) * 1000)) \
  ${PAGE_SECONDS:+--test-concurrency=1}
