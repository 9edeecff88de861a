//! Media: sources of frames, the relations between their pictures, and small pictures of them.
//!
//! Data comes from files, cameras, the network and test patterns through GStreamer (feature
//! `gstreamer`), and goes as whole frames of RTP packets to a [`FrameSink`]. Reading pictures,
//! placing timestamps, pacing and SDP are pure and build without it.

#![forbid(unsafe_code)]

#[cfg(feature = "gstreamer")]
mod depacketizer;
pub mod dependency;
mod error;
mod frame;
#[cfg(feature = "gstreamer")]
mod onlookers;
pub mod output;
mod pace;
pub mod picture;
#[cfg(feature = "gstreamer")]
mod picture_rings;
#[cfg(feature = "gstreamer")]
mod preview;
pub mod sdp;
mod srtp;
#[cfg(feature = "gstreamer")]
mod thumbnail;
mod timeline;
mod units;

#[cfg(feature = "gstreamer")]
pub mod inspect;
#[cfg(feature = "gstreamer")]
pub mod isolated;
#[cfg(feature = "gstreamer")]
mod samples;
#[cfg(feature = "gstreamer")]
mod source;

#[cfg(feature = "gstreamer")]
pub use depacketizer::Depacketizer;
pub use error::{KnobFault, SourceError, Trouble};
pub use frame::{End, FrameSink, MediaFrame, StreamInfo};
#[cfg(feature = "gstreamer")]
pub use onlookers::{Onlookers, Watched};
pub use pace::Pacer;
pub use picture::{Codec, Picture};
#[cfg(feature = "gstreamer")]
pub use picture_rings::{PictureRings, PictureTimes};
#[cfg(feature = "gstreamer")]
pub use preview::Preview;
#[cfg(feature = "gstreamer")]
pub use source::{
    Encoder, EncoderOrders, Framer, LEAST_PART, Pair, RemoteEncoder, Source, key_unit_request,
    packet_caps,
};
pub use srtp::SrtpKey;
#[cfg(feature = "gstreamer")]
pub use thumbnail::{ImageSize, Thumbnailer};
pub use timeline::{FrameTimes, Timeline};
pub use units::Units;
