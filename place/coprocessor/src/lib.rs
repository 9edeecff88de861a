//! The coprocessor placement (NI coprocessors, section 2). A process of its own owns the link, on a core of
//! its own where the system allows it. Producers in other processes put frames into memory that they share
//! with it.
//!
//! A producer attaches over the control socket ([`selvedge_os::control`], [`message`]) and gets a doorbell
//! and a segment for each stream ([`segment`]). From then on a frame costs one copy into the segment's pool
//! and a descriptor in its ring; neither side makes a system call while both are awake. The engine is that of
//! `place/engine`, over other consumers ([`frame_consumer`]) and another poller ([`poller`]), so that it
//! decides identically by construction.

pub mod client;
pub mod control;
pub mod extensions;
pub mod feeder;
pub mod frame_consumer;
pub mod frame_producer;
pub mod locator;
pub mod message;
pub mod pack;
pub mod poller;
pub mod realtime;
pub mod recording;
pub mod segment;
pub mod server;
pub mod unit_slot;
