#!/usr/bin/env bash
# Runs the README's commands as on new machines: in a clone of HEAD, in roots of Debian 12 and 13 that
# hold only make, git and ca-certificates. Prints how long set-up, build and the whole took.
#
#   tools/fresh.sh [--release 12|13] [--command demo|test] [--package FILE] [--cold] [--keep]
#       --release   this one only; otherwise both
#       --command   `make demo ARGS="--seconds 20"` or `make test` only; otherwise both, in new roots
#       --package   installs this package of `make deb` in place of the commands, and runs a node for five seconds
#       --cold      downloads everything; otherwise Debian packages and crates come from
#                   ${XDG_CACHE_HOME:-~/.cache}/selvedge/fresh, which such runs fill
#       --keep      leaves the roots, and prints where they are
#
# Needs root rights, debootstrap, and 15 GB in ${TMPDIR:-/var/tmp}. Uses two processors. Nothing of it
# remains afterwards: mounts and processes live in namespaces that end with it. The machine's way to
# the network is handed on: its Debian mirror, certificates and proxies, and the variables that
# name mirrors for rustup, cargo and npm. Example:
#   nice tools/fresh.sh --release 13 --command demo
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' tools/fresh.sh; }
say() { printf 'fresh: %s\n' "$*"; }

releases='12 13' commands='demo test' package='' cold='' keep=''
given=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    --release) releases=${2:-}; shift ;;
    --command) commands=${2:-}; shift ;;
    --package) package=${2:-}; commands=package; shift ;;
    --cold) cold=1 ;;
    --keep) keep=1 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift || true
done
[ -z "$package" ] || [ -f "$package" ] || { say "there is no $package; run: make deb" >&2; exit 2; }
[[ $releases =~ ^1[23]( 13)?$ && $commands =~ ^(demo|test|demo test|package)$ ]] || { usage >&2; exit 2; }

# Everything happens once more, in namespaces. The folder is removed outside of them, where nothing is
# mounted in it and no process is left.
if [ -z "${FRESH_FOLDER:-}" ]; then
  [ "$(id -u)" = 0 ] || { say 'root rights are needed' >&2; exit 2; }
  command -v debootstrap > /dev/null || { say 'the Debian package debootstrap is needed' >&2; exit 2; }
  FRESH_FOLDER=$(mktemp -d "${TMPDIR:-/var/tmp}/selvedge-fresh-XXXXXX")
  export FRESH_FOLDER
  inner=''
  clean() {
    [ -z "$inner" ] || kill -KILL "$inner" || true
    if [ -n "$keep" ]; then say "kept: $FRESH_FOLDER"; else rm -rf --one-file-system "$FRESH_FOLDER"; fi
  }
  trap clean EXIT
  trap 'exit 130' INT TERM
  unshare --mount --pid --fork --kill-child tools/fresh.sh "${given[@]}" &
  inner=$!
  status=0
  wait $inner || status=$?
  inner=''
  exit $status
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/selvedge/fresh

# The first Debian mirror that the system's sources name.
mirror() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2> /dev/null |
    sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p; s/^URIs: *\([^ ]*\).*/\1/p' |
    awk '/\/debian\/?$/ && !n++ { print } END { if (!n) print "http://deb.debian.org/debian" }'
}

# The first two processors that this process may use.
processors() {
  taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ for (i = $1; i <= $NF && n < 2; i++) printf "%s%d", n++ ? "," : "", i }'
}

# Variables about the way to the network; what may be a secret is left out.
variables() {
  env | grep -iE '^(https?_proxy|no_proxy|all_proxy|rustup_(dist_server|update_root)|(cargo_(http|net|source|registries)|npm_config)_\w+)=' |
    grep -viE '^[^=]*(token|secret|passw|auth|credential)' || true
}

# make_root ROOT SUITE
make_root() {
  local root=$1 suite=$2 kept=()
  if [ -z "$cold" ]; then
    mkdir -p "$cache/$suite" "$cache/registry"
    kept=(--cache-dir="$cache/$suite")
  fi
  debootstrap --variant=minbase --include=make,git,ca-certificates "${kept[@]}" \
    "$suite" "$root" "$(mirror)" > "$root.log" 2>&1 || { tail -n 20 "$root.log"; return 1; }
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  if [ -z "$cold" ]; then
    mount --bind "$cache/$suite" "$root/var/cache/apt/archives"
    mkdir -p "$root/root/.cargo/registry"
    mount --bind "$cache/registry" "$root/root/.cargo/registry"
  fi
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-)' > "$root/etc/apt/apt.conf.d/90machine" || true
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2> /dev/null || true
  chroot "$root" update-ca-certificates > /dev/null 2>&1
  # Web servers that the tests use would be started in the machine's network.
  printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
  chmod +x "$root/usr/sbin/policy-rc.d"
  git clone --quiet --no-local . "$root/root/selvedge"
  git -C "$root/root/selvedge" checkout --quiet --detach "$(git rev-parse HEAD)"
}

remove_root() {
  local root=$1 part
  for part in root/.cargo/registry var/cache/apt/archives dev sys proc; do
    ! mountpoint -q "$root/$part" || umount -R -l "$root/$part"
  done
  [ -n "$keep" ] || rm -rf --one-file-system "$root"
}

# inside ROOT COMMAND...: on two processors, with nothing of this one's environment. The root becomes that
# of a mount namespace: a process in a mere `chroot` may make no user namespaces, as some tests do.
inside() {
  local root=$1 settings
  shift
  mapfile -t settings < <(variables)
  taskset -c "$(processors)" unshare --mount bash -c '
    mount --rbind "$0" "$0" && cd "$0" && pivot_root . mnt && umount -l /mnt && exec "$@"' "$root" \
    env -i HOME=/root LANG=C.UTF-8 TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${settings[@]}" "$@" < /dev/null
}

# try RELEASE COMMAND: prints what the command prints, and adds a line to `results`.
try() {
  local release=$1 command=$2 root=$FRESH_FOLDER/debian-$1-$2 began line='' status='' setup='' built=''
  local arguments=("$command") suite=bookworm
  [ "$release" = 12 ] || suite=trixie
  [ "$command" = test ] || arguments+=(ARGS='--seconds 20')
  say "Debian $release: making a root"
  make_root "$root" "$suite"
  say "Debian $release: make $command"
  began=$SECONDS
  while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in
      # What make prints when it comes to it, and the first check.
      'cargo build '* | 'manifest '*) setup=${setup:-$((SECONDS - began))} ;;
      'target/release/selvedge demo'*) built=${built:-$((SECONDS - began))} ;;
      'fresh: status '*) status=${line##* } ;;
    esac
  done < <(inside "$root" make -C /root/selvedge "${arguments[@]}" 2>&1 && echo "fresh: status 0" ||
    echo "fresh: status $?")
  results+=("$(printf 'Debian %s, make %s, %s cache: status %s, set-up %s s, build %s s, the whole %d s' \
    "$release" "$command" "$([ -n "$cold" ] && echo empty || echo shared)" "$status" "${setup:--}" \
    "$([ -n "$built" ] && echo $((built - setup)) || echo -)" $((SECONDS - began)))")
  [ "$status" = 0 ] || failed=1
  remove_root "$root"
}

# try_package RELEASE: a root with nothing but the package, and what that needs.
try_package() {
  local release=$1 root=$FRESH_FOLDER/debian-$1-package suite=bookworm status=0 began
  [ "$release" = 12 ] || suite=trixie
  say "Debian $release: making a root"
  make_root "$root" "$suite"
  rm -rf "$root/root/selvedge"
  cp "$package" "$root/root/selvedge.deb"
  cat > "$root/root/node.toml" <<'NODE'
[link.uplink]
rate = "2 Mbit/s"

[stream.cam]
source = "test:video"
to = "rtp://127.0.0.1:5004"
sdp = "cam.sdp"
NODE
  say "Debian $release: installing $package"
  inside "$root" apt-get -qq update || status=$?
  began=$SECONDS
  inside "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    /root/selvedge.deb gstreamer1.0-plugins-ugly > "$root.log" 2>&1 || { tail -n 20 "$root.log"; status=1; }
  local installed=$((SECONDS - began))
  inside "$root" bash -ec '
    cd /root
    selvedge --version
    selvedge check node.toml
    selvedge run node.toml > run.log 2>&1 & node=$!
    for try in $(seq 50); do [ ! -s cam.sdp ] || break; sleep 0.1; done
    selvedge play cam.sdp --seconds 3 --json > play.json
    kill -INT $node; wait $node
    grep -o "\"decodable[a-z_]*\": *[0-9.]*" play.json | head -n 3
    ! grep -q "\"frames\": *0," play.json' || { status=1; cat "$root/root/run.log" || true; }
  results+=("Debian $release, the package: status $status, installed in $installed s")
  [ "$status" = 0 ] || failed=1
  remove_root "$root"
}

results=() failed=0
for release in $releases; do
  for command in $commands; do
    if [ "$command" = package ]; then try_package "$release"; else try "$release" "$command"; fi
  done
done
printf '\n'
for result in "${results[@]}"; do say "$result"; done
exit $failed
