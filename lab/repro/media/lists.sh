#!/bin/bash
# Makes the frame lists of the experiment up-media from a clip: ./lists.sh CLIP
# One list a rate, length of groups and number of B frames; all that is kept of the encoded video is
# each frame's kind, size and references. Needs ffmpeg with libx264.
set -euo pipefail
clip=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$here/../../.."
cargo build --quiet -p selvedge-media --example frames
frames=${CARGO_TARGET_DIR:-target}/debug/examples/frames
for rate in 1 3 12; do
    case $rate in 1) size=480x270 ;; 3) size=640x360 ;; 12) size=1280x720 ;; esac
    ffmpeg -v error -y -stream_loop 3 -i "$clip" -vf "setpts=N/25/TB,scale=$size,noise=alls=4:allf=t" \
        -r 25 -frames:v 500 -an -c:v libx264 -preset ultrafast -qp 12 "$work/$rate.mp4"
    for group in 25 50 250; do
        for b in 0 1 2 3; do
            ffmpeg -v error -y -i "$work/$rate.mp4" -c:v libx264 -preset superfast -refs 3 -bf $b \
                -x264-params "aud=1:scenecut=0:keyint=$group:b-pyramid=normal" \
                -b:v ${rate}M -maxrate ${rate}M -bufsize ${rate}M -f h264 "$work/stream.h264"
            "$frames" "$work/stream.h264" >"$here/$rate-$group-$b.txt"
        done
    done
done
