//! The coprocessor placement (NI coprocessors, section 2): the link is owned by a process of its
//! own, on a core of its own where the system allows it, and producers in other processes put
//! frames into memory that they share with it.
//!
//! A producer attaches over the control socket ([`selvedge_os::control`], [`message`]) and gets a doorbell and a
//! segment for each stream ([`segment`]). From then on a frame costs one copy into the segment's
//! pool and a descriptor in its ring; nobody makes a system call while both sides are awake. The
//! engine is that of `place/engine`, over other outlets ([`outlet`]) and another port ([`port`]), so
//! that it decides alike by construction.

pub mod client;
pub mod control;
pub mod extensions;
pub mod feeder;
pub mod frame_consumer;
pub mod frame_producer;
pub mod message;
pub mod poller;
pub mod realtime;
pub mod recording;
pub mod segment;
pub mod server;
pub mod unit_slot;
