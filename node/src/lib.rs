//! A running node as a library: sources, links by placement, stacks, event channels, and one view
//! over all of it.
//!
//! [`Node::start`] makes one from the text of a node file. A program that has more to do before
//! anything is sent, such as to serve the page, uses its two halves: [`Node::prepare`] opens the
//! sources and starts the links, [`Node::start_sources`] starts the frames. A node is watched and
//! adjusted through [`NodeView`]; a stream whose source is [`SourceUri::Program`] takes frames from the
//! program itself, through its [`FrameProducer`]. [`Node::reload_text`] applies the changes of a node
//! file while the node runs.
//!
//! ```no_run
//! use selvedge_node::{Node, NodeOptions};
//! let file = "[link.uplink]\nrate = \"6 Mbit/s\"\n\
//!             [stream.pattern]\nsource = \"test:video\"\nto = \"rtp://127.0.0.1:5004\"\n";
//! let node = Node::start(file, NodeOptions::default())?;
//! println!("{:?}", node.counts("pattern"));
//! node.stop();
//! # Ok::<(), selvedge_node::StartError>(())
//! ```
//!
//! [`NodeView`]: selvedge_control_config::view::NodeView
//! [`SourceUri::Program`]: selvedge_control_config::SourceUri::Program
//! [`FrameProducer`]: selvedge_place_engine::inlet::Inlet

#![forbid(unsafe_code)]

mod asked;
mod bond_credentials;
mod bond_feed;
mod bonds;
mod budget;
#[cfg(feature = "events")]
mod channels;
#[cfg(feature = "gstreamer")]
mod encoders;
mod error;
mod events;
mod feed;
mod follow;
mod measured;
#[cfg(feature = "gstreamer")]
mod media_source;
mod nat;
mod node;
mod output;
#[cfg(feature = "gstreamer")]
pub mod pack;
mod passed_nodes;
mod path_events;
mod placement;
mod program;
mod rates;
mod receivers;
mod reload;
#[cfg(feature = "gstreamer")]
mod shared_source;
mod source;
mod source_spec;
mod stacks;
mod step_facts;
mod steps;
mod streamlets;
mod tunnels;
mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{FateTap, StreamCarrier};
use selvedge_units::Duration;

pub use bond_credentials::BondStartError;
#[cfg(feature = "events")]
pub use channels::{ChannelWatch, ChannelsError};
pub use error::{AddError, StartError};
pub use nat::NatError;
pub use node::{Ended, Node};
pub use path_events::PathEvent;
pub use placement::PlacementError;
pub use selvedge_comm_carrier::credentials::{self, CredentialError, Credentials, PeersWatch};
pub use selvedge_comm_carrier::{StackError, StackRefusal, control_server, refused_stacks};
pub use source::{OpenError, SdpFailure, SourceFailure, picture_of};
pub use steps::{StepFailure, wrong_steps};
pub use tunnels::{TunnelError, TunnelFailure};

/// Makes the tap that follows the frames of a link, given the streams of the link by their places in
/// the node file. The tap numbers streams as the link does: in that order; a stream that is added later
/// gets the lowest free number.
pub type Taps = Box<dyn FnMut(&[usize]) -> Option<Box<dyn FateTap>>>;

/// Knows the event channels of all hosts.
pub trait Channels: Send + Sync {
    /// The last list, in JSON.
    fn listed(&self) -> Arc<str>;
    /// Publishes what became of a path. Does not wait.
    fn publish_path(&self, event: &PathEvent<'_>);
}

/// The options of a node beside its file.
pub struct NodeOptions {
    /// The name of the text in errors. Default `node`.
    pub file: String,
    /// The folder in which relative paths are resolved. Default: the current one.
    pub base: PathBuf,
    /// The node file, which a reload reads again. Default: none.
    pub path: Option<PathBuf>,
    /// The clock of all instants. Default: the one that all processes of this machine share, which
    /// links in other processes or the kernel need.
    pub clock: Clock,
    /// The event channels that the node shows, and on which it publishes what becomes of its bonds' paths. Default: none.
    pub channels: Option<Box<dyn Channels>>,
    /// The carriers of the first streams' packets, on inline links. Default: sockets or stacks.
    pub carriers: Vec<StreamCarrier>,
    /// The `selvedge` program, by which each source that parses network data gets a process of its own.
    /// Default: none, so that this process parses them.
    pub isolates_by: Option<PathBuf>,
    /// The taps that follow frames to their fates, on inline links. Default: none.
    pub taps: Taps,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            file: "node".to_owned(),
            base: PathBuf::new(),
            path: None,
            clock: Clock::shared(),
            channels: None,
            carriers: Vec::new(),
            isolates_by: None,
            taps: Box::new(|_| None),
        }
    }
}

/// Waits on a condition that another thread makes true, without a busy loop; false if it did not
/// become true in time.
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit.to_std();
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(20).into());
    }
    true
}
