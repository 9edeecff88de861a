//! The options by which a command's stack endpoint proves its identity: a shared secret, or a static key
//! and the name of its peer.

use std::path::PathBuf;

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_comm_stack::endpoint::Options;
use selvedge_node::{Credentials, PeersWatch};

#[derive(Clone, Debug, Args)]
pub(crate) struct IdentityArgs {
    /// Encrypt: the file with the secret that both ends share, 64 hexadecimal digits
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    secret: Option<PathBuf>,
    /// Encrypt: the file with this end's own key, as `selvedge key new` makes it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// With --key: the peer to connect to (default: the only one)
    #[arg(long = "peer", value_name = "NAME", requires = "key")]
    peer_key: Option<String>,
}

impl IdentityArgs {
    /// Whether no option was given.
    pub(crate) const fn is_none(&self) -> bool {
        self.secret.is_none() && self.key.is_none()
    }

    /// The options with the contents of the files, and the watch that follows changes.
    pub(crate) fn read(&self, options: Options) -> Result<(Options, PeersWatch), Failure> {
        let Self { secret, key, peer_key: peer } = self.clone();
        let credentials = Credentials { secret, key, peer };
        let options = credentials.read(options).map_err(Failure::input)?;
        Ok((options, credentials.watch()))
    }
}
