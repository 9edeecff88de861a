//! The papers' experiments, run on Selvedge's own code.
//!
//! Each experiment is one file in `experiments/` and one line in [`EXPERIMENTS`]: it runs the
//! product's code paths, sets its figures beside the paper's, and checks the paper's finding as a
//! claim. [`Kind`] says what sort of figures they are. What comes out is an [`Outcome`]: tables,
//! claims, plots; `selvedge-lab repro` prints it, [`record`] keeps the last one of each.

#![forbid(unsafe_code)]

mod bonded;
mod catalog;
mod counter_test;
mod experiment;
mod experiments;
mod measure;
mod outcome;
mod peers;
mod phase;
mod plot;
pub mod record;

pub use catalog::{EXPERIMENTS, find};
pub use counter_test::{CounterTest, counter_tests};
pub use experiment::{Edit, Experiment, Kind, NoWatch, Params, ProgressWatch, RunError};
pub use outcome::{Cell, Claim, Outcome, Table};
pub use plot::{Axis, Plot, PlotError, Series};
