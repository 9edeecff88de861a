#!/usr/bin/env bash
# The page in a real browser, against a node that the test starts; and its types.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --locked -p selvedge-web --example fake_node
cd tests/page
npm run --silent types
npm test --silent -- --test-reporter=tap
