#!/usr/bin/env bash
# The tests of processor time in the kernel: boots the machine of tools/kernel.sh twice. First decisions
# and who dies when, on two processors; then players beside programs that never sleep, on a machine whose
# time is counted in instructions, so that its figures are the same every time. A few minutes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# As all tests are built, so that what these need is not built once more with other features.
cargo build --locked --workspace --all-features --bin selvedge || exit
every=(cargo test --locked --workspace --all-features --test tasks --no-run)
"${every[@]}" || exit
tests=$("${every[@]}" --message-format json 2> /dev/null |
  sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
boot() {
  tools/kernel.sh run --mem 1024 --timeout 900 --add "$tests:bin/tasks" --add target/debug/selvedge "$@"
  local status=$?
  # Skipped is not failed; the line that says so has been printed.
  [ "$status" -eq 77 ] && exit 0
  return "$status"
}
boot --in-turn -- tasks --ignored --nocapture --test-threads=1 --skip players || exit
boot --count -- dash -c 'SELVEDGE_COUNTED=1 tasks --ignored --nocapture --test-threads=1 players'
