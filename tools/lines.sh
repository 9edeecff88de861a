#!/usr/bin/env bash
# Counts the lines of the product: lines that are not blank, in its sources (Rust, C, BPF, C++, Verilog,
# JavaScript, TypeScript, CSS, HTML). Comments count.
# Not the product's: tests (folders tests/, tb/, formal/; files tests.rs and test_*.rs; items under
# #[cfg(test)]), examples/, benches/, vendor/, fuzz/, lab/, tools/, docs/, clips/, vectors/, scenarios/.
#
#   tools/lines.sh [--by-folder] [--json] [COMMIT]
#       COMMIT is anything that Git knows; without it the files of the working tree are counted
#       (tracked ones, and new ones that are not ignored).
#       --by-folder   also the share of every top folder and of every crate
#       --json        the same as one JSON object
#
# What only measures counts where it lies outside lab/, as it does in commits older than that
# folder; a line of its own says how much that is. Example:
#   tools/lines.sh --by-folder HEAD~100
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
tools=$PWD/tools
usage() { sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' "$tools/lines.sh"; }

commit='' by_folder=0 json=0
for word in "$@"; do
  case $word in
    --by-folder) by_folder=1 ;;
    --json) json=1 ;;
    --help | -h) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) [ -z "$commit" ] || { usage >&2; exit 2; }; commit=$word ;;
  esac
done

if [ -n "$commit" ]; then
  git rev-parse --quiet --verify "$commit^{commit}" > /dev/null ||
    { echo "lines: $commit is no commit of this repository" >&2; exit 2; }
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  git archive "$commit" | tar -x -C "$tree"
  cd "$tree"
fi

files() {
  if [ -n "$commit" ]; then find . -type f | sed 's|^\./||'
  else git ls-files --cached --others --exclude-standard
  fi | sort | while read -r file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done
}

files |
  grep -E '\.(rs|c|h|cpp|v|js|mjs|ts|css|html)$|(^|/)Cargo\.toml$' |
  grep -vE '(^|/)(tests|tb|formal|examples|benches|vendor)/|(^|/)(tests|test_[^/]*)\.rs$' |
  grep -vE '^(fuzz|lab|tools|docs|clips|vectors|scenarios)/' |
  awk -v commit="${commit:-working tree}" -v by_folder=$by_folder -v json=$json \
    -f "$tools/rust.awk" -f "$tools/lines.awk"
