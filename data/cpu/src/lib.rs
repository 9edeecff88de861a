//! Processor time for tasks with periods: which task runs next, and what each miss costs.
//!
//! A task needs `service` of the processor in each `period`, and may miss `x` of any `y` periods.
//! [`Processor`] decides by DWCS, the discipline of `selvedge-data-sched`, which task has one processor. The
//! caller reports when tasks wake, sleep or ran, and when an event arrives for one; the processor returns
//! which task runs and until when. It does not enforce the decisions: `place/cpu` does so by the kernel's own
//! classes, and `place/kernel` has the same rules for `sched_ext`.
//!
//! The model is that of the Q-Fabric thesis, sections 2.4 and 3.3; see [`Rule`] for the event-aware
//! rules.
//!
//! ```
//! use selvedge_data_cpu::{Processor, Runs, Task};
//! use selvedge_data_stream::Window;
//! use selvedge_units::{Duration, Instant};
//!
//! let mut cpu = Processor::default();
//! let (period, service) = (Duration::from_millis(40), Duration::from_millis(8));
//! let player = cpu.admit(&Task::new(period, service, Window::new(1, 5)?)?)?;
//! cpu.wake(player, Instant::ZERO);
//! cpu.set_best_effort(true);
//! let decision = cpu.decide(Instant::ZERO);
//! assert_eq!(decision.runs, Runs::Task(player));
//! assert_eq!(decision.until, Some(Instant::ZERO + service));
//! cpu.charge_chosen(service);
//! assert_eq!(cpu.decide(Instant::ZERO + service).runs, Runs::BestEffort);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![expect(
    clippy::result_large_err,
    reason = "tasks are refused when they are admitted, which is rare"
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod accessors;
mod admission;
mod decision;
mod event;
mod order;
mod processor;
mod progress;
mod task;

pub use admission::{Promise, Refused};
pub use decision::{Config, Decision, Runs, Selected};
pub use event::{EventsFull, Rule};
pub use processor::Processor;
pub use task::{Counts, Task, TaskError, TaskId};
