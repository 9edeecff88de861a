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

mod hands;
mod plant;
mod port;
#[cfg(test)]
mod tests;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_units::{Duration, Instant};

use self::hands::Hands;
use self::plant::{Outcome, Parcel};
pub use self::plant::{Outside, Plant};
pub use self::port::Port;
pub use self::work::Work;
use selvedge_data_stack::elements::ElementId;
use selvedge_data_stack::model::Overheads;
use selvedge_data_stack::module::Direction;

use crate::pipe::{User, Writing};

/// While there is work, an element follows re-assignments at every so many messages.
const KEEP_UP: u8 = 8;

/// How many elements can serve plants.
pub const ELEMENTS_MAX: usize = 62;

/// A message that was processed and not yet passed on.
#[derive(Debug)]
pub struct Job<M> {
    plant: usize,
    pipe: usize,
    ticket: u64,
    alone: bool,
    outcome: Outcome<M>,
    /// What it cost in virtual time.
    pub cost: Duration,
}

/// A plant, and what the element holds of it.
type Served<W> = (Arc<Plant<W>>, Hands<<W as Work>::Message>);

/// A processing element.
#[derive(Debug)]
pub struct Element<W: Work> {
    id: ElementId,
    me: User,
    plants: Vec<Served<W>>,
    /// The plant and the pipe that is looked at first next time.
    cursor: (usize, usize),
    out: Vec<(Direction, W::Message)>,
    /// What is to be handled next, last first: here, or at another element.
    chain: Vec<(bool, Parcel<W::Message>)>,
    /// Plants whose work may hold back what left.
    held: Vec<usize>,
    /// Calls of [`Element::begin`].
    turns: u8,
    /// Emptied outcomes' memory, to be used again.
    spare: Vec<VecDeque<Parcel<W::Message>>>,
    /// Plants of which outcomes are to be passed on.
    owing: usize,
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
            owing: 0,
            held: Vec::new(),
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
        self.owing -= usize::from(!hands.owed.is_empty());
        for (n, pipe) in plant.pipes.iter().enumerate() {
            pipe.stop_reading(self.me, &mut hands.reading[n]);
            pipe.stop_writing(self.me, &mut hands.writing[n]);
        }
        self.cursor = (0, 0);
        self.held.retain_mut(|of| {
            let keep = *of != at;
            *of -= usize::from(*of > at);
            keep
        });
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
            let (plant, hands) = self.plants.get_mut(at)?;
            hands.follow(plant, self.id);
            // The plant where it began is looked at in two parts.
            let (mut turn, end) = match step {
                0 => (from, hands.mine.len()),
                n if n == count => (0, from.min(hands.mine.len())),
                _ => (0, hands.mine.len()),
            };
            while turn < end {
                let (plant, hands) = &self.plants[at];
                let pipe = hands.mine[turn];
                turn += 1;
                if !plant.pipes[pipe].looks_empty(&hands.reading[pipe])
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
        let Self { id, me, plants, out, chain, spare, .. } = self;
        let (plant, hands) = &mut plants[at];
        let taken = plant.pipes[pipe].take(*me, &mut hands.reading[pipe])?;
        let overheads = plant.work().overheads();
        let mut cost = if taken.locked { overheads.get_locked } else { overheads.get };
        let direction = if pipe % 2 == 1 { Direction::Up } else { Direction::Down };
        let mut outcome = Outcome::new();
        let (mut place, mut direction, mut message) = (pipe / 2, direction, taken.message);
        loop {
            cost += plant.work().run(place, direction, message, now, out);
            // Mostly one comes of one, and goes on here.
            if out.len() == 1
                && let Some((way, one)) = out.pop()
            {
                let (to, here) = plant.onward(place, way, *id);
                cost += hop(overheads, to, here);
                if let Some(next) = to.filter(|_| here) {
                    (place, direction, message) = (next, way, one);
                    continue;
                }
                outcome.push_back(Parcel { to, direction: way, message: one });
            } else {
                outcome.enlarge(spare);
                let from = chain.len();
                for (way, one) in out.drain(..) {
                    let (to, here) = plant.onward(place, way, *id);
                    cost += hop(overheads, to, here);
                    chain.push((here, Parcel { to, direction: way, message: one }));
                }
                chain[from..].reverse();
            }
            // What leaves is put into the outcome at its turn, not when that is decided.
            let next = loop {
                let Some((here, parcel)) = chain.pop() else { break None };
                match parcel.to.filter(|_| here) {
                    Some(place) => break Some((place, parcel.direction, parcel.message)),
                    None => outcome.push_back(parcel),
                }
            };
            match next {
                Some(next) => (place, direction, message) = next,
                None => break,
            }
        }
        let (ticket, alone) = (taken.ticket, !taken.locked);
        Some(Job { plant: at, pipe, ticket, alone, outcome, cost })
    }

    /// Passes on what came of a job.
    pub fn end(&mut self, job: Job<W::Message>, now: Instant) {
        let Job { plant: at, pipe, ticket, alone, outcome, .. } = job;
        let Self { me, plants, spare, owing, held, .. } = self;
        let (plant, Hands { writing, owed, .. }) = &mut plants[at];
        if !held.contains(&at) {
            held.push(at);
        }
        let left = plant.pipes[pipe].complete(ticket, outcome, alone, |outcome| {
            pass(plant, *me, writing, pipe, outcome, now, spare)
        });
        if left && !owed.contains(&pipe) {
            *owing += usize::from(owed.is_empty());
            owed.push(pipe);
        }
    }

    /// Follows re-assignments, tries again what could not pass.
    fn keep_up(&mut self, now: Instant) {
        let Self { id, me, plants, spare, loose, owing, .. } = self;
        *owing = 0;
        for (plant, hands) in plants {
            let Hands { writing, owed, .. } = hands;
            owed.retain(|&pipe| {
                plant.pipes[pipe]
                    .flush(|outcome| pass(plant, *me, writing, pipe, outcome, now, spare))
            });
            let owes = !owed.is_empty() || !loose.is_empty();
            *owing += usize::from(!owed.is_empty());
            hands.follow(plant, *id);
            hands.settle(plant, *me, owes);
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
                plant.work().tick(place, now, &mut self.out);
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
            if !self.held.contains(&at) {
                self.held.push(at);
            }
            return plant.work().leave(parcel.direction, parcel.message, now);
        };
        let pipe = plant.pipe(place, parcel.direction);
        let put = plant.pipes[pipe].put(self.me, &mut hands.writing[pipe], parcel.message);
        if let Err((message, _)) = put {
            self.loose.push_back((at, Parcel { message, ..parcel }));
        }
    }

    /// Lets go what left and was held back for more to go with it; `idle` as in [`Work::flush`].
    pub fn flush(&mut self, now: Instant, idle: bool) {
        let Self { held, plants, .. } = self;
        held.retain(|&at| plants[at].0.work().flush(now, idle));
    }

    /// Whether it has nothing that it must still pass on.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.loose.is_empty() && self.owing == 0
    }
}

/// What it costs in virtual time to hand a message on.
const fn hop(overheads: Overheads, to: Option<usize>, here: bool) -> Duration {
    match (here, to) {
        (true, _) => overheads.same,
        (false, Some(_)) => overheads.other,
        (false, None) => Duration::ZERO,
    }
}

/// Passes an outcome on as far as it goes; gives back the rest.
fn pass<W: Work>(
    plant: &Plant<W>,
    me: User,
    writing: &mut [Writing<W::Message>],
    from: usize,
    mut outcome: Outcome<W::Message>,
    now: Instant,
    spare: &mut Vec<VecDeque<Parcel<W::Message>>>,
) -> Option<Outcome<W::Message>> {
    while let Some(parcel) = outcome.pop_front() {
        if !plant.is_free(from, &parcel) {
            outcome.push_front(parcel);
            return Some(outcome);
        }
        let Some(place) = parcel.to else {
            plant.work().leave(parcel.direction, parcel.message, now);
            continue;
        };
        let pipe = plant.pipe(place, parcel.direction);
        if let Err((message, _)) = plant.pipes[pipe].put(me, &mut writing[pipe], parcel.message) {
            outcome.push_front(Parcel { message, ..parcel });
            return Some(outcome);
        }
    }
    let rest = outcome.into_rest();
    if rest.capacity() > 0 && spare.len() < 64 {
        spare.push(rest);
    }
    None
}
