//! The inline placement: the engine that paces a link on a thread, the inlets that fill its rings, and
//! the receiver that measures what comes out at the other end.
//!
//! Decisions are made in `data/link`, which is handed the time; sockets and the clock are `os`'s.
//! `measure` is pure as well: it is the receiving end's half of the arithmetic.

pub mod engine;
mod extension;
pub mod frame_producer;
pub mod lateness;
pub mod measure;
pub mod receive;
pub mod record;
pub mod report;
