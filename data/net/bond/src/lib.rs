//! Several paths as one link.
//!
//! Packets that leave a link come to the sending end ([`Sender`]), each with its frame's deadline. The sending end
//! gives each packet to the path that brings it in time and is free first. It measures the rate, queue, delay and loss
//! of each path (`data/net/rate`). A lost packet is sent again if it can still be in time, and twice or more if it has no
//! other chance and much depends on it. Where a round trip is too long for that, parities follow a frame, as many as
//! save more frames than their bytes would carry. A path that delivers nothing gets probes only.
//!
//! The receiving end ([`Receiver`]) gives each stream's packets in order. It waits for a missing packet until the next
//! packet of the stream is due.
//!
//! ```text
//! link -> Sender -> a datagram on a path -> Receiver -> packets of each stream, in order
//!              <- a report on the same path <-
//! ```
//!
//! A text describes each stream to the far end. It is sent again and again, a few times a second in all.
//!
//! It is Aurora's AVlink and its striping over several circuits (1:3.4, 1:4.1.2, 2:2.3), for links of the internet.
//! The secure layer below lets only authentic datagrams through. The sending end still compares each report with the
//! packets that it sent.

#![forbid(unsafe_code)]

mod datagram;
mod descriptions;
mod flight;
mod mtu;
mod path;
mod protection;
mod receiver;
mod reorder;
mod restoration;
mod sender;

pub use datagram::{
    DESCRIPTION_MAX, DatagramError, FLOWS, OVERHEAD, PARITY_OVERHEAD, PathId, StreamId,
};
pub use path::{Cost, PathParams, PathState, PathStatus};
pub use receiver::{Delivered, Receiver, ReceiverCounts};
pub use selvedge_data_net_rate::RateParams;
pub use sender::{Sender, Transmit};
