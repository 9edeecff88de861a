#!/bin/bash
# Makes the frame lists of the experiment up-media from a clip: ./lists.sh CLIP
# One list a rate, length of groups, number of B frames and form; all that is kept of the encoded video is
# each frame's kind, size and references. Needs ffmpeg with libx264.
set -euo pipefail
clip=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$here/../../.."
cargo build --quiet -p selvedge-media --example frames
frames=${CARGO_TARGET_DIR:-target}/debug/examples/frames

# Frames of a group, B frames, the end of the list's name behind a hyphen, and what x264 gets.
forms() {
    local group b
    for b in 0 1 2 3; do
        for group in 25 50 250; do
            echo "$group $b - b-pyramid=normal"
            [ "$b" -lt 2 ] || echo "$group $b --flat b-pyramid=none"
        done
        [ "$b" = 0 ] || echo "50 $b --open b-pyramid=normal:open-gop=1"
        [ "$b" -lt 2 ] || echo "50 $b --open-flat b-pyramid=none:open-gop=1"
    done
}

for rate in 1 3 12; do
    case $rate in 1) size=480x270 ;; 3) size=640x360 ;; 12) size=1280x720 ;; esac
    ffmpeg -v error -y -stream_loop 3 -i "$clip" -vf "setpts=N/25/TB,scale=$size,noise=alls=4:allf=t" \
        -r 25 -frames:v 500 -an -c:v libx264 -preset ultrafast -qp 12 "$work/$rate.mp4"
    while read -r group b form parameters; do
        ffmpeg -v error -y -nostdin -i "$work/$rate.mp4" -c:v libx264 -preset superfast -refs 3 -bf "$b" \
            -x264-params "aud=1:scenecut=0:keyint=$group:$parameters" \
            -b:v ${rate}M -maxrate ${rate}M -bufsize ${rate}M -f h264 "$work/stream.h264"
        "$frames" "$work/stream.h264" >"$here/$rate-$group-$b${form#-}.txt"
    done < <(forms)
done
