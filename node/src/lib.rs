//! A node without I/O: what its file says, what its links decide, what can be seen and turned.
//!
//! Frames come in through `Link::handle_frame`, packets to send go out through
//! `Link::poll_transmit`; the caller brings the time.

pub mod config;
pub mod view;
