//! Why a node can't start, or take a stream; and which keys of the node file must be changed.

use selvedge_control_config::{ConfigErrors, ConfigFault, SourceMap, stream_table};
use selvedge_place_coprocessor::feeder::FeederError;

use crate::bond_credentials::BondStartError;
use crate::placement::PlacementError;
use crate::source::{OpenError, SdpFailure, SourceFailure};
use crate::steps::StepFailure;
use crate::tunnels::TunnelFailure;
use selvedge_comm_carrier::StackError;

/// Why a node can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node file is wrong, or describes something that this machine does not have; with the places.
    #[error(transparent)]
    File(#[from] ConfigErrors),
    /// Sources that can't be opened: all of them.
    #[error("{}", lines(.0))]
    Sources(Vec<SourceFailure>),
    /// A session description that can't be written.
    #[error(transparent)]
    Sdp(#[from] SdpFailure),
    /// Stacks that can't be opened.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// An end of a bond that can't be opened.
    #[error(transparent)]
    Bond(#[from] BondStartError),
    /// A tunnel that can't be opened.
    #[error(transparent)]
    Tunnel(#[from] TunnelFailure),
    /// Steps that can't be loaded: all of them.
    #[error("{}", lines(.0))]
    Steps(Vec<StepFailure>),
    /// A link that can't start.
    #[error("link \"{link}\": {why}")]
    Link {
        /// The link's name.
        link: String,
        /// The error of its placement.
        why: PlacementError,
    },
    /// A source's thread that can't start.
    #[error(transparent)]
    Feed(#[from] FeederError),
}

/// Why a running node can't take a stream; nothing has then changed.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// Another stream has the name.
    #[error("a stream named \"{0}\" is there already; give the new one another name")]
    NameTaken(String),
    /// Another stream sends there.
    #[error("stream \"{other}\" sends to {to} already; give the new one a receiver of its own")]
    ToTaken {
        /// The receiver.
        to: String,
        /// The stream that has it.
        other: String,
    },
    /// There is no such link.
    #[error("the node has {links} links, and none with index {index}")]
    NoLink {
        /// The index that the stream names.
        index: usize,
        /// How many links there are.
        links: usize,
    },
    /// Stacks are opened when a node starts.
    #[error(
        "stream \"{0}\" has a stack, which a node takes only when it starts; name the stream in \
         the node file"
    )]
    Stack(String),
    /// Its source can't be opened.
    #[error("stream \"{stream}\": {why}")]
    Source {
        /// The stream's name.
        stream: String,
        /// The reason.
        why: OpenError,
    },
    /// Its session description can't be written, its link does not take it, or its source's thread
    /// can't start; in this last case the stream exists, without frames.
    #[error(transparent)]
    Start(#[from] StartError),
}

fn lines(failed: &[impl ToString]) -> String {
    failed.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl StartError {
    /// The same as mistakes at their places in the file, where a key of the file must be changed.
    #[must_use]
    pub fn located(self, file: &str, map: &SourceMap) -> Self {
        let wrong = self.keys();
        if wrong.is_empty() {
            return self;
        }
        let mut errors = ConfigErrors::new(file);
        for (key, why) in wrong {
            errors.push_key(map, &key, ConfigFault::Machine(why));
        }
        Self::File(errors)
    }

    /// The keys that must be changed, and the errors in their values.
    fn keys(&self) -> Vec<(String, String)> {
        match self {
            Self::Sources(failed) => failed
                .iter()
                .map(|f| {
                    (format!("{}.{}", stream_table(&f.stream), f.error.key()), f.error.to_string())
                })
                .collect(),
            Self::Sdp(SdpFailure { stream, path, why }) => {
                vec![(
                    format!("{}.sdp", stream_table(stream)),
                    format!("can't write \"{path}\": {why}"),
                )]
            }
            Self::Stack(error) => {
                error.key().map(|key| (key, error.to_string())).into_iter().collect()
            }
            Self::Steps(failed) => {
                failed.iter().map(|step| (step.key.clone(), step.why.clone())).collect()
            }
            Self::Tunnel(failure) => vec![(failure.key(), failure.why.to_string())],
            Self::Bond(error) => vec![(error.key(), error.to_string())],
            Self::Link { link, why: PlacementError::Refused { key: Some(key), .. } } => {
                vec![(format!("link.{link}.{key}"), self.to_string())]
            }
            _ => Vec::new(),
        }
    }
}
