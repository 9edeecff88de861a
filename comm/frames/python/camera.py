"""A camera: camera.py PATH ENCODING FILE PERIOD_US. The file holds frames, each after its length in 4 bytes."""

import sys
import time

from selvedge_frames import Camera

path, encoding, name, period = sys.argv[1:]
frames = 0
with open(name, "rb") as file, Camera(path, encoding) as camera:
    while head := file.read(4):
        frames += camera.write(file.read(int.from_bytes(head, "big")), at_ns=time.monotonic_ns())
        time.sleep(int(period) / 1e6)
print(frames, "frames")
