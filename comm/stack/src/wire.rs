//! The payloads of the handshake of two hosts: the proposal of the connecting end, and the answer.
//!
//! A proposal holds the stack's line, the contracts of both directions, and each host's guarantee;
//! for `net(shm)` also the address of each end's memory. The handshake itself is `data/net/secure`.

use ring::rand::{SecureRandom, SystemRandom};
use selvedge_data_net_secure::Key;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_units::{Bytes, Duration};

/// The proposal of the connecting end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The stack's line.
    pub line: String,
    /// The contract from the connecting end to the listening end.
    pub out: Contract,
    /// The contract back.
    pub back: Contract,
    /// The longest that a message takes on the connecting host, out and back.
    pub there: [Duration; 2],
    /// The network's part of the delay, in each direction.
    pub network: Duration,
    /// The address for the ring to the connecting end, for `net(shm)`.
    pub ring_address: Option<RingAddress>,
}

/// The address for one connection's ring to an end: the name that the end listens at, and a secret token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddress {
    /// The name of the listener.
    pub name: u128,
    /// The token of the connection.
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

/// Random bytes for keys.
#[must_use]
pub fn seed() -> Key {
    let mut seed = Key([0; 32]);
    SystemRandom::new().fill(&mut seed.0).expect("the system has random numbers");
    seed
}

/// A random number that cannot be guessed.
#[must_use]
pub fn random() -> u128 {
    let seed = seed();
    let [half, _] = seed.0.as_chunks::<16>().0 else { return 0 };
    u128::from_ne_bytes(*half)
}

impl Proposal {
    /// The form in a hello.
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

    /// Parses the form in a hello; `None` if it is invalid.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(text).ok()?.trim_end_matches('\0').split('\n');
        // The line is shown to people, so it must not control their terminals.
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

/// Parses both; `None` if they are invalid.
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

/// The payload of a welcome: the longest that a message takes on the answering host, of what the
/// other end sends and of what it receives; and the address for the other end's ring to it.
#[must_use]
pub fn answer(here: [Duration; 2], ring_address: Option<RingAddress>) -> String {
    let [first, second] = here.map(|span| span.0);
    ring_address.map_or_else(
        || format!("{first} {second}"),
        |ring_address| format!("{first} {second}\n{ring_address}"),
    )
}

/// Parses the payload of a welcome; `None` if it is invalid.
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
    }
}
