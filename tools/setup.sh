#!/usr/bin/env bash
# Installs what is missing, and says what it installs; quick and silent when nothing is.
# Usage: tools/setup.sh build|test|soak|arm64
set -euo pipefail
cd "$(dirname "$0")/.."
stage=${1:?usage: tools/setup.sh build|test|soak|arm64}
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

# A program that is there already, however it was installed, is not installed again.
provided() {
  case $1 in
    nodejs) command -v node ;;
    npm | curl | python3) command -v "$1" ;;
    clang-*) [ -n "${SELVEDGE_CLANG:-}" ] ;;
    *) false ;;
  esac >/dev/null && return
  dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep 'ok installed' >/dev/null
}

# Prints what is missing of the stages' packages; alternatives stay together.
missing() {
  local wanted packages package
  while read -r wanted packages; do
    [[ " $* " = *" $wanted "* ]] || continue
    for package in ${packages//|/ }; do provided "$package" && continue 2; done
    echo "$packages"
  done < tools/packages.txt
}

# The first of the alternatives that this Debian has.
available() {
  local package
  for package in ${1//|/ }; do
    apt-cache policy "$package" | grep '^  Candidate: [0-9]' >/dev/null && echo "$package" && return
  done
  say "this Debian has none of these packages: ${1//|/, }" >&2
  return 1
}

# Nothing is removed: a package that another one would have to make room for is not installed.
apt_install() {
  say "installing Debian packages: $*"
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-remove --no-install-recommends "$@" >/dev/null
}

# install_packages STAGE...
install_packages() {
  local needed names=() name
  needed=$(missing "$@")
  [ -n "$needed" ] || return 0
  as_root apt-get update -qq
  for name in $needed; do names+=("$(available "$name")"); done
  apt_install "${names[@]}"
}

case $stage in
  build) install_packages build ;;
  test) install_packages build test ;;
  soak) install_packages build test soak ;;
  arm64) install_packages build arm64 ;;
  *) say "there is no stage $stage; there are build, test, soak and arm64" >&2; exit 2 ;;
esac

# Rust: any toolchain that is new enough; otherwise rustup brings the one that the checks pass with, for
# later ones have lints of which the code knows nothing yet. Where Debian has no rustup, it
# comes from the Rust project, in this version and with the checksums published beside it.
# RUSTUP_UPDATE_ROOT and RUSTUP_DIST_SERVER, rustup's own variables, name a mirror.
rust_installed=1.95.0
rustup_version=1.28.2
rustup_sums='
x86_64 20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c
aarch64 e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c
'

fetch_rustup() {
  local machine sum folder server=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}
  machine=$(uname -m)
  sum=$(awk -v machine="$machine" '$1 == machine { print $2 }' <<< "$rustup_sums")
  if [ -z "$sum" ]; then
    say "Rust $rust_needed or later is needed; install it with rustup, then run this again" >&2
    exit 1
  fi
  install_packages rust
  say "installing rustup $rustup_version from the Rust project"
  folder=$(mktemp -d)
  curl -fsSL --retry 3 -o "$folder/rustup-init" \
    "$server/archive/$rustup_version/$machine-unknown-linux-gnu/rustup-init"
  if ! sha256sum --check --quiet <<< "$sum  $folder/rustup-init"; then
    rm -rf "$folder"
    exit 1
  fi
  chmod +x "$folder/rustup-init"
  # An older Rust of Debian may stay where it is: the Makefile prefers rustup's.
  RUSTUP_INIT_SKIP_PATH_CHECK=yes "$folder/rustup-init" -y -q --no-modify-path \
    --profile minimal --default-toolchain none >/dev/null
  rm -rf "$folder"
  PATH="$HOME/.cargo/bin:$PATH"
}

rust_version() { rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p'; }
new_enough() { [ "$(printf '%s\n%s\n' "$rust_needed" "$1" | sort -V | head -n 1)" = "$rust_needed" ]; }
[ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH"
if ! new_enough "$(rust_version || true)"; then
  if ! command -v rustup >/dev/null; then
    { available rustup >/dev/null && apt_install rustup; } 2>/dev/null || fetch_rustup
  fi
  say "installing Rust $rust_installed with rustup"
  rustup toolchain install "$rust_installed" --no-self-update --profile minimal -c rustfmt -c clippy
  rustup default "$rust_installed"
fi
[[ $stage = test || $stage = soak ]] || exit 0

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
