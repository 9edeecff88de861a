#!/usr/bin/env bash
# One picture over two bad paths of `selvedge line`, in real time, by
#   selvedge          a bond of Selvedge
#   librist           librist over both paths, with weights; and librist_smooth, the same from an encoder that smooths its pictures
#   mptcp             the kernel's MPTCP over both
#   rist, rist_twice  GStreamer's RIST over both, by turns and twice
#   srt               GStreamer's SRT over the better one
# What arrives is decoded by FFmpeg, and the pictures that equal the original are counted, in order, each at most once.
#
#   lab/peers/bond/run.sh SELVEDGE SHARE [RUNS]
#       SELVEDGE  the program        SHARE  what both paths carry, in hundredths of the need        RUNS  of each, 1
#       WAYS in the environment: only these, of the above
#
# The better path has five eighths of the rate and 20 ms, the other 60 ms and bursts of loss. Nobody states a rate, but librist's weights are
# the true ratio, it waits 80 ms for packets of the longer path, and librist_smooth gets no more than one and a half times the need at
# once. RIST and SRT may delay by 1 s, and Selvedge's stream has a delay of 1 s. MPTCP knows no deadline: what is later than 1 s and the
# longer path's delay is left out by its receiver, and its sender leaves out what has waited for 400 ms before the kernel took
# it, which holds 300 ms of the stream. MPTCP controls its rate as this kernel does by default. Needs root rights, FFmpeg, GStreamer, and
# rist-tools and Python (`tools/setup.sh soak`).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Both ends of each way of sending: what arrives is in arrived.ts, or decoded in arrived.md5.
read_clip='filesrc location=clip.mp4 ! qtdemux ! h264parse config-interval=-1 ! video/x-h264,stream-format=byte-stream,alignment=au ! clocksync'
far_selvedge() {
  head -c 32 /dev/zero | od -An -v -tx1 | tr -d ' \n' > secret
  cat > far.toml <<END
[bond.van]
listen = "0.0.0.0:7800"
secret = "secret"
[link.out]
rate = "100 Mbit/s"
[stream.clip]
source = "bond:van"
to = "rtp://127.0.0.1:5004"
delay = "2 s"
END
  printf '%s\n' v=0 'o=- 0 0 IN IP4 127.0.0.1' s=clip 't=0 0' 'm=video 5004 RTP/AVP 96' 'c=IN IP4 127.0.0.1' \
    'a=rtpmap:96 H264/90000' 'a=fmtp:96 packetization-mode=1' > clip.sdp
  "$selvedge" run far.toml & node=$!
  timeout 34 ffmpeg -v quiet -threads 1 -protocol_whitelist file,udp,rtp -i clip.sdp -fps_mode passthrough -f framemd5 -flush_packets 1 \
    arrived.md5 || true
  kill "$node"
}
near_selvedge() {
  cat > near.toml <<END
[link.uplink]
to = "$SELVEDGE_LINE_FAR:7800"
secret = "secret"
[link.uplink.path.one]
[link.uplink.path.two]
to = "$SELVEDGE_LINE_FAR_2:7800"
[stream.clip]
source = "file:clip.mp4"
delay = "1 s"
END
  "$selvedge" run near.toml
}
far_rist() {
  gst-launch-1.0 -q -e ristsrc bonding-addresses=0.0.0.0:5004,0.0.0.0:5014 receiver-buffer=1000 ! rtpmp2tdepay ! \
    filesink location=arrived.ts buffer-mode=unbuffered
}
far_rist_twice() { far_rist; }
near_rist() { near_rist_by round-robin; }
near_rist_twice() { near_rist_by broadcast; }
near_rist_by() {
  # shellcheck disable=SC2086
  gst-launch-1.0 -q $read_clip ! mpegtsmux alignment=7 ! rtpmp2tpay ! ristsink bonding-method="$1" \
    bonding-addresses="$SELVEDGE_LINE_FAR:5004,$SELVEDGE_LINE_FAR_2:5014" sender-buffer=1200
}
far_librist() {
  ristreceiver -p 1 -v -1 -S 0 -o udp://127.0.0.1:5000 \
    -i "rist://@$SELVEDGE_LINE_FAR:7000?buffer=1000&reorder-buffer=80,rist://@$SELVEDGE_LINE_FAR_2:7000?buffer=1000&reorder-buffer=80" & receiver=$!
  gst-launch-1.0 -q -e udpsrc address=127.0.0.1 port=5000 ! filesink location=arrived.ts buffer-mode=unbuffered
  kill "$receiver"
}
far_librist_smooth() { far_librist; }
near_librist() {
  # shellcheck disable=SC2086
  near_librist_of gst-launch-1.0 -q $read_clip ! mpegtsmux alignment=7 ! udpsink host=127.0.0.1 port=6000 sync=false
}
near_librist_smooth() { near_librist_of smooth; }
smooth() {
  # shellcheck disable=SC2086
  gst-launch-1.0 -q $read_clip ! mpegtsmux alignment=7 ! fdsink | python3 "$here/ends.py" smooth $((need * 3 / 2)) 127.0.0.1 6000
}
# The receiver must know the sender before the first picture.
near_librist_of() {
  ristsender -p 1 -v -1 -S 0 -i udp://@127.0.0.1:6000 \
    -o "rist://$SELVEDGE_LINE_FAR:7000?buffer=1000&weight=5,rist://$SELVEDGE_LINE_FAR_2:7000?buffer=1000&weight=3" & sender=$!
  sleep 2
  "$@"
  sleep 2
  kill "$sender"
}
far_mptcp() {
  ip mptcp limits set subflow 2 add_addr_accepted 2
  ip mptcp endpoint add "$SELVEDGE_LINE_FAR_2" dev far2 signal
  python3 "$here/ends.py" receive 7000 1060 > arrived.ts
}
near_mptcp() {
  ip mptcp limits set subflow 2 add_addr_accepted 2
  # shellcheck disable=SC2086
  gst-launch-1.0 -q $read_clip ! mpegtsmux alignment=7 ! fdsink | python3 "$here/ends.py" send "$SELVEDGE_LINE_FAR" 7000 "$need"
}
far_srt() {
  gst-launch-1.0 -q -e srtsrc 'uri=srt://:7000?mode=listener' latency=1000 ! filesink location=arrived.ts buffer-mode=unbuffered
}
near_srt() {
  # shellcheck disable=SC2086
  gst-launch-1.0 -q $read_clip ! mpegtsmux alignment=7 ! \
    srtsink "uri=srt://$SELVEDGE_LINE_FAR:7000?mode=caller" latency=1000 wait-for-connection=true
}
case $1 in
  near_* | far_*) # An end, within the network.
    ip link set lo up
    "$1" || true
    # What was sent last is still under way, and waits at the receiver.
    sleep 3
    exit
    ;;
esac
ways=${WAYS:-selvedge librist librist_smooth mptcp rist rist_twice srt}
for program in ristsender python3; do
  command -v "$program" > /dev/null || { echo "bond: there is no $program; tools/setup.sh soak installs it" >&2; exit 1; }
done
if [[ $ways = *mptcp* ]] && [ "$(cat /proc/sys/net/mptcp/enabled 2> /dev/null)" != 1 ]; then
  echo "bond at $2 %, mptcp: not measured, this kernel has none"
  ways=${ways/mptcp/}
fi
selvedge=$(realpath "$1") share=$2 runs=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export selvedge

ffmpeg -v error -i "$here/../../../clips/car-detection.mp4" -an -r 25 -vf scale=1280:720 -t 30 -c:v libx264 -preset veryfast \
  -b:v 2M -maxrate 3M -bufsize 3M -bf 2 -g 50 -threads 1 clip.mp4
sums() { sed -n '/^#/!s/.*, *//p'; }
pictures() { ffmpeg -v quiet -threads 1 -i "$1" -map 0:v:0 -fps_mode passthrough -f framemd5 - | sums; }
pictures clip.mp4 > original
all=$(wc -l < original)
# What plain RTP takes, headers included: 44 bytes on each packet of 1400.
need=$(ffprobe -v error -select_streams v -show_entries stream=bit_rate -of csv=p=0 clip.mp4)
export need=$((need * 1444 / 1400))
rate() { echo "$((need * share / 100 * $1 / 8000)) kbit/s"; }
cat > network.toml <<END
[network]
source = "made up"
[host.near]
[host.far]
[link.one]
between = ["near", "far"]
rate = "$(rate 5)"
delay = "20 ms"
queue = { kind = "drop-tail", bytes = "100 kB" }
[link.two]
between = ["near", "far"]
rate = "$(rate 3)"
delay = "60 ms"
queue = { kind = "drop-tail", bytes = "100 kB" }
loss = { worsens = "0.5 %", recovers = "20 %", bad = "50 %" }
END

for way in $ways; do
  shares=()
  for _ in $(seq "$runs"); do
    rm -f arrived.*
    "$selvedge" line network.toml --name "bond-$$" --for 40s --far "$here/run.sh far_$way" --near "sleep 1; $here/run.sh near_$way" \
      > line.log 2>&1 || true
    if [ -e arrived.md5 ]; then sums < arrived.md5 > came; else pictures arrived.ts > came || true; fi
    whole=$((all - $(diff -d original came | grep -c '^<' || true)))
    shares+=($((whole * 1000 / all)))
  done
  mapfile -t shares < <(printf '%s\n' "${shares[@]}" | sort -n)
  printf 'bond at %s %%, %s: %s per mille of the pictures whole (%s to %s, %s runs)\n' "$share" "$way" \
    "${shares[$((runs / 2))]}" "${shares[0]}" "${shares[-1]}" "$runs"
done
