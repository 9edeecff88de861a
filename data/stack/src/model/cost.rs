//! The costs of modules, pipes and the network interface: the figures of Table 1.

use selvedge_units::{Bytes, Duration};

use crate::load::Load;

/// The overheads of a protocol module (section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cost {
    /// The time for an empty message.
    pub null: Duration,
    /// The time for each 1024 bytes, when the message is in this processor's cache.
    pub kilobyte: Duration,
    /// The time for each 1024 bytes, when another processor touched it last.
    pub kilobyte_remote: Duration,
    /// The part of `null` that only one processor at a time can execute.
    pub critical: Duration,
    /// Whether worker threads may share its work on the bytes of one message (data-parallel).
    pub shared: bool,
}

impl Cost {
    /// A cost of `null` for an empty message and `kilobyte` for each 1024 bytes, in any cache;
    /// without a critical section, and without work for worker threads.
    #[must_use]
    pub const fn plain(null: Duration, kilobyte: Duration) -> Self {
        Self { null, kilobyte, kilobyte_remote: kilobyte, critical: Duration(0), shared: false }
    }

    /// The cost of a message of this size, rounded up.
    #[must_use]
    pub fn of(&self, size: Bytes, remote: bool) -> Duration {
        self.null + scaled(self.each(remote), size)
    }

    fn each(&self, remote: bool) -> Duration {
        if remote { self.kilobyte_remote } else { self.kilobyte }
    }

    /// The cost of a message of this size for its master, with the help of `helpers` worker
    /// threads, and the total cost for those threads, rounded up. The master and the worker threads
    /// take part after part, and the last part is waited for.
    #[must_use]
    pub fn among(&self, size: Bytes, remote: bool, slaves: &Slaves, helpers: u64) -> [Duration; 2] {
        let parts = size.0.div_ceil(slaves.part.0.max(1));
        let helpers = helpers.min(parts.saturating_sub(1));
        if !self.shared || helpers == 0 {
            return [self.of(size, remote), Duration::ZERO];
        }
        let own = Bytes(parts.div_ceil(helpers + 1).saturating_mul(slaves.part.0).min(size.0));
        let master = self.null + slaves.call * helpers + scaled(self.each(remote), own);
        // The worker threads' bytes are in another processor's cache.
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
    /// Dequeueing from a pipe that this element alone reads.
    pub get: Duration,
    /// Dequeueing from a pipe that several elements read.
    pub get_locked: Duration,
    /// A hand-over to the next module on the same element (shepherding).
    pub same: Duration,
    /// A hand-over to a module on another element.
    pub other: Duration,
}

/// The network interface, which all streams share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// The time for each message.
    pub null: Duration,
    /// The time for each 1024 bytes.
    pub kilobyte: Duration,
    /// The part of its time that it gives.
    pub available: Load,
}

impl Interface {
    /// The time that a message of this size takes, rounded up.
    #[must_use]
    pub fn of(&self, size: Bytes) -> Duration {
        self.null + scaled(self.kilobyte, size)
    }
}

/// The worker threads that share the work on large messages with elements (the paper's Encrypt Slaves).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slaves {
    /// Their number, each with a processor of its own.
    pub count: u64,
    /// The bytes of a part; messages that are no larger are not shared.
    pub part: Bytes,
    /// The cost for a master of one worker thread's help.
    pub call: Duration,
}

/// The time from the moment when an element has a message to the moment when it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WakeUp {
    /// On average.
    pub average: Duration,
    /// At worst, with the time for which a reservation that is used up may keep the element waiting.
    pub worst: Duration,
}

/// The resources over which modules are spread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `Avail(p)` of each element, at most 64 of them; further ones are not used.
    pub available: Vec<Load>,
    /// Costs of moving messages.
    pub overheads: Overheads,
    /// The network interface, if it is a limit.
    pub interface: Option<Interface>,
    /// The worker threads, if there are any.
    pub slaves: Slaves,
    /// The wake-up of an element, which each message that it serves may have to wait for.
    pub wake_up: WakeUp,
    /// Whether a scheduler keeps `available`, which is the premise of each firm delay. Otherwise delays are
    /// estimates.
    pub is_reserved: bool,
}

impl Machine {
    /// A host of `count` elements that give all of their time, which is reserved, and wake up at once.
    #[must_use]
    pub fn whole(count: usize, overheads: Overheads) -> Self {
        let available = vec![Load::WHOLE; count];
        let (slaves, wake_up) = (Slaves::default(), WakeUp::default());
        Self { available, overheads, interface: None, slaves, wake_up, is_reserved: true }
    }
}
