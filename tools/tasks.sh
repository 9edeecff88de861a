#!/usr/bin/env bash
# The tests of processor time in the kernel, in machines of tools/kernel.sh. `decisions`: these and who
# dies when, on two processors. `players`: beside programs that never sleep, on a machine whose time is
# counted in instructions, so that its figures are the same every time. A few minutes each.
# Usage: tools/tasks.sh [decisions|players]...   (default: both)
set -uo pipefail
cd "$(dirname "$0")/.." || exit
tests=$(tools/built_test.sh tasks) || exit
boot() {
  tools/kernel.sh run --mem 1024 --add "$tests:bin/tasks" --add target/debug/selvedge "$@"
  local status=$?
  # Skipped is not failed; the line that says so has been printed.
  [ "$status" -eq 77 ] && exit 0
  return "$status"
}
decisions() {
  boot --in-turn --timeout 900 -- tasks --ignored --nocapture --test-threads=1 --skip players
}
# What is counted may wait for other programs as long as it likes.
players() {
  boot --count --timeout 5400 -- dash -c 'SELVEDGE_COUNTED=1 tasks --ignored --nocapture --test-threads=1 players'
}
for part in ${*:-decisions players}; do "$part" || exit; done
