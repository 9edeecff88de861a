//! A node that does nothing by itself: tests set the visible state and read the changed knobs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use selvedge_control_config::view::{
    AskError, AskedReceiver, Knob, KnobError, LinkSnapshot, NodeSnapshot, NodeView, PathSnapshot,
    PictureForm, Pictures, QueueingCounts, SetSnapshot, SharedCounts, StepSnapshot, StreamPicture,
    StreamSnapshot, StreamState, StreamletQuery, StreamletSnapshot, VideoTrack,
};
use selvedge_control_config::{PageConfig, Token};
use selvedge_units::{Duration, Instant};
use selvedge_web::{Limits, Server};

/// The token of those who ask for the stream `lecture`.
pub(crate) const ASKS: &str = "s3cret-token-to-ask";

/// A name that needs escaping wherever it goes.
pub(crate) const ODD: &str = "a \"b\"\\/é\n%41";

#[derive(Default)]
pub(crate) struct IdleNode {
    pub(crate) node: Mutex<NodeSnapshot>,
    pub(crate) set_knobs: Mutex<Vec<Knob>>,
    /// How many snapshots were taken; also its uptime, so that snapshots can be distinguished.
    pub(crate) looks: AtomicU64,
    /// The number of the newest picture of every stream; 0: there is none.
    pub(crate) picture: AtomicU64,
    /// Moving pictures of every track so far; each tenth is an intra picture.
    pub(crate) moving: AtomicU64,
    /// How many of them were returned.
    pub(crate) given: AtomicU64,
    pub(crate) tracks: Mutex<Vec<VideoTrack>>,
}

/// Those of a set or a streamlet.
const COUNTS: SharedCounts = SharedCounts {
    sent: 400,
    sent_bytes: 40_000,
    dropped: 7,
    waiting: 3,
    delay_mean_ms: Some(2.5),
    delay_max_ms: Some(90.0),
};

impl IdleNode {
    pub(crate) fn new() -> Arc<Self> {
        let stream = StreamSnapshot {
            name: "lecture".into(),
            link: "uplink".into(),
            state: StreamState::Running,
            period_ms: 40.0,
            window: "1/5".into(),
            frames: 1000,
            sent: 960,
            on_time: 950,
            decodable: 940,
            dropped: BTreeMap::from([("expired".into(), 30), ("group-skipped".into(), 10)]),
            queueing_p99_ms: Some(12.5),
            dropped_bytes: 48_000,
            spared_ms: Some(0.25),
            send_errors: 3,
            sets: vec![SetSnapshot {
                name: "gold".into(),
                weight: 2,
                streamlets: 100,
                bound_ms: 1520.0,
                counts: COUNTS,
            }],
            dropped_kinds: Some([2, 8, 30, 0, 0, 0]),
            queueing: Some(QueueingCounts {
                counts: [0, 0, 0, 900, 0, 0, 0, 0, 0, 0, 0, 0, 60],
                sum_ms: 450_000.0,
            }),
            ..StreamSnapshot::default()
        };
        let odd = StreamSnapshot { name: ODD.into(), link: "up\"link".into(), ..stream.clone() };
        let link = LinkSnapshot {
            name: "uplink".into(),
            rate_bps: 6_000_000,
            sent_bytes: 123_456,
            could_send_bytes: 125_000,
            missed_departures: 3,
            used_share: Some(0.985),
            late_p99_ms: Some(0.7),
            paths: vec![PathSnapshot {
                name: "lte".into(),
                active: true,
                rate_bps: 2_000_000,
                round_trip_ms: 80.0,
                loss: 0.03,
                ..PathSnapshot::default()
            }],
            steps: vec![StepSnapshot {
                name: "thin".into(),
                at: "arrival".into(),
                calls: 90,
                discarded: 60,
                mean_ns: 1500,
                ..StepSnapshot::default()
            }],
            ..LinkSnapshot::default()
        };
        let node = NodeSnapshot {
            name: "studio".into(),
            uptime_ms: 0,
            links: vec![link],
            streams: vec![stream, odd],
        };
        Arc::new(Self { node: Mutex::new(node), ..Self::default() })
    }

    pub(crate) fn serve(self: &Arc<Self>, limits: Limits) -> Server {
        self.serve_as(PageConfig::default(), limits)
    }

    /// At any free port of the loopback, otherwise as `page` configures.
    pub(crate) fn serve_as(self: &Arc<Self>, page: PageConfig, limits: Limits) -> Server {
        let view: Arc<dyn NodeView> = Arc::clone(self) as _;
        let listen = "127.0.0.1:0".parse().unwrap();
        Server::start_with(view, PageConfig { listen, ..page }, limits).unwrap()
    }

    /// From now on it has a further track.
    pub(crate) fn add_track(&self, stream: &str) {
        let (stream, label) = (stream.to_owned(), "sent".to_owned());
        self.tracks.lock().unwrap().push(VideoTrack { stream, label, ..VideoTrack::default() });
    }

    pub(crate) fn last_set_knob(&self) -> Option<Knob> {
        self.set_knobs.lock().unwrap().last().cloned()
    }
}

impl NodeView for IdleNode {
    fn receivers_token(&self, stream: &str) -> Option<Token> {
        (stream == "lecture").then(|| ASKS.parse().unwrap())
    }

    fn ask(
        &self,
        stream: &str,
        to: SocketAddr,
        _delay: Option<Duration>,
        lasts: Duration,
    ) -> Result<AskedReceiver, AskError> {
        if to.port() == 9999 {
            return Err(AskError::TooMany(100));
        }
        let (name, for_s) = (format!("{stream}/asked"), lasts.0 / 1_000_000_000);
        Ok(AskedReceiver { name, to: format!("rtp://{to}"), for_s, sdp: None })
    }

    fn leave(&self, _stream: &str, to: SocketAddr) -> bool {
        to == "127.0.0.1:5004".parse().unwrap()
    }

    fn streamlet(&self, stream: &str, query: StreamletQuery) -> Option<StreamletSnapshot> {
        let StreamletQuery { number, to, ssrc } = query;
        let is_it = stream == "lecture" && number.is_none_or(|number| number == 17);
        let is_it = is_it && ssrc.is_none_or(|ssrc| ssrc == 1017);
        let to = to.unwrap_or_else(|| "192.0.2.7:5004".parse().unwrap());
        is_it.then(|| StreamletSnapshot {
            number: 17,
            set: "gold".into(),
            ssrc: Some(1017),
            to: format!("rtp://{to}"),
            counts: COUNTS,
            ..StreamletSnapshot::default()
        })
    }

    fn snapshot(&self) -> NodeSnapshot {
        let uptime_ms = self.looks.fetch_add(1, Ordering::Relaxed);
        NodeSnapshot { uptime_ms, ..self.node.lock().unwrap().clone() }
    }

    fn thumbnail(&self, _: &str) -> Option<(u64, Arc<[u8]>)> {
        let number = self.picture.load(Ordering::Relaxed);
        (number > 0).then(|| (number, Arc::from(&b"\xff\xd8jpeg"[..])))
    }

    fn videos(&self) -> Vec<VideoTrack> {
        self.tracks.lock().unwrap().clone()
    }

    fn pictures(&self, track: usize, _form: PictureForm, after: Option<u64>) -> Pictures {
        let newest = self.moving.load(Ordering::Relaxed);
        let last_intra = newest.saturating_sub(1) / 10 * 10;
        // A ring of twenty.
        let next = after.map_or(last_intra, |after| after + 1);
        let next = if next + 20 < newest { last_intra } else { next };
        let list: Vec<StreamPicture> = (next..newest.min(next + 4))
            .map(|number| StreamPicture {
                number,
                intra: number % 10 == 0,
                present: Duration::from_millis(40 * number),
                due: Instant(5_000_000),
                taken: (number != 11).then_some(Instant(1_000_000)),
                bytes: vec![track as u8; 10_000].into(),
            })
            .collect();
        self.given.fetch_add(list.len() as u64, Ordering::Relaxed);
        Pictures { now: Instant(8_000_000), list }
    }

    fn set_knob(&self, knob: Knob) -> Result<(), KnobError> {
        let node = self.node.lock().unwrap();
        let has = |name: &str| node.streams.iter().any(|stream| stream.name == name);
        match &knob {
            Knob::Window { stream, .. } | Knob::Priority { stream, .. } if !has(stream) => {
                return Err(KnobError::NoStream(stream.clone()));
            }
            Knob::Priority { priority: 2000.., .. } => {
                return Err(KnobError::Range("priority is too high; it is at most 1000".into()));
            }
            Knob::Priority { priority: -2000, .. } => return Err(KnobError::Stopping),
            Knob::Rate { link, .. } if link != "uplink" => {
                return Err(KnobError::NoLink(link.clone()));
            }
            _ => {}
        }
        self.set_knobs.lock().unwrap().push(knob);
        Ok(())
    }
}
