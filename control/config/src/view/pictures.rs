//! Moving pictures of streams, as a page plays them, and the result of a comparison of two senders:
//! plain data that a [`NodeView`](super::NodeView) returns.

use std::sync::Arc;

use selvedge_units::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// A sequence of pictures, or of pieces of sound, of one stream that can be watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoTrack {
    /// The stream's name.
    pub stream: String,
    /// Where the pictures were taken: `received` or `sent`.
    pub label: String,
    /// The sender, such as `dwcs`, if there are several; else empty.
    pub by: String,
    /// The codec as RFC 6381 writes it (`avc1.42e01f`), for a browser's decoder; empty where only
    /// images can be had. `opus` for sound.
    pub codec: String,
    /// Of sound alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<Sound>,
}

/// The form of decoded sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sound {
    /// Samples per second.
    pub rate: u32,
    /// Channels.
    pub channels: u16,
}

/// In which form pictures are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureForm {
    /// Access units as they were sent: a byte stream (Annex B) of H.264, a packet of Opus.
    Coded,
    /// JPEG images.
    Images,
}

/// One picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPicture {
    /// Its number in its track, in decoding order.
    pub number: u64,
    /// Whether a decoder can begin with it.
    pub intra: bool,
    /// When it is to be shown, on the media's clock.
    pub present: Duration,
    /// When it had to arrive, on the clock of [`Pictures::now`].
    pub due: Instant,
    /// When its source took it in, on the same clock; `None` where that is not known.
    pub taken: Option<Instant>,
    /// The access unit or image.
    pub bytes: Arc<[u8]>,
}

/// Pictures of one track.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    /// The moment at which they were returned.
    pub now: Instant,
    /// In decoding order.
    pub list: Vec<StreamPicture>,
}

/// Two senders of the same frames over links of one rate, since that rate was set last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The name of the one whose streams are shown, and its share of decodable frames at the
    /// receiver.
    pub ours: (String, Option<f64>),
    /// The same of the other.
    pub other: (String, Option<f64>),
    /// The share that no sender can exceed on this link; absent until it is known.
    pub bound: Option<f64>,
    /// The rate that the streams need together, over the same time.
    pub needed_bps: u64,
    /// Milliseconds since the rate was set.
    pub since_ms: u64,
    /// Playout delay in milliseconds: how long after its arrival a frame may come.
    pub delay_ms: f64,
}
