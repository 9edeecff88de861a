//! Protocol stacks on this machine: measured costs of modules, elements on threads, connections over UDP.
//!
//! The decisions and the modules are in the pure `selvedge-data-stack`. This crate adds the clock,
//! the threads, their locks and the sockets.

#![forbid(unsafe_code)]

pub mod concurrency;
pub mod element;
#[cfg(not(loom))]
pub mod endpoint;
#[cfg(not(loom))]
mod negotiation;
pub mod pipe;
#[cfg(not(loom))]
pub mod profile;
#[cfg(not(loom))]
pub mod reservation;
#[cfg(not(loom))]
mod rings;
mod sync;
#[cfg(not(loom))]
pub mod threads;
pub mod wake;
#[cfg(not(loom))]
pub mod wire;
#[cfg(not(loom))]
mod work;
#[cfg(not(loom))]
pub mod worker_threads;
