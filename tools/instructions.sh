#!/usr/bin/env bash
# Instructions a decision, counted by valgrind: each must lie within 5 % of the committed table,
# lab/instructions.txt. The counts are exact, but other compilers make other code: with another
# rustc than the table's this says SKIPPED. `--update` writes the table anew.
set -euo pipefail
cd "$(dirname "$0")/.."
table=lab/instructions.txt
decisions=10000
compiler=$(rustc --version | sed 's/^rustc //')

if ! command -v valgrind > /dev/null; then
  echo 'SKIPPED: valgrind is not installed'
  exit 0
fi
if [ "$(uname -m)" != x86_64 ]; then
  echo "SKIPPED: the table is for x86_64, this is $(uname -m)"
  exit 0
fi
made=$(sed -n 's/^rustc //p' "$table" 2> /dev/null || true)
if [ "${1-}" != --update ] && [ "$made" != "$compiler" ]; then
  echo "SKIPPED: the table was made with rustc $made, this is $compiler ($0 --update makes it anew)"
  exit 0
fi

# The same flags everywhere, whatever a user's configuration says.
export CARGO_ENCODED_RUSTFLAGS=-Ctarget-cpu=x86-64 CARGO_TARGET_DIR=target/instructions
export CARGO_PROFILE_DIST_DEBUG=1 CARGO_INCREMENTAL=0
cargo build --quiet --profile dist --locked -p selvedge-lab-measure --no-default-features --example decisions
program=$CARGO_TARGET_DIR/dist/examples/decisions
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# One cell: only what runs in the function `decision`, and below it, is counted; with `@2` behind
# the discipline, `update` at twofold overload: a frame sent, or one that missed.
count() {
  local discipline=$1 streams=$2 log=$work/$1.$2
  local function=decision arguments=("${1%@2}" "$2" "$decisions")
  if [ "$discipline" != "${discipline%@2}" ]; then
    function=update
    arguments+=(overloaded)
  fi
  valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
    --toggle-collect="*measure*decide*$function*" \
    "$program" "${arguments[@]}" > "$log.out" 2> "$log.log"
  awk -v n="$decisions" '/Collected :/ { printf "%.1f\n", $NF / n }' "$log.log" > "$log.count"
}
export -f count
export program work decisions

disciplines="$("$program" --list) dwcs@2 edf@2"
for discipline in $disciplines; do
  for streams in 4 32 1024 65536; do echo "$discipline $streams"; done
done > "$work/cells"
xargs -P "$(nproc)" -L 1 bash -c 'count "$0" "$1"' < "$work/cells"

if [ "${1-}" = --update ]; then
  {
    echo '# Instructions a decision: poll_expired, choose, serve_and_push; backlogged streams, nothing'
    echo '# expires. Counted by valgrind over 10,000 decisions. With @2: an update by pass, a frame sent or'
    echo '# one that missed its deadline, at twofold overload. Written by tools/instructions.sh --update.'
    echo "rustc $compiler"
    while read -r discipline streams; do
      printf '%-9s %6s %7s\n' "$discipline" "$streams" "$(cat "$work/$discipline.$streams.count")"
    done < "$work/cells"
  } > "$work/table"
  mkdir -p "$(dirname "$table")"
  cp "$work/table" "$table"
  cat "$table"
  exit 0
fi

passed=0 failed=0
while read -r discipline streams; do
  counted=$(cat "$work/$discipline.$streams.count")
  expected=$(awk -v d="$discipline" -v n="$streams" '$1 == d && $2 == n { print $3 }' "$table")
  if awk -v c="${counted:-0}" -v e="${expected:-0}" \
    'BEGIN { exit !(c > 0 && c >= 0.95 * e && c <= 1.05 * e) }'; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$discipline, $streams streams: ${counted:-no} instructions a decision," \
      "the table says ${expected:-nothing}"
  fi
done < "$work/cells"
echo "# pass $passed"
echo "# fail $failed"
echo "# skipped 0"
if [ $failed -ne 0 ]; then
  echo "If that is meant to be: tools/instructions.sh --update, and commit $table."
  exit 1
fi
