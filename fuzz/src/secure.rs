//! Shared code of the targets of the secure layer: two ends that make a connection, of which one kind
//! of message is changed, cut, forged or sent again in transit. Nothing panics, no answer is longer
//! than its request, and nothing opens that was not made with the keys.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use selvedge_data_net_secure::{Event, Handshakes, Identity, Key, Session};
use selvedge_units::{Duration, Instant};

use crate::choices::Choices;

const ID: u32 = 7;
const ROUNDS: usize = 12;

/// A message of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It measures the round trip.
    Probe = 1,
    /// It answers a probe, with a cookie.
    Echo,
    /// It proposes a connection.
    Hello,
    /// It agrees, or refuses.
    Welcome,
    /// It claims that a connection is not known.
    Unknown,
    /// The sealed packet that confirms a connection, and those after it.
    Packet,
}

/// The two ends, and their common state.
struct Ends {
    /// The initiator, then the responder.
    ends: [Handshakes<()>; 2],
    seed: Key,
    is_open: bool,
    now: Instant,
    session: Option<Session>,
}

/// Makes a connection as the bytes choose, with messages of this kind changed.
pub fn run(bytes: &[u8], kind: Kind) {
    let mut choices = Choices::new(bytes);
    let mut ends = Ends::new(bytes, choices.byte());
    for _ in 0..ROUNDS {
        let mut on_way: VecDeque<_> = ends.sent().into();
        while let Some((from, mut datagram)) = on_way.pop_front() {
            if datagram.get(5) == Some(&(kind as u8)) {
                change(&mut datagram, &mut choices);
            }
            on_way.extend(ends.deliver(from, &datagram));
        }
        ends.handle_events(&mut choices);
        if let Some(session) = ends.session.take() {
            return ends.packets(session, &mut choices, kind == Kind::Packet);
        }
        ends.now = ends.now + Duration::from_millis(u64::from(choices.byte()));
        let now = ends.now;
        ends.ends.iter_mut().for_each(|end| end.handle_timeout(now));
    }
}

/// Changes, cuts, lengthens or replaces a datagram, or leaves it as it is.
fn change(datagram: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let at = choices.word() as usize % (datagram.len() + 1);
    match choices.byte() % 5 {
        0 => {
            if let Some(byte) = datagram.get_mut(at) {
                *byte ^= choices.byte().max(1);
            }
        }
        1 => datagram.truncate(at),
        2 => datagram.extend_from_slice(choices.bytes(at)),
        3 => {
            let more = choices.bytes(datagram.len() - at);
            datagram[at..at + more.len()].copy_from_slice(more);
        }
        _ => {}
    }
}

const fn address(end: usize) -> SocketAddr {
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, end as u16 + 1))
}

impl Ends {
    /// The initiator has begun to connect.
    fn new(bytes: &[u8], way: u8) -> Self {
        // Keys that any change of the input changes, so that the fuzzer can't learn a tag.
        let keys = [1, 2, 3, 4]
            .map(|n| Key([bytes.iter().fold(n, |sum, byte| sum ^ byte.wrapping_mul(n)); 32]));
        let mut ends = [0, 1].map(|n: usize| {
            let identity = match way % 3 {
                0 => Identity::Open,
                1 => Identity::Secret(keys[0].clone()),
                _ => Identity::Static(keys[n].clone()),
            };
            let mut end = Handshakes::new(identity, &keys[2]);
            end.allow(vec![keys[1 - n].public()]);
            end
        });
        let now = Instant::ZERO;
        ends[0].connect(ID, address(1), None, &keys[2], now).expect("the number is new");
        let seed = keys[3].clone();
        Self { ends, seed, is_open: way.is_multiple_of(3), now, session: None }
    }

    /// The datagrams that both ends send now, and the sender of each.
    fn sent(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut sent = Vec::new();
        for (from, end) in self.ends.iter_mut().enumerate() {
            sent.extend(std::iter::from_fn(|| end.poll_transmit()).map(|t| (from, t.bytes)));
        }
        sent
    }

    /// Delivers a datagram; returns the answers.
    fn deliver(&mut self, from: usize, datagram: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let (seed, now) = (self.seed.clone(), self.now);
        self.ends[1 - from].handle_datagram(address(from), datagram, &seed, now);
        let answers = self.sent();
        // The initiator sends its hello when a cookie has arrived.
        let is_short = |answer: &Vec<u8>| from == 1 || answer.len() <= datagram.len();
        let all_short = answers.iter().all(|(_, answer)| is_short(answer));
        assert!(all_short, "an answer is longer than what it answers");
        answers
    }

    fn handle_events(&mut self, choices: &mut Choices<'_>) {
        let (seed, now) = (self.seed.clone(), self.now);
        while let Some(event) = self.ends[1].poll_event() {
            if let Event::Hello(hello) = event {
                assert!(self.is_open || hello.payload.starts_with(b"proposal"));
                let _ = self.ends[1].answer(*hello, b"answer", (), now);
            }
        }
        let made_up = choices.bytes(48);
        let confirmed = self.ends[1].handle_packet(address(0), ID, made_up, now);
        assert!(self.is_open || confirmed.is_none(), "nobody made this packet");
        while let Some(event) = self.ends[0].poll_event() {
            match event {
                Event::Reached { .. } => {
                    let _ = self.ends[0].propose(ID, b"proposal", &seed, now);
                }
                Event::Welcomed { payload, session, .. } => {
                    assert!(self.is_open || payload == b"answer");
                    self.session = Some(*session);
                }
                Event::Refused { .. } => assert!(self.is_open, "nobody refused"),
                _ => {}
            }
        }
    }

    /// The connection is made: sealed packets to the responder, changed in transit or sent again.
    fn packets(mut self, mut session: Session, choices: &mut Choices<'_>, is_changed: bool) {
        if self.is_open {
            return;
        }
        let mut opener = None;
        let mut sent: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for n in 0..32_u8 {
            let text = [n].repeat(usize::from(choices.byte()));
            let mut datagram = session.sealer.packet(&text, self.now).expect("the cipher seals");
            sent.insert(datagram.clone(), false);
            if is_changed && choices.byte().is_multiple_of(4) {
                // One of the earlier packets again.
                let which = usize::from(choices.byte()) % sent.len();
                datagram = sent.keys().nth(which).expect("it is below the count").clone();
            } else if is_changed {
                change(&mut datagram, choices);
            }
            let known = sent.get(&datagram).copied();
            if opener.is_none() {
                let confirmed = self.ends[1].handle_packet(address(0), ID, &datagram, self.now);
                assert_eq!(
                    confirmed.is_some(),
                    known.is_some(),
                    "a packet confirms if it was sealed"
                );
                opener = confirmed.map(|confirmed| confirmed.session.opener);
            }
            let Some(opener) = &mut opener else { continue };
            let mut opened = datagram.clone();
            match opener.open(&mut opened) {
                Ok(_) => {
                    assert_eq!(known, Some(false), "it opened before, or nobody sealed it");
                    sent.insert(datagram, true);
                }
                Err(why) => assert_ne!(known, Some(false), "a sound packet was dropped: {why}"),
            }
        }
    }
}
