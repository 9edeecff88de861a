#!/usr/bin/env bash
# Runs compiled E-code under valgrind: machine code in memory of our own, and what the kernel maps.
# Usage: tools/code.sh
set -euo pipefail
cd "$(dirname "$0")/.."
test=$(tools/built_test.sh thesis)
exec valgrind --quiet --error-exitcode=9 --smc-check=all "$test"
