//! The page of a receiver: its streams as they arrived, with their moving pictures.

use std::sync::Arc;
use std::time::Instant as StdInstant;

use parking_lot::Mutex;
use selvedge_control_config::view::{
    Knob, KnobError, NodeSnapshot, NodeView, PictureForm, Pictures, StreamSnapshot, StreamState,
    VideoTrack,
};
use selvedge_data_receive::MeterSnapshot;
use selvedge_media::Preview;

use crate::received::Watched;

/// The measurements so far, of each stream in order.
pub(super) type Measured = Box<dyn Fn() -> Vec<MeterSnapshot> + Send + Sync>;

/// A stream as the page names it.
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) encoding: String,
    pub(super) watched: Watched,
}

/// A receiver, seen by the page.
pub(super) struct PlayView {
    name: String,
    began: StdInstant,
    streams: Vec<Shown>,
    tracks: Vec<(usize, Arc<Preview>)>,
    measured: Measured,
    /// Counters at the beginnings of the last stretches of time, for shares and rates.
    marks: Mutex<Vec<(u64, Vec<MeterSnapshot>)>>,
}

/// Shares are of the last ten seconds, of which a mark is kept each second.
const MARKS: usize = 11;

impl PlayView {
    pub(super) fn new(name: &str, streams: Vec<Shown>, measured: Measured) -> Self {
        let track = |(n, shown): (usize, &Shown)| Some((n, Arc::clone(shown.watched.preview()?)));
        let tracks = streams.iter().enumerate().filter_map(track).collect();
        let (began, marks) = (StdInstant::now(), Mutex::default());
        Self { name: name.to_owned(), began, streams, tracks, measured, marks }
    }

    fn stream(&self, n: usize, now: &MeterSnapshot, ms: u64) -> StreamSnapshot {
        let marks = self.marks.lock();
        let nothing = MeterSnapshot::default();
        let before = |seconds: usize| {
            let mark = marks.len().saturating_sub(seconds + 1);
            marks.get(mark).map_or((0, &nothing), |(at, all)| (*at, all.get(n).unwrap_or(&nothing)))
        };
        let (_, ten) = before(MARKS - 1);
        let (since, second) = before(1);
        let share = |of: fn(&MeterSnapshot) -> Option<u64>| {
            let frames = now.frames.saturating_sub(ten.frames);
            let part = of(now)?.saturating_sub(of(ten).unwrap_or(0));
            (frames > 0).then(|| part as f64 / frames as f64)
        };
        let bits = now.bytes.saturating_sub(second.bytes) * 8;
        let silent = now.packets > 0 && now.packets == before(3).1.packets && marks.len() > 3;
        let state = match now.packets {
            0 => StreamState::Starting,
            _ if silent => StreamState::Stalled,
            _ => StreamState::Running,
        };
        let shown = &self.streams[n];
        StreamSnapshot {
            name: shown.name.clone(),
            source: shown.from.clone(),
            to: "here".to_owned(),
            encoding: shown.encoding.clone(),
            state,
            detail: if silent { "no packet for seconds".to_owned() } else { String::new() },
            frames: now.frames,
            sent: now.complete,
            on_time: now.on_time.unwrap_or(now.complete),
            decodable: now.decodable.unwrap_or(now.complete),
            missed: now.late.unwrap_or(0),
            sent_bytes: now.bytes,
            sent_bps: bits * 1000 / ms.saturating_sub(since).max(250),
            on_time_share: share(|meter| meter.on_time),
            decodable_share: share(|meter| meter.decodable),
            queueing_mean_ms: now.queueing_ms,
            queueing_p99_ms: now.queueing_ms,
            ..StreamSnapshot::default()
        }
    }
}

impl NodeView for PlayView {
    fn snapshot(&self) -> NodeSnapshot {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let meters = (self.measured)();
        {
            let mut marks = self.marks.lock();
            if marks.last().is_none_or(|(at, _)| ms >= at + 1000) {
                if marks.len() == MARKS {
                    marks.remove(0);
                }
                marks.push((ms, meters.clone()));
            }
        }
        let streams = self.streams.iter().zip(&meters).enumerate();
        let streams = streams.map(|(n, (_, meter))| self.stream(n, meter, ms)).collect();
        NodeSnapshot { name: self.name.clone(), uptime_ms: ms, links: Vec::new(), streams }
    }

    fn thumbnail(&self, _stream: &str) -> Option<(u64, Arc<[u8]>)> {
        None
    }

    fn videos(&self) -> Vec<VideoTrack> {
        self.tracks.iter().map(|(n, _)| self.streams[*n].watched.track("")).collect()
    }

    fn pictures(&self, track: usize, form: PictureForm, after: Option<u64>) -> Pictures {
        let preview = self.tracks.get(track).map(|(_, preview)| preview);
        preview.map_or_else(Pictures::default, |preview| preview.pictures(form, after))
    }

    fn set_knob(&self, knob: Knob) -> Result<(), KnobError> {
        Err(match knob {
            Knob::Rate { link, .. } => KnobError::NoLink(link),
            Knob::Window { stream, .. } | Knob::Priority { stream, .. } => {
                KnobError::Range(format!("{stream} is received here; its sender has this knob"))
            }
        })
    }
}
