//! Streams of frames through the product's own link, and what their receivers measure.
//!
//! A [`Sender`] plays frame lists (`selvedge_data_stream::FrameList`) into one link of `data/link` and sends
//! the packets that leave it, with the product's header extension; a [`Receiver`] measures one stream as
//! `play` does, by `data/receive`. What became of one frame is a [`Life`].

mod audit;
mod led;
mod life;
mod receiver;
mod sender;

use selvedge_data_stream::Totals;

pub use led::AdaptiveEncoder;
pub use life::{Life, LifeEvent};
pub use receiver::{PacketArrival, Receiver};
pub use sender::{MediaStream, Sender};

/// A stream's frames, as its two ends counted them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// By the ledger of the sender's link.
    pub sent: Totals,
    /// By the receiver.
    pub received: ReceivedFrames,
}

/// Frames as a receiver counts them, by the rules of `play`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedFrames {
    /// Complete by their deadlines.
    pub on_time: u64,
    /// Complete after their deadlines.
    pub late: u64,
    /// Some packets are missing, or all.
    pub lost: u64,
    /// On time, and all that they refer to as well.
    pub decodable: u64,
    /// Those that have begun, and whose end is not known.
    pub pending: u64,
}
