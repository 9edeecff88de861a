#!/usr/bin/env python3
"""A member of an event channel in another language: it shares nothing with the others but the channel's
name and the wire format in docs/events.md. Needs `pip install eclipse-zenoh`.

    selvedge events sub load --format load.format --listen 127.0.0.1:7451
    python3 member.py 127.0.0.1:7451 load          # sends ten events, and prints those of others

The format here is `input { int cpu; long memory; };`.
"""

import os
import secrets
import struct
import sys
import threading
import time

import zenoh

FORMAT = "input { int cpu; long memory; };\n"
# Frames, and messages in them.
HERE, CARRY = 0, 2
DESCRIBE, ASK, EVENT = 0, 1, 2
VERSION = 1


def varint(number):
    """A number as postcard writes it: seven bits a byte, the lowest first."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def block(data):
    """Bytes behind their length; text likewise."""
    data = data.encode() if isinstance(data, str) else data
    return varint(len(data)) + data


def identity(text):
    """A format's: FNV-1a of its text."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class Reader:
    """Takes a payload apart."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def varint(self):
        number, shift = 0, 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def block(self):
        size = self.varint()
        self.at += size
        return self.data[self.at - size : self.at]


def frames(payload):
    """The frames of a payload: one, or several that go together."""
    if payload[:1] != b"\x07":
        return [payload]
    reader, all_of_them = Reader(payload[1:]), []
    while reader.at < len(reader.data):
        all_of_them.append(reader.block())
    return all_of_them


class Member:
    def __init__(self, address, channel):
        self.channel, self.sent, self.told = channel, 0, set()
        me = secrets.token_hex(16).replace("0", "1", 1)
        self.me = f"selvedge/default/python/{os.getpid()}-{me}"
        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("listen/endpoints", '["tcp/127.0.0.1:0"]')
        config.insert_json5("connect/endpoints", f'["tcp/{address}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        # It leaves files behind, and others here do without.
        config.insert_json5("transport/shared_memory/enabled", "false")
        self.session = zenoh.open(config)
        self.arrived = threading.Event()
        own = self.me.split("/", 2)[2]
        self.kept = [
            self.session.declare_subscriber(f"selvedge/default/*/*/{key}", self.receive)
            for key in ("all", f"to/{own}", f"ch/{channel}")
        ]
        # Others take nothing from who has not said that it is there.
        self.kept.append(self.session.liveliness().declare_token(f"{self.me}/up"))
        up = self.session.liveliness().declare_subscriber("selvedge/default/*/*/up", self.came, history=True)
        self.kept.append(up)

    def put(self, key, payload):
        self.session.put(f"{self.me}/{key}", payload, congestion_control=zenoh.CongestionControl.DROP)

    def came(self, sample):
        """Somebody is there: says which channel is open here, and asks for the same."""
        if sample.kind == zenoh.SampleKind.PUT:
            self.put("all", bytes([HERE]) + block(self.channel) + bytes([1, 1]))

    def receive(self, sample):
        if str(sample.key_expr).startswith(self.me):
            return
        sender = str(sample.key_expr).split("/")[2:4]
        try:
            for frame in frames(bytes(sample.payload)):
                self.take(sender, Reader(frame))
        except (IndexError, UnicodeDecodeError, struct.error) as error:
            # Anyone can send anything: what can't be read is left, and this member goes on.
            print(f"{sender[0]} sends what is no message: {error}", file=sys.stderr)

    def take(self, sender, reader):
        """One frame."""
        kind = reader.varint()
        if kind not in (HERE, CARRY) or reader.block().decode() != self.channel:
            return
        if kind == HERE:
            wants, answer = reader.byte(), reader.byte()
            if answer:
                self.put(f"to/{'/'.join(sender)}", bytes([HERE]) + block(self.channel) + bytes([1, 0]))
            if wants:
                self.describe(sender)
                self.arrived.set()
            return
        message = Reader(reader.block())
        message.byte()
        what = message.varint()
        if what == ASK:
            self.told.discard(tuple(sender))
            self.describe(sender)
        elif what == EVENT:
            message.varint()
            sequence = message.varint()
            if message.byte():
                message.varint()  # how many nanoseconds it is still of use
            message.block()  # attributes
            record = message.block()
            cpu, memory = struct.unpack("<i4xq", record)
            print(f"{sender[0]} sends event {sequence}: cpu {cpu}, memory {memory}", flush=True)

    def describe(self, to):
        """The format, before the first event."""
        if tuple(to) in self.told:
            return
        self.told.add(tuple(to))
        message = bytes([VERSION, DESCRIBE]) + varint(identity(FORMAT)) + block(self.channel) + block(FORMAT)
        self.put(f"to/{'/'.join(to)}", bytes([CARRY]) + block(self.channel) + block(message))

    def publish(self, cpu, memory):
        record = struct.pack("<i4xq", cpu, memory)
        message = bytes([VERSION, EVENT]) + varint(identity(FORMAT)) + varint(self.sent)
        # No deadline, no attributes.
        message += bytes([0]) + block(b"") + block(record)
        self.sent += 1
        self.put(f"ch/{self.channel}", bytes([CARRY]) + block(self.channel) + block(message))


def main():
    member = Member(sys.argv[1], sys.argv[2])
    if not member.arrived.wait(10):
        sys.exit("nobody wants events of this channel")
    for number in range(10):
        member.publish(number, 1000 * number)
        time.sleep(0.02)
    time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 1)
    member.session.close()


if __name__ == "__main__":
    main()
