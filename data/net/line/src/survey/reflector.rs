//! The far end of a survey: it answers probes, and sends a train where a probe asks for one.
//!
//! An address gets no more than it sends until it has echoed the nonce that only its owner receives. One prober at a
//! time is answered, and each of its probes once.

use std::net::SocketAddr;
use std::ops::Range;

use selvedge_units::{Bitrate, Duration, Instant};

use super::datagram::{Content, Datagram, TRAIN_INTERVAL, TrainReceiver, train_packets_max};

/// After so long without a probe another prober is answered.
const SILENCE: Duration = Duration::from_secs(2);
/// Two probes that ask for trains may come somewhat closer together than they were sent.
const EARLY: Duration = Duration::from_millis(200);

/// What is known of the prober that is answered.
#[derive(Debug, Default)]
struct Session {
    /// Its address, its nonce, and that which it was given.
    prober: Option<(SocketAddr, u64, u64)>,
    heard: Instant,
    /// The newest probe; bit `n`: whether the one `n` before it has come.
    newest: u32,
    seen: u64,
    incoming: TrainReceiver,
    /// The last train back, and its packets that are to be sent.
    train: u32,
    packets: Range<u32>,
}

impl Session {
    /// Whether this probe comes for the first time.
    fn is_first(&mut self, number: u32) -> bool {
        if number > self.newest {
            self.seen = self.seen.checked_shl(number - self.newest).unwrap_or(0);
            self.newest = number;
        }
        let bit = 1u64.checked_shl(self.newest - number).unwrap_or(0);
        let is_first = bit & !self.seen != 0;
        self.seen |= bit;
        is_first
    }
}

/// The far end. After each datagram the caller sends what [`Self::poll_transmit`] has.
#[derive(Debug, Default)]
pub struct Reflector {
    train_packets_max: u32,
    /// When the last train began, of this prober or of one before it.
    train_began: Option<Instant>,
    session: Session,
    answer: Option<(SocketAddr, Datagram)>,
}

impl Reflector {
    /// A far end that sends no more than this on average.
    #[must_use]
    pub fn new(limit: Bitrate) -> Self {
        Self { train_packets_max: train_packets_max(limit), ..Self::default() }
    }

    /// Takes what came from an address. `nonce` is a secret function of that address.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, nonce: u64, bytes: &[u8]) {
        let Some(datagram) = Datagram::read(bytes) else { return };
        let answer = |content| Some((from, Datagram { to: datagram.from, from: nonce, content }));
        if datagram.to != nonce {
            if matches!(datagram.content, Content::Probe { .. }) {
                self.answer = answer(Content::Nonce);
            }
            return;
        }
        let (session, prober) = (&mut self.session, Some((from, datagram.from, nonce)));
        let is_other = session.prober.is_some_and(|(peer, ..)| peer != from);
        if is_other && now.since(session.heard) < SILENCE {
            return;
        }
        if session.prober != prober {
            *session = Session { prober, ..Session::default() };
        }
        session.heard = now;
        match datagram.content {
            Content::Train { train, number, sent } => {
                session.incoming.handle_packet(now, train, number, sent);
            }
            Content::Probe { number, train, packets } if session.is_first(number) => {
                let is_due = |at| now.since(at) + EARLY >= TRAIN_INTERVAL;
                if train > session.train && self.train_began.is_none_or(is_due) {
                    self.train_began = Some(now);
                    session.train = train;
                    session.packets = 0..packets.min(self.train_packets_max);
                }
                let seen = session.seen >> (session.newest - number);
                let dispersion = session.incoming.dispersion;
                self.answer = answer(Content::Echo { number, came: now.0, seen, dispersion });
            }
            _ => {}
        }
    }

    /// Writes what is to be sent now, and returns to whom; `None` if there is nothing more.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<SocketAddr> {
        if let Some((to, answer)) = self.answer.take() {
            answer.write(buffer);
            return Some(to);
        }
        let session = &mut self.session;
        let (peer, to, from) = session.prober?;
        let number = session.packets.next()?;
        let content = Content::Train { train: session.train, number, sent: now.0 };
        Datagram { to, from, content }.write(buffer);
        Some(peer)
    }
}
