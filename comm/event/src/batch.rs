//! Events that go together: while a source is ahead of the engine, what it sends waits a moment and goes
//! as one message of the engine's, which costs as much as one event would. A lone event never waits: only
//! who has come again at once for [`AHEAD`] times in a row is ahead.
//!
//! On the wire: the byte [`MARK`], where a single frame has its kind, and then each frame behind its
//! length as a varint.

use selvedge_control_event::HostId;
use selvedge_units::{Duration, Instant};

/// Stands where a single frame says which kind it is.
const MARK: u8 = 7;
/// A source that comes again within this has come at once.
const BATCH_GAP: Duration = Duration::from_micros(20);
/// How often in a row it does so before its events wait.
const AHEAD: u32 = 16;
/// How long events wait at most.
pub(crate) const WAIT: Duration = Duration::from_micros(200);
/// The bytes that go together: beyond, the engine's cost for each byte counts, not that for a message.
const FULL: usize = 16 << 10;
/// Longer frames go by themselves.
const FRAME_MAX: usize = 4 << 10;
/// The most receivers, or channels, for which events wait.
const PENDING_MAX: usize = 16;

/// Where events go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchTarget<'a> {
    /// To one host.
    Participant(HostId),
    /// To all that want a channel's.
    Channel(&'a str),
}

/// Events that wait to go together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The channel, or else the host.
    channel: String,
    host: Option<HostId>,
    /// With the mark in front.
    pub(crate) bytes: Vec<u8>,
}

impl Batch {
    pub(crate) fn to(&self) -> BatchTarget<'_> {
        self.host.map_or(BatchTarget::Channel(&self.channel), BatchTarget::Participant)
    }
}

/// What waits at a source.
#[derive(Debug)]
pub(crate) struct Batches {
    /// A source that comes again within this has come at once: [`BATCH_GAP`], and longer in tests that
    /// must not depend on how fast this machine is.
    pub(crate) at_once: Duration,
    pending: Vec<Batch>,
    spare: Vec<Batch>,
    /// When the last event was done with.
    last: Option<Instant>,
    in_a_row: u32,
    /// When the first that waits has waited long enough.
    due: Option<Instant>,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            at_once: BATCH_GAP,
            pending: Vec::new(),
            spare: Vec::new(),
            last: None,
            in_a_row: 0,
            due: None,
        }
    }
}

impl Batches {
    /// Whether an event that is sent now is to [wait](Self::add).
    pub(crate) fn should_batch(&mut self, now: Instant, size: usize) -> bool {
        let at_once = self.last.is_some_and(|last| now.since(last) <= self.at_once);
        self.in_a_row = if at_once { self.in_a_row.saturating_add(1) } else { 0 };
        self.in_a_row >= AHEAD && size <= FRAME_MAX
    }

    /// An event is done with: it was sent, or waits.
    pub(crate) fn done(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Whether what waits has to go before this does, lest this overtake it.
    pub(crate) fn must_flush_before(&self, to: BatchTarget<'_>) -> bool {
        let is_other =
            |one: &Batch| one.host.is_some() != matches!(to, BatchTarget::Participant(_));
        self.pending.iter().any(is_other)
            || (self.pending.len() >= PENDING_MAX && !self.pending.iter().any(|one| one.to() == to))
    }

    /// Has an event wait; what is full comes back, to be sent and [given back](Self::give_back).
    pub(crate) fn add(&mut self, now: Instant, to: BatchTarget<'_>, frame: &[u8]) -> Option<Batch> {
        let at = self.pending.iter().position(|one| one.to() == to).unwrap_or_else(|| {
            let mut batch = self.spare.pop().unwrap_or_default();
            batch.channel.clear();
            batch.bytes.clear();
            batch.bytes.push(MARK);
            match to {
                BatchTarget::Participant(host) => batch.host = Some(host),
                BatchTarget::Channel(channel) => {
                    batch.host = None;
                    batch.channel.push_str(channel);
                }
            }
            self.pending.push(batch);
            self.pending.len() - 1
        });
        let bytes = &mut self.pending[at].bytes;
        put_length(frame.len(), bytes);
        bytes.extend_from_slice(frame);
        let is_full = bytes.len() >= FULL;
        self.due.get_or_insert(now + WAIT);
        is_full.then(|| self.take(at))
    }

    /// The next that waits; all of it goes now.
    pub(crate) fn pop(&mut self) -> Option<Batch> {
        (!self.pending.is_empty()).then(|| self.take(0))
    }

    fn take(&mut self, at: usize) -> Batch {
        let batch = self.pending.remove(at);
        if self.pending.is_empty() {
            self.due = None;
        }
        batch
    }

    /// Its memory is used again.
    pub(crate) fn recycle(&mut self, batch: Batch) {
        if self.spare.len() < PENDING_MAX {
            self.spare.push(batch);
        }
    }

    /// When what waits has to go; `None` if nothing waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Appends a length: seven bits a byte, the lowest first, as postcard's varints.
fn put_length(mut length: usize, to: &mut Vec<u8>) {
    while length >= 0x80 {
        to.push(length as u8 | 0x80);
        length >>= 7;
    }
    to.push(length as u8);
}

/// The frames of a message, one after the other.
#[derive(Debug)]
pub(crate) struct Frames {
    /// How far they were taken.
    at: usize,
}

impl Default for Frames {
    /// Of no message yet.
    fn default() -> Self {
        Self { at: usize::MAX }
    }
}

impl Frames {
    /// Begins with a message.
    pub(crate) fn begin(&mut self) {
        self.at = 0;
    }

    /// Where the next frame lies. If what is left is none, all of it is the frame: its reader
    /// counts it.
    pub(crate) fn next(&mut self, message: &[u8]) -> Option<std::ops::Range<usize>> {
        if self.at == 0 && message.first() != Some(&MARK) {
            self.at = message.len().max(1);
            return Some(0..message.len());
        }
        self.at = self.at.max(1);
        let rest = message.get(self.at..).filter(|rest| !rest.is_empty())?;
        let (start, end) = match length(rest) {
            Some((taken, length)) if length > 0 && length <= rest.len() - taken => {
                (self.at + taken, self.at + taken + length)
            }
            _ => (self.at, message.len()),
        };
        self.at = end;
        Some(start..end)
    }
}

/// How many bytes a length takes, and the length.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((at + 1, length));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(message: &[u8]) -> Vec<Vec<u8>> {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        assert_eq!(frames.next(message), None);
        frames.begin();
        while let Some(range) = frames.next(message) {
            all.push(message[range].to_vec());
        }
        all
    }

    #[test]
    fn what_waits_together_comes_apart_as_it_was() {
        let mut batches = Batches::default();
        let sent: Vec<Vec<u8>> = (0..100_usize).map(|n| vec![n as u8; 1 + n * 3]).collect();
        let (mut got, now) = (Vec::new(), Instant::ZERO);
        let host = BatchTarget::Participant(HostId(3));
        for frame in &sent {
            if let Some(full) = batches.add(now, host, frame) {
                assert!(full.to() == host && full.bytes.len() < FULL + 512);
                got.extend(frames(&full.bytes));
                batches.recycle(full);
            }
        }
        got.extend(frames(&batches.pop().unwrap().bytes));
        assert_eq!(got, sent);
        assert!(batches.pop().is_none() && batches.due().is_none());
    }

    #[test]
    fn a_lone_event_never_waits_and_who_is_ahead_does_so_for_a_while() {
        let mut batches = Batches::default();
        let mut now = Instant::ZERO;
        for _ in 0..1000 {
            assert!(!batches.should_batch(now, 100));
            batches.done(now);
            now += BATCH_GAP + Duration(1);
        }
        for number in 0..100 {
            assert_eq!(batches.should_batch(now, 100), number >= AHEAD);
            batches.done(now);
            now += BATCH_GAP;
        }
        assert!(!batches.should_batch(now, FRAME_MAX + 1));
        assert!(batches.add(now, BatchTarget::Channel("a"), &[1]).is_none());
        assert!(batches.add(now + WAIT, BatchTarget::Channel("b"), &[1]).is_none());
        assert_eq!(batches.due(), Some(now + WAIT));
        assert!(
            !batches.must_flush_before(BatchTarget::Channel("c"))
                && batches.must_flush_before(BatchTarget::Participant(HostId(1)))
        );
        assert_eq!(batches.pop().map(|one| one.to() == BatchTarget::Channel("a")), Some(true));
    }

    #[test]
    fn any_bytes_end_and_none_are_passed_over_unseen() {
        let mut seed = 7_u64;
        for size in 0..2000_usize {
            let message: Vec<u8> = (0..size % 97)
                .map(|at| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if at == 0 && size % 2 == 0 { MARK } else { (seed >> 40) as u8 >> (size % 8) }
                })
                .collect();
            let got = frames(&message);
            assert!(got.len() <= message.len().max(1));
            if message.first() != Some(&MARK) {
                assert_eq!(got, [message]);
            }
        }
        assert_eq!(frames(&[MARK]), Vec::<Vec<u8>>::new());
        assert_eq!(frames(&[MARK, 2, 5, 6, 1, 8]), [vec![5, 6], vec![8]]);
        // It says that it is longer, of no length, or of an endless one.
        assert_eq!(frames(&[MARK, 1, 5, 9, 1]), [vec![5], vec![9, 1]]);
        assert_eq!(frames(&[MARK, 0, 5]), [vec![0, 5]]);
        assert_eq!(frames(&[MARK, 255, 255, 255, 255, 0]), [vec![255, 255, 255, 255, 0]]);
    }
}
