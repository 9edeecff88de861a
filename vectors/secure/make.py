#!/usr/bin/env python3
"""Makes noise.json: handshakes and packets of docs/security.md by other implementations than ours.

The handshakes are by noiseprotocol, which has its own state machine; keys and packets by cryptography
(OpenSSL). Run: pip install noiseprotocol==0.3.1 cryptography==50.0.2 && python3 make.py > noise.json
"""
import json
from importlib.metadata import version

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from noise.connection import Keypair, NoiseConnection

CONNECTION = 0x1A2B3C4D
PATTERNS = [("open", 0, "NNpsk0"), ("secret", 1, "NNpsk0"), ("static", 2, "IK")]
PSK, INITIATOR, RESPONDER = bytes([0x51] * 32), bytes([0x61] * 32), bytes([0x62] * 32)
SEEDS = bytes(range(1, 33)), bytes(range(101, 133))
PROPOSAL, ANSWER = b"what is proposed", b"what is answered"


def expand(secret, label):
    return HKDFExpand(algorithm=SHA256(), length=32, info=label.encode()).derive(secret)


def front(kind, pattern):
    return bytes([0, 0, 0, 0, 1, kind, pattern]) + CONNECTION.to_bytes(4, "big")


def packet(secret, number, text):
    for _ in range(number >> 22):
        secret = expand(secret, "selvedge next secret")
    header = CONNECTION.to_bytes(4, "big") + number.to_bytes(8, "big")
    cipher = AESGCM(expand(secret, "selvedge packet key"))
    return header + cipher.encrypt(bytes(4) + number.to_bytes(8, "big"), text, header)


def public(private):
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def made(identity, number, name):
    ends = []
    for initiator, seed, own in [(True, SEEDS[0], INITIATOR), (False, SEEDS[1], RESPONDER)]:
        end = NoiseConnection.from_name(f"Noise_{name}_25519_ChaChaPoly_BLAKE2s".encode())
        end.set_as_initiator() if initiator else end.set_as_responder()
        end.set_prologue(b"selvedge secure" + bytes([1]) + CONNECTION.to_bytes(4, "big"))
        if "psk" in name:
            end.set_psks(PSK if identity == "secret" else bytes(32))
        if name == "IK":
            end.set_keypair_from_private_bytes(Keypair.STATIC, own)
            if initiator:
                end.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, public(RESPONDER))
        end.set_keypair_from_private_bytes(Keypair.EPHEMERAL, seed)
        end.start_handshake()
        ends.append(end)
    one, other = ends
    hello = bytes(one.write_message(PROPOSAL.ljust(512, b"\0")))
    assert bytes(other.read_message(hello)).startswith(PROPOSAL)
    welcome = bytes(other.write_message(b"\0" + ANSWER))
    assert bytes(one.read_message(welcome)) == b"\0" + ANSWER
    secret = bytes(one.noise_protocol.cipher_state_encrypt.k)
    back = bytes(one.noise_protocol.cipher_state_decrypt.k)
    texts = [(0, b""), (1, b"text"), (1 << 22, b"next epoch"), (5 << 22, b"later")]
    return {
        "identity": identity,
        "pattern": name,
        "hello": (front(3, number) + bytes(16) + hello).hex(),
        "welcome": (front(4, number) + welcome).hex(),
        "module_keys": [expand(key, "selvedge module key").hex() for key in (secret, back)],
        "packets": [{"number": n, "text": text.hex(), "there": packet(secret, n, text).hex(),
                     "back": packet(back, n, text).hex()} for n, text in texts],
    }


print(json.dumps({
    "made_by": [f"{name} {version(name)}" for name in ("noiseprotocol", "cryptography")],
    "connection": CONNECTION,
    "secret": PSK.hex(),
    "static_keys": [INITIATOR.hex(), RESPONDER.hex()],
    "public_keys": [public(INITIATOR).hex(), public(RESPONDER).hex()],
    "seeds": [seed.hex() for seed in SEEDS],
    "proposal": PROPOSAL.hex(),
    "answer": ANSWER.hex(),
    "handshakes": [made(*pattern) for pattern in PATTERNS],
}, indent=1))
