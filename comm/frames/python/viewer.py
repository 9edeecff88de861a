"""A viewer: viewer.py PATH FILE FRAMES. Writes so many frames into the file, each after its length in 4 bytes."""

import itertools
import sys

from selvedge_frames import Viewer

path, name, wanted = sys.argv[1:]
frames = 0
with open(name, "wb") as file, Viewer(path) as viewer:
    print("connected", flush=True)
    for frame in itertools.islice(viewer, int(wanted)):
        file.write(len(frame.bytes).to_bytes(4, "big") + frame.bytes)
        frames += 1
print(frames, "frames")
sys.exit(frames < int(wanted))
