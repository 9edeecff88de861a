#!/usr/bin/env bash
# Finds circles of Rust source files: each uses the next, and the last uses the first, so that none
# can be read or moved alone. Looks at the imports and paths inside each crate.
#
#   tools/circles.sh [--at-most N]    prints each circle with the imports that close it;
#                                     exit status 1 if there are more than N (0)
#   tools/circles.sh --self-test      tries the search on made-up files
#
# A path counts to the module that it names, and, where that module only passes the name on, to the
# file that the name comes from. What a file uses of the modules above it does not count, for parent
# and child are of one type; what a parent uses of its children does. Tests and examples are left out.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
tools=$PWD/tools
usage() { sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' "$tools/circles.sh"; }

# circles N: reads names of files.
circles() {
  grep -E '\.rs$' | grep -vE '(^|/)(tests|examples|benches)/|(^|/)(tests|test_[^/]*)\.rs$' |
    awk -v at_most="$1" -f "$tools/rust.awk" -f "$tools/circles.awk"
}

# expect NAME CIRCLES FILE TEXT [FILE TEXT]...
expect() {
  local name=$1 wanted=$2 found
  shift 2
  rm -rf a && mkdir -p a/src/one
  while [ $# -gt 0 ]; do
    printf '%s\n' "$2" > "a/src/$1"
    shift 2
  done
  found=$(find a -type f | sort | circles 0 | sed -n 's/ circles .*//p' || true)
  [ "$found" = "$wanted" ] || { echo "circles: $name: found $found, not $wanted" >&2; failed=1; }
}

self_test() {
  local failed=0 root='mod one; mod two; mod three;'
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cd "$folder"
  expect 'a chain' 0 lib.rs "$root" one.rs 'use crate::two::T;' two.rs 'use super::three::T;' three.rs ''
  expect 'a circle of two' 1 lib.rs "$root" one.rs 'use crate::two::T;' two.rs 'use crate::one::O;'
  expect 'a circle of three' 1 lib.rs "$root" one.rs 'use super::two::{A, B as C};' \
    two.rs 'fn f() { crate::three::g() }' three.rs 'use crate::{one::{self, O}, two};'
  expect 'two circles' 2 lib.rs "$root mod four;" one.rs 'use crate::two;' two.rs 'use crate::one;' \
    three.rs 'use crate::four;' four.rs 'use crate::three;'
  expect 'parent and child' 0 lib.rs "$root" one.rs 'mod sub; pub use self::sub::S; fn f(_: S) {}' \
    one/sub.rs 'use super::O;'
  expect 'over a child' 1 lib.rs "$root" one.rs 'mod sub; use sub::S;' one/sub.rs 'use crate::two::T;' \
    two.rs 'use crate::one::O;'
  expect 'a name passed on by the root' 1 lib.rs "$root pub use one::O; pub use two::T;" \
    one.rs 'use crate::T;' two.rs 'use crate::O;'
  expect 'a name passed on by a parent' 1 lib.rs "$root" one.rs 'mod sub; pub use sub::S;' \
    one/sub.rs 'use crate::two::T;' two.rs 'use super::one::S;'
  expect 'a test' 0 lib.rs "$root" one.rs 'use crate::two::T;' \
    two.rs '#[cfg(test)] mod tests { use crate::one::O; }'
  expect 'comments and texts' 0 lib.rs "$root" one.rs 'use crate::two::T;' \
    two.rs '// use crate::one::O;
      /* crate::one::O */ const A: &str = "crate::one::O"; const B: &str = r#"" crate::one::O"#;'
  [ $failed = 0 ] && echo 'circles: 10 made-up trees judged as they should be'
  return $failed
}

at_most=0
while [ $# -gt 0 ]; do
  case $1 in
    --at-most) at_most=${2:-}; shift ;;
    --self-test) self_test; exit ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift || true
done
[[ $at_most =~ ^[0-9]+$ ]] || { usage >&2; exit 2; }
# In a tree without Git, what lies there.
{ git ls-files --cached --others --exclude-standard 2> /dev/null || find . -name target -prune -o -type f -print; } |
  sed 's|^\./||' | sort | while read -r file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done | circles "$at_most"
