//! What becomes of paths whose rates are measured, for those who subscribe to event channels: what of it is news, as events
//! that [`Channels`] publishes.

use std::collections::BTreeMap;
use std::sync::Arc;

use selvedge_comm_bond::PathView;
use selvedge_control_config::view::PathSnapshot;
use selvedge_data_net_bond::{PathState, PathStatus};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

use crate::Channels;

/// The least time between two events of a path.
const EVERY: Duration = Duration::from_millis(50);
/// A rate that changed by a larger part than one of so many is news.
const PART: u64 = 64;

/// A path at one moment: of a bond, or to a receiver that reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEvent<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Its link.
    pub link: &'a str,
    /// The path's name.
    pub path: &'a str,
    /// Its measured rate.
    pub rate: Bitrate,
    /// From a packet to its report.
    pub round_trip: Duration,
    /// The share of its packets that is lost.
    pub loss: Share,
    /// Whether packets go on it, as opposed to probes only.
    pub carries: bool,
}

/// What was published of each path last.
pub(crate) struct PathEvents {
    channels: Arc<dyn Channels>,
    node: String,
    /// By link and the path's place in it.
    last: BTreeMap<(String, usize), Published>,
}

struct Published {
    at: Instant,
    rate: Bitrate,
    carries: bool,
}

impl PathEvents {
    pub(crate) fn new(channels: Arc<dyn Channels>, node: String) -> Self {
        Self { channels, node, last: BTreeMap::new() }
    }

    /// Publishes what is news of a link's paths.
    pub(crate) fn handle_paths<'a>(
        &mut self,
        now: Instant,
        link: &'a str,
        paths: impl Iterator<Item = SeenPath<'a>>,
    ) {
        for (n, SeenPath { path, rate, round_trip, loss, carries, .. }) in paths.enumerate() {
            let published = Published { at: now, rate, carries };
            let place = (link.to_owned(), n);
            if self.last.get(&place).is_some_and(|last| !published.is_news(last)) {
                continue;
            }
            let node = &*self.node;
            let event = PathEvent { node, link, path, rate, round_trip, loss, carries };
            self.channels.publish_path(&event);
            self.last.insert(place, published);
        }
    }
}

/// What is seen of a path.
#[derive(Default)]
pub(crate) struct SeenPath<'a> {
    pub(crate) path: &'a str,
    pub(crate) rate: Bitrate,
    pub(crate) round_trip: Duration,
    pub(crate) queueing: Duration,
    pub(crate) loss: Share,
    pub(crate) sent: Bytes,
    pub(crate) carries: bool,
}

impl SeenPath<'_> {
    /// What is shown of it, with this detail; `before` is what it had sent at an earlier time.
    pub(crate) fn shown(
        &self,
        detail: &str,
        now: Instant,
        before: Option<(Instant, Bytes)>,
    ) -> PathSnapshot {
        let before = before.filter(|(at, _)| now > *at);
        PathSnapshot {
            name: self.path.to_owned(),
            active: self.carries,
            detail: detail.to_owned(),
            rate_bps: self.rate.0,
            sent_bps: before.map_or(0, |(at, sent)| ((self.sent - sent) / now.since(at)).0),
            sent_bytes: self.sent.0,
            left_bytes: None,
            round_trip_ms: self.round_trip.as_millis_f64(),
            queueing_ms: self.queueing.as_millis_f64(),
            loss: f64::from(self.loss.billionths()) / 1e9,
        }
    }
}

impl<'a> From<&'a PathView> for SeenPath<'a> {
    fn from(view: &'a PathView) -> Self {
        let (path, carries) = (&*view.name, is_up(view));
        let of = |status: PathStatus| {
            let PathStatus { rate, round_trip, queueing, loss, sent, .. } = status;
            Self { path, rate, round_trip, queueing, loss, sent, carries }
        };
        view.status.map_or_else(|| Self { path, ..Self::default() }, of)
    }
}

/// Whether packets go on it.
pub(crate) fn is_up(path: &PathView) -> bool {
    path.status.is_some_and(|status| status.state == PathState::Active && status.is_used)
}

impl Published {
    fn is_news(&self, last: &Self) -> bool {
        let is_other = self.rate.0.abs_diff(last.rate.0) > last.rate.0 / PART;
        self.at.since(last.at) >= EVERY && (is_other || self.carries != last.carries)
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use selvedge_data_net_bond::{PathId, PathParams, Sender};
    use selvedge_units::Bytes;

    use super::*;

    #[derive(Default)]
    struct Seen(Mutex<Vec<(String, u64, bool)>>);

    impl Channels for Seen {
        fn listed(&self) -> Arc<str> {
            Arc::from("[]")
        }

        fn publish_path(&self, event: &PathEvent<'_>) {
            let path = format!("{} {} {}", event.node, event.link, event.path);
            self.0.lock().push((path, event.rate.0, event.carries));
        }
    }

    fn view(name: &str, rate: u64, state: PathState) -> PathView {
        let mut bond = Sender::new(Bytes(0));
        bond.add_path(Instant::ZERO, PathId(0), PathParams::default());
        let status = bond.paths().next().map(|(_, mut status)| {
            (status.rate, status.state) = (Bitrate(rate), state);
            status
        });
        PathView { name: name.to_owned(), problem: None, left: None, status }
    }

    #[test]
    fn a_path_is_published_when_its_rate_or_state_changes_and_not_too_often() {
        let seen = Arc::new(Seen::default());
        let mut events = PathEvents::new(Arc::clone(&seen) as Arc<dyn Channels>, "van".to_owned());
        let (active, silent) = (PathState::Active, PathState::Silent(Instant::ZERO));
        let steps = [
            // The first view, one that is too near to it, and a change that is too small.
            (0, 640, active),
            (49, 1_000, active),
            (50, 650, active),
            (60, 651, active),
            (111, 651, silent),
            (161, 651, silent),
        ];
        for (ms, rate, state) in steps {
            let now = Instant::ZERO + Duration::from_millis(ms);
            let unconnected =
                PathView { name: "two".to_owned(), problem: None, left: None, status: None };
            let views = [view("one", rate, state), unconnected];
            events.handle_paths(now, "uplink", views.iter().map(SeenPath::from));
        }
        let one = |rate, carries| ("van uplink one".to_owned(), rate, carries);
        let two = ("van uplink two".to_owned(), 0, false);
        assert_eq!(*seen.0.lock(), [one(640, true), two, one(651, true), one(651, false)]);
    }
}
