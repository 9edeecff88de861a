//! The inline placement: the engine that paces a link on a thread, the frame producers that fill its rings,
//! and the receiver that measures the packets at the other end.
//!
//! Decisions are made in `data/link`, which gets the time as an argument; `os` provides sockets and the
//! clock. `measure` is pure as well: it is the receiving half of the arithmetic.

pub mod engine;
mod extension;
pub mod frame_producer;
pub mod lateness;
pub mod measure;
pub mod receive;
pub mod record;
pub mod report;
