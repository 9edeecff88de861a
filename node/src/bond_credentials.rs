//! What both ends of a bond need before they start: their credentials, from files, and why they can't start.

use std::path::PathBuf;

use selvedge_comm_bond::{BondError, Credentials as Sealing};
use selvedge_comm_stack::endpoint::Options;

use crate::budget::BudgetError;
use selvedge_comm_carrier::credentials::{CredentialError, Credentials};

/// Why an end of a bond can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum BondStartError {
    /// Its secret or key can't be read.
    #[error("{at}: {why}")]
    Credentials {
        /// The table: `link.uplink` or `bond.van`.
        at: String,
        /// The key of the table to blame.
        key: &'static str,
        /// The reason.
        why: CredentialError,
    },
    /// It can't start.
    #[error("{at}: {why}")]
    Bond {
        /// The table.
        at: String,
        /// The reason.
        why: BondError,
    },
    /// What a path carried can't be kept.
    #[error("{at}.path.{path}: {why}")]
    Budget {
        /// The table of the link.
        at: String,
        /// The path.
        path: String,
        /// The reason.
        why: BudgetError,
    },
}

impl BondStartError {
    /// The key of the node file that must be changed.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Credentials { at, key, .. } => format!("{at}.{key}"),
            Self::Bond { at, .. } if at.starts_with("bond.") => format!("{at}.listen"),
            Self::Bond { at, .. } => format!("{at}.to"),
            Self::Budget { at, path, .. } => format!("{at}.path.{path}.budget"),
        }
    }
}

/// The credentials of an end of a bond, from its files.
pub(crate) fn sealing(
    at: &str,
    secret: Option<PathBuf>,
    key: Option<PathBuf>,
    peer: Option<String>,
) -> Result<(Sealing, Credentials), BondStartError> {
    let files = Credentials { secret, key, peer };
    let read = files.read(Options::default()).map_err(|why| BondStartError::Credentials {
        at: at.to_owned(),
        key: match (&why, &files.secret) {
            (CredentialError::NoPeer { .. }, _) => "peer",
            (_, Some(_)) => "secret",
            _ => "key",
        },
        why,
    })?;
    let Options { identity, peers, peer, .. } = read;
    Ok((Sealing { identity, peers, peer }, files))
}
