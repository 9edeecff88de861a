#!/usr/bin/env bash
# How soon and how far an encoder follows a path of unknown rate, in real time behind `selvedge line`: by a bond of Selvedge over
# one path, and by rtpgccbwe of GStreamer (Google's congestion control, with the far end's TWCC feedback). Noise of 320x240 is
# encoded by x264 with the same settings. The path carries 4 Mbit/s, 2 Mbit/s from 16 s to 28 s, and 4 Mbit/s again.
#
#   lab/peers/rate/run.sh SELVEDGE SENDER [RUNS]
#       SELVEDGE  the program       SENDER  the program of lab/peers/rate       RUNS  of each, 1
#       WAYS in the environment: only these, of "selvedge rtpgccbwe rtpgccbwe_low"
#       KEEP in the environment: a folder for what each run left: packets.csv, samples, line.log
#
# The path takes 20 ms each way, and its queue holds 300 ms of 4 Mbit/s. rtpgccbwe begins with 2.048 Mbit/s, its default, and
# rtpgccbwe_low with 500 kbit/s, as a bond does. Each aims at no more than 8.192 Mbit/s. A bond's encoder gets nine tenths of the estimate,
# rtpgccbwe's the whole. The estimate and what the encoder aims at are read each quarter of a second, and shown as shares
# of the path's rate: 3 s after the first large packet, and 2 s after each step. The line's own recording says what arrived of what
# the path could carry from 3 s after the first packet on, how long packets waited in its queue, and what was lost.
# A run takes 42 s. Needs root rights, GStreamer, curl and jq.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

SOURCE='videotestsrc is-live=true pattern=snow ! video/x-raw,width=320,height=240,framerate=25/1 !'
SOURCE+=' x264enc name=encoder tune=zerolatency speed-preset=ultrafast key-int-max=50'
export SOURCE
# A packet to a port of its own, and when it was sent: so the samples' clock is known by the line's.
mark() {
  printf 'clock %s\n' "$EPOCHREALTIME" >> samples
  echo > "/dev/udp/$SELVEDGE_LINE_FAR/9"
}
far_selvedge() {
  head -c 32 /dev/zero | od -An -v -tx1 | tr -d ' \n' > secret
  cat > far.toml <<END_OF_FILE
[bond.van]
listen = "0.0.0.0:7800"
secret = "secret"
[link.out]
rate = "100 Mbit/s"
[stream.noise]
source = "bond:van"
to = "rtp://127.0.0.1:5004"
END_OF_FILE
  exec "$selvedge" run far.toml
}
near_selvedge() {
  cat > near.toml <<END_OF_FILE
[link.uplink]
to = "$SELVEDGE_LINE_FAR:7800"
secret = "secret"
[stream.noise]
source = "launch:$SOURCE bitrate=500 ! h264parse"
delay = "1 s"
[stream.noise.knobs]
bitrate = { property = "encoder.bitrate", unit = "kbit/s", least = "1 kbit/s", most = "8192 kbit/s" }
END_OF_FILE
  "$selvedge" run near.toml & node=$!
  for ((i = 0; i < 168; i++)); do
    sleep 0.25 & quarter=$!
    sample=$(curl -sf localhost:7700/api/v1/node | jq -r '"\(.links[0].rate_bps) \(.streams[0].encoder_bps // 0)"') &&
      echo "$EPOCHREALTIME $sample" >> samples
    wait "$quarter"
  done
  kill "$node"
  wait "$node"
}
far_rtpgccbwe() {
  exec gst-launch-1.0 -q rtpbin name=bin rtp-profile=avpf udpsrc port=5004 ! "application/x-rtp,media=video,encoding-name=H264,clock-rate=90000,\
payload=96,rtcp-fb-transport-cc=true,\
extmap-1=(string)http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01" ! \
    bin.recv_rtp_sink_0 bin. ! rtph264depay ! fakesink sync=false async=false \
    bin.send_rtcp_src_0 ! udpsink host="$SELVEDGE_LINE_NEAR" port=5005 sync=false async=false udpsrc port=5005 ! bin.recv_rtcp_sink_0
}
far_rtpgccbwe_low() { far_rtpgccbwe; }
near_rtpgccbwe() { near_rtpgccbwe_from 2048000; }
near_rtpgccbwe_low() { near_rtpgccbwe_from 500000; }
near_rtpgccbwe_from() {
  "$sender" "$SELVEDGE_LINE_FAR" 42 "$1" | while read -r estimate; do echo "$EPOCHREALTIME $estimate $estimate" >> samples; done
}
case $1 in
  near_*) # An end, within the network.
    ip link set lo up
    sleep 1
    mark
    "$1"
    exit
    ;;
  far_*)
    ip link set lo up
    "$1"
    exit
    ;;
esac
selvedge=$(realpath "$1") sender=$(realpath "$2") runs=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export selvedge sender

printf '%s\n' ms,kbit/s 0,4000 16000,2000 28000,4000 60000,4000 > rate.csv
cat > network.toml <<END
[network]
source = "made up"
[host.near]
[host.far]
[link.path]
between = ["near", "far"]
rate = { csv = "rate.csv" }
delay = "20 ms"
queue = { kind = "drop-tail", bytes = "150 kB" }
[link.path.back]
rate = "4 Mbit/s"
END
# One line of figures: estimate and encoder 3 s after the start and 2 s after each step, used, lost, waited at the 95th percentile.
judge() {
  grep -q '^[0-9]' samples || { echo "rate: no samples of $1" >&2; tail -n 20 line.log >&2; return 1; }
  sort -t, -n -k1,1 packets.csv | awk -F'[, ]' '
    function truth(at) { return at < 16 || at >= 28 ? 4e6 : 2e6 }
    # What was sampled last before then, as shares of what the path carries.
    function share(at,   i, last) {
      for (i = 1; i <= samples && when[i] + shift <= at; i++) last = i
      return last ? sprintf("%.2f %.2f", estimate[last] / truth(at), aim[last] / truth(at)) : "0 0"
    }
    FNR == NR && $1 == "clock" { marked = $2; next }
    FNR == NR { samples++; when[samples] = $1; estimate[samples] = $2; aim[samples] = $3; next }
    $4 != "there" { next }
    $5 == 9 { shift = $1 / 1e9 - marked; next }
    !start && $2 > 500 { start = $1 / 1e9 }
    start && $1 / 1e9 < 42 { sent++; if ($6 == "arrived") print ($7 - $1) / 1e6 - 20 > "waits"; else lost++ }
    start && $6 == "arrived" && $7 / 1e9 > start + 3 && $7 / 1e9 < 42 { bits += 8 * $2 }
    END {
      for (at = start + 3; at < 42; at += 0.001) could += truth(at) / 1000
      printf "%s %s %s %.3f %.4f ", share(start + 3), share(18), share(30), bits / could, lost / sent
    }' samples -
  sort -n waits | awk '{ wait[NR] = $1 } END { printf "%.0f\n", wait[int(NR * 0.95)] }'
}
# The median of a column of all runs, and the least and the most.
spread() {
  sort -n -k"$1","$1" all | awk -v column="$1" -v places="$2" '{ v[NR] = $column } END {
    form = "%." places "f"
    printf (NR > 1 ? form " (" form " to " form ")" : form), v[int((NR + 1) / 2)], v[1], v[NR]
  }'
}
for way in ${WAYS:-selvedge rtpgccbwe rtpgccbwe_low}; do
  : > all
  for run in $(seq "$runs"); do
    rm -f samples packets.csv waits ./*.rates
    "$selvedge" line network.toml --name "rate-$$" --for 44s --record packets.csv --far "$here/run.sh far_$way" \
      --near "$here/run.sh near_$way" > line.log 2>&1 || true
    if [ -n "${KEEP:-}" ]; then
      mkdir -p "$KEEP/$way-$run"
      cp packets.csv samples line.log "$KEEP/$way-$run" || true
    fi
    judge "$way" >> all
  done
  printf 'rate at 4, 2, 4 Mbit/s, %s, %s runs: estimate %s after 3 s, %s 2 s after less, %s 2 s after more; encoder %s, %s, %s; ' \
    "$way" "$runs" "$(spread 1 2)" "$(spread 3 2)" "$(spread 5 2)" "$(spread 2 2)" "$(spread 4 2)" "$(spread 6 2)"
  printf 'used %s, lost %s, in the queue %s ms at p95\n' "$(spread 7 3)" "$(spread 8 4)" "$(spread 9 0)"
done
