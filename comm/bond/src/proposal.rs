//! What the near end proposes when it connects a path, in the encrypted hello of the secure layer.
//!
//! ```text
//! version: 1 byte | path: 1 byte | run of the near end: 8 bytes
//! ```
//!
//! The run is a random number: a near end that began anew has another, and the far end then forgets the one before.

use selvedge_data_net_bond::PathId;

use crate::PATHS_MAX;

/// The version of the bond's datagrams.
const VERSION: u8 = 1;
const LEN: usize = 10;

/// Why a hello proposes no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProposalError {
    /// Too short.
    #[error("{0} bytes are no proposal of a bond")]
    Length(usize),
    /// Of another version.
    #[error("version {VERSION} of bonds is known here, not {0}")]
    Version(u8),
    /// A number beyond the paths that there may be.
    #[error("path {0}; a bond has at most {PATHS_MAX}")]
    Path(u8),
}

/// A path that is to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) path: PathId,
    pub(crate) run: u64,
}

impl Proposal {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.path.0];
        bytes.extend(self.run.to_be_bytes());
        bytes
    }

    /// Reads a proposal, behind which the hello may have been filled up; the error is for the near end.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ProposalError> {
        let Some(bytes) = bytes.first_chunk::<LEN>() else {
            return Err(ProposalError::Length(bytes.len()));
        };
        let [version, path, run @ ..] = *bytes;
        if version != VERSION {
            return Err(ProposalError::Version(version));
        }
        if usize::from(path) >= PATHS_MAX {
            return Err(ProposalError::Path(path));
        }
        Ok(Self { path: PathId(path), run: u64::from_be_bytes(run) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_read_and_another_version_is_refused() {
        let proposal = Proposal { path: PathId(3), run: 1 << 60 };
        let mut bytes = proposal.encode();
        bytes.resize(500, 0);
        assert_eq!(Proposal::parse(&bytes), Ok(proposal));
        let error = |bytes: &[u8]| Proposal::parse(bytes).unwrap_err().to_string();
        assert_eq!(error(&[1; 9]), "9 bytes are no proposal of a bond");
        assert_eq!(error(&[2; 20]), "version 1 of bonds is known here, not 2");
        let last = [1, PATHS_MAX as u8, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(error(&last), "path 16; a bond has at most 16");
    }
}
