//! RTCP: what receivers of other programs report, and what a sender does about it.
//!
//! [`parse`] reads a datagram of a receiver: reports of loss (RFC 3550), requests for packets (RFC 4585) and for intra
//! pictures (RFC 4585, RFC 5104), and when each packet arrived (RFC 8888, and the transport-wide feedback of
//! draft-holmer-rmcat-transport-wide-cc-extensions-01). A [`Sender`] measures from them the rate of the path,
//! retransmits (RFC 4588), and reports itself.
//!
//! It is the network monitor of Q-Fabric (2.2) where the far end is no node. All input counts as hostile: memory is
//! bounded, and what was never sent is not believed.

#![forbid(unsafe_code)]

mod arrivals;
mod by_loss;
mod bytes;
mod congestion;
mod feedback;
mod history;
mod sender;
mod transport;
mod write;

pub use arrivals::ArrivalReporter;
pub use bytes::RtcpError;
pub use feedback::{Feedback, Reception, parse};
pub use sender::{
    REPAIR_OVERHEAD, Sender, SenderParams, SenderStatus, Transmit, retransmission_type,
};
pub use transport::{TRANSPORT_ID, TRANSPORT_OVERHEAD, TRANSPORT_URI};
pub use write::SenderInfo;
