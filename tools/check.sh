#!/usr/bin/env bash
# Every check, in order of cost. Prints a line for each, and at the end `N passed, N failed,
# N skipped`: single tests of the test runners, and 1 for each check that is a single thing.
# Logs are kept in out/check/. Exit status 0 only if nothing failed.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=out/check
# No check may take longer, in seconds; one that does is ended, and has failed.
limit=3000
mkdir -p "$logs"
passed=0 failed=0 skipped=0
began=$SECONDS

# Runs one check: its name, then the command. Test runners' own closing lines are added up.
check() {
  local name=$1 log=$logs/$1.log from=$SECONDS
  shift
  printf '%-12s ' "$name"
  timeout -k 60 $limit "$@" > "$log" 2>&1 < /dev/null
  local status=$? p f s
  [ $status -ne 124 ] || echo "ended after $limit s" >> "$log"
  read -r p f s < <(awk '
    /^test result:/ { p += $4; f += $6; s += $8 }
    /^# pass / { p += $3 } /^# fail / { f += $3 } /^# skipped / { s += $3 }
    /^SKIPPED:/ { s += 1 }
    END { print p + 0, f + 0, s + 0 }' "$log")
  [ $((p + f + s)) -eq 0 ] && [ $status -eq 0 ] && p=1
  [ $status -ne 0 ] && [ "$f" -eq 0 ] && f=1
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  if [ $status -eq 0 ]; then
    printf 'ok      %4d passed  %4d s\n' "$p" $((SECONDS - from))
  else
    printf 'FAILED  %4d passed, %d failed  %4d s, the log %s ends:\n' "$p" "$f" $((SECONDS - from)) "$log"
    grep -E '^(error|test .* FAILED|.*panicked at)' "$log" | head -n 20
    tail -n 40 "$log"
  fi
  grep -hE '^(SKIPPED|UNSTEADY):' "$log"
  return 0
}

skip() {
  printf '%-12s SKIPPED: %s\n' "$1" "$2"
  skipped=$((skipped + 1))
}

check manifest cargo metadata --no-deps --format-version 1 --locked
check fmt cargo fmt --all --check
check circles bash -c 'tools/circles.sh --self-test && tools/circles.sh'
check clippy cargo clippy --quiet --locked --workspace --all-targets --all-features -- -D warnings
# Tests that run in another kernel only are no target of --all-targets.
check clippy-vm cargo clippy --quiet --locked -p selvedge-place-kernel --test attach --test replay -- -D warnings
check deny cargo deny --all-features check licenses bans sources
# Peers to measure against are a workspace of their own, too large to be built each time.
check peers cargo metadata --format-version 1 --locked --manifest-path lab/peers/event/Cargo.toml
check deny-peers cargo deny --manifest-path lab/peers/event/Cargo.toml --config "$PWD/deny.toml" \
  --all-features check licenses bans sources
check slim cargo clippy --quiet --locked -p selvedge -p selvedge-lab --no-default-features -- -D warnings
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
check test env "CARGO_TARGET_${host}_RUNNER=$PWD/tools/run_test.sh" \
  cargo test --locked --workspace --all-features --no-fail-fast
check loom tools/loom.sh
if cargo +nightly miri --version >/dev/null 2>&1; then
  check miri tools/miri.sh
else
  skip miri "no nightly toolchain with miri (rustup toolchain install nightly -c miri -c rust-src)"
fi
check code tools/code.sh
check rtl tools/rtl.sh
check kernel tools/kernel.sh test
check tasks tools/tasks.sh
check repro tools/repro.sh
check instructions tools/instructions.sh
check fuzz env FUZZ_SEED=1 tools/fuzz.sh 10
check page tools/page.sh

printf 'took %d s\n' $((SECONDS - began))
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
