//! The visible state and the knobs of a running node: the one interface that the page, the API, the
//! metrics and the terminal view share.

mod pictures;
mod slot;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use selvedge_data_stream::{Kind, SpecSnapshot, Window};
use selvedge_units::{Bitrate, Duration};
use serde::{Deserialize, Serialize};

use crate::difference::Applied;
use crate::edit::Change;
use crate::{ConfigErrors, Token};
pub use pictures::{Comparison, PictureForm, Pictures, Sound, StreamPicture, VideoTrack};
pub use slot::{SetSnapshot, SharedCounts, StreamletQuery, StreamletSnapshot};

/// All of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSnapshot {
    /// The node's name.
    pub name: String,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// Its links, in the order of the node file.
    pub links: Vec<LinkSnapshot>,
    /// Its streams, in the order of the node file.
    pub streams: Vec<StreamSnapshot>,
}

/// A link at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSnapshot {
    /// Its name.
    pub name: String,
    /// The discipline that orders its streams.
    pub discipline: String,
    /// Configured rate.
    pub rate_bps: u64,
    /// Rate sent over the last second, headers included.
    pub sent_bps: u64,
    /// Rate offered by all its streams over the last second, headers included.
    pub offered_bps: u64,
    /// Bytes sent since the start.
    pub sent_bytes: u64,
    /// Bytes that the rate allowed while frames waited, since the start.
    #[serde(default)]
    pub could_send_bytes: u64,
    /// Packets that the device's queue (`etf`) dropped because they reached it after their departure
    /// time.
    #[serde(default)]
    pub missed_departures: u64,
    /// The bytes sent in the last seconds as a fraction of those that the rate allowed while frames
    /// waited; absent if none waited.
    #[serde(default)]
    pub used_share: Option<f64>,
    /// How late the link's thread woke up in the last seconds, at the median, in milliseconds; absent
    /// where that is not known.
    #[serde(default)]
    pub late_p50_ms: Option<f64>,
    /// The 99th percentile of the same.
    #[serde(default)]
    pub late_p99_ms: Option<f64>,
    /// Frames waiting.
    pub queued_frames: u64,
    /// Bytes waiting.
    pub queued_bytes: u64,
    /// The paths of its bond; empty without one.
    #[serde(default)]
    pub paths: Vec<PathSnapshot>,
    /// Its steps; empty without any.
    #[serde(default)]
    pub steps: Vec<StepSnapshot>,
}

/// A step of a link at one moment: what it did since it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSnapshot {
    /// Its name.
    pub name: String,
    /// The point at which it runs: `arrival`, `choice`, `dispatch` or `miss`.
    pub at: String,
    /// How often it was called.
    pub calls: u64,
    /// Frames that it discarded.
    pub discarded: u64,
    /// Calls that a fault ended, or that used up their fuel.
    pub faults: u64,
    /// The mean time of a call, in nanoseconds; 0 before the first.
    pub mean_ns: u64,
    /// The longest call, in nanoseconds.
    pub longest_ns: u64,
}

/// A path of a bond at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathSnapshot {
    /// Its name.
    pub name: String,
    /// Whether it carries packets.
    pub active: bool,
    /// Why it carries none, or probes only; else empty.
    pub detail: String,
    /// Its measured rate.
    pub rate_bps: u64,
    /// Rate sent over the last quarter of a second, repairs and probes included.
    pub sent_bps: u64,
    /// Bytes sent since the start, likewise.
    pub sent_bytes: u64,
    /// What is left of its budget this month, if it has one.
    #[serde(default)]
    pub left_bytes: Option<u64>,
    /// From a packet to its report, in milliseconds.
    pub round_trip_ms: f64,
    /// How long packets wait in its queues, in milliseconds.
    pub queueing_ms: f64,
    /// The share of its packets that is lost.
    pub loss: f64,
}

impl PathSnapshot {
    /// Whether anything was reported of it: without that no figure of it is measured.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.round_trip_ms > 0.0
    }
}

selvedge_units::named! {
    /// How a stream's source is doing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum StreamState {
        /// Not started yet.
        #[default]
        Starting = "starting",
        /// Frames arrive.
        Running = "running",
        /// No frame has arrived for several periods.
        Stalled = "stalled",
        /// The source failed and will be tried again.
        Retrying = "retrying",
        /// The source came to its end.
        Ended = "ended",
        /// The source failed for good.
        Failed = "failed",
    }
}

/// A stream at one moment. Counters count since the start; shares are fractions of 1 over the
/// last ten seconds, absent when no frame was settled in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSnapshot {
    /// Its name.
    pub name: String,
    /// Its link's name.
    pub link: String,
    /// Its source, as the node file has it.
    pub source: String,
    /// Its destination.
    pub to: String,
    /// The codec, as RTP names it (`H264`), once known.
    pub encoding: String,
    /// Those of its keys that are shown, as the node file has them.
    #[serde(flatten)]
    pub spec: SpecSnapshot,
    /// How its source is doing.
    pub state: StreamState,
    /// More about the state: the error, or when it is tried again; else empty.
    pub detail: String,
    /// Period in milliseconds.
    pub period_ms: f64,
    /// Window, `x/y`, or one for each kind (`I 0/1, P 1/8, B 1/2`).
    pub window: String,
    /// Priority.
    pub priority: i32,
    /// Weight.
    pub weight: u32,
    /// `drop` or `send`.
    pub late: String,
    /// Frames that arrived.
    pub frames: u64,
    /// Frames sent whole.
    pub sent: u64,
    /// Frames sent whole by their deadline.
    pub on_time: u64,
    /// Frames sent on time whose references were all on time too; where a protocol stack carries the
    /// stream, only those that its receiver reported as decodable.
    pub decodable: u64,
    /// Deadlines missed.
    pub missed: u64,
    /// Window violations.
    pub violations: u64,
    /// Frames dropped, by reason (only reasons that happened).
    pub dropped: BTreeMap<String, u64>,
    /// Bytes of dropped frames that were not sent, headers included.
    #[serde(default)]
    pub dropped_bytes: u64,
    /// An estimate of the processor time that sending them would have taken: as long a byte as the calls
    /// that hand packets to the kernel take on its link. `None` where that is not measured.
    #[serde(default)]
    pub spared_ms: Option<f64>,
    /// Packets that the system refused to send.
    #[serde(default)]
    pub send_errors: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Rate sent over the last second.
    pub sent_bps: u64,
    /// What its encoder aims at, where it follows the measured rate of its link.
    #[serde(default)]
    pub encoder_bps: Option<u64>,
    /// On-time share of the last ten seconds.
    pub on_time_share: Option<f64>,
    /// Decodable share of the last ten seconds, as its receiver reports it where a stack carries the stream;
    /// absent while that receiver is silent.
    pub decodable_share: Option<f64>,
    /// Mean time from arrival to the last packet sent, over the last ten seconds.
    pub queueing_mean_ms: Option<f64>,
    /// 99th percentile of the same.
    pub queueing_p99_ms: Option<f64>,
    /// Frames waiting.
    pub queued_frames: u64,
    /// The receivers' reports, where a protocol stack carries the stream.
    #[serde(default)]
    pub received: Option<ReceivedSnapshot>,
    /// The sets of its streamlets; empty without any.
    #[serde(default)]
    pub sets: Vec<SetSnapshot>,
    /// Packets of an SRTP source that were not authentic, or of no streamlet, since the start.
    #[serde(default)]
    pub refused_packets: u64,
    /// How long frames had waited when they were sent, since the start; absent where that is not
    /// recorded. For metrics alone.
    #[serde(skip)]
    pub queueing: Option<QueueingCounts>,
    /// Frames dropped by the link since the start, by the numbers of their kinds; absent likewise.
    #[serde(skip)]
    pub dropped_kinds: Option<[u64; Kind::COUNT]>,
}

/// The reports of a stream's receivers since the start, beside the sender's own view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedSnapshot {
    /// Packets that arrived.
    pub packets: u64,
    /// Frames that arrived, and those that the receiver knows to be missing.
    pub frames: u64,
    /// Frames of which every packet arrived.
    pub complete: u64,
    /// Frames that are decodable there.
    pub decodable: u64,
    /// Frames that left on time and whose references did: the sender's own count of decodable frames.
    pub sent_decodable: u64,
    /// How long the connected receiver has sent no report, in milliseconds; absent while it reports.
    pub silent_ms: Option<u64>,
}

/// Upper bounds of the waiting times that [`QueueingCounts`] counts; a last count is of all longer
/// times.
pub const QUEUEING_BOUNDS: [Duration; 12] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
    Duration::from_millis(5000),
];

/// Numbers of frames by waiting time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueingCounts {
    /// Frames up to each bound and above the one before.
    pub counts: [u64; QUEUEING_BOUNDS.len() + 1],
    /// The sum of their times, in milliseconds.
    pub sum_ms: f64,
}

/// The parameters that can be changed while a node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knob {
    /// A stream's window; replaces windows per kind.
    Window {
        /// The stream's name.
        stream: String,
        /// The new window.
        window: Window,
    },
    /// A stream's priority.
    Priority {
        /// The stream's name.
        stream: String,
        /// The new priority.
        priority: i32,
    },
    /// A link's rate.
    Rate {
        /// The link's name.
        link: String,
        /// The new rate, more than zero.
        rate: Bitrate,
    },
}

impl fmt::Display for Knob {
    /// As the node file would have it: `stream.lecture.window = "1/5"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { stream, window } => write!(f, "stream.{stream}.window = \"{window}\""),
            Self::Priority { stream, priority } => {
                write!(f, "stream.{stream}.priority = {priority}")
            }
            Self::Rate { link, rate } => write!(f, "link.{link}.rate = \"{rate}\""),
        }
    }
}

/// Why a knob could not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// There is no such stream.
    #[error("no stream is named \"{0}\"")]
    NoStream(String),
    /// There is no such link.
    #[error("no link is named \"{0}\"")]
    NoLink(String),
    /// The value is out of its range.
    #[error("{0}")]
    Range(String),
    /// The node is shutting down.
    #[error("the node is stopping")]
    Stopping,
}

/// A receiver that asked for a stream's frames, and gets them for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedReceiver {
    /// The name of its stream.
    pub name: String,
    /// Where its frames go.
    pub to: String,
    /// How long, in seconds, unless it asks again.
    pub for_s: u64,
    /// The session description; absent until the medium is known.
    pub sdp: Option<String>,
}

/// Why a receiver that asks gets nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No stream of this name takes receivers that ask.
    #[error("no stream \"{0}\" takes receivers that ask")]
    NoStream(String),
    /// So many have asked before.
    #[error("{0} receivers have it, and it takes no more")]
    TooMany(usize),
    /// The node can't add the receiver.
    #[error("{0}")]
    Refused(String),
}

/// Something that happened to a node: a reload, a refusal, a key that was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// When, in milliseconds since the node started.
    pub at_ms: u64,
    /// `reloaded`, `refused`, `set` or `saved`.
    pub kind: String,
    /// A description for people; several lines if a file has several mistakes.
    pub text: String,
}

/// Why a running node is not changed; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The new file is wrong, or describes something that this machine does not have; with the places.
    #[error(transparent)]
    File(#[from] ConfigErrors),
    /// These keys need a restart of the node.
    #[error("needs a restart: {}; nothing was changed", .0.join(", "))]
    Restart(Vec<String>),
    /// The machine, or a link, refuses it.
    #[error("{0}; nothing was changed")]
    Refused(String),
    /// The file can't be read or written.
    #[error("can't use the node file {path}: {why}")]
    Unusable {
        /// Its path.
        path: String,
        /// The reason.
        why: String,
    },
    /// The node was not started from a file.
    #[error("the node was not started from a file; reload its text from the program that runs it")]
    NoFile,
}

/// A running node, seen from outside. Calls return at once and may come from any thread.
pub trait NodeView: Send + Sync {
    /// The node at this moment.
    fn snapshot(&self) -> NodeSnapshot;
    /// The newest thumbnail of a stream: its number (grows with each new picture) and a JPEG.
    fn thumbnail(&self, stream: &str) -> Option<(u64, Arc<[u8]>)>;
    /// The event channels that the node sees on all hosts, as a list in JSON; `None` if it takes no
    /// part in events.
    fn channels(&self) -> Option<Arc<str>> {
        None
    }
    /// A streamlet of a stream; `None` if there is none.
    fn streamlet(&self, _stream: &str, _query: StreamletQuery) -> Option<StreamletSnapshot> {
        None
    }
    /// The endpoints of protocol stacks that carry its streams, as a list in JSON; `None` if there
    /// are none.
    fn stacks(&self) -> Option<Arc<str>> {
        None
    }
    /// The last events of the node, the oldest first.
    fn events(&self) -> Vec<NodeEvent> {
        Vec::new()
    }
    /// Reads the node file again and applies its changes: whole, or not at all. Takes as long as the
    /// new sources take to open.
    ///
    /// # Errors
    /// [`ReloadError`]; nothing has changed then.
    fn reload(&self) -> Result<Applied, ReloadError> {
        Err(ReloadError::NoFile)
    }
    /// Writes the values that were set while the node ran into its file, whose comments and order stay;
    /// returns the keys that it changed there.
    ///
    /// # Errors
    /// [`ReloadError`]; the file is then unchanged.
    fn save(&self) -> Result<Vec<Change>, ReloadError> {
        Err(ReloadError::NoFile)
    }
    /// The moving pictures that can be watched; the list does not change while the node runs, except
    /// for codecs that become known.
    fn videos(&self) -> Vec<VideoTrack> {
        Vec::new()
    }
    /// Pictures of a track, by its place in that list, that follow the one with the number `after`, a
    /// few at a time. If that is too long ago, those between are left out up to the next with which a
    /// decoder can begin.
    fn pictures(&self, _track: usize, _form: PictureForm, _after: Option<u64>) -> Pictures {
        Pictures::default()
    }
    /// The result of a comparison with another sender; `None` if there is none.
    fn comparison(&self) -> Option<Comparison> {
        None
    }
    /// What those who ask for frames of a stream must send; `None` if it takes none.
    fn receivers_token(&self, _stream: &str) -> Option<Token> {
        None
    }
    /// Sends frames of a stream to this address for a while; again, if it is sent there already. `delay`: instead of the
    /// stream's.
    ///
    /// # Errors
    /// [`AskError`].
    fn ask(
        &self,
        stream: &str,
        _to: SocketAddr,
        _delay: Option<Duration>,
        _lasts: Duration,
    ) -> Result<AskedReceiver, AskError> {
        Err(AskError::NoStream(stream.to_owned()))
    }
    /// Sends no more of a stream to a receiver that asked for it; false if it did not.
    fn leave(&self, _stream: &str, _to: SocketAddr) -> bool {
        false
    }
    /// Changes a knob.
    ///
    /// # Errors
    /// [`KnobError`]; nothing has changed then.
    fn set_knob(&self, knob: Knob) -> Result<(), KnobError>;
}
