//! What hosts say to each other before a connection is there: datagrams for connection 0.
//!
//! | offset | what |
//! |---|---|
//! | 0 | 0, `u32`: no connection |
//! | 4 | 1 hello, 2 welcome, 3 refusal, 4 alive, 5 probe, 6 echo |
//! | 5 | the connection, `u32`, chosen by who connects |
//! | 9 | a CRC-32 of all else, `u32` |
//! | 13 | a Noise handshake message; in a refusal its text |
//!
//! The sum keeps a datagram that the network damaged from being taken for a refusal.
//!
//! The handshake is Noise NN, or NNpsk0 where both ends have a secret; its payloads carry the
//! stack's line, the contracts of both directions, and what either host guarantees; for `net(shm)` also
//! where each end's memory is reached. A hello is padded, so that an answer is never longer than the question.

use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState};

use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::module::{Key, Keys};
use selvedge_units::{Bytes, Duration};

/// Who connects proposes a stack and contracts.
pub const HELLO: u8 = 1;
/// Who listens takes them,
pub const WELCOME: u8 = 2;
/// or says why not.
pub const REFUSAL: u8 = 3;
/// Not of a handshake: this end of the connection lives.
pub const ALIVE: u8 = 4;
/// How long is the way? Eight bytes that come back
pub const PROBE: u8 = 5;
/// in this.
pub const ECHO: u8 = 6;
/// A hello is at least so long,
pub const HELLO_MIN: usize = 512;
/// and no handshake datagram longer than this.
pub const LONGEST: usize = 1400;
const HEADER: usize = 13;

/// What connecting ends state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The stack's line.
    pub line: String,
    /// From who connects to who listens.
    pub out: Contract,
    /// And back.
    pub back: Contract,
    /// The longest that a message takes on the connecting host, out and back.
    pub there: [Duration; 2],
    /// What the network takes of the delay, either way.
    pub network: Duration,
    /// Where the other end's ring to the connecting one may be made, for `net(shm)`.
    pub ring_address: Option<RingAddress>,
}

/// Where one connection's ring to an end is made: by the name that it listens at and a word that
/// nobody else is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddress {
    /// The listener.
    pub name: u128,
    /// Of the connection.
    pub token: u128,
}

impl RingAddress {
    fn parse(text: &str) -> Option<Self> {
        let (name, token) = text.split_once(' ')?;
        let number = |text: &str| {
            let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u128::from_str_radix(text, 16).ok()).flatten()
        };
        Some(Self { name: number(name)?, token: number(token)? })
    }
}

impl std::fmt::Display for RingAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x} {:032x}", self.name, self.token)
    }
}

/// A number that nobody can guess: as secret as a key of the handshake, which comes from the same
/// source.
#[must_use]
pub fn random() -> u128 {
    let mut bytes = [0; 16];
    let mut source = DefaultResolver.resolve_rng().expect("it is part of this build");
    source.try_fill_bytes(&mut bytes).expect("the system has random numbers");
    u128::from_ne_bytes(bytes)
}

/// A handshake datagram.
#[must_use]
pub fn datagram(kind: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.push(kind);
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    let sum = sum(&bytes[..9], payload);
    bytes[9..HEADER].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn sum(front: &[u8], payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(front);
    sum.update(payload);
    sum.finalize()
}

/// Kind, connection and payload; `None` if it is no handshake datagram, which is so for one that is
/// damaged.
#[must_use]
pub fn split(bytes: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (header, payload) = bytes.split_first_chunk::<HEADER>()?;
    let [0, 0, 0, 0, kind, a, b, c, d, sums @ ..] = *header else { return None };
    let sound = bytes.len() <= LONGEST && u32::from_be_bytes(sums) == sum(&bytes[..9], payload);
    sound.then_some((kind, u32::from_be_bytes([a, b, c, d]), payload))
}

/// One end's handshake before the first message; `None` only for a build without the ciphers.
#[must_use]
pub fn noise(secret: Option<&[u8; 32]>, initiator: bool) -> Option<HandshakeState> {
    let name = match secret {
        Some(_) => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        None => "Noise_NN_25519_ChaChaPoly_BLAKE2s",
    };
    let mut builder = Builder::new(name.parse().ok()?);
    if let Some(secret) = secret {
        builder = builder.psk(0, secret).ok()?;
    }
    if initiator { builder.build_initiator().ok() } else { builder.build_responder().ok() }
}

/// The keys of this end once the handshake is over.
pub fn keys(state: &mut HandshakeState, initiator: bool) -> Keys {
    let (first, second) = state.dangerously_get_raw_split();
    let keys = Keys { send: Key(first), receive: Key(second) };
    if initiator { keys } else { keys.swapped() }
}

impl Proposal {
    /// As it is written in a hello.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}", self.line, self.network.0);
        for (contract, there) in [&self.out, &self.back].into_iter().zip(self.there) {
            text += &format!("\n{}", terms(contract, there));
        }
        if let Some(ring_address) = self.ring_address {
            text += &format!("\n{ring_address}");
        }
        text
    }

    /// Read from a hello; `None` if it makes no sense.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(text).ok()?.trim_end_matches('\0').split('\n');
        // It is shown to people: nothing in it may steer their terminals.
        let line = lines.next().filter(|line| !line.contains(char::is_control))?.to_owned();
        let network = Duration(lines.next()?.parse().ok()?);
        let (out, first) = termed(lines.next()?)?;
        let (back, second) = termed(lines.next()?)?;
        let ring_address = lines.next().map(RingAddress::parse);
        if ring_address == Some(None) || lines.next().is_some() {
            return None;
        }
        Some(Self {
            line,
            out,
            back,
            there: [first, second],
            network,
            ring_address: ring_address.flatten(),
        })
    }
}

/// A contract, and the longest that a message takes on the host that states it.
#[must_use]
pub fn terms(contract: &Contract, here: Duration) -> String {
    let Contract { traffic: t, quality: q } = contract;
    let firm = u64::from(q.promise == Promise::Firm);
    format!(
        "{} {} {} {} {} {} {firm} {}",
        t.average.0, t.minimum.0, t.interval.0, t.largest.0, q.delay.0, q.loss_burst, here.0
    )
}

/// Both, read; `None` if they make no sense.
#[must_use]
pub fn termed(text: &str) -> Option<(Contract, Duration)> {
    let mut fields = text.split(' ').map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    let traffic = Traffic {
        average: Duration(next()?),
        minimum: Duration(next()?),
        interval: Duration(next()?),
        largest: Bytes(next()?),
    };
    let (delay, loss_burst) = (Duration(next()?), next()?);
    let promise = if next()? == 0 { Promise::Wanted } else { Promise::Firm };
    let contract = Contract { traffic, quality: Quality { delay, loss_burst, promise } };
    Some((contract.check().ok()?, Duration(next()?)))
}

/// The payload of a welcome: the longest that a message takes on the host that answers, of what the
/// other sends and of what it receives; and where the other's ring to it is made.
#[must_use]
pub fn answer(here: [Duration; 2], ring_address: Option<RingAddress>) -> String {
    let [first, second] = here.map(|span| span.0);
    ring_address.map_or_else(
        || format!("{first} {second}"),
        |ring_address| format!("{first} {second}\n{ring_address}"),
    )
}

/// Read from a welcome; `None` if it makes no sense.
#[must_use]
pub fn answered(text: &[u8]) -> Option<([Duration; 2], Option<RingAddress>)> {
    let mut lines = str::from_utf8(text).ok()?.split('\n');
    let (first, second) = lines.next()?.split_once(' ')?;
    let here = [Duration(first.parse().ok()?), Duration(second.parse().ok()?)];
    let ring_address = lines.next().map(RingAddress::parse);
    if ring_address == Some(None) || lines.next().is_some() {
        return None;
    }
    Some((here, ring_address.flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_are_read_as_written_and_nothing_else_is() {
        let traffic = Traffic::steady(Duration::from_millis(1), Bytes(1000));
        let quality =
            Quality { delay: Duration::from_millis(5), loss_burst: 3, promise: Promise::Firm };
        let out = Contract { traffic, quality };
        let proposal = Proposal {
            line: "ui | reliable | net".into(),
            out,
            back: out,
            there: [Duration::from_micros(7), Duration::ZERO],
            network: Duration(31),
            ring_address: None,
        };
        let here = [Duration(5), Duration(u64::MAX)];
        let ring_address = RingAddress { name: random(), token: 7 };
        assert_ne!(random(), random());
        for ring_address in [None, Some(ring_address)] {
            let text = answer(here, ring_address);
            assert_eq!(answered(text.as_bytes()), Some((here, ring_address)));
            let with = Proposal { ring_address, ..proposal.clone() };
            assert_eq!(Proposal::parse(with.text().as_bytes()), Some(with));
        }
        let half = format!("5 6\n{:032x} ", 7);
        let signed = format!("5 6\n{:032x} +{:031x}", 7, 7);
        let wrong =
            ["", "5", "5 ", "5 x", "5 99999999999999999999", "5 6 7", "5 6\n", &half, &signed];
        for wrong in wrong {
            assert_eq!(answered(wrong.as_bytes()), None, "{wrong}");
        }
        let text = proposal.text();
        assert_eq!(Proposal::parse(text.as_bytes()), Some(proposal));
        assert_eq!(Proposal::parse(format!("{text}\0\0").as_bytes()).map(|p| p.out), Some(out));
        for n in 0..text.len() - 14 {
            assert_eq!(Proposal::parse(&text.as_bytes()[..n]), None, "{n} bytes of it");
        }
        for odd in ["\r", "\t", "\x1b[2J"] {
            assert_eq!(Proposal::parse(format!("ui{odd}{text}").as_bytes()), None, "{odd:?}");
            assert_eq!(Proposal::parse(text.replace('\n', &format!("{odd}\n")).as_bytes()), None);
        }
        assert_eq!(Proposal::parse(b"ui\n0\n0 0 0 0 0 0 0\n0 0 0 0 0 0 0"), None);
        assert_eq!(split(&[0; 8]), None);
        let mut hello = datagram(HELLO, 7, b"x");
        assert_eq!(split(&hello), Some((HELLO, 7, &b"x"[..])));
        for n in 0..hello.len() * 8 {
            hello[n / 8] ^= 1 << (n % 8);
            assert_eq!(split(&hello), None, "bit {n} is wrong");
            hello[n / 8] ^= 1 << (n % 8);
        }
    }
}
