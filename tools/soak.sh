#!/usr/bin/env bash
# Measures what takes longer than a test may: ten minutes each, or more. Results are kept in docs/soak, beside the
# commit, the processors and the load at the start.
#
#   tools/soak.sh [--quick] [NAME ...]
#       --quick   a minute each; prints the results and keeps none
#       NAME      only these: page, cameras, kills, cells, demo, line, reality, bond, rate, fan
#
# page: nine received streams on a page in Chromium. cameras: twenty RTSP cameras in a network of their
# own, restarted at random (needs root rights). kills: a node under load and each of its processes, killed 1000
# times each (SOAK_KILLS; --quick: 50) at random moments: how long until it works again, that no other stream loses a
# frame, and that nothing is left. cells: all cells of the experiment up-media in virtual time, and twelve of them
# in real time, side by side, five times quiet and five times beside two endless loops (a quarter of an hour).
# demo: the bundled clips at 96, 75 and 53 % of their need, five times quiet, and at 75 % five times beside two endless
# loops (a quarter of an hour; --quick: once each). line: how exact `selvedge line` is, quiet and beside two endless loops, and what it carries beside a bare relay
# (five minutes; needs root rights). reality: what comes through bad links in real time, beside the simulator:
# streams, and the kernel's TCP (nine minutes; --quick: one run of each; needs root rights).
# bond: one picture over two bad paths in real time, beside librist with weights, the kernel's MPTCP, and RIST and SRT of
# GStreamer, at three rates five times, and what two paths carry of a flood, five times (an hour and a half; --quick: at one rate once, and
# the flood once, seven minutes; needs root rights). rate: how an encoder follows a path whose rate changes in real time, by a
# bond and by rtpgccbwe, five times (eleven minutes, and some to build rtpgccbwe; --quick: once each; needs root rights).
# tunnel: what one TCP transfer gets of a tunnel beside what UDP gets of it, and whether a video beside it loses frames, over
# six pairs of paths, five times (a quarter of an hour; --quick: once each). relays: what a chain of three relays delivers, and
# what each adds to the delay.
# fan: a hundred receivers of 6 Mbit/s from one processor, of which one is stopped for 30 s, one has 1 kB/s, and one asks and
# leaves ten times a second.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=600 kills=${SOAK_KILLS:-1000} quick='' keep=1 names=()
for word in "$@"; do
  case $word in
    --quick) seconds=60 kills=50 quick=--quick keep='' ;;
    page | cameras | kills | cells | demo | line | reality | bond | rate | tunnel | relays | fan) names+=("$word") ;;
    --help | -h) sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "soak: no \"$word\"; there are page, cameras, kills, cells, demo, line, reality, bond, rate, tunnel, relays, fan, --quick" >&2; exit 2 ;;
  esac
done
[ ${#names[@]} -gt 0 ] || names=(page cameras kills cells demo line reality bond rate tunnel relays fan)

page() { PAGE_SECONDS=$seconds tools/page.sh; }
cameras() {
  SOAK_SECONDS=$seconds cargo test --locked --workspace --all-features --test cameras -- \
    --ignored --nocapture twenty_cameras
}
kills() {
  cargo build --quiet --locked --workspace --all-features --bins --example fake_node &&
    SOAK_KILLS=$kills cargo test --locked --workspace --all-features --test kills -- \
    --ignored --nocapture --test-threads=1 a_thousand_times
}

cells() {
  cargo build --quiet --release --locked -p selvedge-lab &&
    target/release/selvedge-lab repro up-media $quick --out out/repro 2> /dev/null &&
    target/release/selvedge-lab repro up-media-real $quick --out out/repro 2> /dev/null
}

# The medians of the runs of one share, and the least and the most: of the bound, and of the link while frames waited.
demos() {
  local share=$1 loops=$2 all=out/soak-demo-$1-$2.json busy=()
  for _ in $(seq "$loops"); do (while :; do :; done) & busy+=($!); done
  for _ in $(seq $((${#quick} ? 1 : 5))); do
    target/release/selvedge demo --no-page --share "$share" --seconds 40 --json 2> /dev/null || break
  done > "$all"
  [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}"
  jq -rse --arg share "$share" --arg loops "$loops" --argjson goal "$3" '
    def spread: sort | map(1000 * . | round / 1000) | "\(.[length / 2 | floor]) (\(.[0]) to \(.[-1]))";
    "demo at \($share), \($loops) loops: \(length) runs, bound \(map(.bound.decodable) | spread), decodable \(
      map(.disciplines.dwcs.decodable) | spread), of the bound \(
      map(.disciplines.dwcs.decodable / .bound.decodable) | spread), FIFO \(
      map(.disciplines.fifo.decodable) | spread), link used \(map(.link_used_while_frames_wait.dwcs) | spread)",
    (map(.disciplines.dwcs.decodable / .bound.decodable) | sort | .[length / 2 | floor] >= $goal)' "$all"
}
demo() {
  cargo build --quiet --release --locked -p selvedge || return
  local failed=0
  demos 0.96 0 0.93 || failed=1
  demos 0.75 0 0.96 || failed=1
  demos 0.53 0 0.93 || failed=1
  demos 0.75 2 0.94 || failed=1
  return $failed
}
line() {
  cargo run --quiet --release --locked -p selvedge-comm-line --example measure -- $quick
}
reality() {
  SOAK_RUNS=$([ -n "$quick" ] && echo 1 || echo 5) cargo test --locked --workspace --all-features --test line \
    --test bulk -- --ignored --nocapture --test-threads=1
}

bond() {
  cargo build --quiet --release --locked -p selvedge || return
  for share in ${quick:+75} ${keep:+53 75 125}; do
    lab/peers/bond/run.sh target/release/selvedge "$share" $((${#quick} ? 1 : 5)) || return
  done
  lab/peers/bond/flood.sh target/release/selvedge $((${#quick} ? 1 : 5))
}
rate() {
  cargo build --quiet --release --locked -p selvedge &&
    cargo build --quiet --release --locked --manifest-path lab/peers/rate/Cargo.toml &&
    lab/peers/rate/run.sh target/release/selvedge \
      "${CARGO_TARGET_DIR:-lab/peers/rate/target}/release/selvedge-lab-peers-rate" $((${#quick} ? 1 : 5))
}
tunnel() {
  SOAK_RUNS=$([ -n "$quick" ] && echo 1 || echo 5) cargo test --locked --workspace --all-features --test tunnel -- \
    --ignored --nocapture
}
relays() {
  SOAK_SECONDS=$seconds cargo test --locked --workspace --all-features --test relays -- --ignored --nocapture
}
fan() {
  cargo build --quiet --release --locked -p selvedge || return
  SOAK_SECONDS=$seconds SOAK_SELVEDGE=${CARGO_TARGET_DIR:-$PWD/target}/release/selvedge cargo test --locked \
    --workspace --all-features --test fan_out -- --ignored --nocapture a_hundred_receivers
}

# Tests remove their networks themselves, unless they are killed; each network has its test's process
# number. What runs has a process group of its own (set -m), which is ended whole.
set -m
alive() { grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$1/status"; }
clean() {
  trap - EXIT INT TERM HUP
  kill -TERM %% 2> /dev/null
  for _ in {1..20}; do
    local left=''
    while read -r process network; do
      if alive "$process"; then left=1; else ip netns del "$network"; fi
    done < <(ip netns list 2> /dev/null | sed -n 's/^\(selvedge-test-\([0-9]*\)-[^ ]*\).*/\2 \1/p')
    [ -n "$left" ] || break
    sleep 0.1
  done
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

about() {
  case $1 in
    kills) echo "$kills times" ;;
    demo) echo "${quick:-five times}" ;;
    cells) echo "${quick:-twelve}" ;;
    line) echo "${quick:-10 s each}" ;;
    bond | rate | tunnel) echo "${quick:-five times}" ;;
    reality) echo "${quick:-five times}" ;;
    *) echo "$seconds s" ;;
  esac
}
failed=0
mkdir -p docs/soak out
for name in "${names[@]}"; do
  result=out/soak-$name.txt
  {
    printf 'soak %s, %s, commit %s, %s processors, load %s\n' "$name" "$(about "$name")" \
      "$(git describe --always --dirty)" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
    "$name" 2>&1 | grep --line-buffered -E '^(#|ok|not ok|test |(demo|bond|flood|rate|fan-out) at|[0-9]+ (cameras|kills|Mbit)|cell|holds|FAILS|loaded|Error|descriptors)|gap|panicked|memory|does not work|process.* left|^ *(left|right):'
    status=${PIPESTATUS[0]}
    [ "$status" -eq 0 ] && echo passed || echo "failed with status $status"
  } | tee "$result" &
  wait $!
  grep -qx passed "$result" || failed=$((failed + 1))
  [ -z "$keep" ] || cp "$result" "docs/soak/$name.txt"
done
printf '%d passed, %d failed\n' $((${#names[@]} - failed)) "$failed"
[ "$failed" -eq 0 ]
