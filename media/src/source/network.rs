//! Sources in the network by name: the elements that connect to each, in one table.
//!
//! Streams come from cameras and servers, with any content, and go to the feed, which takes them apart.
//! Logins go to GStreamer's elements apart from addresses, so that no message of theirs contains them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_control_config::{FilePart, Url};

use super::elements::{make, wiring};
use super::feed::{Feed, Timing};
use crate::error::SourceError;

/// How long a camera may take to answer.
const ANSWER_US: u64 = 4_000_000;
/// How long packets wait for overtaken ones.
const REORDER_MS: u32 = 60;

/// Makes the element that connects to an address.
type Connect = fn(&Url) -> Result<gst::Element, SourceError>;

/// The inputs by name, one a line.
const INPUTS: [(&str, Connect); 4] =
    [("rtsp", rtsp), ("srt", |url| located("srtsrc", "uri", url)), ("rtmp", rtmp), ("udp", udp)];

/// The feed of an address.
pub(super) fn feed(what: &str, url: &Url) -> Result<Feed, SourceError> {
    let known = INPUTS.iter().find(|(scheme, _)| *scheme == url.scheme());
    let (_, connect) = known.ok_or_else(|| wiring(url.scheme(), "no such input"))?;
    Feed::parsed(what, Timing::Live, FilePart::First, |pipeline| {
        let source = connect(url)?;
        pipeline.add(&source).map_err(|e| wiring(url.scheme(), e))?;
        Ok(source)
    })
}

/// An element that receives the address by this property.
fn located(factory: &str, property: &str, url: &Url) -> Result<gst::Element, SourceError> {
    let source = make(factory)?;
    source.set_property(property, url.without_login());
    Ok(source)
}

/// A camera: its first video, else its first sound. Packets arrive over the connection itself, which
/// passes firewalls and breaks at once when the camera goes.
fn rtsp(url: &Url) -> Result<gst::Element, SourceError> {
    let source = located("rtspsrc", "location", url)?;
    if let Some((user, password)) = url.login() {
        source.set_property("user-id", user);
        source.set_property("user-pw", password);
    }
    source.set_property_from_str("protocols", "tcp");
    source.set_property("latency", REORDER_MS);
    source.set_property("tcp-timeout", ANSWER_US);
    let has_video = Arc::new(AtomicBool::new(false));
    let chosen = Arc::clone(&has_video);
    source.connect("select-stream", false, move |values| {
        let media = values.get(2).and_then(|caps| caps.get::<gst::Caps>().ok());
        let is_video = media.as_deref().is_some_and(is_video);
        let other = chosen.fetch_or(is_video, Ordering::Relaxed);
        Some((!other && media.is_some()).to_value())
    });
    let bin = gst::Bin::builder().name("rtsp").build();
    bin.add(&source).map_err(|e| wiring("rtspsrc", e))?;
    let output = gst::GhostPad::builder(gst::PadDirection::Src).name("src").build();
    bin.add_pad(&output).map_err(|e| wiring("rtspsrc", e))?;
    // Weak, as the bin owns the element that owns the closure.
    let output = output.downgrade();
    source.connect_pad_added(move |_, pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        let is_wanted = is_video(&caps) || !has_video.load(Ordering::Relaxed);
        if let Some(output) = output.upgrade()
            && is_wanted
            && output.target().is_none()
            && let Err(error) = output.set_target(Some(pad))
        {
            tracing::debug!(%error, "a stream of a camera can't be taken");
        }
    });
    Ok(bin.upcast())
}

fn is_video(caps: &gst::CapsRef) -> bool {
    caps.structure(0).is_some_and(|s| s.get::<&str>("media") == Ok("video"))
}

fn rtmp(url: &Url) -> Result<gst::Element, SourceError> {
    let source = located("rtmp2src", "location", url)?;
    if let Some((user, password)) = url.login() {
        source.set_property("username", user);
        source.set_property("password", password);
    }
    Ok(source)
}

/// An MPEG transport stream that arrives in datagrams.
fn udp(url: &Url) -> Result<gst::Element, SourceError> {
    let source = make("udpsrc")?;
    let (host, port) = url.host_port();
    source.set_property("address", host);
    source.set_property("port", port.and_then(|port| port.parse::<i32>().ok()).unwrap_or(0));
    source.set_property("buffer-size", 524_288i32);
    let caps = gst::Caps::builder("video/mpegts").field("systemstream", true).build();
    source.set_property("caps", caps);
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_of_node_files_has_its_element() {
        super::super::elements::init().unwrap();
        for text in [
            "rtsp://me:word@127.0.0.1/1",
            "srt://127.0.0.1:9",
            "rtmp://127.0.0.1/a/b",
            "udp://[::1]:9",
        ] {
            let source = text.parse::<selvedge_control_config::SourceUri>().unwrap();
            let selvedge_control_config::SourceUri::Network(url) = source else { panic!() };
            let known = INPUTS.iter().find(|(scheme, _)| *scheme == url.scheme());
            let element = (known.expect("an input").1)(&url).unwrap();
            assert!(element.static_pad("src").is_some(), "{text}");
        }
    }
}
