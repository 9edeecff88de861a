//! The requests and replies of the control socket ([`selvedge_os::control`]), with file descriptors beside
//! them where memory is handed over. `docs/coprocessor.md` shows each message with an example.

mod statistics;

use selvedge_comm_carrier::StackSpec;
use selvedge_data_stream::{Spec, Windows};
use serde::{Deserialize, Serialize};

pub use self::statistics::{
    ExtensionStatistics, HistogramStatistics, Statistics, StreamStatistics, StreamletStatistics,
};

/// The longest name of a stream or an extension, in bytes.
pub const NAME_MAX: usize = 64;

/// A producer's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// The first request. With two descriptors - a doorbell's memory and event - a producer reattaches to a
    /// restarted coprocessor; without them it gets new ones.
    Attach {
        /// The producer's name, for logs and statistics.
        name: String,
    },
    /// Adds a stream; answered with its segment's descriptor. With one descriptor the segment is that one,
    /// and the frames that wait in it are sent.
    Add {
        /// Its description.
        stream: Spec,
        /// The bit of the doorbell that its producer sets; without it, the lowest free one.
        #[serde(default)]
        bit: Option<usize>,
        /// The stack that carries its packets in place of plain UDP.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stack: Option<Box<StackSpec>>,
    },
    /// Adds a stream whose frames the coprocessor reads from a recording itself.
    Read {
        /// Its description.
        stream: Spec,
        /// The recording, an absolute path.
        file: String,
        /// Begin again at the end of the recording.
        #[serde(default)]
        repeat: bool,
        /// The RTP source identifier.
        ssrc: u32,
        /// The stack that carries its packets in place of plain UDP.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stack: Option<Box<StackSpec>>,
    },
    /// Makes one of this producer's streams the slot of streamlets, before its first frame. They come in one
    /// descriptor: memory that holds a [`SlotConfig`](selvedge_control_config::SlotConfig) as JSON.
    Aggregate {
        /// Its number.
        stream: usize,
        /// Bytes of the memory.
        bytes: usize,
        /// The longest that a frame may wait, in nanoseconds; older ones are dropped. Without it: any.
        #[serde(default)]
        delay_ns: Option<u64>,
        /// The SSRC of the first streamlet; each other has the next.
        ssrc: u32,
    },
    /// Answered with the counts of one streamlet of a slot.
    Streamlet {
        /// The slot's number.
        stream: usize,
        /// The streamlet's number.
        streamlet: u32,
    },
    /// Removes one of this producer's streams, once its waiting frames are sent or this time has passed.
    Remove {
        /// Its number.
        stream: usize,
        /// Nanoseconds.
        within_ns: u64,
    },
    /// Changes one of this producer's streams.
    Turn {
        /// Its number.
        stream: usize,
        /// Its new priority.
        #[serde(default)]
        priority: Option<i32>,
        /// Its new windows, `x/y`: one, or one for each kind.
        #[serde(default)]
        windows: Option<Windows>,
    },
    /// Changes windows, priority, weight, period and delay of one of this producer's streams.
    Terms {
        /// Its number.
        stream: usize,
        /// The new description; all but these five values stays unchanged.
        spec: Spec,
    },
    /// Changes the link's rate.
    Rate {
        /// Bits per second.
        bps: u64,
    },
    /// Answered with a descriptor of memory that holds [`Statistics`] as JSON.
    Statistics {},
    /// Loads an extension, in place of one of the same name.
    Load {
        /// Its name here.
        name: String,
        /// The extension, by its name in the table.
        extension: String,
        /// The point at which it runs: `arrival`, `choice`, `dispatch`, `miss`.
        point: String,
        /// The extension's arguments.
        #[serde(default)]
        arguments: serde_json::Value,
    },
    /// Removes an extension.
    Unload {
        /// Its name.
        name: String,
    },
    /// Ends the coprocessor. Waiting frames stay in their producers' memory.
    Shutdown {},
}

/// A reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The number of the stream that was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<usize>,
    /// Its bit in the doorbell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit: Option<usize>,
    /// The counts of the streamlet that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamlet: Option<StreamletStatistics>,
    /// Bytes of the memory in the accompanying descriptor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// The link, in the reply to an attach request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkSpec>,
}

/// The link that a producer attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// The discipline's name.
    pub discipline: String,
    /// Bits per second.
    pub rate_bps: u64,
    /// The largest IP packet.
    pub mtu: u64,
    /// How the engine's thread runs, in words.
    pub runs: String,
    /// The coprocessor's process.
    pub pid: u32,
}
