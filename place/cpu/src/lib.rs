//! Processor time for programs: the decisions of `selvedge-data-cpu`, enforced by the classes that every
//! Linux kernel has, where it has no `sched_ext`.
//!
//! A [`dispatch::Dispatcher`] owns the order on one processor. It wakes every millisecond, reads each task's
//! used time and whether it wants to run ([`members`]), and calls `selvedge_data_cpu::Processor`. Then it
//! moves threads between three levels of urgency ([`class`]). First is the task that DWCS chose; then come
//! tasks with promised time left, which run as soon as they wake; all others get the rest. Nothing is ever
//! stopped, so programs keep running if a dispatcher dies.
//!
//! [`daemon`] lets programs of one user share the dispatchers, over a socket; [`client`] runs a program under
//! it. [`rights`] tests what this machine allows.

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
