#!/usr/bin/env bash
# Runs compiled E-code under valgrind: machine code in memory of our own, and what the kernel maps.
# Usage: tools/code.sh
set -euo pipefail
cd "$(dirname "$0")/.."
test=$(cargo test --locked --workspace --all-features --test thesis --no-run --message-format json 2>/dev/null |
  sed -n 's/.*"executable":"\([^"]*thesis[^"]*\)".*/\1/p' | tail -n 1)
exec valgrind --quiet --error-exitcode=9 --smc-check=all "$test"
