//! A node without I/O: what its file says, what its links decide, what can be seen and turned.
//!
//! Frames come in through [`link::Link::handle_frame`], packets to send go out through
//! [`link::Link::poll_transmit`]; the caller brings the time.

pub mod bound;
pub mod config;
pub mod link;
pub mod view;
