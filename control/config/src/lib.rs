//! A node as its file describes it, once checked: only valid values; and a [`network`] as its own file
//! does.
//!
//! [`parse`] makes it from the text of a TOML file and reads no other file. The caller checks what
//! depends on the machine (whether a file or a device exists), and reports errors at the right line
//! with [`ConfigErrors::push_key`] and the [`SourceMap`].

mod address;
mod bond;
mod destination;
pub mod difference;
pub mod edit;
mod errors;
pub mod feasibility;
mod knobs;
mod link;
mod mistake;
pub mod network;
mod page;
mod position;
mod quote;
mod read;
mod secret;
mod section;
mod slot;
mod source;
mod stack;
mod step;
mod stream;
mod summary;
mod syntax;
#[cfg(test)]
mod tests;
mod token;
mod tree;
mod tunnel;
mod url;
pub mod view;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use selvedge_data_link::LinkParams;
use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stack::compose::Composition;
use selvedge_data_stack::load::Load;
use selvedge_data_stream::Spec;
use selvedge_units::{Bitrate, Bytes, Duration};

pub use address::{AddressError, receiver};
pub use bond::{BondConfig, BondLink, PathConfig, bonded, reported};
pub use destination::{Destination, DestinationError};
pub use errors::{ConfigError, ConfigErrors};
pub use knobs::EncoderKnob;
pub use mistake::ConfigFault;
pub use page::{PageConfig, Tls};
pub use position::{Position, SourceMap};
pub use quote::quoted;
pub use read::{LINKS_MAX, LONGEST_FILE, Parsed, STREAMS_MAX, parse};
pub use secret::redacted;
pub use slot::{
    LISTENERS_MAX, STREAMLET_MEMORY, STREAMLETS_MAX, SetConfig, SetSummary, SlotConfig, SlotError,
    Streamlet, StreamletGroup,
};
pub use source::SourceError;
pub use stack::{CARRIED_MIN, carried, fit};
pub use step::{FUEL, FUELS, Stage, StepConfig};
pub use summary::{
    LinkSummary, PathSummary, StackSummary, StreamSummary, Summary, TreeOwner, windows_text,
};
pub use token::{Token, TokenError};
pub use tree::NODES_MAX;
pub use tunnel::{Nat, TunnelConfig, framing};
pub use url::{Url, UrlError};

/// A whole node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// `[node] name`, default `selvedge`.
    pub name: String,
    /// The rest of `[node]`: page, API, metrics.
    pub page: PageConfig,
    /// `[link.NAME]`, in the order of the file; at least one.
    pub links: Vec<LinkConfig>,
    /// `[bond.NAME]`, in the order of the file: the far ends of bonds.
    pub bonds: Vec<BondConfig>,
    /// `[tunnel.NAME]`, in the order of the file.
    pub tunnels: Vec<TunnelConfig>,
    /// `[stream.NAME]`, in the order of the file, followed by those of tunnels; at least one.
    pub streams: Vec<StreamConfig>,
}

/// A link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The table's name.
    pub name: String,
    /// `rate`, more than zero, at most 1000 Gbit/s: bits per second on the wire, IP and UDP headers included. Required,
    /// except for a bond. Where the rate is measured: the rate that it begins with.
    pub rate: Bitrate,
    /// `rate = "auto"`, which a bond's rate is without saying.
    pub is_auto: bool,
    /// `discipline`, default `dwcs`.
    pub discipline: Discipline,
    /// `selection`, default true (false for `fifo`): drop early the frames that can't be decoded or
    /// can't be on time, so that the others are.
    pub selection: bool,
    /// `burst`, default one packet of `mtu`: the bytes that may be sent at once; `mtu` to 64 MB.
    pub burst: Bytes,
    /// `catch_up`, 0 B to 64 MB: how many of the bytes that late wake-ups missed while frames waited
    /// are sent afterwards. Default (`None`): the larger of two packets of `mtu` and 20 ms of the rate,
    /// but at most what the rate carries in a tenth of the shortest `delay`.
    pub catch_up: Option<Bytes>,
    /// `mtu`, default `1500 B`, 576 B to 65535 B: the largest IP packet.
    pub mtu: Bytes,
    /// `queue`: the most bytes that may wait, over all streams; a frame that would exceed it is
    /// dropped on arrival. Default: none for selection (rings bound it); without, 250 ms of the rate, the
    /// usual size of a router's buffer (Villamizar and Song, 1994), at least one `mtu`.
    pub queue: Option<Bytes>,
    /// `[link.NAME.tree.NODE]` and `remap`, for `hwfq`: the tree below which streams hang. Default: the
    /// link alone, shared exactly.
    pub tree: Tree,
    /// The names of the tree's nodes, in its order: parents before children.
    pub nodes: Vec<String>,
    /// `placement`, default `inline`: where the link is scheduled and sent from.
    pub placement: Placement,
    /// `socket`: where the link's coprocessor listens, or is to listen; `None`: it is started for
    /// this node alone.
    pub socket: Option<String>,
    /// `core`: the core that a coprocessor started for this node runs on.
    pub core: Option<u32>,
    /// `send`, default `auto`: how packets are handed to the kernel.
    pub sending: Sending,
    /// `device`, for `kernel`: the device that gets the scheduler. `None`: the one by which the
    /// streams' packets leave.
    pub device: Option<String>,
    /// `stack`: the protocol stack that carries the packets of its streams, where they name none
    /// themselves. `None`: plain RTP.
    pub stack: Option<Composition>,
    /// `stack_share`: the part of a processor that is reserved for each thread of its stacks. `None`: nothing.
    pub stack_share: Option<Load>,
    /// `stack_processors`: the processors to which these threads are pinned in turn; empty: any.
    pub stack_processors: Vec<usize>,
    /// `stack_delay`: how long the stacks of both hosts and the network may take, firmly. `None`: each stream's `delay`
    /// is wanted, and not firm.
    pub stack_delay: Option<Duration>,
    /// `secret`: a file with the secret that nodes and receivers of its stacks must share, 64
    /// hexadecimal digits. `None`: any peer's key is accepted.
    pub secret: Option<String>,
    /// `key`: a file with this end's static key, instead of a secret.
    pub key: Option<String>,
    /// `peer`: with `key`, the name of the receiver among its peers; not needed if there is only one.
    pub peer: Option<String>,
    /// `to` and `[link.NAME.path.NAME]`: the bond that carries its streams to another node. `None`: each stream goes to
    /// its own receiver.
    pub bond: Option<BondLink>,
    /// `[[link.NAME.step]]`: its steps in E-code, in the order of the file.
    pub steps: Vec<StepConfig>,
}

selvedge_units::named! {
    /// How a link's packets are handed to the kernel. Each way falls back to the next simpler one where the
    /// kernel does not have it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Sending {
        /// The fastest way known to work: `gso`.
        #[default]
        Auto = "auto",
        /// Many packets by one call.
        Sendmmsg = "sendmmsg",
        /// The same, and runs of packets pass through the kernel as one.
        Gso = "gso",
        /// Whole frames to the device's driver, by AF_XDP.
        Xdp = "xdp",
        /// Nowhere: packets count as sent. It measures the node alone.
        Null = "null",
    }
}

selvedge_units::named! {
    /// Where a link is scheduled and sent from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Placement {
        /// In a thread of the node's own process.
        #[default]
        Inline = "inline",
        /// In a coprocessor's process, fed by the node's through shared memory.
        Coprocessor = "coprocessor",
        /// The same, and the coprocessor reads the streams' recordings itself.
        CoprocessorReads = "coprocessor-reads",
        /// In the kernel, by a qdisc of the device.
        Kernel = "kernel",
    }
}

impl LinkConfig {
    /// Whether its stacks seal all that they send and accept only sealed data.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.secret.is_some() || self.key.is_some()
    }

    /// What its link in `data/link` is set to.
    #[must_use]
    pub const fn params(&self) -> LinkParams {
        LinkParams {
            discipline: self.discipline,
            selection: self.selection,
            rate: self.rate,
            burst: self.burst,
            catch_up: self.catch_up,
            mtu: self.mtu,
            queue: self.queue,
        }
    }

    /// A link of this name and rate, and of this discipline, with the defaults of the others.
    #[must_use]
    pub fn new(name: &str, rate: Bitrate, discipline: Discipline) -> Self {
        let mtu = Bytes(1500);
        let selection = discipline != Discipline::Fifo;
        let queue = Self::default_queue(rate, mtu, selection);
        Self {
            name: name.to_owned(),
            rate,
            discipline,
            selection,
            burst: mtu,
            catch_up: None,
            mtu,
            queue,
            tree: Tree::default(),
            nodes: Vec::new(),
            placement: Placement::Inline,
            socket: None,
            core: None,
            sending: Sending::Auto,
            device: None,
            stack: None,
            stack_share: None,
            stack_processors: Vec::new(),
            stack_delay: None,
            secret: None,
            key: None,
            peer: None,
            bond: None,
            steps: Vec::new(),
            is_auto: false,
        }
    }

    /// Whether the rate is measured while it is used.
    #[must_use]
    pub const fn is_measured(&self) -> bool {
        self.is_auto || self.bond.is_some()
    }

    /// The value of `queue` where the file leaves it out.
    #[must_use]
    pub fn default_queue(rate: Bitrate, mtu: Bytes, selection: bool) -> Option<Bytes> {
        let quarter_second = rate * Duration::from_millis(250);
        (!selection).then_some(quarter_second.max(mtu))
    }
}

/// A stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// The requirements on the link: name, receiver, contract, room.
    pub spec: Spec,
    /// `source`, required.
    pub source: SourceUri,
    /// `link`: the link's name; may be left out if there is only one. Index into `links`.
    pub link: usize,
    /// `sdp`: where to write the SDP file, if anywhere.
    pub sdp: Option<String>,
    /// `thumbnail`, default true.
    pub thumbnail: bool,
    /// `stack`, or the link's: the protocol stack that carries its packets. `None`: plain RTP.
    pub stack: Option<Composition>,
    /// `to`, unless it is the numeric RTP address in `spec`: the output that carries its packets there.
    pub output: Option<Destination>,
    /// Where the far end of its link's bond listens, if a bond carries it: an address or a name, and a port.
    pub far: Option<String>,
    /// Whether the rate of its link is measured by what its receiver reports.
    pub is_reported: bool,
    /// `rtcp_port`: the port of this host at which its receiver's RTCP arrives; its RTP leaves by the port before. `None`:
    /// any.
    pub rtcp_port: Option<u16>,
    /// `streamlets`, `sets` and `streamlet_queue`: the streamlets that share it. Its `to` is then the first one's.
    pub slot: Option<Arc<SlotConfig>>,
    /// Whether its source's frames go to several receivers, each a stream named `STREAM/RECEIVER`: the tables
    /// `receiver`.
    pub shares: bool,
    /// `receivers`: what receivers that ask may have of its source.
    pub asks: Option<Arc<Asks>>,
}

/// What receivers that ask may have of a stream's source.
#[derive(Clone, Debug, PartialEq)]
pub struct Asks {
    /// `token`: only those who send it are answered.
    pub token: Token,
    /// `most`: so many at a time.
    pub most: usize,
    /// What each gets, at its own address: the keys of the stream's table.
    pub like: StreamConfig,
}

/// The path of a stream's table: `stream.cam`, and for the stream `cam/hall`, one of its receivers,
/// `stream.cam.receiver.hall`.
#[must_use]
pub fn stream_table(name: &str) -> String {
    match name.split_once('/') {
        Some((stream, receiver)) => format!("stream.{stream}.receiver.{receiver}"),
        None => format!("stream.{name}"),
    }
}

impl StreamConfig {
    /// The name of the stream whose source it sends: its own, or that of which it is a receiver.
    #[must_use]
    pub fn source_name(&self) -> &str {
        self.spec.name.split('/').next().unwrap_or_default()
    }

    /// Whether it is sent in the RTP packets of its source; else its output makes packets of its own.
    #[must_use]
    pub fn takes_rtp(&self) -> bool {
        self.output.as_ref().is_none_or(Destination::takes_rtp)
    }

    /// Whether both are receivers of the same source's frames.
    #[must_use]
    pub fn shares_source(&self, other: &Self) -> bool {
        self.shares && other.shares && self.source_name() == other.source_name()
    }

    /// A stream from this source to this receiver over the first link, with all defaults.
    #[must_use]
    pub fn new(name: &str, source: SourceUri, to: SocketAddr) -> Self {
        Self {
            spec: Spec::new(name, to),
            source,
            link: 0,
            sdp: None,
            thumbnail: true,
            stack: None,
            output: None,
            far: None,
            is_reported: false,
            rtcp_port: None,
            slot: None,
            shares: false,
            asks: None,
        }
    }

    /// The most memory that its waiting frames take. A slot has as much as its pool again in the queues of its
    /// streamlets, and [`STREAMLET_MEMORY`] for each of these.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        let slot = self.slot.as_ref().map(|slot| self.spec.pool + slot.memory());
        self.spec.memory() + slot.unwrap_or_default()
    }

    /// Whether its packets are those of a tunnel.
    #[must_use]
    pub const fn is_tunnel(&self) -> bool {
        matches!(self.source, SourceUri::Tunnel(_))
    }

    /// Whether both go into one output: a picture and a sound that name the same destination. RTP carries each
    /// to a port of its own.
    #[must_use]
    pub fn shares_output(&self, other: &Self) -> bool {
        let (to, others) = (self.output.as_ref(), other.output.as_ref());
        self.spec.name != other.spec.name
            && to.is_some_and(|to| !["rtp", "shm"].contains(&to.scheme()) && Some(to) == others)
    }

    /// Where it goes, as node files write it, without secrets.
    #[must_use]
    pub fn receiver(&self) -> String {
        match &self.output {
            Some(output) => output.to_string(),
            None if let (true, Some(far)) = (self.is_tunnel(), &self.far) => {
                format!("bond://{far}/{}", self.spec.name)
            }
            None if let Some(slot) = self.slot.as_ref().filter(|slot| slot.count() > 1) => {
                format!("rtp://{} and {} more", self.spec.to, slot.count() - 1)
            }
            None if let Some(far) = &self.far => format!("bond://{far}/{}", self.spec.name),
            None => format!("rtp://{}", self.spec.to),
        }
    }
}

/// The part of a file that is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilePart {
    /// The first video, else the first sound, as it is encoded.
    #[default]
    First,
    /// `sound`: the first sound, as it is encoded.
    Sound,
    /// `l16`: the first sound, without compression.
    L16,
    /// `encode=2 Mbit/s`: the first video, encoded anew as H.264 of at most this rate.
    Encoded(Bitrate),
}

/// Where frames come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceUri {
    /// `file:PATH`, with `?` and `loop` to begin again at its end, `sound` for its sound and not its
    /// picture, `l16` for its sound without compression, `encode=2 Mbit/s` for its picture encoded anew, joined by `&`.
    File {
        /// The path, relative to the node file's folder.
        path: String,
        /// Begin again at the end.
        repeat: bool,
        /// The part that is wanted.
        part: FilePart,
    },
    /// `test:video` (H.264), `test:mpeg2`, `test:jpeg`, `test:audio`, with `?` and options
    /// `rate=25` (1 to 240 frames per second), `size=320x240` (even, 16 to 4096; not for audio)
    /// joined by `&`; the text after `test:`.
    Test(String),
    /// `rtp://HOST:PORT?encoding=H264&clock=90000&pt=96`: packets that arrive at this port.
    Rtp {
        /// Where to listen.
        listen: SocketAddr,
        /// `encoding`: `H264`, `H265`, `VP8`, `VP9`, `MPV`, `JPEG`, `L16`; required.
        encoding: String,
        /// `clock`, the RTP clock in Hz: 90000 for video; 8000 to 192000, default 44100, for `L16`.
        clock: u32,
        /// `pt`, the payload type; `None`: any.
        payload_type: Option<u8>,
        /// The key `from` of the stream: only packets of this sender count; `None`: those of any
        /// sender.
        from: Option<IpAddr>,
    },
    /// `sdp:PATH`: packets that arrive as a session description states, of its first video, else its
    /// first sound.
    Sdp {
        /// The path, relative to the node file's folder.
        path: String,
        /// As for packets that arrive at a port.
        from: Option<IpAddr>,
    },
    /// `rtsp://`, `srt://`, `rtmp://`: a camera or server to connect to; `udp://`: an MPEG transport
    /// stream that arrives.
    Network(Url),
    /// `camera:DEVICE`, a path such as `camera:/dev/video0`.
    Camera(String),
    /// `record:PATH?encoding=H264`, with `&loop` to begin again at its end: a recording that `selvedge
    /// play --record` wrote.
    Record {
        /// The path, relative to the node file's folder.
        path: String,
        /// `encoding`, as for `rtp:`; required.
        encoding: String,
        /// Begin again at the end.
        repeat: bool,
    },
    /// `bond:NAME`, or `bond:NAME/STREAM`: a stream that comes over a bond.
    Bond {
        /// The table of its far end.
        bond: String,
        /// The stream's name at the near end; `None`: the same as here.
        stream: Option<String>,
    },
    /// `launch:PIPELINE`: a GStreamer launch line that ends in encoded media.
    Launch {
        /// The line.
        line: String,
        /// `bitrate` of the stream's `knobs`: the property that sets its encoder's rate. `None`: that of a known encoder.
        bitrate: Option<EncoderKnob>,
    },
    /// The packets of a tunnel's device, by its name. Node files have `[tunnel.NAME]`.
    Tunnel(String),
    /// `shm:PATH?encoding=H264&bitrate=4 Mbit/s`: frames that another program gives through shared memory.
    Shared {
        /// The path of the socket, relative to the node file's folder.
        path: String,
        /// `encoding`, as for `rtp:`; required.
        encoding: String,
        /// `bitrate`: the most at which the program may encode. `None`: it is asked for no rate.
        bitrate: Option<Bitrate>,
    },
    /// Those of its streamlets, each with a `from` of its own.
    Streamlets,
    /// The frames of the program that runs the node. Node files have no such source.
    Program,
}
