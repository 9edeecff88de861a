//! Several paths as one link.
//!
//! Packets that leave a link come to the sending end ([`Sender`]), each with its frame's deadline; it gives each to
//! the path on which it arrives in time and soonest, by the rate, the queue, the delay and the loss that are measured
//! for each path (`data/net/rate`). What a path loses is sent again if it can still be in time. A path that delivers
//! nothing gets probes only. The receiving end ([`Receiver`]) gives each stream's packets in order, and waits for a
//! missing one no longer than the next one's frame allows.
//!
//! ```text
//! link -> Sender -> a datagram on a path -> Receiver -> packets of each stream, in order
//!              <- a report on the same path <-
//! ```
//!
//! It is Aurora's AVlink and its striping over several circuits (1:3.4, 1:4.1.2, 2:2.3), for links of the internet.
//! Datagrams are authentic: the secure layer below sees to that. What an authentic far end claims is checked none the
//! less against what was sent.

#![forbid(unsafe_code)]

mod datagram;
mod flight;
mod path;
mod receiver;
mod reorder;
mod sender;

pub use datagram::{DatagramError, OVERHEAD, PathId, StreamId};
pub use path::{Cost, PathParams, PathState, PathStatus};
pub use receiver::{Delivered, Receiver, ReceiverCounts};
pub use sender::{Sender, Transmit};
