//! What waits for one subscriber: earliest deadline first, never more than its bound. Named by what
//! happens when it is full.

use selvedge_units::Instant;

/// What happens to an event that comes when a subscriber's bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest that waits is dropped.
    DropOldest,
    /// The new one is dropped.
    DropNewest,
    /// Only the newest is kept, whatever the bound is.
    Latest,
    /// The source is told, and nobody gets the event until there is room.
    Block,
}

/// An event that waits, by its place in the channel's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) deadline: Option<Instant>,
    pub(crate) sequence: u64,
    pub(crate) stored: usize,
}

impl Waiting {
    /// Events without a deadline come last; equal ones in the order of being sent.
    pub(crate) fn rank(self) -> (Instant, u64) {
        (self.deadline.unwrap_or(Instant(u64::MAX)), self.sequence)
    }

    /// Whether it is too late for it.
    pub(crate) fn is_expired(self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline < now)
    }
}

/// Sorted, the most urgent last. All memory is taken at the start.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    waiting: Vec<Waiting>,
    bound: usize,
    overflow: Overflow,
}

impl Queue {
    pub(crate) fn new(bound: usize, overflow: Overflow) -> Self {
        let bound = if overflow == Overflow::Latest { 1 } else { bound.max(1) };
        Self { waiting: Vec::with_capacity(bound), bound, overflow }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a source has to wait.
    pub(crate) fn blocks(&self) -> bool {
        self.overflow == Overflow::Block && self.waiting.len() >= self.bound
    }

    /// How many more it takes, if a source has to wait beyond.
    pub(crate) fn room(&self) -> Option<usize> {
        (self.overflow == Overflow::Block).then(|| self.bound.saturating_sub(self.waiting.len()))
    }

    /// Whether the next event would be the one to go.
    pub(crate) fn refuses(&self) -> bool {
        self.overflow == Overflow::DropNewest && self.waiting.len() >= self.bound
    }

    /// Takes an event; what has to go for it comes back, which may be itself. Linear in the bound.
    pub(crate) fn push(&mut self, event: Waiting) -> Option<Waiting> {
        let mut gone = None;
        if self.waiting.len() >= self.bound {
            match self.overflow {
                Overflow::DropNewest | Overflow::Block => return Some(event),
                Overflow::DropOldest | Overflow::Latest => {
                    let sequences = self.waiting.iter().map(|one| one.sequence).enumerate();
                    let oldest = sequences.min_by_key(|(_, sequence)| *sequence);
                    gone = oldest.map(|(at, _)| self.waiting.remove(at));
                }
            }
        }
        let at = self.waiting.partition_point(|one| one.rank() > event.rank());
        self.waiting.insert(at, event);
        gone
    }

    pub(crate) fn first(&self) -> Option<Waiting> {
        self.waiting.last().copied()
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop()
    }
}
