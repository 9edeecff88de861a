//! Who is due next. Each actor has one time at which it is due, so what is pending is as much as there are
//! actors, and no more.
//!
//! A tournament over the actors: changing a time plays its matches again, log2 N of them. Times that are
//! equal go by the order in which they were set, so the order is total.

use selvedge_units::Instant;

/// The key of an actor that is not due: greater than any time.
const NEVER: u128 = u128::MAX;
/// Bits of an actor's number; there are fewer than 2^15.
const ACTOR_BITS: u32 = 16;

/// The times of all actors.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// The actors' keys are the last half: 64 bits of time, then the number of the change that set it, then
    /// the actor. Those before are the matches: `n` has the least key of `2 n` and `2 n + 1`, 1 is the final.
    keys: Vec<u128>,
    number: u64,
}

impl Agenda {
    /// An agenda of so many actors, none of them due.
    pub(crate) fn new(actors: usize) -> Self {
        assert!(actors <= 1 << ACTOR_BITS, "a network has fewer hops and endpoints");
        Self { keys: vec![NEVER; 2 * actors.next_power_of_two()], number: 0 }
    }

    /// The actor that is due next, and when.
    #[inline]
    pub(crate) fn next(&self) -> Option<(Instant, usize)> {
        let key = self.keys[1];
        let actor = key as usize & ((1 << ACTOR_BITS) - 1);
        (key < NEVER).then_some((Instant((key >> 64) as u64), actor))
    }

    /// Sets when an actor is due; at `now`, it is due after all others of that time.
    #[inline]
    pub(crate) fn set(&mut self, now: Instant, actor: usize, at: Option<Instant>) {
        let mut node = self.keys.len() / 2 + actor;
        let before = self.keys[node];
        let mut key = match at.filter(|at| *at < Instant::MAX) {
            None => NEVER,
            Some(at) if at > now && before >> 64 == u128::from(at.0) => before,
            Some(at) => {
                self.number += 1;
                let order = self.number << ACTOR_BITS | actor as u64;
                u128::from(at.max(now).0) << 64 | u128::from(order)
            }
        };
        // What stays the same changes nothing further up.
        while self.keys[node] != key {
            self.keys[node] = key;
            if node == 1 {
                return;
            }
            key = key.min(self.keys[node ^ 1]);
            node /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use selvedge_data_net_line::Random;

    use super::*;

    #[test]
    fn it_gives_what_a_sorted_set_gives() {
        let mut random = Random::named(1, "agenda");
        for actors in [1, 2, 3, 7, 64, 100] {
            let mut agenda = Agenda::new(actors);
            let (mut sorted, mut of, mut now) =
                (BTreeSet::new(), vec![None; actors], Instant::ZERO);
            for number in 1..5_000_u64 {
                let due = agenda.next();
                let wanted: Option<&(Instant, u64, usize)> = sorted.first();
                assert_eq!(due, wanted.map(|(at, _, actor)| (*at, *actor)));
                // What is due, or another, is set to a time that is often another's too, or to none.
                let other = random.below(actors as u64) as usize;
                let actor = due.filter(|_| number % 3 > 0).map_or(other, |(at, actor)| {
                    now = at;
                    actor
                });
                let at = (random.below(9) > 0).then(|| Instant(now.0 + random.below(50)));
                let same =
                    at.is_some_and(|at| of[actor].is_some_and(|(old, _)| old == at) && at > now);
                if !same {
                    of[actor].take().map(|(at, number)| sorted.remove(&(at, number, actor)));
                    of[actor] = at.map(|at| (at, number));
                    sorted.extend(at.map(|at| (at, number, actor)));
                }
                agenda.set(now, actor, at);
            }
        }
    }

    #[test]
    fn actors_that_are_due_at_once_take_turns() {
        let mut agenda = Agenda::new(3);
        (0..3).for_each(|actor| agenda.set(Instant(5), actor, Some(Instant(5))));
        let mut turns = Vec::new();
        for _ in 0..6 {
            let (at, actor) = agenda.next().expect("all are due");
            turns.push(actor);
            agenda.set(at, actor, Some(at));
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        agenda.set(Instant(5), 1, None);
        agenda.set(Instant(5), 2, Some(Instant::MAX));
        agenda.set(Instant(5), 0, Some(Instant(9)));
        assert_eq!(agenda.next(), Some((Instant(9), 0)));
    }
}
