#!/usr/bin/env bash
# Installs what is missing, and says what it installs; quick and silent when nothing is.
# Usage: tools/setup.sh build|test
set -euo pipefail
cd "$(dirname "$0")/.."
stage=${1:?usage: tools/setup.sh build|test}
rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

say() { printf 'setup: %s\n' "$*"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else
    say "these need root, and there is no sudo: $*" >&2
    exit 1
  fi
}

# A program that is on the path already, whoever installed it, is not installed again.
provided() {
  case $1 in
    nodejs) command -v node ;;
    npm) command -v npm ;;
    *) false ;;
  esac >/dev/null
}

missing=()
while read -r wanted package; do
  case $wanted in '' | '#'*) continue ;; esac
  [ "$wanted" = build ] || [ "$stage" = test ] || continue
  provided "$package" && continue
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done < tools/packages.txt
if [ ${#missing[@]} -gt 0 ]; then
  say "installing Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# Rust: any toolchain that is new enough; otherwise rustup brings one.
rust_version() { rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p'; }
new_enough() { [ "$(printf '%s\n%s\n' "$rust_needed" "$1" | sort -V | head -n 1)" = "$rust_needed" ]; }
[ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH"
if ! new_enough "$(rust_version || true)"; then
  if ! command -v rustup >/dev/null && apt-cache show rustup >/dev/null 2>&1; then
    say "installing the Debian package rustup"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq rustup >/dev/null
  fi
  if ! command -v rustup >/dev/null; then
    say "Rust $rust_needed or later is needed; install it with rustup, then run this again" >&2
    exit 1
  fi
  say "installing the stable Rust toolchain with rustup"
  rustup toolchain install stable --profile minimal -c rustfmt -c clippy
  rustup default stable
fi
[ "$stage" = test ] || exit 0

if ! cargo deny --version >/dev/null 2>&1; then
  say "installing cargo-deny (compiles it, a few minutes)"
  cargo install --quiet --locked --debug cargo-deny@0.20.2
fi
# Miri is of the nightly toolchain only. Where that can't be had its check is skipped, and says so.
if command -v rustup >/dev/null && ! cargo +nightly miri --version >/dev/null 2>&1; then
  say "installing Miri, with a nightly Rust toolchain"
  if rustup toolchain list | grep -q '^nightly'; then
    rustup component add --toolchain nightly miri rust-src 2>/dev/null
  else
    rustup toolchain install nightly --profile minimal -c miri -c rust-src 2>/dev/null
  fi || say "it can't be had: that check will be skipped"
fi
if [ -f tests/page/package-lock.json ] && [ ! -d tests/page/node_modules ]; then
  say "installing the browser test's packages"
  (cd tests/page && npm ci --silent --no-audit --no-fund)
fi
