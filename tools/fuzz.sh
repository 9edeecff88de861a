#!/usr/bin/env bash
# Fuzzes every target for a number of seconds each, one after the other. Coverage-guided by
# libFuzzer, on the stable toolchain: the instrumentation is LLVM's own. What was found before
# (fuzz/corpus, beside the seeds) is where the next run begins; what fails is kept in
# fuzz/artifacts. Exit status 0 only if nothing failed.
# With FUZZ_SEED set, the choices are the same in each run from the same corpus.
# Usage: tools/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:?usage: tools/fuzz.sh SECONDS [TARGET...]}
shift
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=target
# With --target the flags are for the fuzzed crates, not for build scripts.
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
  cargo build --quiet --release --locked --target "$host"
[ $# -gt 0 ] || set -- $(sed -n 's/^    ("\([a-z_]*\)", .*/\1/p' src/main.rs)
failed=0
for target in "$@"; do
  log=target/fuzz_$target.log
  mkdir -p "corpus/$target" "artifacts/$target"
  status=0
  FUZZ_TARGET=$target "target/$host/release/fuzz" -max_total_time="$seconds" -timeout=10 -jobs=0 \
    -seed="${FUZZ_SEED:-0}" \
    -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="artifacts/$target/" \
    "corpus/$target" "seeds/$target" > "$log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  last=$(grep -E '^#[0-9]+.* cov: ' "$log" | tail -n 1 || true)
  covered=$(sed -E 's/.* cov: ([0-9]+) ft: ([0-9]+) .*/\1 edges, \2 features/' <<< "$last")
  printf '%-10s %s runs, %s\n' "$target" "${runs:-?}" "${covered:-stopped before it began}"
  if [ "$status" -eq 0 ] && [ -z "$last" ]; then
    echo "$target: no coverage feedback; is the build instrumented?"
    status=1
  fi
  if [ "$status" -eq 0 ]; then
    echo "test result: ok. 1 passed; 0 failed; 0 ignored"
    continue
  fi
  failed=$((failed + 1))
  grep -E -A 4 '^(thread .* panicked|==[0-9]+== ?(ERROR|libFuzzer)|SUMMARY)' "$log" || tail -n 20 "$log"
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  if [ -n "$input" ]; then
    echo "reproduce with: FUZZ_TARGET=$target fuzz/target/$host/release/fuzz fuzz/$input"
  fi
  echo "test result: FAILED. 0 passed; 1 failed; 0 ignored"
done
[ "$failed" -eq 0 ]
