//! Processing elements: each serves the pipes of the modules assigned to it, round-robin.
//!
//! An element dequeues a message from a pipe and runs the module. If the next module is assigned to the same
//! element, the element runs it at once (*shepherding*); else it enqueues the message into that module's
//! pipe. A [`Pipeline`] holds the pipes of one connection and the assignment of its modules. The assignment
//! may change at any time ([`Pipeline::assign`]), and each element follows the change at its next turn.
//! Messages of one direction leave in the order in which they entered, however many elements worked on them.
//!
//! [`ProcessingElement::process_next`] dequeues and processes;
//! [`ProcessingElement::forward_result`] passes on the result. On real processors the second
//! follows the first at once; in virtual time it follows after the cost of the work.

mod pipe_ends;
mod pipeline;
mod port;
#[cfg(test)]
mod tests;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_units::{Duration, Instant};

use self::pipe_ends::PipeEnds;
pub use self::pipeline::{External, Pipeline};
use self::pipeline::{Outcome, QueuedMessage};
pub use self::port::EntryPort;
pub use self::work::ModuleChain;
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::model::Overheads;
use selvedge_data_stack::module::Direction;

use crate::pipe::{PipeUser, WriterEnd};

/// A busy element follows re-assignments once in this number of messages.
const FOLLOW_EVERY: u8 = 8;

/// The number of elements that can serve pipelines.
pub const ELEMENTS_MAX: usize = 62;

/// A message that was processed and whose result was not yet passed on.
#[derive(Debug)]
pub struct Job<M> {
    pipeline: usize,
    pipe: usize,
    ticket: u64,
    sole_user: bool,
    outcome: Outcome<M>,
    /// The cost of the work in virtual time.
    pub cost: Duration,
}

/// A pipeline, and the element's pipe ends in it.
type Served<W> = (Arc<Pipeline<W>>, PipeEnds<<W as ModuleChain>::Message>);

/// A processing element.
#[derive(Debug)]
pub struct ProcessingElement<W: ModuleChain> {
    id: ElementId,
    me: PipeUser,
    pipelines: Vec<Served<W>>,
    /// The pipeline and the pipe that the element looks at first next time.
    cursor: (usize, usize),
    out: Vec<(Direction, W::Message)>,
    /// A stack of messages still to be handled: here (`true`), or by another element.
    chain: Vec<(bool, QueuedMessage<W::Message>)>,
    /// Pipelines whose modules may hold back messages that left.
    unflushed: Vec<usize>,
    /// Calls of [`ProcessingElement::process_next`].
    turns: u8,
    /// Memory of emptied outcomes, for reuse.
    spare_queues: Vec<VecDeque<QueuedMessage<W::Message>>>,
    /// The number of pipelines with outcomes that wait to be passed on.
    pipelines_pending: usize,
    /// Messages from timeouts that could not be passed on yet, by pipeline.
    unsent: VecDeque<(usize, QueuedMessage<W::Message>)>,
    /// Those that serve the pipes into which messages were passed on.
    handed: ElementSet,
}

impl<W: ModuleChain> ProcessingElement<W> {
    /// An element that serves nothing yet.
    ///
    /// # Panics
    /// If its number is not below [`ELEMENTS_MAX`].
    #[must_use]
    pub fn new(id: ElementId) -> Self {
        assert!(
            usize::from(id.0) < ELEMENTS_MAX,
            "{id}: there are {ELEMENTS_MAX} elements at most"
        );
        Self {
            id,
            me: PipeUser::new(id.0),
            pipelines: Vec::new(),
            cursor: (0, 0),
            turns: 0,
            out: Vec::new(),
            chain: Vec::new(),
            spare_queues: Vec::new(),
            pipelines_pending: 0,
            unflushed: Vec::new(),
            unsent: VecDeque::new(),
            handed: ElementSet::EMPTY,
        }
    }

    /// The element's number.
    #[must_use]
    pub const fn id(&self) -> ElementId {
        self.id
    }

    /// Serves the modules of this pipeline that are assigned to this element, from now on.
    pub fn add(&mut self, pipeline: Arc<Pipeline<W>>) {
        let pipes = pipeline.pipes.len();
        self.pipelines.push((pipeline, PipeEnds::new(pipes)));
    }

    /// Stops serving this pipeline, and returns all pipe ends of it.
    pub fn remove(&mut self, pipeline: &Arc<Pipeline<W>>) {
        let Some(at) = self.pipelines.iter().position(|(one, _)| Arc::ptr_eq(one, pipeline)) else {
            return;
        };
        let (pipeline, mut ends) = self.pipelines.remove(at);
        self.pipelines_pending -= usize::from(!ends.pending_results.is_empty());
        for (n, pipe) in pipeline.pipes.iter().enumerate() {
            pipe.unregister_reader(self.me, &mut ends.reading[n]);
            pipe.unregister_writer(self.me, &mut ends.writing[n]);
        }
        self.cursor = (0, 0);
        let stays = |of: &mut usize| {
            let is_other = *of != at;
            *of -= usize::from(*of > at);
            is_other
        };
        self.unflushed.retain_mut(stays);
        self.unsent.retain_mut(|(of, _)| stays(of));
    }

    /// Dequeues the next message, runs the modules that are assigned here, and returns the result
    /// that is to be passed on; `None` if no message waits. Constant time apart from the modules'
    /// work and an occasional look at each pipe.
    pub fn process_next(&mut self, now: Instant) -> Option<Job<W::Message>> {
        // A look at every pipe each time would cost as much as a hand-over.
        self.turns = self.turns.wrapping_add(1);
        let kept_up = self.turns.is_multiple_of(FOLLOW_EVERY) || !self.is_settled();
        if kept_up {
            self.follow_assignment(now);
        }
        let next = self.next(now);
        if next.is_some() || kept_up {
            return next;
        }
        self.follow_assignment(now);
        self.next(now)
    }

    /// Processes the next message, round-robin.
    fn next(&mut self, now: Instant) -> Option<Job<W::Message>> {
        let (first, from) = self.cursor;
        let count = self.pipelines.len();
        for step in 0..=count {
            let at = (first + step) % count.max(1);
            let (pipeline, ends) = self.pipelines.get_mut(at)?;
            ends.follow(pipeline, self.id);
            // The first pipeline is looked at in two parts: the pipes after the cursor first, the
            // others last.
            let (mut turn, end) = match step {
                0 => (from, ends.assigned_pipes.len()),
                n if n == count => (0, from.min(ends.assigned_pipes.len())),
                _ => (0, ends.assigned_pipes.len()),
            };
            while turn < end {
                let (pipeline, ends) = &self.pipelines[at];
                let pipe = ends.assigned_pipes[turn];
                turn += 1;
                if !pipeline.pipes[pipe].appears_empty(&ends.reading[pipe])
                    && let Some(job) = self.serve(at, pipe, now)
                {
                    self.cursor = (at, turn);
                    return Some(job);
                }
            }
        }
        None
    }

    fn serve(&mut self, at: usize, pipe: usize, now: Instant) -> Option<Job<W::Message>> {
        let Self { id, me, pipelines, out, chain, spare_queues, .. } = self;
        let (pipeline, ends) = &mut pipelines[at];
        let taken = pipeline.pipes[pipe].dequeue(*me, &mut ends.reading[pipe])?;
        let overheads = pipeline.work().overheads();
        let mut cost = if taken.locked { overheads.get_locked } else { overheads.get };
        let direction = if pipe % 2 == 1 { Direction::Up } else { Direction::Down };
        let mut outcome = Outcome::new();
        let (mut place, mut direction, mut message) = (pipe / 2, direction, taken.message);
        loop {
            cost += pipeline.work().run(place, direction, message, now, out);
            // Most often one message results from one, and the next module runs here.
            if out.len() == 1
                && let Some((way, one)) = out.pop()
            {
                let (to, here) = pipeline.next_hop(place, way, *id);
                cost += hop_cost(overheads, to, here);
                if let Some(next) = to.filter(|_| here) {
                    (place, direction, message) = (next, way, one);
                    continue;
                }
                outcome.push_back(QueuedMessage { to, direction: way, message: one });
            } else {
                outcome.enlarge(spare_queues);
                let from = chain.len();
                for (way, one) in out.drain(..) {
                    let (to, here) = pipeline.next_hop(place, way, *id);
                    cost += hop_cost(overheads, to, here);
                    chain.push((here, QueuedMessage { to, direction: way, message: one }));
                }
                chain[from..].reverse();
            }
            // A leaving message enters the outcome at its turn, not when its destination is found.
            let next = loop {
                let Some((here, queued)) = chain.pop() else { break None };
                match queued.to.filter(|_| here) {
                    Some(place) => break Some((place, queued.direction, queued.message)),
                    None => outcome.push_back(queued),
                }
            };
            match next {
                Some(next) => (place, direction, message) = next,
                None => break,
            }
        }
        let (ticket, alone) = (taken.ticket, !taken.locked);
        Some(Job { pipeline: at, pipe, ticket, sole_user: alone, outcome, cost })
    }

    /// Passes on the result of a job.
    pub fn forward_result(&mut self, job: Job<W::Message>, now: Instant) {
        let Job { pipeline: at, pipe, ticket, sole_user: alone, outcome, .. } = job;
        let Self {
            me, pipelines, spare_queues, pipelines_pending, unflushed: held, handed, ..
        } = self;
        let (pipeline, PipeEnds { writing, pending_results, .. }) = &mut pipelines[at];
        if !held.contains(&at) {
            held.push(at);
        }
        let left = pipeline.pipes[pipe].complete(ticket, outcome, alone, |outcome| {
            pass((pipeline, writing), *me, pipe, outcome, now, spare_queues, handed)
        });
        if left && !pending_results.contains(&pipe) {
            *pipelines_pending += usize::from(pending_results.is_empty());
            pending_results.push(pipe);
        }
    }

    /// Follows re-assignments, and retries messages that could not be passed on.
    fn follow_assignment(&mut self, now: Instant) {
        let Self { id, me, pipelines, spare_queues, unsent, pipelines_pending, handed, .. } = self;
        *pipelines_pending = 0;
        for (pipeline, ends) in pipelines {
            let PipeEnds { writing, pending_results, .. } = ends;
            pending_results.retain(|&pipe| {
                pipeline.pipes[pipe].flush(|outcome| {
                    pass((pipeline, writing), *me, pipe, outcome, now, spare_queues, handed)
                })
            });
            let owes = !pending_results.is_empty() || !unsent.is_empty();
            *pipelines_pending += usize::from(!pending_results.is_empty());
            ends.follow(pipeline, *id);
            ends.release_unused(pipeline, *me, owes);
        }
        for _ in 0..self.unsent.len() {
            let Some((at, queued)) = self.unsent.pop_front() else { break };
            self.send_unsent(at, queued, now);
        }
    }

    /// Runs the timeouts that are due at the modules for which this element is the first assigned.
    pub fn handle_timeout(&mut self, now: Instant) {
        for at in 0..self.pipelines.len() {
            let pipeline = Arc::clone(&self.pipelines[at].0);
            for place in 0..pipeline.module_count() {
                let first = pipeline.assigned(place, Direction::Down).iter().next();
                if first != Some(self.id) {
                    continue;
                }
                pipeline.work().handle_timeout(place, now, &mut self.out);
                for (direction, message) in std::mem::take(&mut self.out) {
                    let to = pipeline.next(place, direction);
                    self.send_unsent(at, QueuedMessage { to, direction, message }, now);
                }
            }
        }
    }

    fn send_unsent(&mut self, at: usize, queued: QueuedMessage<W::Message>, now: Instant) {
        let (pipeline, ends) = &mut self.pipelines[at];
        let Some(place) = queued.to else {
            if !self.unflushed.contains(&at) {
                self.unflushed.push(at);
            }
            return pipeline.work().emit(queued.direction, queued.message, now);
        };
        let pipe = pipeline.pipe(place, queued.direction);
        let put = pipeline.pipes[pipe].enqueue(self.me, &mut ends.writing[pipe], queued.message);
        if let Err((message, _)) = put {
            self.unsent.push_back((at, QueuedMessage { message, ..queued }));
        }
        self.handed = self.handed.or(pipeline.assigned(place, queued.direction));
    }

    /// The other elements that serve pipes into which messages were passed on since the last call.
    pub fn take_handed(&mut self) -> ElementSet {
        std::mem::take(&mut self.handed).without(ElementSet::only(self.id))
    }

    /// Sends messages that were held back to be batched; `idle` as in [`ModuleChain::flush`].
    pub fn flush(&mut self, now: Instant, idle: bool) {
        let Self { unflushed: held, pipelines, .. } = self;
        held.retain(|&at| pipelines[at].0.work().flush(now, idle));
    }

    /// Whether nothing waits here to be passed on.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.unsent.is_empty() && self.pipelines_pending == 0
    }
}

/// The cost in virtual time of handing a message on.
const fn hop_cost(overheads: Overheads, to: Option<usize>, here: bool) -> Duration {
    match (here, to) {
        (true, _) => overheads.same,
        (false, Some(_)) => overheads.other,
        (false, None) => Duration::ZERO,
    }
}

/// Passes on as much of an outcome as possible; returns the rest. `handed` grows by those that get messages.
fn pass<W: ModuleChain>(
    (pipeline, writing): (&Pipeline<W>, &mut [WriterEnd<W::Message>]),
    me: PipeUser,
    from: usize,
    mut outcome: Outcome<W::Message>,
    now: Instant,
    spare_queues: &mut Vec<VecDeque<QueuedMessage<W::Message>>>,
    handed: &mut ElementSet,
) -> Option<Outcome<W::Message>> {
    while let Some(queued) = outcome.pop_front() {
        if !pipeline.is_free(from, &queued) {
            outcome.push_front(queued);
            return Some(outcome);
        }
        let Some(place) = queued.to else {
            pipeline.work().emit(queued.direction, queued.message, now);
            continue;
        };
        let pipe = pipeline.pipe(place, queued.direction);
        if let Err((message, _)) =
            pipeline.pipes[pipe].enqueue(me, &mut writing[pipe], queued.message)
        {
            outcome.push_front(QueuedMessage { message, ..queued });
            return Some(outcome);
        }
        *handed = handed.or(pipeline.assigned(place, queued.direction));
    }
    let rest = outcome.into_rest();
    if rest.capacity() > 0 && spare_queues.len() < 64 {
        spare_queues.push(rest);
    }
    None
}
