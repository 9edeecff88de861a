//! `launch:` sources: the user's own GStreamer line, ending in encoded media.

use gstreamer::prelude::*;
use selvedge_control_config::FilePart;

use super::elements::{source_bin, wiring};
use super::feed::{Feed, Timing};
use crate::error::SourceError;

/// The feed of a launch line.
pub(super) fn feed(what: &str, line: &str, timing: Timing) -> Result<Feed, SourceError> {
    Feed::parsed(what, timing, FilePart::First, |pipeline| {
        let bin = source_bin(line)?;
        pipeline.add(&bin).map_err(|e| wiring(&bin.name(), e))?;
        Ok(bin.upcast())
    })
}
