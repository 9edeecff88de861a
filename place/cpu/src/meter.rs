//! Counting the time that a program gets without a dispatcher: by `SCHED_DEADLINE`, or without any promise.
//!
//! A `Processor` of its own, for one task, is the meter: it gets the task's used time and whether it wanted
//! to run, and counts periods as the dispatcher does. Nothing is enforced.

use selvedge_data_cpu::{Config, Counts, Processor, Task, TaskId};
use selvedge_units::{Duration, Instant};

use crate::members::Members;

/// Counts one task's periods.
#[derive(Debug)]
pub struct Meter {
    processor: Processor,
    id: TaskId,
    members: Members,
    last: Instant,
    samples: u64,
}

impl Meter {
    /// A meter for a task's threads.
    #[must_use]
    pub fn new(task: &Task, members: Members, now: Instant) -> Self {
        let config = Config { best_effort: None, ..Config::default() };
        let mut processor = Processor::new(config);
        let id = processor.admit(task).expect("one task needs no more than its whole period");
        Self { processor, id, members, last: now, samples: 0 }
    }

    /// Samples the threads; O(threads).
    pub fn sample(&mut self, now: Instant) {
        if self.samples.is_multiple_of(10) {
            self.members.find();
        }
        self.samples += 1;
        let seen = self.members.sample();
        if seen.used > Duration::ZERO {
            self.processor.wake(self.id, self.last);
        }
        self.processor.charge(self.id, seen.used);
        if seen.awake {
            self.processor.wake(self.id, now);
        } else {
            self.processor.sleep(self.id, now);
        }
        self.processor.decide(now);
        self.last = now;
    }

    /// The counts of its periods so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.processor.counts(self.id)
    }
}
