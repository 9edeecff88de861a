//! The encoders of a link's sources follow the rate that its bond measures: what each aims at comes from the link's
//! rate and the streams' weights, and goes to the running encoder.

use selvedge_data_link::{self as link, PathEstimate};
use selvedge_units::{Bitrate, Instant};

use crate::feed::FeedStatus;

/// An encoder aims at no less than this part of the rate that its source states.
const LEAST_PART: u64 = 10;

/// The encoder of a stream's source, and what it aims at.
#[derive(Debug)]
pub(crate) struct Following {
    encoder: selvedge_media::Encoder,
    aim: link::Encoder,
}

impl Following {
    pub(crate) fn new(encoder: selvedge_media::Encoder) -> Self {
        let most = encoder.stated();
        Self { aim: link::Encoder::new(1, Bitrate(most.0 / LEAST_PART), most), encoder }
    }

    /// What it aims at, if its link has a measured rate.
    pub(crate) fn rate(&self) -> Option<Bitrate> {
        self.aim.rate()
    }
}

/// A stream of the link, its weight, and the rate at which it was sent of late.
pub(crate) struct Follower<'a> {
    pub(crate) status: &'a FeedStatus,
    pub(crate) weight: u32,
    pub(crate) sent: Bitrate,
}

/// Shares what is expected of a path among the encoders of these streams; the other streams keep what they send.
pub(crate) fn follow_rate(streams: &[Follower<'_>], path: PathEstimate, now: Instant) {
    let (mut aims, mut fixed) = (Vec::new(), Bitrate(0));
    for stream in streams {
        match &mut *stream.status.following() {
            Some(following) => {
                following.aim.set_weight(stream.weight);
                aims.push(following.aim.clone());
            }
            None => fixed = Bitrate(fixed.0.saturating_add(stream.sent.0)),
        }
    }
    link::follow(&mut aims, path.expected, fixed, now);
    let mut aims = aims.into_iter();
    for stream in streams {
        let mut following = stream.status.following();
        let Some((following, aim)) = following.as_mut().zip(aims.next()) else { continue };
        if aim.rate() != following.aim.rate()
            && let Some(rate) = aim.rate()
        {
            following.encoder.set_rate(rate);
        }
        following.aim = aim;
    }
}
