//! Counting what a program gets where nobody dispatches it: by `SCHED_DEADLINE`, or not at all.
//!
//! A processor of its own, for one task, is the meter: it is told what the task used and whether it
//! wanted to run, and counts periods as the dispatcher does. Nothing is put in force.

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

    /// Reads what happened since the last look; O(threads).
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

    /// What became of its periods so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.processor.counts(self.id)
    }
}
