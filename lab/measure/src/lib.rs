//! What only measures: each module takes the public interface of one room and reports what it costs on
//! this machine, mostly beside a peer in the same run. `selvedge-lab` prints the figures; the
//! experiments check claims by them. No part of the product depends on this crate.
//!
//! Each module but those of the scheduler has a feature of its own: `tools/instructions.sh` needs none
//! of them, and builds little. `kernel` adds what needs BPF programs.

pub mod dataplane;
pub mod decide;
mod load;
#[cfg(feature = "coprocessor")]
mod ordinary;

#[cfg(feature = "call")]
pub mod call;
#[cfg(feature = "code")]
pub mod code;
#[cfg(feature = "coprocessor")]
pub mod coprocessor;
#[cfg(feature = "event")]
pub mod event;
#[cfg(feature = "immunity")]
pub mod files;
#[cfg(feature = "immunity")]
pub mod immunity;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "pacing")]
pub mod pacing;
#[cfg(feature = "send")]
pub mod send;
#[cfg(feature = "kernel")]
pub mod services;

pub use load::{Load, median};
