"""Carries an MPEG transport stream for run.sh where no program of a peer does: by the kernel's MPTCP, and smoothly into
librist's sender.

    ends.py send HOST PORT BITS < STREAM      by MPTCP: 300 ms of BITS a second under way; what waits 400 ms here is left out
    ends.py receive PORT MS > STREAM          by MPTCP; what came later than so long after it was read is left out
    ends.py smooth BITS HOST PORT < STREAM    as UDP datagrams of seven packets, no faster than BITS a second

By MPTCP each piece has the time before it at which it was read, of the clock that both network namespaces share
(CLOCK_MONOTONIC). MPTCP is that of RFC 8684; a socket asks for it by its protocol.
"""

import collections
import fcntl
import os
import select
import socket
import struct
import sys
import termios
import time

MPTCP = 262
DATAGRAM = 7 * 188
PATIENCE = 400_000_000
HEAD = struct.Struct("!QI")


def send(host, port, bits):
    # What the kernel holds can't be left out any more, so it gets no more than a live sender would hand it: the data
    # that nobody has acknowledged (SIOCOUTQ) stay below 300 ms of the stream.
    most = int(bits) // 8 * 3 // 10
    out = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    out.connect((host, int(port)))
    waiting, flows, left_out = collections.deque(), True, 0
    while flows or waiting:
        readable, _, _ = select.select([0] if flows else [], [], [], 0.004 if waiting else None)
        if readable:
            piece = os.read(0, DATAGRAM)
            flows = bool(piece)
            if piece:
                waiting.append((time.monotonic_ns(), piece))
        while waiting and struct.unpack("i", fcntl.ioctl(out, termios.TIOCOUTQ, b"\0" * 4))[0] < most:
            read_at, piece = waiting.popleft()
            if time.monotonic_ns() - read_at > PATIENCE:
                left_out += 1
            else:
                out.sendall(HEAD.pack(read_at, len(piece)) + piece)
    out.close()
    print(f"ends: {left_out} pieces left out at the sender", file=sys.stderr)


def receive(port, most):
    most = int(most) * 1_000_000
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as listener:
        listener.bind(("0.0.0.0", int(port)))
        listener.listen(1)
        # The second path joins at the listener, which so stays open.
        late, (came, _) = 0, listener.accept()
        stream = came.makefile("rb")
        while len(head := stream.read(HEAD.size)) == HEAD.size:
            read_at, length = HEAD.unpack(head)
            piece = stream.read(length)
            if time.monotonic_ns() - read_at <= most:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            else:
                late += 1
    print(f"ends: {late} pieces late at the receiver", file=sys.stderr)


def smooth(bits, host, port):
    out, to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), (host, int(port))
    # librist loses what comes first, so packets without content go ahead.
    for _ in range(4):
        out.sendto((b"\x47\x1f\xff\x10" + b"\xff" * 184) * 7, to)
        time.sleep(0.1)
    free = time.monotonic_ns()
    while piece := os.read(0, DATAGRAM):
        free = max(free, time.monotonic_ns())
        time.sleep(max(0, free - time.monotonic_ns()) / 1e9)
        out.sendto(piece, to)
        free += len(piece) * 8 * 1_000_000_000 // int(bits)


if __name__ == "__main__":
    ways = {"send": send, "receive": receive, "smooth": smooth}
    try:
        ways[sys.argv[1]](*sys.argv[2:])
    except (IndexError, KeyError, TypeError):
        sys.exit(__doc__)
    except (BrokenPipeError, ConnectionError, KeyboardInterrupt) as end:
        print(f"ends: {end}", file=sys.stderr)
