//! The requests and replies of the control socket ([`selvedge_os::control`]), with file descriptors beside
//! them where memory is handed over. `docs/coprocessor.md` has each message with an example.

mod statistics;

use selvedge_data_stream::{Spec, Windows};
use serde::{Deserialize, Serialize};

pub use self::statistics::{
    ExtensionStatistics, HistogramStatistics, Statistics, StreamStatistics,
};

/// The longest name of a stream or a step, in bytes.
pub const NAME_MAX: usize = 64;

/// What a producer asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// First of all. With two descriptors - a doorbell's memory and event - a producer comes back
    /// to a coprocessor that was started again; without, it gets new ones.
    Attach {
        /// Who it is, for logs and statistics.
        name: String,
    },
    /// Adds a stream; answered with its segment's descriptor. With one descriptor the segment is
    /// that one, and what waits in it is sent.
    Add {
        /// What it is.
        stream: Spec,
        /// The bit of the doorbell that its producer sets; without: the lowest that is free.
        #[serde(default)]
        bit: Option<usize>,
    },
    /// Adds a stream whose frames the coprocessor reads from a recording itself.
    Read {
        /// What it is.
        stream: Spec,
        /// The recording, an absolute path.
        file: String,
        /// Begin again at its end.
        #[serde(default)]
        repeat: bool,
        /// The RTP source identifier.
        ssrc: u32,
    },
    /// Removes one of this producer's streams, once what waits is sent or so much time has passed.
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
        /// What it is from now on; all but these five goes on as it was.
        spec: Spec,
    },
    /// Changes the link's rate.
    Rate {
        /// Bits per second.
        bps: u64,
    },
    /// Answered with a descriptor of memory that holds [`Statistics`] as JSON.
    Statistics {},
    /// Loads an extension's step, in place of one of the same name.
    Load {
        /// What it is called here.
        name: String,
        /// Which extension, by the name in the table.
        extension: String,
        /// Where it stands: `arrival`, `choice`, `dispatch`, `miss`.
        point: String,
        /// What the extension is told.
        #[serde(default)]
        arguments: serde_json::Value,
    },
    /// Removes a step.
    Unload {
        /// What it is called.
        name: String,
    },
    /// Ends the coprocessor. What waits stays in its producers' memory.
    Shutdown {},
}

/// What comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The number of the stream that was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<usize>,
    /// Its bit in the doorbell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit: Option<usize>,
    /// Bytes of the memory that came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// The link, told when attaching.
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
