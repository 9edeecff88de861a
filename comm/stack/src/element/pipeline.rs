//! A pipeline: one connection's pipes, and the elements assigned to each module.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

use super::work::ModuleChain;
use crate::pipe::{CachePadded, Pipe};
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::module::Direction;

/// Where a message goes: the pipe of a module, or out.
#[derive(Debug)]
pub(super) struct QueuedMessage<M> {
    /// The module whose pipe the message goes to; `None` past either end.
    pub(super) to: Option<usize>,
    pub(super) direction: Direction,
    pub(super) message: M,
}

/// The messages that resulted from one, in order. Most often there is one, which needs no allocation.
#[derive(Debug)]
pub(super) struct Outcome<M> {
    first: Option<QueuedMessage<M>>,
    rest: VecDeque<QueuedMessage<M>>,
}

impl<M> Outcome<M> {
    /// An empty outcome.
    pub(super) const fn new() -> Self {
        Self { first: None, rest: VecDeque::new() }
    }

    /// Prepares for more than one message, with memory that was used before.
    pub(super) fn enlarge(&mut self, spare_queues: &mut Vec<VecDeque<QueuedMessage<M>>>) {
        if self.rest.capacity() == 0
            && let Some(rest) = spare_queues.pop()
        {
            self.rest = rest;
        }
    }

    #[inline]
    pub(super) fn push_back(&mut self, queued: QueuedMessage<M>) {
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some(queued);
        } else {
            self.rest.push_back(queued);
        }
    }

    /// Puts back the message that was taken last.
    pub(super) fn push_front(&mut self, queued: QueuedMessage<M>) {
        if let Some(second) = self.first.replace(queued) {
            self.rest.push_front(second);
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<QueuedMessage<M>> {
        self.first.take().or_else(|| self.rest.pop_front())
    }

    /// The outcome's memory, once the outcome is empty.
    pub(super) fn into_rest(self) -> VecDeque<QueuedMessage<M>> {
        self.rest
    }
}

/// One connection: its pipes, and the elements that serve them.
#[derive(Debug)]
pub struct Pipeline<W: ModuleChain> {
    /// Padded, since the modules may count messages there.
    work: CachePadded<W>,
    /// The elements that serve each pipe.
    pub(super) assigned: Box<[AtomicU64]>,
    /// Grows with every assignment, so that elements read the assignment only after a change.
    pub(super) epoch: AtomicU64,
    /// The pipe down, then the pipe up, of each module.
    pub(super) pipes: Box<[PipeOf<W::Message>]>,
}

/// A pipe whose messages have outcomes of this pipeline.
pub(super) type PipeOf<M> = Pipe<M, Outcome<M>>;

/// The two outside users of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum External {
    /// The application.
    Application = 62,
    /// The network.
    Network = 63,
}

impl<W: ModuleChain> Pipeline<W> {
    /// A pipeline with pipes for `capacity` messages. No element serves it yet.
    #[must_use]
    pub fn new(work: W, capacity: usize) -> Self {
        let module_count = work.module_count();
        Self {
            work: CachePadded(work),
            assigned: (0..module_count * 2).map(|_| AtomicU64::new(0)).collect(),
            epoch: AtomicU64::new(0),
            pipes: (0..module_count * 2).map(|_| Pipe::new(capacity)).collect(),
        }
    }

    /// The modules.
    pub const fn work(&self) -> &W {
        &self.work.0
    }

    /// Assigns these elements to the module at `place` in this direction, from now on. Each element
    /// follows at its next turn.
    pub fn assign(&self, place: usize, direction: Direction, elements: ElementSet) {
        self.assigned[self.pipe(place, direction)].store(elements.0, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The same in both directions.
    pub fn assign_both(&self, place: usize, elements: ElementSet) {
        self.assign(place, Direction::Down, elements);
        self.assign(place, Direction::Up, elements);
    }

    /// The elements that serve the module at `place` in this direction.
    #[must_use]
    pub fn assigned(&self, place: usize, direction: Direction) -> ElementSet {
        ElementSet(self.assigned[self.pipe(place, direction)].load(Ordering::Acquire))
    }

    /// All elements that serve any module of this pipeline.
    #[must_use]
    pub fn assigned_elements(&self) -> ElementSet {
        let load = |set: &AtomicU64| ElementSet(set.load(Ordering::Acquire));
        self.assigned.iter().map(load).fold(ElementSet::EMPTY, ElementSet::or)
    }

    /// The number of modules.
    #[must_use]
    pub fn module_count(&self) -> usize {
        self.assigned.len() / 2
    }

    /// Whether all pipes are empty and all outcomes of messages were passed on.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.pipes.iter().all(Pipe::is_drained)
    }

    /// The same for the pipes of one direction.
    #[must_use]
    pub fn is_clear_of(&self, direction: Direction) -> bool {
        let first = usize::from(direction == Direction::Up);
        self.pipes.iter().skip(first).step_by(2).all(Pipe::is_drained)
    }

    /// Messages in each pipe, down and up, from the application's end.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pipes.chunks_exact(2).map(|pair| (pair[0].len(), pair[1].len()))
    }

    /// The number of writers and readers of each pipe, down and up, from the application's end.
    pub fn users(&self) -> impl Iterator<Item = ((u32, u32), (u32, u32))> {
        self.pipes.chunks_exact(2).map(|pair| (pair[0].users(), pair[1].users()))
    }

    pub(super) fn next(&self, place: usize, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Down => Some(place + 1).filter(|&next| next < self.module_count()),
            Direction::Up => place.checked_sub(1),
        }
    }

    /// The place where a message from `place` goes, and whether this element may handle it there at
    /// once. It may if it serves that module and no earlier message waits in that pipe.
    #[inline]
    pub(super) fn next_hop(
        &self,
        place: usize,
        direction: Direction,
        element: ElementId,
    ) -> (Option<usize>, bool) {
        let to = self.next(place, direction);
        let here = to.is_some_and(|next| {
            let pipe = self.pipe(next, direction);
            self.runs_on(pipe, element) && self.pipes[pipe].is_drained()
        });
        (to, here)
    }

    #[inline]
    pub(super) fn runs_on(&self, pipe: usize, element: ElementId) -> bool {
        ElementSet(self.assigned[pipe].load(Ordering::Acquire)).has(element)
    }

    /// Whether the element serves a module that writes to this pipe.
    pub(super) fn writes(&self, pipe: usize, element: ElementId) -> bool {
        let up = pipe % 2 == 1;
        let before = if up { Some(pipe / 2 + 1) } else { (pipe / 2).checked_sub(1) };
        let runs_on =
            |place: usize| self.runs_on(place * 2, element) || self.runs_on(place * 2 + 1, element);
        before.is_some_and(|place| place < self.module_count() && runs_on(place))
    }

    pub(super) fn pipe(&self, place: usize, direction: Direction) -> usize {
        place * 2 + usize::from(direction == Direction::Up)
    }

    /// Whether all pipes between a message's module and its destination are empty, so that the
    /// message overtakes no other.
    pub(super) fn is_free(&self, from: usize, queued: &QueuedMessage<W::Message>) -> bool {
        let (mut place, direction) = (from / 2, queued.direction);
        if (from % 2 == 1) != (direction == Direction::Up) {
            return true;
        }
        loop {
            place = match self.next(place, direction) {
                Some(next) if Some(next) != queued.to => next,
                _ => return true,
            };
            if !self.pipes[self.pipe(place, direction)].is_drained() {
                return false;
            }
        }
    }
}
