//! The inline placement: the engine that paces a link on a thread, the frame producers that fill its rings,
//! and the receiver that reads the packets at the other end.
//!
//! Decisions are made in `data/link` and packets measured in `data/receive`, which get the time as an argument;
//! `os` provides sockets and the clock.

pub mod code;
pub mod engine;
mod extension;
pub mod frame_producer;
pub mod lateness;
pub mod link_steps;
pub mod receive;
pub mod record;
pub mod report;
mod shared_payloads;
pub mod slot;
