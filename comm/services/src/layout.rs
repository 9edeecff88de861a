//! What programs in the kernel and this process both read and write: `bpf/raise.h` in Rust.

use selvedge_units::{Duration, Instant};

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
    /// Where `handled` stands.
    pub(crate) const HANDLED: usize = std::mem::offset_of!(Self, handled);
    /// Where `threshold` stands.
    pub(crate) const THRESHOLD: usize = std::mem::offset_of!(Self, threshold);
    /// Where `interval` stands.
    pub(crate) const INTERVAL: usize = std::mem::offset_of!(Self, interval);
    /// Where `posted` stands.
    pub(crate) const POSTED: usize = std::mem::offset_of!(Self, posted);

    /// As the kernel reads it.
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

/// The kinds that a service may have.
pub(crate) const KINDS: usize = 8;
/// `struct gathered`, in bytes.
pub(crate) const GATHERED: usize = 32;
/// `struct tally`.
pub(crate) const TALLY: usize = 64;
/// The bytes of the handler's memory in the kernel.
pub(crate) const MEMORY: usize = 16384;
/// Of the ring of events.
pub(crate) const RING: usize = 256 * 1024;
/// Of the ring of posted calls.
pub(crate) const POSTS: usize = 4096;
/// `struct event`.
pub(crate) const EVENT: usize = 104;

/// What became of a service's occurrences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// That passed the filters.
    pub occurred: u64,
    /// That became events.
    pub raised: u64,
    /// Events that found the ring full.
    pub lost: u64,
    /// Occurrences that found the handler running; they are in the next call's `count`.
    pub busy: u64,
    /// Calls of the handler that a fault ended.
    pub faults: u64,
    /// The last of these: its kind in the lower half, its place in the source in the upper.
    pub(crate) fault: u64,
    /// Posted calls that were done ([`crate::Watch::post`]).
    pub posted: u64,
    /// Posted calls that the kernel's program refused: ill-formed, a thread that was not there, or no room.
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
    /// When it happened, on the monotonic clock.
    pub at: Instant,
    /// Until when it is worth delivering.
    pub deadline: Option<Instant>,
    /// What was measured; [`crate::Kind`] says what it is.
    pub value: u64,
    /// How many occurrences it stands for.
    pub count: u64,
    /// The sum of their values.
    pub sum: u64,
    /// The largest of them.
    pub max: u64,
    /// What it is about: ports, thread, device; see [`crate::Kind`].
    pub key: u64,
    /// What the handler says besides.
    pub data: [u64; 4],
    /// The number of its kind, in [`crate::Service::kinds`].
    pub kind: u32,
    /// The process that it is about; 0 if nobody knows.
    pub pid: u32,
    /// The wish that the processor's scheduler prefers that process.
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

    /// How long after it happened `now` is.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.since(self.at)
    }

    /// Whether its deadline is over.
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
