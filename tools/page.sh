#!/usr/bin/env bash
# The page in a real browser, against nodes that the tests start; and its types. PAGE_SECONDS=600 plays for
# ten minutes, and asks that no gap between two pictures is over 200 ms. A long run runs one file at a time.
# As in tools/run_test.sh, a test that failed runs once more, and is reported as UNSTEADY if it then passes.
set -euo pipefail
cd "$(dirname "$0")/.."
# As the tests build them.
cargo build --locked --workspace --all-features --bin selvedge --example fake_node
export SELVEDGE="${SELVEDGE:-$(realpath "${CARGO_TARGET_DIR:-target}")/debug/selvedge}"
cd tests/page
npm run --silent types
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Each file may take 180 s. A long run needs more: its videos play for PAGE_SECONDS.
tests() {
  npm test --silent -- --test-reporter=tap \
    ${PAGE_SECONDS:+--test-concurrency=1 --test-timeout=$(((PAGE_SECONDS + 240) * 1000))} "$@"
}

tests > "$log" 2>&1 && exec cat "$log"
# The closing lines of a run that is repeated must not be added up.
sed -E 's/^# (pass|fail|cancelled|skipped) /# first run: \1 /' "$log"
# Without a name nothing says what failed: a file that could not be read, or a runner that ended.
grep -qE '^not ok' "$log" || exit 1
printf 'test result: ok. %s passed; 0 failed; 0 ignored; in the first run\n' "$(grep -cE '^ok [0-9]+ - ' "$log")"
# A file none of whose tests runs may wait for one of them, so each test runs with its own file.
status=0
while IFS=$'\t' read -r name file error; do
  echo "UNSTEADY: $name, $error"
  pattern=$(sed 's/[][\.*^$+?(){}|/]/\\&/g' <<< "$name")
  tests "--test-name-pattern=^$pattern\$" "$file" < /dev/null || status=1
done < <(awk '
  /^not ok/ { name = $0; sub(/^not ok [0-9]+ - /, "", name) }
  /^  location: / { split($0, part, "\047|:[0-9]"); file = part[2] }
  /^  error: / { error = $0; if (/\|-$/) getline error }
  /^  \.\.\./ && name != "" { sub(/^ *(error: )?/, "", error); print name "\t" file "\t" error; name = error = "" }' "$log")
exit $status
