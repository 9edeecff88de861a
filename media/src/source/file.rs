//! `file:` sources: any container that GStreamer can take apart.

use std::path::Path;

use gstreamer::prelude::*;
use selvedge_control_config::FilePart;

use super::elements::{make, wiring};
use super::feed::{Feed, Timing};
use super::truncation;
use crate::error::SourceError;

/// The feed of a file.
pub(super) fn feed(what: &str, path: &Path, wanted: FilePart) -> Result<Feed, SourceError> {
    let not_found =
        |reason: String| SourceError::NotFound { path: path.display().to_string(), reason };
    let not_media = |found: &str| SourceError::NotMedia { what: what.into(), found: found.into() };
    let file = std::fs::metadata(path).map_err(|e| not_found(e.to_string()))?;
    if file.is_dir() {
        return Err(not_media("a folder"));
    }
    // Waiting for a pipe without a writer would never end.
    if !file.is_file() {
        return Err(not_media("a device or a pipe"));
    }
    if file.len() == 0 {
        return Err(not_media("an empty file"));
    }
    let mut bytes = std::fs::File::open(path).map_err(|e| not_found(e.to_string()))?;
    if let Some(truncation::TruncatedFile { declared, found }) =
        truncation::find_truncation(&mut bytes).map_err(|e| not_found(e.to_string()))?
    {
        return Err(SourceError::CutOff { what: what.into(), declared, found });
    }
    Feed::parsed(what, Timing::Stored, wanted, |pipeline| {
        let source = make("filesrc")?;
        let location = path.to_str().ok_or_else(|| not_found("its name is not UTF-8".into()))?;
        source.set_property("location", location);
        pipeline.add(&source).map_err(|e| wiring("filesrc", e))?;
        Ok(source)
    })
}
