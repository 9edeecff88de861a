//! The records that programs in the kernel and this process share: `bpf/raise.h` in Rust.

use selvedge_units::Instant;

/// `struct settings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Settings {
    pub(crate) threshold: u64,
    pub(crate) interval: u64,
    pub(crate) deadline: u64,
    pub(crate) cgroup: u64,
    pub(crate) pid: u32,
    pub(crate) own: u32,
    pub(crate) port: u32,
    pub(crate) handled: u32,
    pub(crate) prefer: u32,
    pub(crate) kinds: u32,
    pub(crate) network: u32,
    pub(crate) posted: u32,
}

impl Settings {
    pub(crate) const SIZE: usize = size_of::<Self>();
    /// The offset of `handled`.
    pub(crate) const HANDLED: usize = std::mem::offset_of!(Self, handled);
    /// The offset of `threshold`.
    pub(crate) const THRESHOLD: usize = std::mem::offset_of!(Self, threshold);
    /// The offset of `interval`.
    pub(crate) const INTERVAL: usize = std::mem::offset_of!(Self, interval);
    /// The offset of `posted`.
    pub(crate) const POSTED: usize = std::mem::offset_of!(Self, posted);

    /// The bytes as the kernel reads them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        for word in [self.threshold, self.interval, self.deadline, self.cgroup] {
            bytes.extend(word.to_ne_bytes());
        }
        let narrow = [
            self.pid,
            self.own,
            self.port,
            self.handled,
            self.prefer,
            self.kinds,
            self.network,
            self.posted,
        ];
        for word in narrow {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }
}

/// The largest number of kinds of a service.
pub(crate) const KINDS: usize = 8;
/// The size of `struct gathered`, in bytes.
pub(crate) const GATHERED: usize = 32;
/// The size of `struct tally`, in bytes.
pub(crate) const TALLY: usize = 64;
/// The size of the handler's memory in the kernel, in bytes.
pub(crate) const MEMORY: usize = 16384;
/// The size of the ring of events, in bytes.
pub(crate) const RING: usize = 256 * 1024;
/// The size of the ring of posted calls, in bytes.
pub(crate) const POSTS: usize = 4096;
/// The size of `struct event`, in bytes.
pub(crate) const EVENT: usize = 104;

/// The counts of a service's occurrences by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Occurrences that passed the filters.
    pub occurred: u64,
    /// Occurrences that became events.
    pub raised: u64,
    /// Events that found the ring full.
    pub lost: u64,
    /// Occurrences that found the handler running; they are in the next call's `count`.
    pub busy: u64,
    /// Calls of the handler that a fault ended.
    pub faults: u64,
    /// The last of these: its kind in the lower half, its place in the source in the upper half.
    pub(crate) fault: u64,
    /// Posted calls that were carried out ([`crate::Watch::post`]).
    pub posted: u64,
    /// Posted calls that the kernel's program refused: ill-formed, for an unknown thread, or without room.
    pub refused: u64,
}

impl Tally {
    /// Reads `struct tally`; zeros where bytes are missing.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| word(bytes, at * 8);
        Self {
            occurred: word(0),
            raised: word(1),
            lost: word(2),
            busy: word(3),
            faults: word(4),
            fault: word(5),
            posted: word(6),
            refused: word(7),
        }
    }
}

/// An event of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The time of the occurrence, on the monotonic clock.
    pub at: Instant,
    /// The deadline of its delivery.
    pub deadline: Option<Instant>,
    /// The measured value; [`crate::Kind`] states its meaning.
    pub value: u64,
    /// The number of occurrences that it stands for.
    pub count: u64,
    /// The sum of their values.
    pub sum: u64,
    /// The largest of them.
    pub max: u64,
    /// The subject: ports, thread or device; see [`crate::Kind`].
    pub key: u64,
    /// Further data from the handler.
    pub data: [u64; 4],
    /// The number of its kind, in [`crate::Service::kinds`].
    pub kind: u32,
    /// The process that it concerns; 0 if unknown.
    pub pid: u32,
    /// A request that the processor's scheduler prefer that process.
    pub prefer: bool,
    /// The processor that it happened on.
    pub cpu: u32,
}

impl Event {
    /// Reads `struct event`; `None` if it is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < EVENT {
            return None;
        }
        let long = |at: usize| word(bytes, at * 8);
        let half = |at: usize| long(11 + at / 2).to_ne_bytes();
        let int = |at: usize| {
            let bytes = half(at);
            let from = at % 2 * 4;
            u32::from_ne_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]])
        };
        let deadline = long(1);
        Some(Self {
            at: Instant(long(0)),
            deadline: (deadline != 0).then_some(Instant(deadline)),
            value: long(2),
            count: long(3),
            sum: long(4),
            max: long(5),
            key: long(6),
            data: [long(7), long(8), long(9), long(10)],
            kind: int(0),
            pid: int(1),
            prefer: int(2) != 0,
            cpu: int(3),
        })
    }

    /// Whether its deadline has passed.
    pub fn is_expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now > deadline)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let stored = bytes.get(at..at + 8).and_then(|stored| stored.try_into().ok());
    stored.map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        for word in 1..=11_u64 {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [12_u32, 13, 1, 15] {
            bytes.extend(word.to_ne_bytes());
        }
        let event = Event::parse(&bytes).unwrap();
        assert_eq!((event.at, event.deadline), (Instant(1), Some(Instant(2))));
        assert_eq!((event.value, event.key, event.data), (3, 7, [8, 9, 10, 11]));
        assert_eq!((event.kind, event.pid, event.prefer, event.cpu), (12, 13, true, 15));
        assert!(event.is_expired(Instant(3)) && !event.is_expired(Instant(2)));
        assert_eq!(Event::parse(&bytes[..EVENT - 1]), None);
    }

    #[test]
    fn settings_have_no_gaps() {
        let settings = Settings { threshold: 1, prefer: 9, handled: 7, ..Settings::default() };
        let bytes = settings.bytes();
        assert_eq!(bytes.len(), Settings::SIZE);
        assert_eq!(bytes[Settings::HANDLED], 7);
    }
}
