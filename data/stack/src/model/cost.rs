//! What modules, pipes and the network interface cost: the figures of Table 1.

use selvedge_units::{Bytes, Span};

use crate::load::Load;

/// The overheads of a protocol module (section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cost {
    /// A message of no bytes.
    pub null: Span,
    /// Each 1024 bytes more, when the message lies in this processor's cache.
    pub kilobyte: Span,
    /// Each 1024 bytes more, when another processor touched it last.
    pub kilobyte_remote: Span,
    /// The part of `null` that only one processor at a time can be in.
    pub critical: Span,
}

impl Cost {
    /// What a message of this size costs, rounded up.
    #[must_use]
    pub fn of(&self, size: Bytes, remote: bool) -> Span {
        let kilobyte = if remote { self.kilobyte_remote } else { self.kilobyte };
        self.null + scaled(kilobyte, size)
    }
}

/// `kilobyte` for each 1024 bytes, rounded up.
fn scaled(kilobyte: Span, size: Bytes) -> Span {
    let nanos = (u128::from(kilobyte.0) * u128::from(size.0)).div_ceil(1024);
    Span(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The overheads of pipes and hand-overs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overheads {
    /// Taking a message from a pipe that this element alone reads.
    pub get: Span,
    /// Taking it from a pipe that several read.
    pub get_locked: Span,
    /// Handing it to the next module on the same element (shepherding).
    pub same: Span,
    /// Handing it to a module on another element.
    pub other: Span,
}

/// The network interface, which all streams share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// For each message.
    pub null: Span,
    /// For each 1024 bytes.
    pub kilobyte: Span,
    /// The part of its time that it gives.
    pub available: Load,
}

impl Interface {
    /// What a message of this size takes of it, rounded up.
    #[must_use]
    pub fn of(&self, size: Bytes) -> Span {
        self.null + scaled(self.kilobyte, size)
    }
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
}

impl Machine {
    /// `count` elements that give all of their time.
    #[must_use]
    pub fn whole(count: usize, overheads: Overheads) -> Self {
        let available = vec![Load::WHOLE; count];
        Self { available, overheads, interface: None }
    }
}
