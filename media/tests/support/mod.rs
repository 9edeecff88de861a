//! The common code of the tests of sources: the folder of the clips, and a list of the frames of a
//! source.

// Not every test needs all of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_control_config::{FilePart, SourceUri};
use selvedge_media::inspect::PAYLOAD_MAX;
use selvedge_media::{End, MediaFrame, Picture, Source, SourceError};
use selvedge_units::Duration;

/// The folder of the clips.
pub(crate) fn clips() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../clips")
}

/// A file source, named as a node file in the clips' folder would name it.
pub(crate) fn file(name: &str, repeat: bool) -> SourceUri {
    SourceUri::File { path: name.into(), repeat, part: FilePart::First }
}

/// Opens a source whose paths begin at the clips.
pub(crate) fn open(uri: &SourceUri) -> Result<Source, SourceError> {
    Source::open(uri, &clips(), PAYLOAD_MAX)
}

/// A frame, without its lifetime.
pub(crate) struct Seen {
    pub(crate) picture: Picture,
    pub(crate) media_time: Duration,
    pub(crate) decode_time: Duration,
    pub(crate) rtp_timestamp: u32,
    pub(crate) packets: Vec<Vec<u8>>,
}

/// The first `most` frames of a source, as fast as they arrive.
pub(crate) fn take(source: &mut Source, most: usize) -> (Vec<Seen>, Result<End, SourceError>) {
    let stop = AtomicBool::new(false);
    let mut seen = Vec::new();
    let mut sink = |frame: MediaFrame<'_>| {
        if seen.len() < most {
            seen.push(Seen {
                picture: frame.picture,
                media_time: frame.media_time,
                decode_time: frame.decode_time,
                rtp_timestamp: frame.rtp_timestamp,
                packets: frame.packets.iter().map(|packet| packet.to_vec()).collect(),
            });
        }
        stop.store(seen.len() >= most, Ordering::Relaxed);
    };
    let end = source.run_unpaced(&mut sink, &stop);
    (seen, end)
}

/// Plays a launch line to its end.
pub(crate) fn play(line: &str) {
    use gstreamer::prelude::*;
    gstreamer::init().unwrap();
    let pipeline = gstreamer::parse::launch(line).unwrap();
    pipeline.set_state(gstreamer::State::Playing).unwrap();
    let ends = [gstreamer::MessageType::Eos, gstreamer::MessageType::Error];
    let wait = gstreamer::ClockTime::from_seconds(30);
    let message = pipeline.bus().unwrap().timed_pop_filtered(wait, &ends);
    pipeline.set_state(gstreamer::State::Null).unwrap();
    let message = message.expect("the line plays to its end in time");
    assert_eq!(message.type_(), gstreamer::MessageType::Eos, "{message:?}");
}
