//! `mixed`: streams of three classes in one scheduler, as ShareStreams promises (section 4.3):
//! deadlines first, then priorities, then fair shares of the rest.
//!
//! Among streams of class `edf` the earliest deadline goes first, among class `priority` the highest
//! priority. Those of class `fair` share by weight under `sfq`, whose bound holds on a link of any rate, and
//! so on the rest that the other classes leave.
//!
//! Guarantee: the `edf` streams are served as under `edf` alone, so with one frame a slot and `sum(1 / T) <=
//! 1` over them none is late. The `fair` ones keep the bound of `sfq` over every interval. Not guaranteed:
//! anything to a class if the classes before it need the whole link; pace them (`work_conserving = false`).
//! O(log N), as the three are.

use alloc::vec::Vec;

use selvedge_data_stream::{Class, Contract};
use selvedge_units::{Bytes, Instant};

use super::sfq::Sfq;
use super::{HeadState, Rule, significant};

/// Rank: class 2 bits; deadline, distance from the highest priority, or start tag, from bit 46.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mixed {
    classes: Vec<Class>,
    fair: Sfq,
}

impl Mixed {
    fn class(&self, head: &HeadState) -> Class {
        self.classes[head.stream as usize]
    }

    fn is_fair(&self, head: &HeadState) -> bool {
        self.class(head) == Class::Fair
    }
}

impl Rule for Mixed {
    const OBSERVES: bool = true;

    fn grow(&mut self, streams: usize) {
        self.classes.resize(streams.max(self.classes.len()), Class::default());
        self.fair.grow(streams);
    }

    fn reset(&mut self, stream: u32, contract: &Contract) {
        self.classes[stream as usize] = contract.class;
        self.fair.reset(stream, contract);
    }

    fn observe_head(&mut self, head: &HeadState, size: Bytes, fresh: bool) {
        if self.is_fair(head) {
            self.fair.observe_head(head, size, fresh);
        }
    }

    fn rank(&self, head: &HeadState) -> u128 {
        let (class, within) = match self.class(head) {
            Class::Edf => (0, u128::from(head.deadline.0) << 46),
            Class::Priority => (1, u128::from(i32::MAX.abs_diff(head.priority)) << 46),
            // Two bits of the fraction make room for the class.
            Class::Fair => (2, self.fair.start(head.stream) >> 2),
        };
        class << 110 | within
    }

    /// Class 2 bits, the rest 61.
    fn key(&self, head: &HeadState, _: Instant) -> u64 {
        let rank = self.rank(head);
        ((rank >> 110) as u64) << 61 | significant(rank & ((1 << 110) - 1)) >> 1
    }

    fn observe_dequeued(&mut self, head: &HeadState) {
        if self.is_fair(head) {
            self.fair.observe_dequeued(head);
        }
    }

    fn observe_dropped(&mut self, head: &HeadState) {
        if self.is_fair(head) {
            self.fair.observe_dropped(head);
        }
    }
}
