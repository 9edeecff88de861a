//! The output of a source: its description, and frames as packets.

use selvedge_units::Duration;

use crate::picture::{Codec, Picture};

/// The description of an open stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The encoding; [`Codec::encoding`] is its name in SDP.
    pub codec: Codec,
    /// RTP payload type, 0 ..= 127.
    pub payload_type: u8,
    /// Ticks of RTP timestamps in a second.
    pub clock_rate: u32,
    /// Parameters of the format, as they stand after the payload type in `a=fmtp`.
    pub fmtp: Option<String>,
    /// Channels of sound; `None` for pictures.
    pub channels: Option<u8>,
    /// Time between frames; for sound, the length of a packet. More than zero.
    pub period: Duration,
    /// Pixels across; `None` for sound, or where the stream has not stated it yet.
    pub width: Option<u32>,
    /// Pixels down.
    pub height: Option<u32>,
}

impl StreamInfo {
    /// The encoding name in SDP: `H264`, `MPV`, `JPEG`, `L16`.
    #[must_use]
    pub const fn encoding(&self) -> &'static str {
        self.codec.encoding()
    }
}

/// One frame: an access unit, an image or a block of sound, in all its RTP packets.
#[derive(Clone, Copy, Debug)]
pub struct MediaFrame<'a> {
    /// Its relation to other frames.
    pub picture: Picture,
    /// When it is to be shown, since the first frame was due to be decoded. Continues over loops; not
    /// in order where pictures are predicted from both sides.
    pub media_time: Duration,
    /// When it is to be decoded, on the same clock; never goes back.
    pub decode_time: Duration,
    /// The RTP timestamp of all its packets, beginning near zero; wraps.
    pub rtp_timestamp: u32,
    /// The access unit, image or samples that it was made of, as delivered by its encoder or parser.
    pub unit: &'a [u8],
    /// Its packets, at least one: 12 bytes of header (the sink sets sequence numbers and source
    /// identifier; marker and payload type are valid) and payload.
    pub packets: &'a [&'a [u8]],
}

/// Takes the frames of one source, in decoding order.
pub trait FrameSink {
    /// Called once for each frame, from the thread that runs the source. The packets are invalid after
    /// it returns. The source waits as long as this takes.
    fn enqueue(&mut self, frame: MediaFrame<'_>);
}

/// Any closure will do.
impl<F: FnMut(MediaFrame<'_>)> FrameSink for F {
    fn enqueue(&mut self, frame: MediaFrame<'_>) {
        self(frame);
    }
}

/// How a run of a source ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The media came to its end.
    Eos {
        /// What was wrong with the end, if it was early: the file is cut off or damaged.
        note: Option<String>,
    },
    /// The stop flag was set.
    Stopped,
}
