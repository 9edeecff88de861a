#!/usr/bin/env bash
# Installs what `make manual build` built, with man pages, completions, manual, examples and a systemd unit, or removes it.
#
#   tools/install.sh install|uninstall
#
# BUILT is where the programs are (target/release).
# PREFIX is where the files will be used (/usr/local), DESTDIR a folder in front of it, for packages. The installed files
# are listed in $PREFIX/share/selvedge/files; uninstall removes these and the folders that are empty then.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local} root=${DESTDIR:-}
pages=
list=$prefix/share/selvedge/files built=${BUILT:-target/release}

say() { printf 'install: %s\n' "$*"; }
[[ $prefix = /* && ( -z $root || $root = /* ) ]] || { say 'PREFIX and DESTDIR are absolute paths' >&2; exit 2; }

# put MODE FILE PATH: PATH is below the prefix.
put() {
  install -D -m "$1" "$2" "$root$prefix/$3"
  installed+=("$prefix/$3")
}

install_all() {
  local file page installed=()
  for file in selvedge selvedge-coproc libgstselvedge.so libselvedge_frames.so libselvedge_frames.a selvedge-manual; do
    [ -f "$built/$file" ] || { say "$built/$file is not there; first run: make manual build" >&2; exit 1; }
  done
  pages=$(mktemp -d)
  trap 'rm -rf "$pages"' EXIT
  "$built/selvedge-manual" manual "$pages"
  put 755 "$built/selvedge" bin/selvedge
  put 755 "$built/selvedge-coproc" bin/selvedge-coproc
  put 755 "$built/libgstselvedge.so" "${GST_PLUGINS:-lib/gstreamer-1.0}/libgstselvedge.so"
  for file in so a; do put 644 "$built/libselvedge_frames.$file" "${LIBRARIES:-lib}/libselvedge_frames.$file"; done
  put 644 comm/frames/c/include/selvedge_frames.h include/selvedge_frames.h
  put 644 comm/frames/python/selvedge_frames.py lib/python3/dist-packages/selvedge_frames.py
  for page in "$pages"/man1/*; do put 644 "$page" "share/man/man1/${page##*/}"; done
  put 644 "$pages/selvedge.bash" share/bash-completion/completions/selvedge
  put 644 "$pages/_selvedge" share/zsh/site-functions/_selvedge
  put 644 "$pages/selvedge.fish" share/fish/vendor_completions.d/selvedge.fish
  sed "s#@PREFIX@#$prefix#g" tools/package/selvedge@.service > "$pages/unit"
  put 644 "$pages/unit" lib/systemd/system/selvedge@.service
  for file in README.md CHANGELOG.md SECURITY.md LICENSE-*; do put 644 "$file" "share/doc/selvedge/$file"; done
  for file in docs/*.md docs/*.jpg docs/inside/* docs/monitoring/*; do put 644 "$file" "share/doc/selvedge/$file"; done
  for file in scenarios/*.toml; do put 644 "$file" "share/selvedge/$file"; done
  install -d "$root$prefix/share/selvedge"
  printf '%s\n' "${installed[@]}" "$list" > "$root$list"
  say "${#installed[@]} files in $root$prefix"
}

uninstall_all() {
  local file folder
  [ -f "$root$list" ] || { say "$root$list is not there: nothing was installed with this PREFIX" >&2; exit 1; }
  while read -r file; do
    [[ $file = "$prefix"/* && $file != *..* ]] || continue
    rm -f "$root$file"
    folder=${file%/*}
    while [[ $folder = "$prefix"/* ]] && rmdir "$root$folder" 2> /dev/null; do folder=${folder%/*}; done
  done < <(cat "$root$list")
  say "removed from $root$prefix"
}

case ${1:-} in
  install) install_all ;;
  uninstall) uninstall_all ;;
  *) sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' tools/install.sh >&2; exit 2 ;;
esac
