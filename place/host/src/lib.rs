//! The Linux placement: clock, sockets, transmission, receiver, and what they measure.
//!
//! Everything that reads a clock or does I/O for a node is here; decisions are made in the pure
//! rooms, which are handed the time. `measure` is pure as well: it is the receiving end's half of
//! the arithmetic.

pub mod bench;
pub mod clock;
pub mod engine;
pub mod huge;
pub mod inlet;
pub mod measure;
pub mod memory;
pub mod namespace;
pub mod netlink;
pub mod port;
pub mod probe;
pub mod prompt;
pub mod receive;
pub mod record;
pub mod report;
pub mod route;
pub mod seqpacket;
mod socket;
pub mod transmit;
pub mod wake;

pub use socket::SocketError;
