//! Batches of events: while a source is ahead of the engine, its events wait a moment and go as one
//! message of the engine, which costs as much as one event would. A lone event never waits. A
//! source is ahead only after it has sent its next event at once [`AHEAD`] times in a row.
//!
//! On the wire a batch is the byte [`MARK`], where a single frame has its kind, and then each frame
//! after its length as a varint.

use selvedge_control_event::HostId;
use selvedge_units::{Duration, Instant};

/// Stands where a single frame has its kind.
const MARK: u8 = 7;
/// A source whose next event follows within this time has sent it at once.
const BATCH_GAP: Duration = Duration::from_micros(20);
/// How often in a row a source does so before its events wait.
const AHEAD: u32 = 16;
/// The longest wait of an event.
pub(crate) const WAIT: Duration = Duration::from_micros(200);
/// The size of a full batch, in bytes: beyond it the engine's cost per byte dominates that per message.
const FULL: usize = 16 << 10;
/// Longer frames are sent alone.
const FRAME_MAX: usize = 4 << 10;
/// The largest number of receivers, or channels, for which events wait.
const PENDING_MAX: usize = 16;

/// The destination of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchTarget<'a> {
    /// One host.
    Participant(HostId),
    /// All members that want a channel's events.
    Channel(&'a str),
}

/// Events that wait to be sent together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The channel, if `host` is `None`.
    channel: String,
    host: Option<HostId>,
    /// The frames, with the mark in front.
    pub(crate) bytes: Vec<u8>,
}

impl Batch {
    pub(crate) fn to(&self) -> BatchTarget<'_> {
        self.host.map_or(BatchTarget::Channel(&self.channel), BatchTarget::Participant)
    }
}

/// The waiting batches of a source.
#[derive(Debug)]
pub(crate) struct Batches {
    /// A source whose next event follows within this time has sent it at once: [`BATCH_GAP`], and
    /// longer in tests that must not depend on the speed of this machine.
    pub(crate) at_once: Duration,
    pending: Vec<Batch>,
    spare: Vec<Batch>,
    /// When the last event was sent or added to a batch.
    last: Option<Instant>,
    in_a_row: u32,
    /// When the batches are due, by the first event that waits.
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
    /// Whether an event that is sent now should [wait](Self::add).
    pub(crate) fn should_batch(&mut self, now: Instant, size: usize) -> bool {
        let at_once = self.last.is_some_and(|last| now.since(last) <= self.at_once);
        self.in_a_row = if at_once { self.in_a_row.saturating_add(1) } else { 0 };
        self.in_a_row >= AHEAD && size <= FRAME_MAX
    }

    /// Records that an event was sent or added to a batch.
    pub(crate) fn done(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Whether the waiting batches must be sent before this event, so that it does not overtake them.
    pub(crate) fn must_flush_before(&self, to: BatchTarget<'_>) -> bool {
        let is_other =
            |one: &Batch| one.host.is_some() != matches!(to, BatchTarget::Participant(_));
        self.pending.iter().any(is_other)
            || (self.pending.len() >= PENDING_MAX && !self.pending.iter().any(|one| one.to() == to))
    }

    /// Adds an event to a batch; returns the batch if it is full, to be sent and [recycled](Self::recycle).
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

    /// Takes the next waiting batch; the caller sends all of them now.
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

    /// Keeps a batch's memory for reuse.
    pub(crate) fn recycle(&mut self, batch: Batch) {
        if self.spare.len() < PENDING_MAX {
            self.spare.push(batch);
        }
    }

    /// When the waiting batches must be sent; `None` if there are none.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Appends a length: seven bits a byte, the lowest first, as in postcard's varints.
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
    /// The offset of the next frame.
    at: usize,
}

impl Default for Frames {
    /// No message yet.
    fn default() -> Self {
        Self { at: usize::MAX }
    }
}

impl Frames {
    /// Starts with a message.
    pub(crate) fn begin(&mut self) {
        self.at = 0;
    }

    /// The range of the next frame. If the rest is not a valid frame, all of it is returned as one:
    /// its reader counts the error.
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

/// The size of a length's encoding, and the length.
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
        // Frames with a length beyond the message, without a length, or with an endless one.
        assert_eq!(frames(&[MARK, 1, 5, 9, 1]), [vec![5], vec![9, 1]]);
        assert_eq!(frames(&[MARK, 0, 5]), [vec![0, 5]]);
        assert_eq!(frames(&[MARK, 255, 255, 255, 255, 0]), [vec![255, 255, 255, 255, 0]]);
    }
}
