//! Nanoseconds a decision: without misses, at twofold overload, and by a binary heap.

mod heap;

use std::hint::black_box;

use selvedge_data_sched::{Decision, Scheduler, StreamIndex};
use selvedge_units::Instant;

use self::heap::Heap;
use crate::load::{Load, batch, frame, median, timed};

/// What a decision costs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Ours.
    pub ns: f64,
    /// A binary heap's, the same decisions; `None` for a discipline that it is not written for.
    pub heap_ns: Option<f64>,
    /// For each priority update at twofold overload: a frame sent, or one that missed.
    pub overload_ns: f64,
    /// The same for a caller that goes different ways for the two.
    pub told_apart_ns: f64,
    /// How many frames miss for each one sent at twofold overload.
    pub overload_misses: f64,
}

/// Measures decisions: medians of `samples` (at least 1) samples of about 0.3 ms each.
///
/// A decision is `decide` and `dequeue_and_enqueue` of the next frame: expiry, rule a,
/// counters, key and selection. Time stands still for these, so nothing expires; every frame
/// arrives later than the one before.
///
/// The heap is `std`'s `BinaryHeap`, its greatest replaced through `PeekMut`: in the order of
/// `dwcs` or `edf` to the last tie, by keys of 128 bits that hold the stream and every compared
/// attribute, each stream's state in the same 64 bytes, the same rule a and the same counter. It
/// has no other disciplines, changes of contract, ready times, or way to take a stream out. The
/// samples of both are taken in turns, so that what disturbs one disturbs the other.
///
/// Overload: time goes on with each frame sent, by twice what the streams leave for one; whatever
/// has expired gets the full rule for a miss, drops its frame and brings up the next. Each is one
/// `pass`, or a `decide` and what follows it where there is more to it. Frames have arrived longer
/// ago than they wait. The caller takes the decision and goes on; whether it was a miss it only
/// counts. One that goes another way then is `told_apart`: where every other frame misses, a
/// processor predicts that branch wrongly half of the time, under any discipline.
///
/// Takes `samples` times 1.3 ms, and to begin with some microseconds for each stream.
#[must_use]
pub fn decide(load: Load, samples: usize) -> Figures {
    let samples = samples.max(1);
    let mut plain = Plain::new(load);
    // Once round, so that the memory of all of them has been used.
    plain.run(u64::from(load.streams));
    let (ns, heap_ns) = match Heap::new(load) {
        None => (sampled(samples, &mut plain), None),
        Some(mut heap) => {
            let ours = batch(|n| plain.run(n));
            let its = batch(|n| heap.run(n));
            let pairs = (0..samples).map(|_| {
                let ours = nanos(ours, || plain.run(ours));
                (ours, nanos(its, || heap.run(its)))
            });
            let (ours, its): (Vec<f64>, Vec<f64>) = pairs.unzip();
            (median(ours), Some(median(its)))
        }
    };
    let mut overload = Overload::new(plain, load);
    // Until nobody is served from what lay ahead when it began.
    overload.run(4 * u64::from(load.streams) + 2000);
    let mut apart = overload.clone();
    let updates = batch(|n| overload.run(n));
    let before = (overload.sent, overload.missed);
    let both = (0..samples).map(|_| {
        (nanos(updates, || overload.run(updates)), nanos(updates, || apart.run_branching(updates)))
    });
    let (as_one, told_apart): (Vec<f64>, Vec<f64>) = both.unzip();
    let (sent, missed) = (overload.sent - before.0, overload.missed - before.1);
    Figures {
        ns,
        heap_ns,
        overload_ns: median(as_one),
        told_apart_ns: median(told_apart),
        overload_misses: missed as f64 / sent as f64,
    }
}

/// So many decisions on such streams, for counting their instructions: each is one call of
/// `decision`, in this file. Returns a number that depends on all of them.
#[must_use]
pub fn run(load: Load, decisions: u64) -> u64 {
    let mut plain = Plain::new(load);
    (0..decisions).fold(0, |sum, _| sum.wrapping_mul(31) + u64::from(plain.next().0))
}

/// The same at twofold overload: how many frames were sent, and how many missed. Each of them is
/// one call of `update`, in this file.
#[must_use]
pub fn run_overloaded(load: Load, updates: u64) -> (u64, u64) {
    let mut overload = Overload::new(Plain::new(load), load);
    overload.run(updates);
    (overload.sent, overload.missed)
}

fn sampled(samples: usize, plain: &mut Plain) -> f64 {
    let count = batch(|n| plain.run(n));
    median((0..samples).map(|_| nanos(count, || plain.run(count))))
}

fn nanos(count: u64, work: impl FnOnce()) -> f64 {
    timed(work).as_nanos() as f64 / count as f64
}

/// Streams whose frames all go in time.
struct Plain {
    sched: Scheduler,
    arrival: Instant,
}

impl Plain {
    fn new(load: Load) -> Self {
        let mut new = Self { sched: load.scheduler(), arrival: Instant::ZERO };
        for s in load.indexes() {
            new.arrival.0 += 1;
            new.sched.enqueue_head(s, frame(new.arrival));
        }
        new
    }

    fn next(&mut self) -> StreamIndex {
        self.arrival.0 += 1;
        decision(&mut self.sched, self.arrival)
    }

    fn run(&mut self, decisions: u64) {
        for _ in 0..decisions {
            black_box(self.next());
        }
    }
}

#[inline(never)]
fn decision(sched: &mut Scheduler, arrival: Instant) -> StreamIndex {
    let now = black_box(Instant::ZERO);
    let Decision::Send(s) = sched.decide(now) else { panic!("a stream has no head, or expires") };
    black_box(sched.dequeue_and_enqueue(s, frame(arrival)));
    s
}

/// A nanosecond has two to the power of this many parts.
const PARTS: u32 = 16;

/// Streams that want twice what they get.
#[derive(Clone)]
struct Overload {
    sched: Scheduler,
    /// The time, and what a frame takes, in parts of a nanosecond.
    time: u64,
    slot: u64,
    /// How long ago the frames arrived that come up now.
    ago: u64,
    sent: u64,
    missed: u64,
}

impl Overload {
    fn new(plain: Plain, load: Load) -> Self {
        let sched = plain.sched;
        let time = sched.next_event(Instant::ZERO).map_or(0, |due| due.0 << PARTS);
        let slot = (load.slot(2.0) * (1_u64 << PARTS) as f64) as u64;
        let ago = 4000 * u64::from(load.streams.max(1));
        Self { sched, time, slot, ago, sent: 0, missed: 0 }
    }

    /// So many frames sent, or dropped because they missed their deadlines.
    fn run(&mut self, updates: u64) {
        let mut missed = 0;
        for _ in 0..updates {
            let (now, arrival) = self.moment();
            let lost = update(&mut self.sched, now, arrival);
            missed += lost;
            self.time += self.slot * (1 - lost);
        }
        self.missed += missed;
        self.sent += updates - missed;
    }

    fn run_branching(&mut self, updates: u64) {
        for _ in 0..updates {
            let (now, arrival) = self.moment();
            if update(&mut self.sched, now, arrival) == 1 {
                self.missed = black_box(self.missed) + 1;
            } else {
                self.sent = black_box(self.sent) + 1;
                self.time += self.slot;
            }
        }
    }

    /// The time, and when the frame arrived that comes up then.
    const fn moment(&self) -> (Instant, Instant) {
        let now = self.time >> PARTS;
        (Instant(now), Instant(now.saturating_sub(self.ago)))
    }
}

/// A frame that is sent (0), or dropped because it has missed its deadline (1), and the next one.
#[inline(never)]
fn update(sched: &mut Scheduler, now: Instant, arrival: Instant) -> u64 {
    match sched.dequeue_or_expire(now, |_| Some(frame(arrival))) {
        Some(passed) => {
            black_box((passed.stream, passed.deadline, passed.violation));
            u64::from(passed.dropped)
        }
        None => decided(sched, now, arrival),
    }
}

#[inline(never)]
fn decided(sched: &mut Scheduler, now: Instant, arrival: Instant) -> u64 {
    match black_box(sched.decide(now)) {
        Decision::Expired(expiry) => {
            sched.enqueue_head(expiry.stream, frame(arrival));
            1
        }
        Decision::Send(s) => {
            black_box(sched.dequeue_and_enqueue(s, frame(arrival)));
            0
        }
        Decision::Idle => panic!("a stream has no head"),
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_sched::Discipline;

    use super::*;

    #[test]
    fn measures_every_discipline() {
        for discipline in Discipline::ALL {
            let figures = decide(Load { discipline, streams: 3, ties: false }, 1);
            let heap = figures.heap_ns.unwrap_or(1.0);
            let all = [figures.ns, figures.overload_ns, figures.told_apart_ns, heap];
            assert!(all.iter().all(|ns| ns.is_finite() && *ns > 0.0), "{discipline}: {figures:?}");
        }
    }

    #[test]
    fn nothing_expires_without_overload() {
        for discipline in Discipline::ALL {
            let load = Load { discipline, streams: 32, ties: false };
            let mut plain = Plain::new(load);
            plain.run(10_000);
            let missed: u64 = load.indexes().map(|s| plain.sched.counters(s).missed).sum();
            let sent: u64 = load.indexes().map(|s| plain.sched.counters(s).sent).sum();
            assert_eq!((missed, sent), (0, 10_000), "{discipline}");
        }
    }

    #[test]
    fn twofold_overload_misses_every_other_frame() {
        for ties in [false, true] {
            let load = Load { discipline: Discipline::Edf, streams: 100, ties };
            let mut overload = Overload::new(Plain::new(load), load);
            overload.run(1000);
            let before = (overload.missed, overload.sent);
            overload.run(100_000);
            let (missed, sent) = (overload.missed - before.0, overload.sent - before.1);
            assert!(missed.abs_diff(sent) < sent / 50, "{missed} missed, {sent} sent");
        }
    }

    #[test]
    fn heads_of_plain_streams_are_passed_on() {
        for discipline in [Discipline::Dwcs, Discipline::Edf] {
            let load = Load { discipline, streams: 50, ties: true };
            let mut overload = Overload::new(Plain::new(load), load);
            for n in 0..10_000 {
                let (now, arrival) = overload.moment();
                let passed = overload.sched.dequeue_or_expire(now, |_| Some(frame(arrival)));
                let dropped = passed.unwrap_or_else(|| panic!("{discipline}, {n}")).dropped;
                overload.time += overload.slot * u64::from(!dropped);
            }
        }
    }

    #[test]
    fn serving_and_pushing_at_once_is_the_same_as_one_by_one() {
        for discipline in Discipline::ALL {
            let load = Load { discipline, streams: 20, ties: true };
            let mut at_once = Overload::new(Plain::new(load), load);
            let mut one_by_one = at_once.sched.clone();
            for n in 0..10_000 {
                let (now, arrival) = at_once.moment();
                let expired = one_by_one.poll_expired(now);
                let s = expired.map_or_else(|| one_by_one.choose(now).unwrap(), |e| e.stream);
                if expired.is_none() {
                    one_by_one.dequeue(s);
                }
                one_by_one.enqueue_head(s, frame(arrival));
                let missed = at_once.missed;
                at_once.run(1);
                assert_eq!(
                    at_once.missed - missed,
                    u64::from(expired.is_some()),
                    "{discipline}, {n}"
                );
                let deadlines = |sched: &Scheduler| -> Vec<_> {
                    load.indexes().map(|s| sched.head_deadline(s)).collect()
                };
                assert_eq!(deadlines(&at_once.sched), deadlines(&one_by_one), "{discipline}, {n}");
            }
        }
    }

    #[test]
    fn the_heap_decides_alike() {
        for discipline in [Discipline::Dwcs, Discipline::Edf] {
            for (streams, ties) in [(1, false), (4, true), (33, true), (1000, false), (1000, true)]
            {
                let load = Load { discipline, streams, ties };
                let mut plain = Plain::new(load);
                let mut heap = Heap::new(load).unwrap();
                for n in 0..20_000 {
                    assert_eq!(plain.next(), heap.next(), "{load:?}, decision {n}");
                }
            }
        }
    }
}
