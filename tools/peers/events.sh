#!/usr/bin/env bash
# Measures filters and rings beside wasmtime, COD and iceoryx2, in one run: lab/peers/event, which has a
# lock file of its own. COD (BSD-like licence) is C: its sources come from GitHub at the commits below, or
# from copies in COD_SOURCES, and are built in out/peers. Where they can't be had the table says so.
# Usage: tools/peers/events.sh [--seconds N] [--json]
#   COD_SOURCES=FOLDER  has atl, dill and ffs: work trees, or git directories
set -euo pipefail
cd "$(dirname "$0")/../.."
place=$PWD/out/peers
program=$place/cod_bench
mkdir -p "$place"

declare -A commits=(
  [atl]=72e99d0a33dc8288ebff32eaba9a56ea052b11f6
  [dill]=cb71d59abf1cb329fadd47761d265fab8cf9be1c
  [ffs]=f5fa6dfa75e15e2248e5e7b0936b05d08e05d787
)

# The sources of one of them at its commit.
sources() {
  local name=$1 folder=$place/src/$1
  [ ! -e "$folder/CMakeLists.txt" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder"
  local from=${COD_SOURCES:+$COD_SOURCES/$name}
  if [ -n "$from" ] && [ -e "$from/CMakeLists.txt" ]; then
    cp -r "$from/." "$folder"
    return
  fi
  if [ -z "$from" ]; then
    git -c advice.detachedHead=false init --quiet --bare "$folder.git"
    GIT_TERMINAL_PROMPT=0 timeout 120 git --git-dir "$folder.git" fetch --quiet --depth 1 \
      "https://github.com/GTkorvo/$name" "${commits[$name]}" || return 1
    from=$folder.git
  fi
  git --git-dir "$from" archive "${commits[$name]}" | tar x -C "$folder"
}

# Builds COD and the program that measures it, once.
cod() {
  local name option
  for name in git cmake cc; do
    command -v "$name" > /dev/null || { echo "$name is missing: apt-get install git cmake gcc"; return 1; }
  done
  for name in atl dill ffs; do
    sources "$name" || { echo "no sources of $name; clone github.com/GTkorvo/{atl,dill,ffs} and set COD_SOURCES"; return 1; }
    option=${name^^}
    cmake -S "$place/src/$name" -B "$place/build/$name" -DCMAKE_BUILD_TYPE=Release \
      -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -D"${option}_QUIET=ON" \
      -D"${option}_LIBRARIES_ONLY=ON" -DCMAKE_PREFIX_PATH="$place/prefix" \
      -DCMAKE_INSTALL_PREFIX="$place/prefix" > "$place/$name.log" 2>&1 &&
      cmake --build "$place/build/$name" --target install >> "$place/$name.log" 2>&1 ||
      { echo "$name was not built: $place/$name.log"; return 1; }
  done
  cc -O2 -I"$place/prefix/include" tools/peers/cod.c "$place"/prefix/lib/lib{ffs,atl,dill}.a -lm -lpthread \
    -o "$program.new" && mv "$program.new" "$program"
}

if [ ! -x "$program" ] || [ tools/peers/cod.c -nt "$program" ]; then
  cod >&2 || true
fi
with=()
[ ! -x "$program" ] || with=(--cod "$program")
cargo build --quiet --release --locked --manifest-path lab/peers/event/Cargo.toml
exec "${CARGO_TARGET_DIR:-lab/peers/event/target}/release/selvedge-lab-peers-event" "${with[@]}" "$@"
