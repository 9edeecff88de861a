#!/usr/bin/env bash
# Every check, in order of cost. Prints a line for each, and at the end `N passed, N failed,
# N skipped`: single tests of the test runners, and 1 for each check that is a single thing.
# Logs are kept in out/check/. Exit status 0 only if nothing failed.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=out/check
# No check may take longer, in seconds; one that does is ended, and has failed.
limit=3000
# What a check is started by; see `patient`.
beside=()
rm -rf "$logs"
mkdir -p "$logs"
began=$SECONDS

# report NAME LINE PASSED FAILED SKIPPED: one line on the screen, the counts in a file of the check's own.
report() {
  printf '%-12s %s\n' "$1" "$2"
  echo "$3 $4 $5" > "$logs/$1.counts"
}

# Runs one check: its name, then the command. Test runners' own closing lines are added up. Beside the
# seconds that it took stands what it had of the processors.
check() {
  local name=$1 log=$logs/$1.log from=$SECONDS
  shift
  local TIMEFORMAT='%U %S'
  { time "${beside[@]}" timeout -k 60 $limit "$@" > "$log" 2>&1 < /dev/null; } 2> "$logs/$name.time"
  local status=$? p f s took
  [ $status -ne 124 ] || echo "ended after $limit s" >> "$log"
  read -r p f s < <(awk '
    /^test result:/ { p += $4; f += $6; s += $8 }
    /^# pass / { p += $3 } /^# fail / { f += $3 } /^# skipped / { s += $3 }
    /^SKIPPED:/ { s += 1 }
    END { print p + 0, f + 0, s + 0 }' "$log")
  [ $((p + f + s)) -eq 0 ] && [ $status -eq 0 ] && p=1
  [ $status -ne 0 ] && [ "$f" -eq 0 ] && f=1
  took=$(awk -v t=$((SECONDS - from)) 'END { printf "%4d s, %4.0f s of processor", t, $1 + $2 }' "$logs/$name.time")
  if [ $status -eq 0 ]; then
    report "$name" "$(printf 'ok      %4d passed  %s' "$p" "$took")" "$p" "$f" "$s"
  else
    report "$name" "$(printf 'FAILED  %4d passed, %d failed  %s, the log %s ends:' "$p" "$f" "$took" "$log")" \
      "$p" "$f" "$s"
    grep -E '^(error|test .* FAILED|not ok|.*panicked at)' "$log" | head -n 20
    tail -n 40 "$log"
  fi
  grep -hE '^(SKIPPED|UNSTEADY):' "$log"
  return $status
}

skip() { report "$1" "SKIPPED: $2" 0 0 1; }

# No clock matters to the two lanes that run `politely`: they run beside the tests, and take what the tests
# leave. Some kernels divide time between sessions before they look at nice values, so each of their checks
# is a session with a nice value of its own. Where the tests leave nothing, these wait as long as the tests
# take.
politely() {
  limit=$((2 * limit))
  beside=(nice -n 10 setsid bash -c '{ echo 10 > /proc/self/autogroup; } 2> /dev/null; exec "$@"' politely)
}

# Experiments in real time, whose figures nobody judges here, wait for minutes: so this lane is not the other.
timeless() {
  politely
  TEST_LIMIT=1800 lane timeless timeless --tests
}

patient() {
  politely
  check players "${compiler[@]}" tools/tasks.sh players
  check loom tools/loom.sh
  if cargo +nightly miri --version >/dev/null 2>&1; then
    check miri tools/miri.sh
  else
    skip miri "no nightly toolchain with miri (rustup toolchain install nightly -c miri -c rust-src)"
  fi
  check code "${compiler[@]}" tools/code.sh
  check rtl tools/rtl.sh
  check instructions tools/instructions.sh
}

# The virtual machines run on one thread each, so they take one processor beside what follows.
machines() {
  check kernel "${compiler[@]}" tools/kernel.sh test
  check tasks "${compiler[@]}" tools/tasks.sh decisions
}

check manifest cargo metadata --no-deps --format-version 1 --locked
check fmt cargo fmt --all --check
check circles bash -c 'tools/circles.sh --self-test && tools/circles.sh'
# Clippy's driver is the compiler with more lints: what it builds here is what runs below, so that
# nothing is compiled once for lints and once more for tests. Its arguments are those that
# `cargo clippy -- -D warnings` hands to it.
compiler=(env RUSTC_WORKSPACE_WRAPPER=clippy-driver
  CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__)
check clippy "${compiler[@]}" cargo test --quiet --locked --workspace --all-targets --all-features --no-run ||
  compiler=(env)
# Tests that run in another kernel only are no target of --all-targets.
check clippy-vm "${compiler[@]}" cargo test --quiet --locked --workspace --all-features --no-run \
  --test attach --test replay
check deny cargo deny --all-features check licenses bans sources
# Peers to measure against are a workspace of their own, too large to be built each time.
for peer in event rate; do
  check "peers-$peer" cargo metadata --format-version 1 --locked --manifest-path "lab/peers/$peer/Cargo.toml"
  check "deny-peers-$peer" cargo deny --manifest-path "lab/peers/$peer/Cargo.toml" --config "$PWD/deny.toml" \
    --all-features check licenses bans sources
done
check advisories tools/advisories.sh
# Each crate has a licence, and each that is not ours a checksum.
check sbom bash -c 'tools/sbom.sh | jq -e ".components | length > 100 and all(.licenses[0].expression != \"\")
  and ([.[] | select(.hashes | not).name] | all(startswith(\"selvedge\")))"'
# Each crate of others costs time to build, and has to be trusted.
check crates bash -o pipefail -c 'crates=$(cargo tree --locked -p selvedge -e normal --prefix none |
  cut -d " " -f 1 | sort -u | grep -vc "^selvedge") && echo "$crates crates of others, at most 319" &&
  [ "$crates" -le 319 ]'
check slim cargo clippy --quiet --locked -p selvedge -p selvedge-lab --no-default-features -- -D warnings
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
# A lane that still runs when this ends is ended: its running check is a child of it, and `timeout`.
lanes=()
end_lanes() {
  local each running
  for each in "${lanes[@]}"; do
    running=$(cat "/proc/$each/task/$each/children" 2> /dev/null) && kill "$each" $running 2> /dev/null
  done
}
trap end_lanes EXIT
trap 'exit 130' INT TERM
# Most tests wait most of the time, so two lanes of them run side by side.
tests=("${compiler[@]}" "CARGO_TARGET_${host}_RUNNER=$PWD/tools/run_test.sh"
  RUST_TEST_THREADS=$((2 * $(nproc))))
# The tests of one lane of tools/run_test.sh. What fails in a lane that others run beside runs once more later.
again=$PWD/$logs/again.tsv
lane() {
  TEST_LANE=$1 check "$2" "${tests[@]}" cargo test --locked --workspace --all-features --no-fail-fast \
    "${@:3}"
}
whole() { lane whole whole --tests; }
for each in patient timeless whole; do
  TEST_AGAIN=$again $each &
  lanes+=($!)
done
TEST_AGAIN=$again lane timed test
wait "${lanes[2]}"
lane alone alone --tests
machines &
lanes+=($!)
check fuzz env FUZZ_SEED=1 tools/fuzz.sh 5
# What measures time runs alone.
wait
[ ! -s "$again" ] || TEST_AGAIN=$again lane again again --tests
check repro "${compiler[@]}" tools/repro.sh
check page "${compiler[@]}" tools/page.sh

read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p, f, s }' "$logs"/*.counts)
printf 'took %d s\n' $((SECONDS - began))
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
