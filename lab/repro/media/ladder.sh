#!/bin/bash
# Makes the table of the experiment up-adapt from two clips: ./ladder.sh CLIP CLIP
# x264 encodes 300 pictures of each at a ladder of bitrates. Of each picture the table keeps its size, how like the
# original it is (FFmpeg's SSIM of luma), and how like the originals that come so many pictures later it still is.
# Needs ffmpeg with libx264.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

for clip in "$1" "$2"; do
    ffmpeg -v error -y -nostdin -i "$(cd "$OLDPWD" && realpath "$clip")" -vf "setpts=N/25/TB,scale=640:360" \
        -frames:v 300 -an -r 25 -pix_fmt yuv420p -f rawvideo - >>original.yuv
done
raw="-f rawvideo -pix_fmt yuv420p -s 640x360 -r 25"

# Each picture's likeness to the original so many pictures behind it, where both go round and round.
likeness() {
    ffmpeg -v error -nostdin $raw -i decoded.yuv $raw -stream_loop 1 -i original.yuv -lavfi \
        "[1:v]trim=start_frame=$1,setpts=PTS-STARTPTS[later];[0:v][later]ssim=stats_file=-:shortest=1" -f null - |
        sed -n 's/.* Y:\([0-9.]*\) .*/\1/p' | awk -v by="$2" '{ printf "%d\n", $1 * by + 0.5 }'
}

for kbps in 300 450 700 1000 1500 2200 3200 4700 7000; do
    ffmpeg -v error -y -nostdin $raw -i original.yuv -c:v libx264 -preset superfast -tune zerolatency -refs 1 \
        -x264-params scenecut=0:keyint=50:min-keyint=50 \
        -b:v ${kbps}k -maxrate ${kbps}k -bufsize $((kbps * 6 / 10))k -f h264 stream.h264
    ffmpeg -v error -y -nostdin -r 25 -i stream.h264 -f rawvideo decoded.yuv
    echo "kbit/s $kbps"
    ffprobe -v error -show_entries packet=size -of csv=p=0 stream.h264 | tr -d ', ' >sizes
    likeness 0 10000 >now
    for lag in 1 3 10 30 100; do likeness "$lag" 1000 >"$lag"; done
    paste -d ' ' sizes now 1 3 10 30 100
done >"$here/ladder.txt"
