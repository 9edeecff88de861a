#!/usr/bin/env bash
# Builds integration tests as all tests are built, and prints the path of each program, in the order
# of the names. Usage: tools/built_test.sh NAME...
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# Without an example among the targets, cargo would choose fewer features.
cargo build --locked --workspace --all-features --bin selvedge --example fake_node || exit
for name in "$@"; do
  built=(cargo test --locked --workspace --all-features --no-run --test "$name")
  "${built[@]}" >&2 || exit
  "${built[@]}" --message-format json 2> /dev/null | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
done
