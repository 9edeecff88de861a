//! Sources that are not there when `check` looks: cameras, and what is in the network. A node starts
//! without them and tries again, so they are no mistakes of the file.

use selvedge_cli_terminal::Failure;
use serde::Serialize;

use crate::node_file::NodeFile;

/// A stream whose source gives nothing now.
#[derive(Debug, Serialize)]
pub(crate) struct Absent {
    /// The stream's name.
    pub(crate) stream: String,
    /// Why, and where the file names it.
    pub(crate) text: String,
}

/// Looks for all of them at once; as long as a source may take to give its first frame.
#[cfg(feature = "gstreamer")]
pub(crate) fn absent(file: &NodeFile) -> Vec<Absent> {
    use selvedge_control_config::{SourceUri, StreamConfig};
    use selvedge_media::{Source, inspect::PAYLOAD_MAX};

    let fails = |stream: &StreamConfig| {
        let wanted = matches!(stream.source, SourceUri::Camera { .. } | SourceUri::Network { .. });
        let opened = wanted.then(|| Source::open(&stream.source, &file.base, PAYLOAD_MAX));
        opened?.err().map(|error| (stream.spec.name.clone(), error.to_string()))
    };
    let failures: Vec<_> = std::thread::scope(|scope| {
        let streams = &file.config.streams;
        let handles: Vec<_> = streams.iter().map(|s| scope.spawn(|| fails(s))).collect();
        let joined = handles.into_iter().map(|handle| handle.join().expect("opening never panics"));
        joined.collect()
    });
    let located = |(stream, why): (String, String)| {
        let key = format!("stream.{stream}.source");
        let at = file.map.at(&key).map_or_else(String::new, |at| format!("{at}: "));
        let text = format!("{}:{at}{key}: {why}; the node starts and tries again", file.name);
        Absent { stream, text }
    };
    failures.into_iter().flatten().map(located).collect()
}

/// Without GStreamer such sources can't be had at all.
#[cfg(not(feature = "gstreamer"))]
pub(crate) fn absent(_file: &NodeFile) -> Vec<Absent> {
    Vec::new()
}

/// A failure with all of them, if there are any.
pub(crate) fn required(absent: &[Absent]) -> Result<(), Failure> {
    match absent {
        [] => Ok(()),
        some => {
            let lines = some.iter().map(|one| one.text.as_str()).collect::<Vec<_>>();
            Err(Failure::Failed(lines.join("\n")))
        }
    }
}
