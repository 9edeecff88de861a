//! Processor time for programs: the decisions of `selvedge-data-cpu`, put in force by the classes that
//! every Linux kernel has, where it has no `sched_ext`.
//!
//! A [`dispatch::Dispatcher`] owns the order on one processor. It wakes every millisecond, reads
//! what each task used and whether it wants to run ([`members`]), asks `selvedge_data_cpu::Processor`,
//! and moves threads between three levels of urgency ([`class`]): whom DWCS chose; whom it owes
//! time, so that they run as soon as they wake; and all others, who get what is left. Nothing is
//! ever stopped, so a dispatcher that dies leaves programs that run.
//!
//! [`daemon`] lets programs of one user share the dispatchers, over a socket; [`client`] runs a
//! program under it. [`rights`] says by trying what this machine allows.

#![deny(unsafe_code)]

pub mod class;
pub mod client;
pub mod daemon;
pub mod dispatch;
pub mod in_kernel;
mod kernel_tasks;
pub mod members;
pub mod meter;
pub mod player;
pub mod protocol;
pub mod rights;

pub use protocol::{Outcome, Placement, TaskRequest};
