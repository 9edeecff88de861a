//! The links of a node whose rates are measured while they are used, for what measures them: bonds, tunnels, receivers that
//! report.

use selvedge_data_link::PathEstimate;
use selvedge_media::StreamInfo;
use selvedge_place_engine::engine::Heard;
use selvedge_units::{Bitrate, Duration, Instant};

use crate::passed_nodes::PassedNodes;

/// How often the links' rates and the encoders follow the bonds.
pub(crate) const FOLLOW_EVERY: Duration = Duration::from_millis(20);
/// How often the rest is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A bond whose paths carry nothing has this rate.
pub(crate) const LEAST: Bitrate = Bitrate::from_kbps(50);

/// The links whose rates are measured, by name.
pub(crate) trait MeasuredLinks: Send {
    /// Sets what is known of the path behind a link.
    fn set_path(&self, link: &str, path: PathEstimate);
    /// Passes on to a link's steps what the receiver of a stream reports; without a stream, of all its streams.
    fn handle_report(&self, link: &str, stream: Option<&str>, heard: Heard);
    /// What the streams of a link offer.
    fn offered(&self, link: &str) -> Offered;
    /// Makes the encoder of a stream make an intra picture, if it has one that follows.
    fn request_intra(&self, stream: &str);
    /// Makes the encoders of a link's sources follow what is known of the path behind it.
    fn lead_encoders(&self, link: &str, path: PathEstimate, now: Instant);
    /// Records an event of a path.
    fn note(&self, text: String);
}

/// What the streams of a link offer.
#[derive(Default)]
pub(crate) struct Offered {
    pub(crate) rate: Bitrate,
    /// The shortest time that a frame has.
    pub(crate) shortest: Option<Duration>,
    /// Those whose media are known.
    pub(crate) streams: Vec<OfferedStream>,
}

/// A stream whose medium is known.
pub(crate) struct OfferedStream {
    pub(crate) name: String,
    pub(crate) info: StreamInfo,
    pub(crate) period: Duration,
    /// The nodes that it has passed, this one included.
    pub(crate) passed: PassedNodes,
    /// From a frame's arrival at this node to its deadline; `None` where that does not show how old it is.
    pub(crate) delay: Option<Duration>,
    /// How old its frames are when they arrive at this node.
    pub(crate) age: Duration,
}
