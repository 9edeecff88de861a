//! `launch:` sources: the user's own GStreamer line, ending in encoded media.

use gstreamer as gst;
use gstreamer::prelude::*;

use super::elements::{bin, wiring};
use super::feed::{Feed, Timing};
use crate::error::SourceError;

/// The feed of a launch line.
pub(super) fn feed(what: &str, line: &str, timing: Timing) -> Result<Feed, SourceError> {
    Feed::parsed(what, timing, |pipeline| {
        let bin = parse(line)?;
        pipeline.add(&bin).map_err(|e| wiring(&bin.name(), e))?;
        Ok(bin.upcast())
    })
}

/// The elements of a launch line, linked and not started.
pub(super) fn parse(line: &str) -> Result<gst::Bin, SourceError> {
    let bin = bin(line)?;
    if bin.static_pad("src").is_none() {
        let message = "nothing comes out of its end".into();
        return Err(SourceError::Launch { line: line.into(), message });
    }
    Ok(bin)
}
