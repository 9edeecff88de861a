//! Recordings in Matroska or MP4, and RTMP: a transport stream in, taken apart again and put into another
//! container by GStreamer.
//!
//! A recording is written in pieces of half a second at most, so that of a node that is killed at any moment
//! all but the last second can be read; no file that is there is ever overwritten. The stream key of RTMP
//! goes to the element as a property, and is taken out of what it says.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use selvedge_control_config::{Destination, redacted};
use selvedge_units::{Bytes, Duration};

use super::pipeline::{self, Entry};
use super::{Output, OutputError};
use crate::error::SourceError;
use crate::source::elements::{bin, init, make, wiring};

/// What a segment of TCP has at most behind its headers.
const SEGMENT: u64 = 1448;
/// How long the end of a container may take.
const END: Duration = Duration::from_secs(2);

/// A pipeline that ends in a file or a connection.
#[derive(Debug)]
struct Muxed {
    pipeline: gst::Pipeline,
    entry: Entry,
    bus: gst::Bus,
    /// The element of RTMP, its secret, and the bytes of headers on each segment.
    connection: Option<(gst::Element, String, u64)>,
    /// What is written.
    file: Option<PathBuf>,
    /// Whether the server has answered.
    answered: AtomicBool,
}

/// A file that is not there yet; its ending says which container.
pub(super) fn recording(to: &Destination, _: SocketAddr) -> Result<Box<dyn Output>, OutputError> {
    let path = free(Path::new(to.path().unwrap_or_default()));
    let muxer = match path.extension().and_then(|ending| ending.to_str()) {
        Some("mp4") => "mp4mux name=mux fragment-duration=500",
        _ => {
            "matroskamux name=mux streamable=true min-cluster-duration=0 max-cluster-duration=500000000"
        }
    };
    let mut opened = open(&format!("{muxer} ! filesink name=end buffer-mode=unbuffered"), |end| {
        end.set_property("location", path.to_string_lossy().as_ref());
        None
    })?;
    opened.file = Some(path);
    Ok(Box::new(opened))
}

/// A server of RTMP, with TLS or without.
pub(super) fn rtmp(to: &Destination, _: SocketAddr) -> Result<Box<dyn Output>, OutputError> {
    let opened = open("flvmux name=mux streamable=true ! rtmp2sink name=end", |end| {
        end.set_property("location", to.reveal());
        Some((end.clone(), to.secret().to_owned(), super::kind(to).map_or(0, |k| k.headers.0)))
    })?;
    Ok(Box::new(opened))
}

/// The first of `NAME.mkv`, `NAME-2.mkv`, ... that is not there.
fn free(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = (2..).map(|n| path.with_file_name(format!("{stem}-{n}.{ending}")));
    std::iter::once(path.to_owned())
        .chain(numbered)
        .find(|path| !path.exists())
        .unwrap_or_else(|| path.to_owned())
}

fn open(
    line: &str,
    connect: impl FnOnce(&gst::Element) -> Option<(gst::Element, String, u64)>,
) -> Result<Muxed, OutputError> {
    init()?;
    let caps = gst::Caps::builder("video/mpegts").field("systemstream", true).build();
    let input = gst_app::AppSrc::builder().caps(&caps).build();
    let rest = bin(&format!("tsdemux name=demux {line} sync=false async=false"))?;
    let failed = |why: &dyn ToString| wiring("the output", why.to_string());
    let end = rest.by_name("end").ok_or_else(|| failed(&"it has no end"))?;
    let (demux, muxer) =
        rest.by_name("demux").zip(rest.by_name("mux")).ok_or_else(|| failed(&"it has no muxer"))?;
    let (weak, muxer) = (rest.downgrade(), muxer.downgrade());
    demux.connect_pad_added(move |_, pad| {
        let Some((rest, muxer)) = weak.upgrade().zip(muxer.upgrade()) else { return };
        if let Err(error) = parsed_into(&rest, pad, &muxer) {
            // What is not linked stops the pipeline, with an error of its own.
            tracing::debug!(%error, "an output can't be muxed");
        }
    });
    let connection = connect(&end);
    let pipeline = gst::Pipeline::new();
    let parts: [&gst::Element; 2] = [input.upcast_ref(), rest.upcast_ref()];
    pipeline.add_many(parts).map_err(|e| failed(&e))?;
    gst::Element::link_many(parts).map_err(|e| failed(&e))?;
    let bus = pipeline.bus().ok_or_else(|| failed(&"it has no bus"))?;
    let entry = Entry::new(input, connection.as_ref().map_or(0, |(_, _, headers)| *headers));
    let answered = AtomicBool::new(connection.is_none());
    let opened = Muxed { pipeline, entry, bus, connection, file: None, answered };
    let playing = opened.pipeline.set_state(gst::State::Playing);
    opened.broken()?;
    playing.map_err(|e| failed(&e))?;
    Ok(opened)
}

/// Leads what a demuxer has found through its parser into the muxer.
fn parsed_into(rest: &gst::Bin, pad: &gst::Pad, muxer: &gst::Element) -> Result<(), SourceError> {
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    let parser = make(match caps.structure(0).map_or("", |s| s.name().as_str()) {
        "video/x-h264" => "h264parse",
        "video/x-h265" => "h265parse",
        "video/mpeg" => "mpegvideoparse",
        _ => "aacparse",
    })?;
    let failed = |why: &dyn ToString| wiring(&parser.name(), why.to_string());
    rest.add(&parser).map_err(|e| failed(&e))?;
    parser.link(muxer).map_err(|e| failed(&e))?;
    parser.sync_state_with_parent().map_err(|e| failed(&e))?;
    let input = parser.static_pad("sink").ok_or_else(|| failed(&"it has no input"))?;
    pad.link(&input).map_err(|e| failed(&e)).map(drop)
}

impl Muxed {
    /// Why it is broken, if it is.
    fn broken(&self) -> Result<(), OutputError> {
        let Some((element, text)) = pipeline::error(&self.bus) else { return Ok(()) };
        let mut text = redacted(&text);
        if let Some((_, secret, _)) = &self.connection {
            text = text.replace(secret, "***");
        }
        Err(wiring(&element, text).into())
    }

    /// Bytes that RTMP has sent, handshake and answers included; more than none once the server answers.
    fn sent(&self) -> Option<u64> {
        let (element, ..) = self.connection.as_ref()?;
        let stats = element.property::<Option<gst::Structure>>("stats")?;
        stats.get::<u64>("out-bytes-total").ok()
    }
}

impl Output for Muxed {
    fn send(&self, packet: &[u8]) -> bool {
        self.answered.load(Ordering::Relaxed) && self.entry.send(packet)
    }

    fn poll(&self) -> Result<Bytes, OutputError> {
        self.broken()?;
        let Some((_, _, headers)) = &self.connection else { return Ok(Bytes(0)) };
        let sent = self.sent().unwrap_or(0);
        let wire = sent + sent.div_ceil(SEGMENT) * headers;
        self.answered.store(sent > 0, Ordering::Relaxed);
        Ok(self.entry.state.lock().extra(wire))
    }

    fn waits(&self) -> Option<&'static str> {
        let silent = !self.answered.load(Ordering::Relaxed);
        silent.then_some("the server has not answered yet")
    }
}

impl Drop for Muxed {
    fn drop(&mut self) {
        // Refused only by what has stopped.
        if self.entry.end() {
            let ends = [gst::MessageType::Eos, gst::MessageType::Error];
            let limit = gst::ClockTime::from_nseconds(END.0);
            self.bus.timed_pop_filtered(limit, &ends);
        }
        let _ = self.pipeline.set_state(gst::State::Null);
        // Each try would leave one more file with nothing in it.
        let is_empty = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() == 0);
        if let Some(path) = self.file.as_ref().filter(|path| is_empty(path)) {
            let _ = std::fs::remove_file(path);
        }
    }
}
