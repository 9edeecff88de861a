//! The events that wait for one subscriber: earliest deadline first, never more than its bound.

use std::collections::VecDeque;

use selvedge_units::Instant;
use serde::{Deserialize, Serialize};

/// The rule for an event that comes when a subscriber's bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The oldest waiting event is dropped.
    DropOldest,
    /// The new one is dropped.
    DropNewest,
    /// Only the newest event is kept, whatever the bound is.
    Latest,
    /// The source gets an error, and no sink gets the event until there is room.
    Block,
}

/// A waiting event, by its place in the channel's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedEvent {
    pub(crate) deadline: Option<Instant>,
    pub(crate) sequence: u64,
    pub(crate) stored: usize,
}

impl QueuedEvent {
    /// The order of delivery. Events without a deadline come last; equal ones in the order of being sent.
    pub(crate) fn rank(self) -> (Instant, u64) {
        (self.deadline.unwrap_or(Instant(u64::MAX)), self.sequence)
    }

    /// Whether its deadline has passed.
    pub(crate) fn is_expired(self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline < now)
    }
}

/// Sorted, the most urgent first. All memory is allocated at the start.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<QueuedEvent>,
    /// Whether each event was appended at the end, so that the first is the oldest.
    is_straight: bool,
    bound: usize,
    overflow: Overflow,
}

impl Queue {
    pub(crate) fn new(bound: usize, overflow: Overflow) -> Self {
        let bound = if overflow == Overflow::Latest { 1 } else { bound.max(1) };
        Self { waiting: VecDeque::with_capacity(bound), is_straight: true, bound, overflow }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a source has to wait.
    pub(crate) fn blocks(&self) -> bool {
        self.overflow == Overflow::Block && self.waiting.len() >= self.bound
    }

    /// The number of further events, if a source has to wait after them.
    pub(crate) fn room(&self) -> Option<usize> {
        (self.overflow == Overflow::Block).then(|| self.bound.saturating_sub(self.waiting.len()))
    }

    /// Whether the next event would be dropped.
    pub(crate) fn refuses(&self) -> bool {
        self.overflow == Overflow::DropNewest && self.waiting.len() >= self.bound
    }

    /// Adds an event; returns the event that is dropped for it, which may be itself. Constant time
    /// if events come in the order of their deadlines, or have none; otherwise linear in the bound.
    pub(crate) fn push(&mut self, event: QueuedEvent) -> Option<QueuedEvent> {
        let mut gone = None;
        if self.waiting.len() >= self.bound {
            match self.overflow {
                Overflow::DropNewest | Overflow::Block => return Some(event),
                Overflow::DropOldest | Overflow::Latest => {
                    gone = self.oldest().and_then(|at| self.waiting.remove(at));
                }
            }
        }
        self.is_straight |= self.waiting.is_empty();
        if self.waiting.back().is_none_or(|last| last.rank() <= event.rank()) {
            self.waiting.push_back(event);
        } else {
            let at = self.waiting.partition_point(|one| one.rank() <= event.rank());
            self.waiting.insert(at, event);
            self.is_straight = false;
        }
        gone
    }

    /// The place of the event that was sent first.
    fn oldest(&self) -> Option<usize> {
        if self.is_straight {
            return (!self.waiting.is_empty()).then_some(0);
        }
        let sequences = self.waiting.iter().map(|one| one.sequence).enumerate();
        sequences.min_by_key(|(_, sequence)| *sequence).map(|(at, _)| at)
    }

    pub(crate) fn first(&self) -> Option<QueuedEvent> {
        self.waiting.front().copied()
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedEvent> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a list that is sorted and searched anew each time.
    #[test]
    fn order_and_the_oldest_are_those_of_a_plain_list() {
        for (overflow, bound) in
            [(Overflow::DropOldest, 7), (Overflow::DropNewest, 5), (Overflow::Latest, 9)]
        {
            let mut queue = Queue::new(bound, overflow);
            let bound = if overflow == Overflow::Latest { 1 } else { bound };
            let (mut plain, mut seed) = (Vec::<QueuedEvent>::new(), 1_u64);
            for sequence in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let random = seed >> 33;
                // Runs in order, without deadlines, and mixed.
                let deadline = match sequence / 100 % 3 {
                    0 => None,
                    1 => Some(Instant(sequence)),
                    _ => (random % 3 > 0).then_some(Instant(random % 50)),
                };
                let event = QueuedEvent { deadline, sequence, stored: 0 };
                let mut gone = None;
                if plain.len() == bound {
                    gone = Some(event);
                    if overflow != Overflow::DropNewest {
                        let at = (0..bound).min_by_key(|at| plain[*at].sequence).unwrap();
                        gone = Some(plain.remove(at));
                    }
                }
                if gone != Some(event) {
                    plain.push(event);
                }
                plain.sort_by_key(|one| one.rank());
                assert_eq!(queue.push(event), gone);
                for _ in 0..random % 3 {
                    assert_eq!(queue.first(), plain.first().copied());
                    assert_eq!(queue.pop(), (!plain.is_empty()).then(|| plain.remove(0)));
                }
                assert_eq!(queue.len(), plain.len());
            }
        }
    }
}
