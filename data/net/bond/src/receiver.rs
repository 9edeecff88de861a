//! The receiving end: packets of all paths become streams in order, and each path's arrivals are reported on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use selvedge_data_net_rate::{Arrivals, BaseDelay, Delay};
use selvedge_units::{Bytes, Duration, Instant};

use crate::datagram::{
    Code, Datagram, DatagramError, Head, PathId, StreamId, encode_report, nearest,
};
use crate::reorder::{GUARD, Reorder, Taken};
use crate::restoration::Restoration;
use crate::sender::Transmit;

/// Streams, at most.
const STREAMS_MAX: usize = 1_024;
/// Bytes that wait for missing packets, at most: 16 s of 30 Mbit/s.
const BYTES_MAX: Bytes = Bytes(64 << 20);
/// A path carries packets if one came on it within this time.
const RECENT: Duration = Duration::from_millis(100);

/// A stream's next packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its stream.
    pub stream: StreamId,
    /// The packet as it came to the sending end.
    pub packet: Vec<u8>,
}

/// What the receiving end counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Packets that were given on.
    pub delivered: u64,
    /// Packets that had come before, or came too late to be waited for.
    pub late: u64,
    /// Packets that were lost, and that parities restored in time.
    pub restored: u64,
    /// Packets of more streams than there may be, or beyond the memory that may wait.
    pub refused: u64,
}

/// The receiving end of a bond. A packet costs O(log(packets that wait)); at most 64 MiB wait, and 8 MiB
/// of descriptions and 12 MiB of packets that parities may need are kept.
#[derive(Debug, Default)]
pub struct Receiver {
    paths: BTreeMap<PathId, Arrivals>,
    /// The two paths on which packets came last, and when.
    latest: [Option<(PathId, Instant)>; 2],
    /// The second copy of a report.
    copy: Option<Transmit>,
    /// The least delay of all paths.
    base: BaseDelay,
    /// The latest time of the sender's clock, in microseconds, from 2^32 on.
    clock: Option<u64>,
    streams: BTreeMap<StreamId, Reorder>,
    bytes: Bytes,
    restoration: Restoration,
    ready: VecDeque<Delivered>,
    /// What is known of each stream, and what of that is new.
    descriptions: BTreeMap<StreamId, Box<str>>,
    described: BTreeSet<StreamId>,
    counts: ReceiverCounts,
}

impl Receiver {
    /// What it counted.
    #[must_use]
    pub const fn counts(&self) -> ReceiverCounts {
        self.counts
    }

    /// Takes a datagram that arrived, marked for congestion or not.
    ///
    /// # Errors
    /// [`DatagramError`] if the bytes are no datagram of a bond. The receiver is unchanged then.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        bytes: &[u8],
        is_marked: bool,
    ) -> Result<(), DatagramError> {
        let (head, code, packet) = match Datagram::parse(bytes)? {
            Datagram::Data(head, packet) => (head, None, packet),
            Datagram::Parity(head, code, parity) => (head, Some(code), parity),
            Datagram::Description(stream, text) => {
                self.describe(stream, text);
                return Ok(());
            }
            Datagram::Report(..) => return Ok(()),
        };
        if self.latest[0].is_none_or(|(path, _)| path != head.path) {
            self.latest[1] = self.latest[0];
        }
        self.latest[0] = Some((head.path, now));
        let arrivals = self.paths.entry(head.path).or_default();
        arrivals.handle_packet(now, head.number, is_marked);
        let delay = Delay::between(self.sent(head.sent), now);
        self.base.handle_delay(now, delay, false);
        if !packet.is_empty() {
            self.take(now, &head, delay, code, packet);
        }
        Ok(())
    }

    fn describe(&mut self, stream: StreamId, text: &str) {
        let is_known = self.descriptions.get(&stream).is_some_and(|known| **known == *text);
        let has_room = self.descriptions.len() < STREAMS_MAX;
        if !is_known && (has_room || self.descriptions.contains_key(&stream)) {
            self.descriptions.insert(stream, text.into());
            self.described.insert(stream);
        }
    }

    fn take(&mut self, now: Instant, head: &Head, delay: Delay, code: Option<Code>, packet: &[u8]) {
        let is_full = self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&head.stream)
            || self.bytes >= BYTES_MAX;
        if is_full {
            self.counts.refused += 1;
            return;
        }
        let due = now - self.base.queueing(delay) + head.left - GUARD;
        let reorder = self.streams.entry(head.stream).or_default();
        let (before, mut out) = (reorder.bytes(), Vec::new());
        let number = reorder.unwrapped(head.sequence);
        let place = (head.stream, number);
        let restored = if let Some(code) = code {
            self.restoration.handle_parity(now, place, code, packet)
        } else {
            let taken = reorder.handle_packet(number, due, packet.to_vec(), &mut out);
            self.counts.late += u64::from(taken == Taken::Late);
            self.restoration.handle_packet(now, place, packet)
        };
        for (number, packet) in restored {
            let taken = reorder.handle_packet(number, due, packet, &mut out);
            self.counts.restored += u64::from(taken == Taken::New);
        }
        self.bytes = self.bytes + reorder.bytes() - before;
        self.deliver(head.stream, out);
    }

    fn deliver(&mut self, stream: StreamId, packets: Vec<Vec<u8>>) {
        self.counts.delivered += packets.len() as u64;
        self.ready.extend(packets.into_iter().map(|packet| Delivered { stream, packet }));
    }

    /// The instant of the sender's clock that was sent.
    fn sent(&mut self, micros: u32) -> Instant {
        let clock = self.clock.get_or_insert_with(|| (1 << 32) + u64::from(micros));
        let sent = nearest(*clock, micros);
        *clock = sent.max(*clock);
        Instant(sent.saturating_mul(1_000))
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (stream, reorder) in &mut self.streams {
            let (before, mut out) = (reorder.bytes(), Vec::new());
            reorder.handle_timeout(now, &mut out);
            self.bytes = self.bytes + reorder.bytes() - before;
            due.push((*stream, out));
        }
        for (stream, out) in due {
            self.deliver(stream, out);
        }
    }

    /// The next packet of any stream.
    pub fn poll_packet(&mut self) -> Option<Delivered> {
        self.ready.pop_front()
    }

    /// A stream whose description is new, and the text.
    pub fn poll_description(&mut self) -> Option<(StreamId, &str)> {
        let stream = self.described.pop_first()?;
        Some((stream, self.descriptions.get(&stream)?))
    }

    /// The report that is sent now: on its path, and on another that carries packets, since a path that seems to deliver
    /// nothing is left by all its packets.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Some(copy) = self.copy.take() {
            return Some(copy);
        }
        let (path, report) = self
            .paths
            .iter_mut()
            .find_map(|(path, arrivals)| Some((*path, arrivals.poll_report(now)?)))?;
        let bytes = encode_report(path, &report);
        let is_other = |(other, at): &(PathId, Instant)| *other != path && *at + RECENT >= now;
        let other = self.latest.into_iter().flatten().find(is_other);
        self.copy = other.map(|(path, _)| Transmit { path, bytes: bytes.clone() });
        Some(Transmit { path, bytes })
    }

    /// When [`Self::handle_timeout`] and [`Self::poll_transmit`] should be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let reports = self.paths.values().filter_map(Arrivals::poll_timeout).min();
        let held = self.streams.values().filter_map(Reorder::poll_timeout).min();
        [reports, held].into_iter().flatten().min()
    }
}
