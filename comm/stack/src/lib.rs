//! Protocol stacks on this machine: what modules cost here, elements on threads, connections over
//! UDP.
//!
//! The decisions and the modules are in the pure `selvedge-data-stack`; here are the clock, the threads
//! and the sockets.

#![forbid(unsafe_code)]

pub mod crew;
pub mod endpoint;
pub mod profile;
mod talk;
pub mod threads;
pub mod wire;
mod work;
