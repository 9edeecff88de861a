#!/usr/bin/env bash
# By this the checks run each test program (cargo's `runner`): PROGRAM ARGUMENT...
# A program that takes longer than TEST_LIMIT seconds (600) is ended with all that it started, and
# its unfinished tests are named with what their threads wait for. Tests that failed, or did not
# finish, are run once more, one after another: the machine is shared, and a test that another
# one's load pushed over is not a broken promise. Such a test is reported as UNSTEADY, never hidden.
# Where TEST_AGAIN names a file, it gets these tests, and the lane `again` runs them, with nothing beside them.
# TEST_LANE (any): `timeless` are the programs that no clock matters to, `alone` those that fail where others
# want the processors for a second, `whole` other tests of the whole command, `timed` the rest; a program of
# another lane is not run.
set -uo pipefail

program=$1
case $program in
  */deps/*) ;;
  *) exec "$@" ;;
esac
# Cargo runs each program with its crate's folder in the environment.
lane() {
  local crate=${CARGO_MANIFEST_DIR#"$(cd "$(dirname "$0")/.." && pwd)"} name=${program##*/}
  case ${crate#/}:${name%-*} in
    units:* | data/* | control/* | sim:* | lab/rtl:* | lab/repro:*) echo timeless ;;
    os/jit:* | comm/stack:reference | media:references | media:dependency) echo timeless ;;
    :tidy | :trace_* | :feasible | :code) echo timeless ;;
    web:server | media/plugin:filter | node:output_joint | node:output_wire) echo alone ;;
    :attacks | :cameras | :codecs | :demo | :events | :kills | :stack_node | :ways) echo alone ;;
    :*) echo whole ;;
    *) echo timed ;;
  esac
}
case ${TEST_LANE:-any} in any | again | "$(lane)") ;; *) exit 0 ;; esac
limit=${TEST_LIMIT:-600}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs the program in a process group of its own, output to the log. Status 124 when it was ended.
bounded() {
  setsid "$@" > "$log" 2>&1 < /dev/null &
  local pid=$! until=$((SECONDS + limit)) status
  trap 'kill -TERM -- "-$pid" 2>/dev/null; exit 130' INT TERM
  while kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$until" ]; do sleep 0.1; done
  if kill -0 "$pid" 2>/dev/null; then
    printf 'HUNG: %s took more than %s s; its threads:\n' "$program" "$limit" >> "$log"
    local task
    for task in "/proc/$pid/task/"*; do
      printf '  %-16s %s, system call %s\n' "$(cat "$task/comm")" "$(cat "$task/wchan")" \
        "$(cut -d' ' -f1 "$task/syscall")" >> "$log"
    done
    kill -TERM -- "-$pid" 2>/dev/null
    sleep 2
    kill -KILL -- "-$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    return 124
  fi
  wait "$pid"
  status=$?
  trap - INT TERM
  return "$status"
}

# Every test that the log does not call ok or ignored.
unfinished() {
  comm -23 <("$program" --list --format terse 2>/dev/null | sed -n 's/: test$//p' | sort) \
    <(sed -nE 's/^test (.*) \.\.\. (ok|ignored).*/\1/p' "$log" | sed 's/ - should panic$//' | sort)
}

# Where a test panicked, and the first line of what it said.
why() {
  awk -v test="$1" '
    found { print ", " at " " $0; exit }
    index($0, "thread \x27" test "\x27 ") == 1 && sub(/.* panicked at /, "") { at = $0; found = 1 }' "$log"
}

# Runs the tests in `again`, one after another.
run_again() {
  bounded "$program" --exact --test-threads=1 "${again[@]}"
  local status=$?
  cat "$log"
  return "$status"
}

if [ "${TEST_LANE:-}" = again ]; then
  mapfile -t again < <(awk -F '\t' -v program="$program" '$1 == program { print $2 }' "$TEST_AGAIN")
  [ "${#again[@]}" -gt 0 ] || exit 0
  run_again
  exit
fi

bounded "$@"
first=$?
if [ "$first" -eq 0 ]; then
  cat "$log"
  exit 0
fi
mapfile -t again < <(unfinished)
# The closing line of a run that is repeated must not be added up.
sed 's/^test result:/first run:/' "$log"
if [ "${#again[@]}" -eq 0 ]; then
  printf 'test result: FAILED. 0 passed; 1 failed; 0 ignored; %s ended with status %s\n' "$program" "$first"
  exit "$first"
fi
fine=$(grep -cE '^test .* \.\.\. ok' "$log")
ignored=$(grep -cE '^test .* \.\.\. ignored' "$log")
for name in "${again[@]}"; do printf 'UNSTEADY: %s%s\n' "$name" "$(why "$name")"; done
if [ -n "${TEST_AGAIN:-}" ]; then
  for name in "${again[@]}"; do printf '%s\t%s\n' "$program" "$name"; done >> "$TEST_AGAIN"
  printf 'test result: ok. %s passed; 0 failed; %s ignored; the others run again later\n' "$fine" "$ignored"
  exit 0
fi
run_again
second=$?
printf 'test result: ok. %s passed; 0 failed; %s ignored; in the first run\n' "$fine" "$ignored"
exit "$second"
