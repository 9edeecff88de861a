//! Exact window-constrained scheduling: which stream's frame goes next, and what each miss costs.
//!
//! The scheduler sees head frames only: the caller keeps the queues and the clock. Every discipline runs on
//! the same stream slots; deadlines, windows and counters are integers, so all placements of the scheduler
//! decide identically, bit by bit. The rules are those of the Dynamic Window-Constrained Scheduling papers
//! (Q-Fabric section 2.4.1, ShareStreams Table 2, NI coprocessors section 2.2.4). [`replay`] runs them in
//! unit slots; the feature `trace` adds files for it (`trace`).
//!
//! The loop: expire, choose, serve.
//!
//! ```
//! use selvedge_data_sched::{Discipline, Head, Scheduler};
//! use selvedge_data_stream::{Contract, Window};
//! use selvedge_units::{Instant, Duration};
//!
//! let mut sched = Scheduler::new(Discipline::Dwcs);
//! let video = sched.add(&Contract::new(Duration::from_millis(40), Window::new(1, 5)?));
//! let audio = sched.add(&Contract::new(Duration::from_millis(20), Window::new(0, 1)?));
//! for s in [video, audio] {
//!     sched.enqueue_head(s, Head::arrived(Instant::ZERO));
//! }
//! let now = Instant::ZERO + Duration::from_millis(20);
//! let missed = sched.poll_expired(now).expect("the audio frame was due at 20 ms");
//! assert!(missed.stream == audio && missed.violation);
//! assert_eq!(sched.choose(now), Some(video));
//! assert!(!sched.dequeue(video).late);
//! # Ok::<(), selvedge_data_stream::WindowError>(())
//! ```

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "trace"))]
extern crate std;

pub mod admission;
pub mod aggregate;
mod discipline;
mod machine;
mod record;
pub mod replay;
mod scheduler;
mod slot;
mod tournament;
#[cfg(feature = "trace")]
pub mod trace;
mod window;

/// The examples of README.md run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use discipline::{Discipline, Tree, TreeError, TreeNode};
pub use record::{Decision, Dequeued, Expiry, Head, Outcome, StreamIndex, Verdict};
pub use scheduler::Scheduler;
pub use window::WindowSet;
