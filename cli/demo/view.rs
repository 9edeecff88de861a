//! The demo as the page sees it: our side's node, the pictures that both receivers got, their decodable
//! shares, and the bound. A knob that is changed here is changed on both sides.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_control_config::view::{
    Comparison, Knob, KnobError, NodeSnapshot, NodeView, PictureForm, Pictures, VideoTrack,
};
use selvedge_media::Preview;
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

use super::Side;

/// How often the bound is computed, and over how much of the past.
const BOUND_EVERY: Duration = Duration::from_secs(5);
const BOUND_OF: Duration = Duration::from_secs(60);

/// Both sides.
pub(super) struct DemoView {
    clock: Clock,
    delay: Duration,
    ours: Side,
    other: Side,
    tracks: Vec<(bool, usize, Arc<Preview>)>,
    figures: Mutex<Figures>,
}

/// The figures of both sides since the rate was set.
#[derive(Clone, Debug, Default)]
struct Figures {
    since: Instant,
    /// Frames that were settled and decodable before, on each side; `None` while the first ones at the
    /// new rate are still on their way.
    before: Option<[(u64, u64); 2]>,
    bound: Option<f64>,
    bound_at: Instant,
}

impl DemoView {
    pub(super) fn new(clock: Clock, delay: Duration, ours: Side, other: Side) -> Self {
        let of = |is_ours: bool, side: &Side| {
            let each = side.watched.iter().enumerate();
            each.filter_map(|(n, watched)| Some((is_ours, n, Arc::clone(watched.preview()?))))
                .collect::<Vec<_>>()
        };
        let mut tracks = of(true, &ours);
        tracks.extend(of(false, &other));
        tracks.sort_by_key(|(is_ours, n, _)| (*n, !is_ours));
        let figures = Figures { before: Some([(0, 0); 2]), ..Figures::default() };
        Self { clock, delay, ours, other, tracks, figures: Mutex::new(figures) }
    }

    /// Sending begins now.
    pub(super) fn begin(&self) {
        self.figures.lock().since = self.clock.now();
    }

    /// Must be called several times a second: slow work is done here and not in a request.
    pub(super) fn refresh(&self) {
        let now = self.clock.now();
        let Figures { since, before, bound_at, .. } = self.figures.lock().clone();
        let settled = since + self.delay;
        if before.is_none() && now > settled {
            let counts =
                [self.ours.receivers.lock().counts(), self.other.receivers.lock().counts()];
            self.figures.lock().before = Some(counts);
        }
        if now.since(bound_at.max(settled)) > BOUND_EVERY {
            let from = since.max(Instant(now.0.saturating_sub(BOUND_OF.0)));
            let bound = self.ours.recorder.bound(from, self.delay).share();
            let mut figures = self.figures.lock();
            if figures.since == since {
                (figures.bound, figures.bound_at) = (Some(bound), self.clock.now());
            }
        }
    }
}

impl NodeView for DemoView {
    fn snapshot(&self) -> NodeSnapshot {
        self.ours.node.snapshot()
    }

    fn thumbnail(&self, stream: &str) -> Option<(u64, Arc<[u8]>)> {
        self.ours.node.thumbnail(stream)
    }

    fn videos(&self) -> Vec<VideoTrack> {
        let side = |is_ours| if is_ours { &self.ours } else { &self.other };
        let track = |(is_ours, n, _): &(bool, usize, _)| {
            let side: &Side = side(*is_ours);
            side.watched[*n].track(side.by)
        };
        self.tracks.iter().map(track).collect()
    }

    fn pictures(&self, track: usize, form: PictureForm, after: Option<u64>) -> Pictures {
        let preview = self.tracks.get(track).map(|(_, _, preview)| preview);
        preview.map_or_else(Pictures::default, |preview| preview.pictures(form, after))
    }

    fn comparison(&self) -> Option<Comparison> {
        let now = self.clock.now();
        let figures = self.figures.lock().clone();
        let share = |n: usize, side: &Side| {
            let (all, good) = figures.before?[n];
            let counts = side.receivers.lock().counts();
            let (all, good) = (counts.0.saturating_sub(all), counts.1.saturating_sub(good));
            (all > 0).then(|| good as f64 / all as f64)
        };
        let since = now.since(figures.since);
        Some(Comparison {
            ours: (self.ours.by.to_owned(), share(0, &self.ours)),
            other: (self.other.by.to_owned(), share(1, &self.other)),
            bound: figures.bound,
            needed_bps: self.ours.recorder.needed(now).0,
            since_ms: since.0 / 1_000_000,
            delay_ms: self.delay.as_millis_f64(),
        })
    }

    fn set_knob(&self, knob: Knob) -> Result<(), KnobError> {
        self.ours.node.set_knob(knob.clone())?;
        self.other.node.set_knob(knob.clone())?;
        let now = self.clock.now();
        if let Knob::Rate { rate, .. } = knob {
            self.ours.recorder.set_rate(now, rate);
        }
        // After any change, earlier measurements are no longer comparable.
        *self.figures.lock() = Figures { since: now, ..Figures::default() };
        Ok(())
    }
}
