//! The encoders of a link's sources follow the rate that its bond measures: what each aims at comes from the link's
//! rate and the streams' weights, and goes to the running encoder. Where the link lost a picture that others refer to, the
//! encoder makes an intra picture, so that the stream need not wait for its next group.

use parking_lot::MutexGuard;
use selvedge_data_link as link;
use selvedge_os::clock::Clock;
use selvedge_units::{Bitrate, Instant};

/// The encoder of a stream's source, and what it aims at.
#[derive(Debug)]
pub(crate) struct Following {
    encoder: selvedge_media::Encoder,
    /// `None` if it only makes intra pictures.
    aim: Option<link::Encoder>,
    intra: link::IntraRequests,
}

impl Following {
    pub(crate) fn new(encoder: selvedge_media::Encoder) -> Self {
        let (least, most) = encoder.range();
        let aim = (most.0 > 0).then(|| link::Encoder::new(1, least, most));
        Self { encoder, aim, intra: link::IntraRequests::default() }
    }

    /// So many frames were lost with a reference since the stream began.
    fn handle_lost(&mut self, lost: u64) {
        if self.intra.handle_lost(Clock::shared().now(), lost) {
            self.encoder.request_intra();
        }
    }

    /// Requests an intra picture; false if one was requested a moment ago.
    pub(crate) fn request_intra(&mut self) -> bool {
        let is_due = self.intra.request(Clock::shared().now());
        if is_due {
            self.encoder.request_intra();
        }
        is_due
    }

    /// What it aims at, if its link has a measured rate.
    pub(crate) fn rate(&self) -> Option<Bitrate> {
        self.aim.as_ref()?.rate()
    }
}

/// A stream of the link, its weight, and the rate at which it was sent of late.
pub(crate) struct Follower<'a> {
    /// Its encoder, if it follows.
    pub(crate) following: MutexGuard<'a, Option<Following>>,
    pub(crate) weight: u32,
    pub(crate) sent: Bitrate,
    /// Its frames that were lost with a reference.
    pub(crate) lost: u64,
}

/// Shares a rate among the encoders of these streams; the other streams keep what they send.
pub(crate) fn follow_rate(mut streams: Vec<Follower<'_>>, rate: Bitrate, now: Instant) {
    let (mut aims, mut fixed) = (Vec::new(), Bitrate(0));
    for stream in &mut streams {
        if let Some(following) = &mut *stream.following {
            following.handle_lost(stream.lost);
            if let Some(aim) = &mut following.aim {
                aim.set_weight(stream.weight);
                aims.push(aim.clone());
                continue;
            }
        }
        fixed = Bitrate(fixed.0.saturating_add(stream.sent.0));
    }
    link::follow(&mut aims, rate, fixed, now);
    let mut aims = aims.into_iter();
    for following in streams.iter_mut().filter_map(|stream| stream.following.as_mut()) {
        let Some(before) = &mut following.aim else { continue };
        let Some(aim) = aims.next() else { return };
        if aim.rate() != before.rate()
            && let Some(rate) = aim.rate()
        {
            following.encoder.set_rate(rate);
        }
        *before = aim;
    }
}
