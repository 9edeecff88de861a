#!/usr/bin/env bash
# Builds the programs for 64-bit ARM on another machine, and runs one there under QEMU's user mode: the version, a stack that is
# checked, and a trace whose decisions must be those that the repository keeps. Media are not tried.
# Usage: tools/arm64.sh
# Debian's cross compiler is installed. The libraries of that architecture can't all be installed beside this machine's own, so
# they lie in target/arm64-root.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
triplet=aarch64-linux-gnu
libraries=(libc6-dev libstdc++-12-dev libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev libelf-dev zlib1g-dev)
tools/setup.sh arm64
rustup target list --installed | grep -qx "$target" || rustup target add "$target"
work=${CARGO_TARGET_DIR:-$PWD/target}/arm64-root
root=$work/root
if [ ! -e "$work/complete" ]; then
  rm -rf "$work"
  mkdir -p "$root" "$work"/{state/lists/partial,cache/archives/partial}
  : > "$work/status"
  # As on a machine of that architecture on which nothing is installed.
  apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1 -o Dir::State="$work/state" \
      -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" "$@"
  }
  apt update
  apt install -y --download-only --no-install-recommends "${libraries[@]}" > /dev/null
  for package in "$work"/cache/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
  rm -r "$work/cache" "$work/state"
  touch "$work/complete"
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$triplet-gcc \
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C link-arg=--sysroot=$root" \
  CC_aarch64_unknown_linux_gnu=$triplet-gcc CFLAGS_aarch64_unknown_linux_gnu="--sysroot=$root" \
  CXX_aarch64_unknown_linux_gnu=$triplet-g++ CXXFLAGS_aarch64_unknown_linux_gnu="--sysroot=$root" \
  PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_SYSROOT_DIR=$root \
  PKG_CONFIG_LIBDIR=$root/usr/lib/$triplet/pkgconfig:$root/usr/share/pkgconfig
cargo build --release --locked --target "$target" \
  -p selvedge -p selvedge-place-coprocessor -p selvedge-media-plugin -p selvedge-comm-frames-c
programs=${CARGO_TARGET_DIR:-target}/$target/release
file --brief "$programs/selvedge" | grep -q 'ARM aarch64'
selvedge() { qemu-aarch64-static -L "$root" "$programs/selvedge" "$@"; }
selvedge --version
selvedge stack check "ui | reliable | frag(1400) | net" > /dev/null
for engine in software inline; do
  selvedge trace replay --engine "$engine" vectors/01-dwcs-backlogged.json | cmp - vectors/01-dwcs-backlogged.jsonl
done
echo "arm64: built and run"
