#!/usr/bin/env bash
# Makes target/selvedge_VERSION_ARCHITECTURE.deb of what `make manual build` built. A package that was built on Debian 12 can be
# installed on 12 and 13; one that was built on 13 only there.
set -euo pipefail
cd "$(dirname "$0")/.."
architecture=$(dpkg --print-architecture)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
commit=$(git rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
PREFIX=/usr DESTDIR=$root GST_PLUGINS=lib/$multiarch/gstreamer-1.0 tools/install.sh install
gzip -9 -n "$root"/usr/share/man/man1/*
rm "$root/usr/share/selvedge/files"
mv "$root"/usr/share/doc/selvedge/LICENSE-MIT "$root/usr/share/doc/selvedge/copyright"
cat LICENSE-APACHE >> "$root/usr/share/doc/selvedge/copyright"
rm "$root/usr/share/doc/selvedge/LICENSE-APACHE"
install -d "$root/etc/selvedge" "$root/DEBIAN" "$work/debian"
: > "$work/debian/control"
shared=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -e"root/usr/bin/selvedge" -e"root/usr/bin/selvedge-coproc" \
  -e"root/usr/lib/$multiarch/gstreamer-1.0/libgstselvedge.so" 2> /dev/null | sed -n 's/^shlibs:Depends=//p')
cat > "$root/DEBIAN/control" <<CONTROL
Package: selvedge
Version: $version+$commit
Architecture: $architecture
Section: video
Priority: optional
Maintainer: The authors of Selvedge <selvedge@invalid>
Depends: $shared, gstreamer1.0-plugins-base, gstreamer1.0-plugins-good, gstreamer1.0-plugins-bad
Recommends: gstreamer1.0-plugins-ugly, gstreamer1.0-libav
Suggests: ffmpeg
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Description: Keeps live media on time
 Sends several streams over links that are too small for all of them, so that the most frames can be decoded, on
 time, by their receivers. Contains the node, the coprocessor, the GStreamer elements and the manual.
CONTROL
package=target/selvedge_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" > /dev/null
printf 'deb: %s, %s bytes\n' "$package" "$(stat -c %s "$package")"
