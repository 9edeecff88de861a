#!/usr/bin/env bash
# A stock Debian kernel with BPF qdiscs and sched_ext, in a virtual machine of plain QEMU (TCG: no
# KVM, no rights needed). Boots in 4 to 10 s.
#
#   tools/kernel.sh fetch              the kernel into the cache; prints its folder
#   tools/kernel.sh run [OPTION]... -- COMMAND [ARG]...
#       Boots, runs COMMAND as root in the guest, prints what it prints (standard output and error
#       together), and ends with its exit status. 125: the machine did not come so far; the end
#       of the kernel's log is printed then. 77: there is no kernel or no QEMU (see SKIPPED).
#       --add FILE[:PATH]     puts FILE (stripped; with the libraries it needs) or a folder into
#                             the guest, under /bin or at PATH; again for more
#       --module NAME         a module of that kernel, loaded before COMMAND; again for more
#       --cpus N  --mem MB  --timeout SECONDS       2, 256, 120
#       --count               one processor on which 1 instruction takes 1 ns of guest time: then
#                             what the guest measures in time is instructions, the same every time
#       --in-turn             the processors take turns on one thread: a kernel that changes its own
#                             code, as it does when a sched_ext scheduler comes or goes, may be seen
#                             half changed by another thread of QEMU's, and panics (int3 in __schedule)
#       --log FILE            the kernel's log is kept there
#   tools/kernel.sh test        the tests that need such a kernel: of place/kernel and place/engine in one
#                               boot, of data/net/line in another, in which instructions are counted
#   tools/kernel.sh bench       what a packet costs in Selvedge's qdisc, fq_codel and sch_fq
#
# In the guest: busybox, dash, tc; /proc, /sys, /sys/fs/bpf, /sys/fs/cgroup (version 2), tracefs; lo is
# up; no disk, no network. Example:
#   cargo build -p selvedge-place-kernel --example probe
#   tools/kernel.sh run --add target/debug/examples/probe -- probe --verbose
#   tools/kernel.sh run -- dash -c 'uname -r; ls /sys/kernel/sched_ext'
#
# If the kernel or a tool can't be had, the line `SKIPPED: reason` says so. The kernel comes from the
# mirror that the system's own sources name, into ${XDG_CACHE_HOME:-~/.cache}/selvedge/kernel; the
# system's apt is not touched. SELVEDGE_KERNEL_CACHE names another folder, SELVEDGE_KERNEL=7.0.13 another of
# the pinned versions (those from 7.0 on come without modules).
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${SELVEDGE_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/selvedge/kernel}

# Old versions are removed from the archive now and then, so there are several; the first that can
# be had is used. Package, version, SHA-256.
kernels='
linux-image-6.18.15+deb13-cloud-amd64 6.18.15 5a507681ea8c978d02265a7fec2f02c9588fb48b54b7f71edc1059e86007f3ec
linux-image-6.18.12+deb13-cloud-amd64 6.18.12 c5d56922f7a68b73c87250461bc97409fed9b810c17ea8f03ab7d50ec2b78601
linux-image-6.17.13+deb13-cloud-amd64 6.17.13 2ac533a36b0c5107527166716414a4d04b00f7108e419df2084ca5aec268d1ff
linux-binary-7.0.13+deb13-cloud-amd64 7.0.13 7e2f91866f9d857e5b08fcd915491b4cff79fbe51cdcb081b42658612074a552
'
# Only if SELVEDGE_KERNEL names one of them: Debian's 6.16 has no BPF qdiscs, to see what is said then;
# 7.2 has a fault in its type information, so sched_ext is only half there.
others='
linux-image-6.16.12+deb13-cloud-amd64 6.16.12 b56d926c1dc9bbdf151794753df57bd427af2398a033999016dcbbd211e8e461
linux-binary-7.2.12+deb13-cloud-amd64 7.2.12 aa6720823145e351d3c817c95fe58d89995a2bcba4978ad2418c36a1c272f795
'
if [ -n "${SELVEDGE_KERNEL:-}" ]; then
  kernels=$(grep -F " $SELVEDGE_KERNEL " <<< "$kernels$others")
fi

suite=trixie-backports

skip() {
  printf 'SKIPPED: %s\n' "$1"
  exit 77
}

need() {
  local tool package
  for tool in "$@"; do
    package=${tool#*:} tool=${tool%%:*}
    command -v "$tool" > /dev/null || skip "$tool is not installed (Debian package $package)"
  done
}

# The first Debian mirror that the system's sources name.
mirror() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2> /dev/null |
    sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p; s/^URIs: *\([^ ]*\).*/\1/p' |
    grep -E '/debian/?$' | head -n 1
}

# Prints the folder of the first kernel that is there or can be fetched: vmlinuz, modules/.
fetch() {
  need flock:util-linux
  mkdir -p "$cache" || skip "$cache cannot be made"
  local package version sum one
  [ -n "${kernels// /}" ] || skip "no pinned kernel is called ${SELVEDGE_KERNEL:-}"
  while read -r package version sum; do
    [ -n "$package" ] && [ -e "$cache/$version/complete" ] && echo "$cache/$version" && return
  done <<< "$kernels"
  [ "$(uname -m)" = x86_64 ] || skip "kernels are pinned for x86_64 only, this is $(uname -m)"
  need apt-get:apt dpkg-deb:dpkg depmod:kmod
  exec 9> "$cache/lock"
  flock -w 300 9 || skip "$cache/lock is held by another process"
  local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  mirror=$(mirror)
  [ -n "$mirror" ] || skip "the system's apt sources name no Debian mirror"
  [ -e $keyring ] || skip "$keyring is missing (Debian package debian-archive-keyring)"
  local work=$cache/work
  rm -rf "$work"
  mkdir -p "$work"/{lists/partial,archives/partial,debs}
  echo "deb [signed-by=$keyring] $mirror $suite main" > "$work/sources.list"
  local apt=(timeout 300 apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list"
    -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::Lists=$work/lists"
    -o Dir::State::status=/dev/null -o "Dir::Cache=$work" -o "APT::Sandbox::User=$(id -un)"
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o Acquire::Retries=3)
  "${apt[@]}" update > "$work/log" 2>&1 ||
    skip "the index of $suite cannot be had: $(tail -n 1 "$work/log")"
  local why="none of the pinned kernels is in $suite any more"
  while read -r package version sum; do
    [ -n "$package" ] || continue
    [ -e "$cache/$version/complete" ] && echo "$cache/$version" && return
    rm -f "$work"/debs/*
    (cd "$work/debs" && "${apt[@]}" download "$package") >> "$work/log" 2>&1 || continue
    local deb=("$work"/debs/*.deb)
    if ! echo "$sum ${deb[0]}" | sha256sum --check --quiet >> "$work/log" 2>&1; then
      why="$package has another SHA-256 than the pinned one"
      continue
    fi
    rm -rf "$work/x" "${cache:?}/$version"
    dpkg-deb -x "${deb[0]}" "$work/x" || continue
    mkdir -p "$cache/$version"
    # Modules lie in lib/ or in usr/lib/.
    mv "$work"/x/boot/vmlinuz-* "$cache/$version/vmlinuz" 2>> "$work/log" ||
      mv "$work"/x/usr/lib/modules/*/vmlinuz "$cache/$version/vmlinuz" || continue
    mkdir -p "$cache/$version/lib/modules"
    mv "$work"/x/{,usr/}lib/modules/* "$cache/$version/lib/modules/" 2> /dev/null
    for one in "$cache/$version"/lib/modules/*/kernel; do
      [ -d "$one" ] && depmod -b "$cache/$version" "$(basename "$(dirname "$one")")" 2>> "$work/log"
    done
    touch "$cache/$version/complete"
    rm -rf "$work"
    echo "$cache/$version"
    return
  done <<< "$kernels"
  skip "$why"
}

# add FILE [PATH]: into the guest's tree, with the libraries that the loader would look for.
add() {
  local from=$1 to=$tree/${2:-bin/$(basename "$1")} library
  mkdir -p "$(dirname "$to")"
  if [ -d "$from" ]; then
    cp -rL "$from" "$to"
    return
  fi
  cp -L "$from" "$to" || return
  if [ "$(head -c 4 "$from" | tail -c 3)" = ELF ]; then
    strip "$to" 2> /dev/null
    ldd "$from" 2> /dev/null | grep -oE '/[^ ]+' | while read -r library; do
      mkdir -p "$tree$(dirname "$library")"
      [ -e "$tree$library" ] || cp -L "$library" "$tree$library"
    done
  fi
}

run() {
  local cpus=2 mem=256 limit=120 count='' threads=multi log='' adds=() modules=()
  while [ $# -gt 0 ]; do
    case $1 in
      --add) adds+=("$2"); shift ;;
      --module) modules+=("$2"); shift ;;
      --cpus) cpus=$2; shift ;;
      --mem) mem=$2; shift ;;
      --timeout) limit=$2; shift ;;
      --count) count=yes ;;
      --in-turn) threads=single ;;
      --log) log=$2; shift ;;
      --) shift; break ;;
      *) echo "tools/kernel.sh run: unknown option $1" >&2; exit 2 ;;
    esac
    shift
  done
  [ $# -gt 0 ] || { echo "tools/kernel.sh run: no command" >&2; exit 2; }
  need qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio tc:iproute2 strip:binutils \
    dash:dash modprobe:kmod
  local kernel
  kernel=$(fetch) || { echo "$kernel"; exit 77; }
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  tree=$scratch/tree
  mkdir -p "$tree"/{bin,sbin,proc,sys,dev,tmp,run,etc,root,modules}
  cp "$(command -v busybox)" "$tree/bin/busybox"
  add "$(command -v tc)" sbin/tc
  add "$(command -v dash)" bin/dash
  local one module path
  for one in ${adds[@]+"${adds[@]}"}; do
    add "${one%%:*}" "$(case $one in *:*) echo "${one#*:}" ;; esac)" ||
      { echo "tools/kernel.sh run: $one cannot be read" >&2; exit 2; }
  done
  local release order=0
  release=$(ls "$kernel/lib/modules" | head -n 1)
  [ -e "$kernel/lib/modules/$release/modules.dep" ] || modules=()
  for module in ${modules[@]+"${modules[@]}"}; do
    while read -r _ path _; do
      [ -e "$path" ] || continue
      order=$((order + 1))
      case $path in
        *.xz) xz -dc "$path" ;;
        *) cat "$path" ;;
      esac > "$tree/modules/$(printf '%03d' $order).ko"
    done < <(modprobe -d "$kernel" -S "$release" --show-depends "$module" | grep '^insmod')
  done
  # Quoted as any POSIX shell reads it.
  for one in "$@"; do
    printf "'%s' " "${one//\'/\'\\\'\'}"
  done > "$tree/command"
  cat > "$tree/init" << 'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
rm -f /bin/tc # the real one is in /sbin
export PATH=/bin:/sbin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
mount -t tmpfs tmpfs /tmp
ln -s /proc/self/fd /dev/fd
ip link set lo up
stty -F /dev/ttyS1 raw -echo
for module in /modules/*.ko; do
  [ -e "$module" ] && { insmod "$module" || echo "vm: $module cannot be loaded" > /dev/ttyS0; }
done
# Not busybox's shell: that one prefers its own tc to any other.
dash /command < /dev/null > /dev/ttyS1 2>&1
echo "vm: exit status $?" > /dev/ttyS0
poweroff -f
INIT
  chmod +x "$tree/init"
  (cd "$tree" && find . | cpio -o -H newc --quiet) > "$scratch/initrd"
  log=${log:-$scratch/log}
  local machine=(-accel "tcg,thread=$threads" -smp "$cpus")
  [ -n "$count" ] && machine=(-accel "tcg,thread=single" -smp 1 -icount "shift=0,sleep=off")
  timeout -k 5 "$limit" qemu-system-x86_64 "${machine[@]}" -m "$mem" -display none -no-reboot \
    -nic none -monitor none -serial "file:$log" -serial stdio -kernel "$kernel/vmlinuz" \
    -initrd "$scratch/initrd" -append 'console=ttyS0 quiet panic=-1 mitigations=off no_timer_check' < /dev/null
  local ended=$? status
  status=$(sed -n 's/^vm: exit status \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  if [ -z "$status" ]; then
    echo "tools/kernel.sh: the virtual machine ended early (QEMU: $ended; 124 is its time limit):"
    tail -n 20 "$log"
    exit 125
  fi
  # The rest of the log is nothing, or a fault of the kernel that the command may not have seen.
  grep -aE 'BUG:|WARNING:|Oops|general protection' "$log" && status=125
  return "$status"
}

tests() {
  cd "$root" || exit
  need cargo:rustup logger:bsdutils
  local programs replay attach departures qdiscs normal
  programs=$(tools/built_test.sh replay attach departures qdiscs) || exit
  { read -r replay; read -r attach; read -r departures; read -r qdiscs; } <<< "$programs"
  # The quantiles by which netem draws a normal distribution.
  normal=$(find /usr/lib -path '*/tc/normal.dist' | head -n 1)
  (run --count --timeout 600 --module dummy --module sch_htb --module sch_codel --module sch_fq_codel \
    --module sch_netem --add "$qdiscs:bin/qdiscs" --add "$normal:${normal#/}" -- \
    qdiscs --ignored --nocapture --test-threads=1) || exit
  # In turn: the doctor among them loads a sched_ext scheduler.
  run --in-turn --mem 512 --timeout 900 --module dummy --module veth --module sch_fq --module sch_etf \
    --add "$replay:bin/replay" --add "$attach:bin/attach" --add "$departures:bin/departures" \
    --add target/debug/selvedge --add vectors:vectors --add scenarios:scenarios \
    --add "$(command -v logger):bin/bsdlogger" -- \
    dash -c 'departures --ignored --nocapture --test-threads=1; times=$?
      replay --ignored --nocapture --test-threads=1; one=$?
      attach --ignored --nocapture --test-threads=1 && exit $((one + times))'
}

bench() {
  cd "$root" || exit
  cargo build --locked -p selvedge-lab-measure --features kernel --example qdisc_cost || exit
  local program=target/debug/examples/qdisc_cost
  echo 'Instructions, counted:'
  run --count --mem 512 --timeout 900 --module sch_fq --add "$program" -- qdisc_cost instructions
  cargo build --locked -p selvedge-lab-measure --features kernel --example decision_cost || exit
  echo 'A decision about tasks, instructions:'
  run --count --mem 512 --timeout 900 --add target/debug/examples/decision_cost -- decision_cost
}

case ${1:-} in
  bench) (bench) ;;
  test)
    (tests)
    status=$?
    # Skipped is not failed.
    [ "$status" -eq 77 ] && exit 0
    exit "$status"
    ;;
  fetch) fetch ;;
  run) shift; run "$@" ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
