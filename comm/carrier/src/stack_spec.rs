//! The stack of a stream as its program requests it: of a node file, and on a coprocessor's control socket.

use std::path::{Path, PathBuf};

use selvedge_comm_stack::endpoint::Options;
use selvedge_comm_stack::reservation::Reservation;
use selvedge_control_config::{LinkConfig, NodeConfig, StreamConfig};
use selvedge_data_stack::compose::{ComposeError, Composition};
use selvedge_data_stack::contract::Promise;
use selvedge_data_stack::load::Load;
use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

use crate::credentials::{CredentialError, Credentials};

/// Processing elements of an endpoint.
const ELEMENTS: u8 = 2;
/// The longest delay, and the most streams of a link, that a request may state.
const DELAY_MAX: Duration = Duration::from_secs(3600);
const BESIDE_MAX: u64 = 1 << 20;

/// The stack of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackSpec {
    /// Its modules, from top to bottom, as in a node file.
    pub modules: String,
    /// This host's end of the connection.
    pub end: EndSpec,
    /// How long both hosts and the network may take, in nanoseconds.
    pub delay_ns: u64,
    /// Whether that is firm.
    #[serde(default)]
    pub firm: bool,
    /// The streams that share the link evenly.
    pub beside: u64,
}

/// This host's end of a link's connections: streams of one link share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndSpec {
    /// The link's name.
    pub link: String,
    /// The file of a secret that both ends share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<PathBuf>,
    /// The file of a static key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// With a key: the peer's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The part of a processor that is reserved for each thread, in billionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u64>,
    /// The processors to which these threads are pinned in turn; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<usize>,
}

/// Why there is no such stack.
#[derive(Debug, thiserror::Error)]
pub enum StackSpecError {
    /// Not a stack.
    #[error("modules \"{modules}\": {why}")]
    Modules {
        /// The text.
        modules: String,
        /// Its error.
        why: ComposeError,
    },
    /// A path that depends on the folder of another process.
    #[error("\"{0}\": write an absolute path")]
    Path(PathBuf),
    /// Out of range.
    #[error("share {0}: write 20000000 to 950000000 billionths")]
    Share(u64),
    /// Out of range.
    #[error("delay_ns {0}: write 1 to 3600000000000")]
    Delay(u64),
    /// Out of range.
    #[error("beside {0}: write 1 to 1048576")]
    Beside(u64),
    /// Out of range.
    #[error("{0} processors: write at most 64")]
    Processors(usize),
}

impl StackSpec {
    /// The stack that a node file states for a stream, with the files of its link in this folder; `None` if no stack
    /// carries it.
    #[must_use]
    pub fn new(config: &NodeConfig, stream: &StreamConfig, base: &Path) -> Option<Self> {
        let link = &config.links[stream.link];
        let wanted = stream.spec.contract.delay.unwrap_or(stream.spec.contract.period);
        let beside = config.streams.iter().filter(|other| other.link == stream.link).count();
        Some(Self {
            modules: stream.stack.as_ref()?.to_string(),
            end: EndSpec::new(link, base),
            delay_ns: link.stack_delay.unwrap_or(wanted).0,
            firm: link.stack_delay.is_some(),
            beside: beside.max(1) as u64,
        })
    }

    /// The stack itself, of a request that may state anything.
    ///
    /// # Errors
    /// [`StackSpecError`].
    pub fn check(&self) -> Result<Composition, StackSpecError> {
        let EndSpec { secret, key, share, processors, .. } = &self.end;
        if let Some(path) = [secret, key].into_iter().flatten().find(|path| !path.is_absolute()) {
            return Err(StackSpecError::Path(path.clone()));
        }
        let shares = Load::percent(2).0..=Load::percent(95).0;
        match *share {
            Some(share) if !shares.contains(&share) => return Err(StackSpecError::Share(share)),
            _ if !(1..=DELAY_MAX.0).contains(&self.delay_ns) => {
                return Err(StackSpecError::Delay(self.delay_ns));
            }
            _ if !(1..=BESIDE_MAX).contains(&self.beside) => {
                return Err(StackSpecError::Beside(self.beside));
            }
            _ if processors.len() > 64 => {
                return Err(StackSpecError::Processors(processors.len()));
            }
            _ => {}
        }
        let wrong = |why| StackSpecError::Modules { modules: self.modules.clone(), why };
        self.modules.parse().map_err(wrong)
    }

    /// Whether its delay is firm.
    pub(crate) const fn promise(&self) -> Promise {
        if self.firm { Promise::Firm } else { Promise::Wanted }
    }
}

impl EndSpec {
    /// That of a link whose files lie in this folder.
    pub(crate) fn new(link: &LinkConfig, base: &Path) -> Self {
        // Another process may have another folder.
        let place = |path: &String| {
            let path = base.join(path);
            std::path::absolute(&path).unwrap_or(path)
        };
        Self {
            link: link.name.clone(),
            secret: link.secret.as_ref().map(place),
            key: link.key.as_ref().map(place),
            peer: link.peer.clone(),
            share: link.stack_share.map(|share| share.0),
            processors: link.stack_processors.clone(),
        }
    }

    /// Whether its packets are sealed by a key that the peer knows.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.secret.is_some() || self.key.is_some()
    }

    pub(crate) fn credentials(&self) -> Credentials {
        let Self { secret, key, peer, .. } = self.clone();
        Credentials { secret, key, peer }
    }

    /// The options of its endpoint without its identity.
    pub(crate) fn reserving(&self) -> Options {
        let processors = self.processors.clone();
        let reservation = self.share.map(|share| Reservation { share: Load(share), processors });
        Options { elements: ELEMENTS, reservation, ..Options::default() }
    }

    /// The key of a node file that is to blame for an error of its files.
    pub(crate) const fn key_of(&self, why: &CredentialError) -> &'static str {
        match (why, &self.secret) {
            (CredentialError::NoPeer { .. }, _) => "peer",
            (_, Some(_)) => "secret",
            _ => "key",
        }
    }
}
