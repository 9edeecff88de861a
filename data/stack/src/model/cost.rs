//! What modules, pipes and the network interface cost: the figures of Table 1.

use selvedge_units::{Bytes, Duration};

use crate::load::Load;

/// The overheads of a protocol module (section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cost {
    /// A message of no bytes.
    pub null: Duration,
    /// Each 1024 bytes more, when the message lies in this processor's cache.
    pub kilobyte: Duration,
    /// Each 1024 bytes more, when another processor touched it last.
    pub kilobyte_remote: Duration,
    /// The part of `null` that only one processor at a time can be in.
    pub critical: Duration,
    /// Whether slaves may take part in its work on the bytes of one message (data-parallel).
    pub shared: bool,
}

impl Cost {
    /// So much for a message of no bytes and for each kilobyte, wherever they lie; no critical section,
    /// no work for slaves.
    #[must_use]
    pub const fn plain(null: Duration, kilobyte: Duration) -> Self {
        Self { null, kilobyte, kilobyte_remote: kilobyte, critical: Duration(0), shared: false }
    }

    /// What a message of this size costs, rounded up.
    #[must_use]
    pub fn of(&self, size: Bytes, remote: bool) -> Duration {
        self.null + scaled(self.each(remote), size)
    }

    fn each(&self, remote: bool) -> Duration {
        if remote { self.kilobyte_remote } else { self.kilobyte }
    }

    /// What a message of this size costs its master, whom so many of these slaves help, and what it
    /// costs all slaves together, rounded up. Master and slaves take part after part; who has taken
    /// the last is waited for.
    #[must_use]
    pub fn among(&self, size: Bytes, remote: bool, slaves: &Slaves, helpers: u64) -> [Duration; 2] {
        let parts = size.0.div_ceil(slaves.part.0.max(1));
        let helpers = helpers.min(parts.saturating_sub(1));
        if !self.shared || helpers == 0 {
            return [self.of(size, remote), Duration::ZERO];
        }
        let own = Bytes(parts.div_ceil(helpers + 1).saturating_mul(slaves.part.0).min(size.0));
        let master = self.null + slaves.call * helpers + scaled(self.each(remote), own);
        // What they touch lies in another processor's cache.
        [master, scaled(self.kilobyte_remote, Bytes(size.0 - own.0))]
    }
}

/// `kilobyte` for each 1024 bytes, rounded up.
fn scaled(kilobyte: Duration, size: Bytes) -> Duration {
    let nanos = (u128::from(kilobyte.0) * u128::from(size.0)).div_ceil(1024);
    Duration(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The overheads of pipes and hand-overs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overheads {
    /// Taking a message from a pipe that this element alone reads.
    pub get: Duration,
    /// Taking it from a pipe that several read.
    pub get_locked: Duration,
    /// Handing it to the next module on the same element (shepherding).
    pub same: Duration,
    /// Handing it to a module on another element.
    pub other: Duration,
}

/// The network interface, which all streams share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// For each message.
    pub null: Duration,
    /// For each 1024 bytes.
    pub kilobyte: Duration,
    /// The part of its time that it gives.
    pub available: Load,
}

impl Interface {
    /// What a message of this size takes of it, rounded up.
    #[must_use]
    pub fn of(&self, size: Bytes) -> Duration {
        self.null + scaled(self.kilobyte, size)
    }
}

/// Who shares the work on large messages with elements (the paper's Encrypt Slaves).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slaves {
    /// How many there are, each with a processor of its own.
    pub count: u64,
    /// The bytes of a part; messages that are no larger are not shared.
    pub part: Bytes,
    /// What it costs a master to have one slave's help.
    pub call: Duration,
}

/// What there is to spread modules over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `Avail(p)` of each element, at most 64 of them; those beyond are not used.
    pub available: Vec<Load>,
    /// Costs of moving messages.
    pub overheads: Overheads,
    /// The network interface, if it limits anything.
    pub interface: Option<Interface>,
    /// Slaves, if there are any.
    pub slaves: Slaves,
}

impl Machine {
    /// `count` elements that give all of their time.
    #[must_use]
    pub fn whole(count: usize, overheads: Overheads) -> Self {
        let available = vec![Load::WHOLE; count];
        Self { available, overheads, interface: None, slaves: Slaves::default() }
    }
}
