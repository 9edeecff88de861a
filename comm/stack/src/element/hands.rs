//! What an element has of a plant: its hands in the pipes, and which of them it serves and fills.

use core::sync::atomic::Ordering;

use super::plant::Plant;
use super::work::Work;
use crate::pipe::{Reading, User, Writing};
use selvedge_data_stack::elements::ElementId;

/// What an element holds of a plant's pipes.
#[derive(Debug)]
pub(super) struct Hands<M> {
    pub(super) writing: Vec<Writing<M>>,
    pub(super) reading: Vec<Reading<M>>,
    /// Pipes of which an outcome is to be passed on.
    pub(super) owed: Vec<usize>,
    /// Pipes that it serves, as of `epoch`.
    pub(super) mine: Vec<usize>,
    /// Pipes that it may put into, as of `epoch`.
    fills: Vec<bool>,
    epoch: u64,
}

impl<M: Send> Hands<M> {
    pub(super) fn new(pipes: usize) -> Self {
        Self {
            writing: (0..pipes).map(|_| Writing::default()).collect(),
            reading: (0..pipes).map(|_| Reading::default()).collect(),
            owed: Vec::new(),
            mine: Vec::with_capacity(pipes),
            fills: vec![false; pipes],
            epoch: 0,
        }
    }

    /// Follows a re-assignment, if there was one.
    #[inline]
    pub(super) fn follow<W: Work<Message = M>>(&mut self, plant: &Plant<W>, me: ElementId) {
        let epoch = plant.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.catch_up(plant, me, epoch);
        }
    }

    /// Apart, so that looking whether there was a re-assignment costs no call.
    #[cold]
    fn catch_up<W: Work<Message = M>>(&mut self, plant: &Plant<W>, me: ElementId, epoch: u64) {
        self.epoch = epoch;
        self.mine.clear();
        self.mine.extend((0..plant.pipes.len()).filter(|&pipe| plant.serves(pipe, me)));
        let fills = |pipe| plant.writes(pipe, me);
        self.fills.iter_mut().enumerate().for_each(|(pipe, fill)| *fill = fills(pipe));
        self.settle(plant, User::new(me.0), true);
    }

    /// Lays down what others want, and leaves what it no longer uses. With something still to pass
    /// on (`owes`) it may put into any pipe.
    pub(super) fn settle<W: Work<Message = M>>(&mut self, plant: &Plant<W>, me: User, owes: bool) {
        let Self { writing, reading, mine, fills, .. } = self;
        let mut served = mine.iter().copied().peekable();
        let hands = writing.iter_mut().zip(reading);
        for ((n, pipe), (writing, reading)) in plant.pipes.iter().enumerate().zip(hands) {
            if served.next_if_eq(&n).is_some() {
                pipe.settle_reading(me, reading);
            } else {
                pipe.stop_reading(me, reading);
            }
            if owes || fills[n] {
                pipe.settle_writing(me, writing);
            } else {
                pipe.stop_writing(me, writing);
            }
        }
    }
}
