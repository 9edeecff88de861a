#!/usr/bin/env bash
# What a bond of Selvedge carries over two paths of `selvedge line` when more is offered, in real time: at 10 and 10 Mbit/s, at 10 and 2,
# and at 10 and 10 where the second path takes 140 ms longer. JPEG pictures of noise are offered, of about 12 kB each and
# 250 a second; the link's selection drops what does not fit.
#
#   lab/peers/bond/flood.sh SELVEDGE [RUNS]
#       SELVEDGE  the program       RUNS  of each, 1
#       CELLS in the environment: only these, of "10+10 10+2 10+10+140ms"
#
# Carried is what arrived over both paths, all headers and repairs included, of what they can carry, from 8 s after the start to 28 s.
# Goodput is what the far node hands on as RTP in whole frames in the same time, IP and UDP headers included, of the same.
# Paths take 10 ms, their queues hold 125 kB, and nothing is lost on them. Needs root rights, GStreamer, curl and jq.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

far_flood() {
  head -c 32 /dev/zero | od -An -v -tx1 | tr -d ' \n' > secret
  cat > far.toml <<END
[bond.van]
listen = "0.0.0.0:7800"
secret = "secret"
[link.out]
rate = "100 Mbit/s"
[stream.noise]
source = "bond:van"
to = "rtp://127.0.0.1:5004"
END
  gst-launch-1.0 -q udpsrc address=127.0.0.1 port=5004 ! fakesink sync=false & sink=$!
  "$selvedge" run far.toml & node=$!
  for wait in 9 20; do
    sleep "$wait"
    curl -sf localhost:7700/api/v1/node | jq '.links[0].sent_bytes' >> handed_on
    echo > /dev/udp/"$SELVEDGE_LINE_NEAR"/9
  done
  kill "$node" "$sink"
}
near_flood() {
  cat > near.toml <<END
[link.uplink]
to = "$SELVEDGE_LINE_FAR:7800"
secret = "secret"
[link.uplink.path.one]
[link.uplink.path.two]
to = "$SELVEDGE_LINE_FAR_2:7800"
[stream.noise]
source = "launch:videotestsrc is-live=true pattern=snow ! video/x-raw,format=I420,width=120,height=120,framerate=250/1 ! jpegenc quality=92"
delay = "1 s"
END
  exec "$selvedge" run near.toml
}
case $1 in
  far_flood) ip link set lo up; far_flood; exit ;;
  near_flood) ip link set lo up; sleep 1; near_flood ;;
esac
selvedge=$(realpath "$1") runs=${2:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export selvedge

# The median of a column of all runs, and the least and the most.
spread() {
  sort -n -k"$1","$1" all | awk -v column="$1" '{ v[NR] = $column } END {
    printf (NR > 1 ? "%.3f (%.3f to %.3f)" : "%.3f"), v[int((NR + 1) / 2)], v[1], v[NR]
  }'
}
for cell in ${CELLS:-10+10 10+2 10+10+140ms}; do
  IFS=+ read -r one two longer <<< "$cell"
  longer=${longer:-0ms}
  : > all
  cat > network.toml <<END
[network]
source = "made up"
[host.near]
[host.far]
[link.one]
between = ["near", "far"]
rate = "$one Mbit/s"
delay = "10 ms"
queue = { kind = "drop-tail", bytes = "125 kB" }
[link.two]
between = ["near", "far"]
rate = "$two Mbit/s"
delay = "$((10 + ${longer%ms})) ms"
queue = { kind = "drop-tail", bytes = "125 kB" }
END
  for _ in $(seq "$runs"); do
    rm -f packets.csv handed_on ./*.rates
    "$selvedge" line network.toml --name "flood-$$" --for 31s --record packets.csv --far "$here/flood.sh far_flood" \
      --near "$here/flood.sh near_flood" > line.log 2>&1 || true
    [ "$(wc -l < handed_on)" = 2 ] || { echo "flood: the far node handed nothing on" >&2; tail -n 20 line.log >&2; exit 1; }
    sort -t, -n -k1,1 packets.csv | awk -F'[, ]' -v can="$(((one + two) * 1000000))" '
      FNR == NR { handed_on[FNR] = $1; next }
      $4 == "back" && $5 == 9 { marks++; from[marks] = $1 }
      $4 == "there" && $6 == "arrived" { n++; when[n] = $7; bytes[n] = $2 }
      END {
        for (i = 1; i <= n; i++) if (when[i] >= from[1] && when[i] < from[2]) sum += bytes[i]
        seconds = (from[2] - from[1]) / 1e9
        print sum * 8 / seconds / can, (handed_on[2] - handed_on[1]) * 8 / seconds / can
      }' handed_on - >> all
  done
  printf 'flood at %s Mbit/s, %s runs: carried %s, goodput %s\n' "$cell" "$runs" "$(spread 1)" "$(spread 2)"
done
