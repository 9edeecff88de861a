//! Takes the snapshot that all WebSockets send: one call and one serialisation for any number of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::Utf8Bytes;
use selvedge_control_config::view::{Comparison, NodeSnapshot, NodeView, VideoTrack};
use selvedge_units::Duration;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

use crate::history::{Alarm, History};

/// A snapshot ready to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    /// `{"snapshot": ..., "videos": ..., "comparison": ...}`.
    pub(crate) text: Utf8Bytes,
    /// `{"videos": ...}`, for those who may only watch.
    pub(crate) videos: Utf8Bytes,
    /// Stream, label and sender of each track; the same allocation for as long as they are the same.
    pub(crate) tracks: Arc<[[String; 3]]>,
    /// The streams' names by index; the same allocation for as long as they are the same.
    pub(crate) names: Arc<[String]>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    snapshot: &'a NodeSnapshot,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<Alarm>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    videos: Vec<VideoTrack>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

impl Published {
    fn next(&self, view: &dyn NodeView, alarms: Vec<Alarm>) -> Self {
        let snapshot = &view.snapshot();
        let (videos, comparison) = (view.videos(), view.comparison());
        let only = serde_json::json!({ "videos": videos }).to_string().into();
        let named = |track: &VideoTrack| [&track.stream, &track.label, &track.by].map(Clone::clone);
        let tracks = videos.iter().map(named).collect::<Arc<_>>();
        let tracks = if tracks == self.tracks { Arc::clone(&self.tracks) } else { tracks };
        let envelope = Envelope { snapshot, alarms, videos, comparison };
        let text = serde_json::to_string(&envelope).unwrap_or_default().into();
        let now = || snapshot.streams.iter().map(|stream| &stream.name);
        let names = if now().eq(self.names.iter()) {
            Arc::clone(&self.names)
        } else {
            now().cloned().collect()
        };
        Self { text, videos: only, tracks, names }
    }
}

/// Publishes every `every`, for ever; takes no snapshot while no client listens.
pub(crate) async fn publish(
    view: Arc<dyn NodeView>,
    every: Duration,
    history: Arc<Mutex<History>>,
    sender: watch::Sender<Published>,
) {
    let mut ticks = interval(every.into());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if sender.receiver_count() > 0 {
            let next = sender.borrow().next(&*view, lock(&history).alarms());
            sender.send_replace(next);
        }
    }
}

/// Time between the snapshots that the history is made of.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// Records the node's state, for ever, whether or not a client is connected.
pub(crate) async fn record(view: Arc<dyn NodeView>, history: Arc<Mutex<History>>) {
    let mut ticks = interval_at(Instant::now() + RECORD_EVERY.to_std(), RECORD_EVERY.to_std());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (snapshot, events) = (view.snapshot(), view.events());
        let mut history = lock(&history);
        history.push(&snapshot);
        history.push_events(events);
    }
}

/// A panic under the lock can't leave the history half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
