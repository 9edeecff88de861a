//! The path at which a stream's program hands over whole access units through shared memory. What comes from the program
//! is checked, and copied before it is read; the thread of `feed/shared.rs` reads it.

use selvedge_comm_frames::{CameraPort, Layout, ListenError};
use selvedge_media::{Framer, SourceError, StreamInfo};
use selvedge_units::Bitrate;

use crate::source_spec::SourceSpec;

/// Why a program can't hand over frames.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// Its units can't be carried.
    #[error(transparent)]
    Media(#[from] SourceError),
    /// Its path can't be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// A path that waits for its program.
pub(crate) struct SharedSource {
    pub(crate) port: CameraPort,
    pub(crate) framer: Framer,
    /// The most at which the program may encode; 0: it is asked for no rate.
    pub(crate) most: Bitrate,
}

impl SharedSource {
    /// Listens at the path of a source, for units of this encoding.
    pub(crate) fn open(
        spec: &SourceSpec,
        (path, encoding): (&str, &str),
        most: Bitrate,
    ) -> Result<Self, SharedError> {
        let what = spec.stream.source.to_string();
        let framer = Framer::of_bytes(&what, encoding, spec.payload_max)?;
        let port = CameraPort::listen(&spec.base.join(path), encoding, Layout::default())?;
        Ok(Self { port, framer, most })
    }

    /// The stream's description.
    pub(crate) const fn info(&self) -> &StreamInfo {
        self.framer.info()
    }
}
