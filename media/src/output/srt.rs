//! SRT: an MPEG transport stream to a host that this end calls, or to all callers (`?mode=listener`).
//!
//! GStreamer's element implements the protocol. Its statistics count the bytes that it sends beyond the
//! engine's packets (retransmissions, packets to a second caller, answers), and these are reported.
//! Passphrase and stream id go to it as properties, so no message of its own contains them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use selvedge_control_config::{Destination, redacted};
use selvedge_units::{Bytes, Duration};

use super::pipeline::{self, Entry};
use super::{Opened, Output, OutputError};
use crate::source::elements::{init, make, wiring};

/// IPv4, UDP and SRT headers, which the statistics count with each packet of data; also the size of a
/// whole answer.
const HEADERS: u64 = 44;
/// How long the called host may take to answer: the protocol's own limit is 3 s.
const ANSWER: Duration = Duration::from_secs(4);

/// A pipeline that ends in a socket.
#[derive(Debug)]
struct Srt {
    pipeline: gst::Pipeline,
    entry: Entry,
    sink: gst::Element,
    bus: gst::Bus,
    /// The called host, unless this output waits for callers; and when the call began.
    called: Option<(SocketAddr, Instant)>,
    /// How many peers are connected.
    connected: AtomicUsize,
}

pub(super) fn open(to: &Destination, at: SocketAddr, _: usize) -> Opened {
    init()?;
    let is_listener = to.option("mode").as_deref() == Some("listener");
    let sink = make("srtsink")?;
    let mode = if is_listener { "listener" } else { "caller" };
    sink.set_property("uri", format!("srt://{at}?mode={mode}"));
    for name in ["passphrase", "streamid"] {
        if let Some(value) = to.option(name) {
            sink.set_property(name, value);
        }
    }
    for name in ["latency", "pbkeylen"] {
        if let Some(value) = to.option(name) {
            sink.set_property_from_str(name, &value);
        }
    }
    for name in ["wait-for-connection", "auto-reconnect", "sync", "async"] {
        sink.set_property(name, false);
    }
    let input = gst_app::AppSrc::builder().format(gst::Format::Time).is_live(true).build();
    let pipeline = gst::Pipeline::new();
    let parts = [input.upcast_ref(), &sink];
    pipeline.add_many(parts).map_err(|e| wiring("srtsink", e))?;
    gst::Element::link_many(parts).map_err(|e| wiring("srtsink", e))?;
    let bus = pipeline.bus().ok_or_else(|| wiring("pipeline", "it has no bus"))?;
    let (entry, connected) = (Entry::new(input, HEADERS), AtomicUsize::new(0));
    let called = (!is_listener).then(|| (at, Instant::now()));
    let opened = Srt { pipeline, entry, sink, bus, called, connected };
    let playing = opened.pipeline.set_state(gst::State::Playing);
    opened.broken()?;
    playing.map_err(|e| wiring("srtsink", e))?;
    Ok(Box::new(opened))
}

impl Srt {
    /// The error, if it is broken.
    fn broken(&self) -> Result<(), OutputError> {
        let Some((_, text)) = pipeline::error(&self.bus) else { return Ok(()) };
        Err(wiring("srtsink", redacted(&text)).into())
    }
}

impl Output for Srt {
    fn send(&self, packet: &[u8]) -> bool {
        self.connected.load(Ordering::Relaxed) > 0 && self.entry.send(packet)
    }

    fn poll(&self) -> Result<Bytes, OutputError> {
        self.broken()?;
        let stats = self.sink.property::<gst::Structure>("stats");
        let sent = sent(&stats);
        let connected = self.connected.load(Ordering::Relaxed);
        if let Some((at, since)) = self.called
            && sent.is_empty()
            && (connected > 0 || since.elapsed() > ANSWER.to_std())
        {
            return Err(OutputError::Silent(at));
        }
        let wire = sent.iter().sum();
        let mut state = self.entry.state.lock();
        if sent.len() != connected {
            // The counts of peers that left are gone from the statistics.
            state.begin_at(wire);
            self.connected.store(sent.len(), Ordering::Relaxed);
            return Ok(Bytes(0));
        }
        Ok(state.extra(wire))
    }

    fn waits(&self) -> Option<&'static str> {
        (self.connected.load(Ordering::Relaxed) == 0).then_some("nobody is connected")
    }
}

/// Bytes on the wire to each connected peer: data, first or again, and answers to its acknowledgements.
fn sent(stats: &gst::StructureRef) -> Vec<u64> {
    let of = |stats: &gst::StructureRef| {
        stats.get::<i32>("negotiated-latency-ms").ok()?;
        let answers = stats.get::<i32>("packet-ack-received").unwrap_or(0);
        let answers = u64::from(answers.unsigned_abs()) * HEADERS;
        Some(stats.get::<u64>("bytes-sent").unwrap_or(0) + answers)
    };
    match stats.get::<gst::glib::ValueArray>("callers") {
        Ok(callers) => {
            let callers = callers.iter().filter_map(|caller| caller.get::<gst::Structure>().ok());
            callers.filter_map(|caller| of(&caller)).collect()
        }
        Err(_) => of(stats).into_iter().collect(),
    }
}

impl Drop for Srt {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}
