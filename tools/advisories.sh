#!/usr/bin/env bash
# Compares every lock file with the known defects of Rust crates. They come from RustSec's database
# (public domain), of which tools/advisories.tar.xz keeps the facts: each advisory's identity, versions
# and title. So the check needs no network, and a commit is judged by the same list everywhere.
#
#   tools/advisories.sh              the check; exceptions with their reasons stand in deny.toml
#   tools/advisories.sh update DIR   take the list from a checkout of RustSec's advisory-db
set -euo pipefail
cd "$(dirname "$0")/.."
kept=$PWD/tools/advisories.tar.xz
url=https://github.com/rustsec/advisory-db
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

update() {
  local from=$1 path
  for path in $(git -C "$from" ls-files 'crates/*.md' 'rust/*.md'); do
    mkdir -p "$work/facts/${path%/*}"
    # The block of facts and the first heading; the text behind it stays there.
    awk '{ print } /^```$/ { facts = 1 } facts && /^# / { exit }' "$from/$path" > "$work/facts/$path"
  done
  git -C "$from" log -1 --format="$url %H of %cs" > "$work/facts/SOURCE"
  tar -C "$work/facts" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - . |
    xz -9e > "$kept"
  cat "$work/facts/SOURCE"
}

# judge CONFIGURATION MANIFEST
judge() {
  cargo deny --config "$1" --manifest-path "$2" --all-features \
    check --hide-inclusion-graph -A advisory-not-detected advisories
}

# cargo-deny fetches its database by git, which gets the kept list at that address.
check() {
  local repository=$work/advisory-db manifest
  mkdir "$repository"
  tar -C "$repository" -xJf "$kept"
  echo "advisories: $(cat "$repository/SOURCE")"
  git -C "$repository" init -q -b main
  git -C "$repository" add -A
  git -C "$repository" -c user.name=advisories -c user.email=advisories@localhost commit -q -m kept
  sed "s|^db-path = .*|db-path = \"$work/fetched\"|" deny.toml > "$work/deny.toml"
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0=$url GIT_CONFIG_KEY_0="url.file://$repository.insteadOf"
  # Without its exceptions the check must fail: so it is seen to look.
  sed '/^ignore = \[/,/^]/d' "$work/deny.toml" > "$work/strict.toml"
  if judge "$work/strict.toml" Cargo.toml > "$work/strict.log" 2>&1; then
    echo "advisories: the exceptions of deny.toml are not needed any more; remove them" >&2
    return 1
  fi
  grep -q RUSTSEC- "$work/strict.log" || { cat "$work/strict.log" >&2; return 1; }
  for manifest in Cargo.toml fuzz/Cargo.toml lab/peers/event/Cargo.toml lab/peers/rate/Cargo.toml; do
    judge "$work/deny.toml" "$manifest"
  done
}

case ${1-} in
  "") check ;;
  update) update "${2:?usage: tools/advisories.sh update DIR}" ;;
  *) echo "tools/advisories.sh: there is no \"$1\"; there is \"update DIR\"" >&2; exit 2 ;;
esac
