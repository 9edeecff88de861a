//! `launch:` sources: the user's own GStreamer line, ending in encoded media.

use gstreamer::prelude::*;
use selvedge_control_config::{EncoderKnob, FilePart};

use super::elements::{source_bin, wiring};
use super::encoder::Encoder;
use super::feed::{Feed, Timing};
use crate::error::SourceError;

/// Finds mistakes in a launch line and its knob.
pub(super) fn check(line: &str, knob: Option<&EncoderKnob>) -> Result<(), SourceError> {
    Encoder::of(&source_bin(line)?, knob)?;
    Ok(())
}

/// The feed of a launch line.
pub(super) fn feed(
    what: &str,
    line: &str,
    timing: Timing,
    knob: Option<&EncoderKnob>,
) -> Result<Feed, SourceError> {
    Feed::parsed(what, timing, FilePart::First, |pipeline| {
        let bin = source_bin(line)?;
        Encoder::of(&bin, knob)?;
        pipeline.add(&bin).map_err(|e| wiring(&bin.name(), e))?;
        Ok(bin.upcast())
    })
}
