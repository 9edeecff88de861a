//! Nanoseconds a decision: without misses, at twofold overload, and by a binary heap.

use alloc::vec::Vec;
use core::hint::black_box;

use selvedge_units::Instant;

use super::heap::Heap;
use super::{Load, batch, frame, median, timed};
use crate::{Decision, Scheduler, Step, StreamIndex};

/// What a decision costs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Ours.
    pub ns: f64,
    /// A binary heap's, the same decisions; `None` for a discipline that it is not written for.
    pub heap_ns: Option<f64>,
    /// For each priority update at twofold overload: a frame sent, or one that missed.
    pub overload_ns: f64,
    /// How many frames miss for each one sent at twofold overload.
    pub overload_misses: f64,
}

/// Measures decisions: medians of `samples` (at least 1) samples of about 0.3 ms each.
///
/// A decision is `decide` and `serve_and_push` of the next frame: expiry, rule a,
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
/// has expired gets the full rule for a miss, drops its frame and brings up the next, which is one
/// `step` each. Frames have arrived longer ago than they wait.
///
/// Takes `samples` times 1 ms, and to begin with some microseconds for each stream.
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
    overload.run(2 * u64::from(load.streams) + 1000);
    let sends = batch(|n| overload.run(n));
    let (sent, missed) = (overload.sent, overload.missed);
    let figures = (0..samples).map(|_| {
        let before = overload.sent + overload.missed;
        let took = timed(|| overload.run(sends)).as_nanos() as f64;
        took / (overload.sent + overload.missed - before) as f64
    });
    let overload_ns = median(figures.collect());
    let overload_misses = (overload.missed - missed) as f64 / (overload.sent - sent) as f64;
    Figures { ns, heap_ns, overload_ns, overload_misses }
}

/// So many decisions on such streams, for counting their instructions: each is one call of
/// `decision`, in this file. Returns a number that depends on all of them.
#[must_use]
pub fn run(load: Load, decisions: u64) -> u64 {
    let mut plain = Plain::new(load);
    (0..decisions).fold(0, |sum, _| sum.wrapping_mul(31) + u64::from(plain.next().0))
}

/// The same at twofold overload: how many frames were sent, and how many missed. Each frame sent,
/// with those that miss before it, is one call of `transmission`, in this file.
#[must_use]
pub fn run_overloaded(load: Load, sends: u64) -> (u64, u64) {
    let mut overload = Overload::new(Plain::new(load), load);
    overload.run(sends);
    (overload.sent, overload.missed)
}

fn sampled(samples: usize, plain: &mut Plain) -> f64 {
    let count = batch(|n| plain.run(n));
    median((0..samples).map(|_| nanos(count, || plain.run(count))).collect())
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
            new.sched.push_head(s, frame(new.arrival));
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
    black_box(sched.serve_and_push(s, frame(arrival)));
    s
}

/// A nanosecond has two to the power of this many parts.
const PARTS: u32 = 16;

/// Streams that want twice what they get.
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

    /// As long as a frame takes: then it is so late.
    fn pass(&mut self) -> Instant {
        self.time += self.slot;
        Instant(self.time >> PARTS)
    }

    fn run(&mut self, sends: u64) {
        for _ in 0..sends {
            let now = self.pass();
            let arrival = Instant(now.0.saturating_sub(self.ago));
            self.missed += transmission(&mut self.sched, now, arrival);
        }
        self.sent += sends;
    }
}

/// A frame sent, after all that have missed their deadlines: how many those were.
#[inline(never)]
fn transmission(sched: &mut Scheduler, now: Instant, arrival: Instant) -> u64 {
    let mut missed = 0;
    loop {
        let step = sched.step(now, |_| Some(frame(arrival)));
        // Told to the last field, and not copied: that would be to wait for it.
        match black_box(&step) {
            Step::Expired(_) => missed += 1,
            Step::Sent(..) => return missed,
            Step::Idle => panic!("a stream has no head"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Discipline;

    #[test]
    fn measures_every_discipline() {
        for discipline in Discipline::ALL {
            let figures = decide(Load { discipline, streams: 3, ties: false }, 1);
            let all = [figures.ns, figures.overload_ns, figures.heap_ns.unwrap_or(1.0)];
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
    fn serving_and_pushing_at_once_is_the_same_as_one_by_one() {
        for discipline in Discipline::ALL {
            let load = Load { discipline, streams: 20, ties: true };
            let mut at_once = Overload::new(Plain::new(load), load);
            let mut one_by_one = at_once.sched.clone();
            for n in 0..5000 {
                let now = at_once.pass();
                let arrival = Instant(now.0.saturating_sub(at_once.ago));
                let mut missed = 0;
                while let Some(expired) = one_by_one.poll_expired(now) {
                    one_by_one.push_head(expired.stream, frame(arrival));
                    missed += 1;
                }
                let s = one_by_one.choose(now).unwrap();
                one_by_one.serve(s);
                one_by_one.push_head(s, frame(arrival));
                let other = transmission(&mut at_once.sched, now, arrival);
                assert_eq!(other, missed, "{discipline}, {n}");
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
