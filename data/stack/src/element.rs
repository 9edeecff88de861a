//! Processing elements: each serves the pipes of the modules assigned to it, round-robin.
//!
//! A message that an element takes from a pipe goes on to the next module at once if that is
//! assigned to the same element (*shepherding*); else into that module's pipe. A [`Plant`] is one
//! connection's pipes and who serves which module; who does may change at any time
//! ([`Plant::assign`]), and each element follows by itself at its next turn. Messages of one
//! direction leave in the order in which they entered, however many elements worked on them.
//!
//! [`Element::begin`] takes and processes, [`Element::end`] passes on what came of it: on real
//! processors one after the other, in virtual time as much later as it cost.

mod plant;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_units::{Instant, Span};

use self::plant::{Outcome, Parcel};
pub use self::plant::{Outside, Plant};
use crate::elements::ElementId;
use crate::model::Overheads;
use crate::module::Direction;
use crate::pipe::{NotPut, Reading, User, Writing};

/// What the modules of a connection do.
pub trait Work: Send + Sync + core::fmt::Debug {
    /// What they do it to.
    type Message: Send + core::fmt::Debug;

    /// How many modules there are.
    fn places(&self) -> usize;

    /// Lets the module at `place` handle a message; what comes of it goes to `out`. Returns what
    /// that costs in virtual time; real work costs nothing but real time.
    fn run(
        &self,
        place: usize,
        direction: Direction,
        message: Self::Message,
        now: Instant,
        out: &mut Vec<(Direction, Self::Message)>,
    ) -> Span;

    /// Does what is due at the module by now.
    fn tick(&self, place: usize, now: Instant, out: &mut Vec<(Direction, Self::Message)>) {
        let _ = (place, now, out);
    }

    /// Takes a message past the first or the last module. Those of one direction come in order.
    fn leave(&self, direction: Direction, message: Self::Message, now: Instant);

    /// What pipes and hand-overs cost in virtual time.
    fn overheads(&self) -> Overheads {
        Overheads::default()
    }
}

/// While there is work, an element follows re-assignments at every so many messages.
const KEEP_UP: u8 = 8;

/// How many elements can serve plants.
pub const ELEMENTS_MAX: usize = 62;

/// What a user holds of a plant's pipes.
#[derive(Debug, Default)]
struct Hands {
    writing: Vec<Writing>,
    reading: Vec<Reading>,
    /// Pipes of which an outcome is to be passed on.
    owed: Vec<usize>,
}

impl Hands {
    fn new(pipes: usize) -> Self {
        Self {
            writing: (0..pipes).map(|_| Writing::default()).collect(),
            reading: (0..pipes).map(|_| Reading::default()).collect(),
            owed: Vec::new(),
        }
    }
}

/// The outside's end of a plant, for one thread.
#[derive(Debug)]
pub struct Port<W: Work> {
    plant: Arc<Plant<W>>,
    outside: Outside,
    hand: Writing,
}

impl<W: Work> Port<W> {
    /// A port. Each of the two outsides has one.
    #[must_use]
    pub fn new(plant: Arc<Plant<W>>, outside: Outside) -> Self {
        Self { plant, outside, hand: Writing::default() }
    }

    /// Puts a message in.
    ///
    /// # Errors
    /// Gives it back, with the reason.
    pub fn put(&mut self, message: W::Message) -> Result<(), (W::Message, NotPut)> {
        let (place, direction) = match self.outside {
            Outside::Application => (0, Direction::Down),
            Outside::Network => (self.plant.places() - 1, Direction::Up),
        };
        let pipe = &self.plant.pipes[self.plant.pipe(place, direction)];
        pipe.put(User::new(self.outside as u8), &mut self.hand, message).map(|_| ())
    }

    /// The plant.
    #[must_use]
    pub const fn plant(&self) -> &Arc<Plant<W>> {
        &self.plant
    }
}

impl<W: Work> Drop for Port<W> {
    fn drop(&mut self) {
        let (place, direction) = match self.outside {
            Outside::Application => (0, Direction::Down),
            Outside::Network => (self.plant.places() - 1, Direction::Up),
        };
        let pipe = &self.plant.pipes[self.plant.pipe(place, direction)];
        pipe.stop_writing(User::new(self.outside as u8), &mut self.hand);
    }
}

/// A message that was processed and not yet passed on.
#[derive(Debug)]
pub struct Job<M> {
    plant: usize,
    pipe: usize,
    ticket: u64,
    alone: bool,
    outcome: Outcome<M>,
    /// What it cost in virtual time.
    pub cost: Span,
}

/// A processing element.
#[derive(Debug)]
pub struct Element<W: Work> {
    id: ElementId,
    me: User,
    plants: Vec<(Arc<Plant<W>>, Hands)>,
    /// The plant and the pipe that is looked at first next time.
    cursor: (usize, usize),
    out: Vec<(Direction, W::Message)>,
    /// What is to be handled next, last first: here, or at another element.
    chain: Vec<(bool, Parcel<W::Message>)>,
    /// Calls of [`Element::begin`].
    turns: u8,
    /// Emptied outcomes, to be used again.
    spare: Vec<Outcome<W::Message>>,
    /// What ticks sent and what could not be passed on yet, by plant.
    loose: VecDeque<(usize, Parcel<W::Message>)>,
}

impl<W: Work> Element<W> {
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
            me: User::new(id.0),
            plants: Vec::new(),
            cursor: (0, 0),
            turns: 0,
            out: Vec::new(),
            chain: Vec::new(),
            spare: Vec::new(),
            loose: VecDeque::new(),
        }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> ElementId {
        self.id
    }

    /// Serves what is assigned to it of this plant from now on.
    pub fn add(&mut self, plant: Arc<Plant<W>>) {
        let pipes = plant.pipes.len();
        self.plants.push((plant, Hands::new(pipes)));
    }

    /// Serves this plant no longer; whatever it held of it is for others.
    pub fn remove(&mut self, plant: &Arc<Plant<W>>) {
        let Some(at) = self.plants.iter().position(|(one, _)| Arc::ptr_eq(one, plant)) else {
            return;
        };
        let (plant, mut hands) = self.plants.remove(at);
        for (n, pipe) in plant.pipes.iter().enumerate() {
            pipe.stop_reading(self.me, &mut hands.reading[n]);
            pipe.stop_writing(self.me, &mut hands.writing[n]);
        }
        self.cursor = (0, 0);
        self.loose.retain_mut(|(of, _)| {
            let keep = *of != at;
            *of -= usize::from(*of > at);
            keep
        });
    }

    /// Takes the next message, processes it as far as modules are assigned here, and returns what
    /// is to be passed on; `None` if nothing waits. Constant time beside the modules' work, but
    /// for a look at each pipe now and then.
    pub fn begin(&mut self, now: Instant) -> Option<Job<W::Message>> {
        // To look at every pipe each time would cost as much as a hand-over.
        self.turns = self.turns.wrapping_add(1);
        let kept_up = self.turns.is_multiple_of(KEEP_UP) || !self.is_settled();
        if kept_up {
            self.keep_up(now);
        }
        let next = self.next(now);
        if next.is_some() || kept_up {
            return next;
        }
        self.keep_up(now);
        self.next(now)
    }

    /// The next message in turn.
    fn next(&mut self, now: Instant) -> Option<Job<W::Message>> {
        let (first, from) = self.cursor;
        let count = self.plants.len();
        for step in 0..=count {
            let at = (first + step) % count.max(1);
            let pipes = self.plants.get(at)?.0.pipes.len();
            // The plant where it began is looked at in two parts.
            let range = match step {
                0 => from..pipes,
                n if n == count => 0..from.min(pipes),
                _ => 0..pipes,
            };
            for pipe in range {
                if let Some(job) = self.serve(at, pipe, now) {
                    self.cursor = (at, pipe + 1);
                    return Some(job);
                }
            }
        }
        None
    }

    fn serve(&mut self, at: usize, pipe: usize, now: Instant) -> Option<Job<W::Message>> {
        let Self { id, me, plants, out, chain, spare, .. } = self;
        let (plant, hands) = &mut plants[at];
        if !plant.serves(pipe, *id) {
            return None;
        }
        let taken = plant.pipes[pipe].take(*me, &mut hands.reading[pipe])?;
        let overheads = plant.work.overheads();
        let mut cost = if taken.locked { overheads.get_locked } else { overheads.get };
        let direction = if pipe % 2 == 1 { Direction::Up } else { Direction::Down };
        let mut outcome = spare.pop().unwrap_or_default();
        let start = Parcel { to: Some(pipe / 2), direction, message: taken.message };
        chain.push((true, start));
        // What leaves is put into the outcome at its turn in the chain, not when that is decided.
        while let Some((here, parcel)) = chain.pop() {
            let Parcel { to, direction, message } = parcel;
            let Some(place) = to.filter(|_| here) else {
                outcome.push_back(Parcel { to, direction, message });
                continue;
            };
            cost += plant.work.run(place, direction, message, now, out);
            let from = chain.len();
            for (direction, message) in out.drain(..) {
                let to = plant.next(place, direction);
                // Shepherding must not overtake what waits for that module already.
                let here = to.is_some_and(|next| {
                    let pipe = plant.pipe(next, direction);
                    plant.serves(pipe, *id) && plant.pipes[pipe].is_clear()
                });
                cost += match (here, to) {
                    (true, _) => overheads.same,
                    (false, Some(_)) => overheads.other,
                    (false, None) => Span::ZERO,
                };
                chain.push((here, Parcel { to, direction, message }));
            }
            chain[from..].reverse();
        }
        let (ticket, alone) = (taken.ticket, !taken.locked);
        Some(Job { plant: at, pipe, ticket, alone, outcome, cost })
    }

    /// Passes on what came of a job.
    pub fn end(&mut self, job: Job<W::Message>, now: Instant) {
        let Job { plant: at, pipe, ticket, alone, outcome, .. } = job;
        let Self { me, plants, spare, .. } = self;
        let (plant, Hands { writing, owed, .. }) = &mut plants[at];
        let left = plant.pipes[pipe].complete(ticket, outcome, alone, |outcome| {
            pass(plant, *me, writing, pipe, outcome, now, spare)
        });
        if left && !owed.contains(&pipe) {
            owed.push(pipe);
        }
    }

    /// Follows re-assignments, tries again what could not pass.
    fn keep_up(&mut self, now: Instant) {
        let Self { id, me, plants, spare, loose, .. } = self;
        for (plant, Hands { writing, reading, owed }) in plants {
            owed.retain(|&pipe| {
                plant.pipes[pipe]
                    .flush(|outcome| pass(plant, *me, writing, pipe, outcome, now, spare))
            });
            let owes = !owed.is_empty() || !loose.is_empty();
            let hands = writing.iter_mut().zip(reading);
            for ((n, pipe), (writing, reading)) in plant.pipes.iter().enumerate().zip(hands) {
                if plant.serves(n, *id) {
                    pipe.settle_reading(*me, reading);
                } else {
                    pipe.stop_reading(*me, reading);
                }
                if owes || plant.writes(n, *id) {
                    pipe.settle_writing(*me, writing);
                } else {
                    pipe.stop_writing(*me, writing);
                }
            }
        }
        for _ in 0..self.loose.len() {
            let Some((at, parcel)) = self.loose.pop_front() else { break };
            self.send_loose(at, parcel, now);
        }
    }

    /// Does what is due at the modules that this element is the first to serve.
    pub fn tick(&mut self, now: Instant) {
        for at in 0..self.plants.len() {
            let plant = Arc::clone(&self.plants[at].0);
            for place in 0..plant.places() {
                let first = plant.assigned(place, Direction::Down).iter().next();
                if first != Some(self.id) {
                    continue;
                }
                plant.work.tick(place, now, &mut self.out);
                for (direction, message) in std::mem::take(&mut self.out) {
                    let to = plant.next(place, direction);
                    self.send_loose(at, Parcel { to, direction, message }, now);
                }
            }
        }
    }

    fn send_loose(&mut self, at: usize, parcel: Parcel<W::Message>, now: Instant) {
        let (plant, hands) = &mut self.plants[at];
        let Some(place) = parcel.to else {
            return plant.work.leave(parcel.direction, parcel.message, now);
        };
        let pipe = plant.pipe(place, parcel.direction);
        let put = plant.pipes[pipe].put(self.me, &mut hands.writing[pipe], parcel.message);
        if let Err((message, _)) = put {
            self.loose.push_back((at, Parcel { message, ..parcel }));
        }
    }

    /// Whether it has nothing that it must still pass on.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.loose.is_empty() && self.plants.iter().all(|(_, hands)| hands.owed.is_empty())
    }
}

/// Passes an outcome on as far as it goes; gives back the rest.
fn pass<W: Work>(
    plant: &Plant<W>,
    me: User,
    writing: &mut [Writing],
    from: usize,
    mut outcome: Outcome<W::Message>,
    now: Instant,
    spare: &mut Vec<Outcome<W::Message>>,
) -> Option<Outcome<W::Message>> {
    while let Some(parcel) = outcome.pop_front() {
        if !plant.is_free(from, &parcel) {
            outcome.push_front(parcel);
            return Some(outcome);
        }
        let Some(place) = parcel.to else {
            plant.work.leave(parcel.direction, parcel.message, now);
            continue;
        };
        let pipe = plant.pipe(place, parcel.direction);
        if let Err((message, _)) = plant.pipes[pipe].put(me, &mut writing[pipe], parcel.message) {
            outcome.push_front(Parcel { message, ..parcel });
            return Some(outcome);
        }
    }
    if spare.len() < 64 {
        spare.push(outcome);
    }
    None
}
