//! The sets and streamlets of a stream at one moment: of a set in each snapshot, of one streamlet by query.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What became of frames since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedCounts {
    /// Frames sent.
    pub sent: u64,
    /// Their bytes, headers included.
    pub sent_bytes: u64,
    /// Frames dropped, for lack of room or because they had waited for too long.
    pub dropped: u64,
    /// Frames that wait.
    pub waiting: u64,
    /// From arrival to the last packet sent, the mean in milliseconds; absent if none was sent.
    pub delay_mean_ms: Option<f64>,
    /// The longest of these times.
    pub delay_max_ms: Option<f64>,
}

/// A set of streamlets at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetSnapshot {
    /// Its name.
    pub name: String,
    /// Its share beside the other sets of the stream.
    pub weight: u16,
    /// Its streamlets.
    pub streamlets: u32,
    /// For how long a frame waits at most whose streamlet has none, in milliseconds: while the link sends one frame
    /// of the stream each period.
    pub bound_ms: f64,
    /// Of all its streamlets.
    #[serde(flatten)]
    pub counts: SharedCounts,
}

/// A streamlet at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamletSnapshot {
    /// Its number, from 0 in the order of the node file.
    pub number: u32,
    /// Its set.
    pub set: String,
    /// Where its packets arrive; absent if it gets the frames of the stream's source.
    pub from: Option<String>,
    /// The SSRC by which its packets are known, if that is stated.
    pub ssrc: Option<u32>,
    /// Its receiver.
    pub to: String,
    /// Its own.
    #[serde(flatten)]
    pub counts: SharedCounts,
}

/// Which streamlet of a stream is asked for: the first to which all that is given applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamletQuery {
    /// Its number.
    pub number: Option<u32>,
    /// Its receiver.
    pub to: Option<SocketAddr>,
    /// Its SSRC.
    pub ssrc: Option<u32>,
}
