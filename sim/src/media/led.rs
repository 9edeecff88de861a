//! Encoders in the simulator whose bitrate follows the path behind their link, as those of a node do.
//!
//! Estimate of the bond -> shares by `data/link` -> encoder; frames lost with a reference -> request of an intra picture.

use std::fmt::Debug;

use selvedge_data_link::{Encoder, IntraRequests};
use selvedge_data_stream::ListedFrame;
use selvedge_units::{Bitrate, Instant};

/// An encoder whose frames depend on what it aims at.
pub trait AdaptiveEncoder: Debug {
    /// The least and the most that it may encode at.
    fn range(&self) -> (Bitrate, Bitrate);
    /// It encodes at this rate from its next frame on, within its range.
    fn set_rate(&mut self, rate: Bitrate);
    /// Its next frame is an intra picture.
    fn request_intra(&mut self);
    /// The next frame.
    fn encode(&mut self) -> ListedFrame;
}

/// The encoder of a stream, and what it aims at.
#[derive(Debug)]
pub(super) struct Led {
    pub(super) encoder: Box<dyn AdaptiveEncoder>,
    pub(super) aim: Encoder,
    intra: IntraRequests,
}

impl Led {
    pub(super) fn new(encoder: Box<dyn AdaptiveEncoder>) -> Self {
        let (least, most) = encoder.range();
        Self { encoder, aim: Encoder::new(1, least, most), intra: IntraRequests::default() }
    }

    /// So many frames were lost with a reference since the stream began.
    pub(super) fn handle_lost(&mut self, now: Instant, lost: u64) {
        if self.intra.handle_lost(now, lost) {
            self.encoder.request_intra();
        }
    }

    pub(super) fn set_aim(&mut self, aim: Encoder) {
        if aim.rate() != self.aim.rate()
            && let Some(rate) = aim.rate()
        {
            self.encoder.set_rate(rate);
        }
        self.aim = aim;
    }
}
