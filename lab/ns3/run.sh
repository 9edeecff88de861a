#!/usr/bin/env bash
# What bulk transfers get over dumbbells in ns-3: compiles dumbbell.cc against Debian's libns3-dev, runs
# all cells, and writes sim/tests/ns3/goodput.csv, which `cargo test -p selvedge-sim --test sim ns3` reads.
# Takes some minutes. README.md in this folder says what is simulated. `run.sh FILE` writes to FILE instead.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
table=${1:-$here/../../sim/tests/ns3/goodput.csv}
rate=10Mbps
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

libraries=(core network internet point-to-point applications traffic-control)
version=$(pkg-config --modversion ns3-core)
g++ -std=c++17 -O2 -Wall -Wextra "$here/dumbbell.cc" -o "$work/dumbbell" "${libraries[@]/#/-lns3-}"

# Packets of 1502 bytes that a round trip of so many ms holds at 10 Mbit/s.
bdp() { echo $(((10000 * $1 / 8 + 751) / 1502)); }

# How long 20 periods of the sawtooth take at least, in s, 30 or more. Of NewReno, a period is 3/4 W^2 packets
# at a segment for two round trips; ns-3's were counted, and are a ninth longer, and a third where flows do not
# lose at the same time. Of CUBIC, it is not much longer than K.
seconds() {
  awk -v control="$1" -v window="$(($4 + $3))" -v flows="$2" 'BEGIN {
    reno = (flows > 1 ? 27 : 23) * 3 / 4 * window ^ 2 * 0.0012016 / flows
    cubic = 20 * 1.2 * (0.75 * window / flows) ^ (1 / 3)
    whole = control == "cubic" ? cubic : reno
    print int(whole < 30 ? 30 : whole + 1)
  }'
}

{
  echo "# Goodput in bit/s of bulk transfers over a dumbbell in ns-3 $version, by lab/ns3/run.sh; README.md there"
  echo "# says what is set. The middle is $rate, a packet has 1448 bytes of payload in 1502; counted in [from_s, until_s)."
  echo 'control,flows,queue_packets,rtt_ms,from_s,until_s,total,each'
  for control in new-reno cubic; do
    for flows in 1 2 4 8; do
      for rtt in 20 40 80; do
        for halves in 1 2 4; do
          queue=$(($(bdp "$rtt") * halves / 2))
          from=10
          until=$((from + $(seconds "$control" "$flows" "$(bdp "$rtt")" "$queue")))
          "$work/dumbbell" --rate="$rate" --control="$control" --flows="$flows" --queue="$queue" --rtt="$rtt" \
            --from="$from" --until="$until" "${@:2}"
        done
      done
    done
  done
} > "$work/table"
mkdir -p "$(dirname "$table")"
mv "$work/table" "$table"
