//! A running pipeline that ends in encoded access units, and the messages on its bus.

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use selvedge_control_config::{EncoderKnob, FilePart, redacted};
use selvedge_units::Duration;

use super::carry::{self, Failure};
use super::descriptors::Descriptors;
use super::elements::{self, package_for_caps, wiring};
use super::encoder::Encoder;
use super::unit::Unit;
use crate::error::SourceError;

/// The number of units by which GStreamer's threads may be ahead.
const AHEAD: u32 = 8;
/// The same for pictures that are encoded here, so that the encoder soon follows a rate.
const AHEAD_ENCODED: u32 = 2;
/// How long a pull waits for a unit before it checks the bus again.
const SLICE: Duration = Duration::from_millis(20);

/// The name of an element that opens sealed packets.
pub(super) const UNSEALER: &str = "unsealer";

/// A pipeline and its end. Stopped when dropped.
#[derive(Debug)]
pub(super) struct Feed {
    what: String,
    pipeline: gst::Pipeline,
    bus: gst::Bus,
    sink: gst_app::AppSink,
    failure: Failure,
    descriptors: Descriptors,
    live: bool,
    timing: Timing,
    /// Encodings that were found but can't be handled here.
    missing: Option<SourceError>,
    delivered: bool,
}

/// The clock that paces the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timing {
    /// The source delivers frames at its own pace.
    Live,
    /// Frames are stored, and wait to be fetched.
    Stored,
    /// One of these; GStreamer finds out which.
    Unknown,
}

/// The result of a pull.
#[derive(Debug)]
pub(super) enum PullResult {
    /// A unit and its caps.
    Unit(Unit, gst::Caps),
    /// Nothing yet.
    Nothing,
    /// The end of the media, and what was wrong with it.
    End(Option<String>),
}

impl Feed {
    /// A feed that detects the format of the element that `head` puts into the pipeline.
    pub(super) fn parsed(
        what: &str,
        timing: Timing,
        wanted: FilePart,
        head: impl FnOnce(&gst::Pipeline) -> Result<gst::Element, SourceError>,
    ) -> Result<Self, SourceError> {
        elements::init()?;
        let pipeline = gst::Pipeline::new();
        let is_encoded = matches!(wanted, FilePart::Encoded(_));
        let ahead = if is_encoded { AHEAD_ENCODED } else { AHEAD };
        let sink = gst_app::AppSink::builder().sync(false).max_buffers(ahead).build();
        sink.set_property("enable-last-sample", false);
        pipeline.add(&sink).map_err(|e| wiring("appsink", e))?;
        let failure = Failure::default();
        let bus = pipeline.bus().ok_or_else(|| wiring("pipeline", "it has no bus"))?;
        let feed = Self {
            what: what.into(),
            bus,
            sink,
            descriptors: Descriptors::of(&pipeline),
            pipeline,
            failure,
            live: timing == Timing::Live,
            timing,
            missing: None,
            delivered: false,
        };
        let head = head(&feed.pipeline)?;
        let mut end = feed.sink.clone().upcast::<gst::Element>();
        if let FilePart::Encoded(rate) = wanted {
            let encoder: gst::Element = carry::encoder(rate)?.upcast();
            feed.pipeline.add(&encoder).map_err(|e| wiring("encoder", e))?;
            encoder.link(&end).map_err(|e| wiring("encoder", e))?;
            end = encoder;
        }
        let unpack = carry::unpack_into(&feed.pipeline, &end, what, wanted, &feed.failure)?;
        head.link(&unpack).map_err(|e| wiring(&head.name(), e))?;
        feed.start()
    }

    fn start(mut self) -> Result<Self, SourceError> {
        // Live pipelines deliver nothing before they play.
        let paused = self.pipeline.set_state(gst::State::Paused);
        if self.timing == Timing::Unknown {
            self.live = paused == Ok(gst::StateChangeSuccess::NoPreroll);
        }
        match paused.and_then(|_| self.pipeline.set_state(gst::State::Playing)) {
            Ok(_) => Ok(self),
            Err(_) => Err(self.bus_error().unwrap_or_else(|| wiring("pipeline", "can't start"))),
        }
    }

    /// The encoder in it whose rate may change: that of the knob, if there is one.
    pub(super) fn encoder(&self, knob: Option<&EncoderKnob>) -> Option<Encoder> {
        // The knob was found to be right before the pipeline started.
        Encoder::of(self.pipeline.upcast_ref(), knob).ok().flatten()
    }

    /// Whether the source paces the frames.
    pub(super) const fn is_live(&self) -> bool {
        self.live
    }

    /// Whether the end of the media means that they were cut off: a camera or server that has gone has
    /// no regular end.
    pub(super) fn is_from_network(&self) -> bool {
        self.live && self.connects()
    }

    /// Whether any of its elements connects to something, or waits for arrivals.
    fn connects(&self) -> bool {
        let elements = self.pipeline.iterate_recurse().into_iter().flatten();
        let mut classes = elements.filter_map(|element| element.metadata("klass"));
        classes.any(|class| class.contains("Source") && class.contains("Network"))
    }

    /// Records whether a source of unknown timing is live, once it has begun: an element that connects
    /// by itself can't know before.
    fn note_timing(&mut self) {
        if self.timing == Timing::Unknown && !self.live {
            let mut query = gst::query::Latency::new();
            self.live = self.pipeline.query(&mut query) && query.result().0;
        }
    }

    /// How long the media are, where their container states it.
    pub(super) fn duration(&self) -> Option<Duration> {
        let duration = self.pipeline.query_duration::<gst::ClockTime>();
        duration.filter(|_| !self.live).map(|duration| Duration(duration.nseconds()))
    }

    /// The number of packets so far that were not authentic.
    pub(super) fn refused(&self) -> u64 {
        let unsealer = self.pipeline.by_name(UNSEALER);
        let stats = unsealer.map(|unsealer| unsealer.property::<gst::Structure>("stats"));
        stats.and_then(|stats| stats.get::<u32>("recv-drop-count").ok()).unwrap_or(0).into()
    }

    /// Whether all threads of a pipeline that reads stored media have ended, so that nothing will ever
    /// arrive. Pipelines that connect to something have no threads while they do.
    ///
    /// `decodebin` loses an error that a demultiplexer reports while it is being put in place.
    pub(super) fn is_dead(&self) -> bool {
        if self.timing != Timing::Stored {
            return false;
        }
        let runs = |pad: &gst::Pad| pad.task_state() == gst::TaskState::Started;
        let elements = self.pipeline.iterate_recurse().into_iter();
        !elements.flatten().any(|element| element.pads().iter().any(runs))
    }

    /// The next unit; waits at most for `wait`.
    pub(super) fn pull(&mut self, wait: Duration) -> Result<PullResult, SourceError> {
        let slice = gst::ClockTime::from_nseconds(SLICE.min(wait).0);
        for _ in 0..wait.0.div_ceil(SLICE.0).max(1) {
            if let Some(sample) = self.sink.try_pull_sample(slice) {
                let caps = sample.caps_owned();
                let Some((mut unit, caps)) = Unit::new(&sample).zip(caps) else { continue };
                self.descriptors.mark(&mut unit.buffer);
                if !std::mem::replace(&mut self.delivered, true) {
                    self.note_timing();
                }
                return Ok(PullResult::Unit(unit, caps));
            }
            let error = self.take_failure().or_else(|| self.bus_error());
            match error {
                // An error after the beginning is a damaged end for stored media; a live source has
                // failed.
                Some(error) if self.delivered && !self.live => {
                    return Ok(PullResult::End(Some(error.to_string())));
                }
                Some(error) => return Err(error),
                None if self.sink.is_eos() => return self.end(),
                None => {}
            }
        }
        Ok(PullResult::Nothing)
    }

    fn end(&mut self) -> Result<PullResult, SourceError> {
        if self.delivered {
            return Ok(PullResult::End(None));
        }
        Err(self.missing.take().unwrap_or_else(|| SourceError::NotMedia {
            what: self.what.clone(),
            found: "it ends before its first frame".into(),
        }))
    }

    fn take_failure(&self) -> Option<SourceError> {
        self.failure.lock().take()
    }

    /// The first error on the bus, as one of ours.
    fn bus_error(&mut self) -> Option<SourceError> {
        let kinds = [gst::MessageType::Error, gst::MessageType::Element];
        while let Some(message) = self.bus.pop_filtered(&kinds) {
            match message.view() {
                gst::MessageView::Element(element) => {
                    let missing = element.structure().and_then(missing_plugin);
                    self.missing = self.missing.take().or(missing);
                }
                gst::MessageView::Error(error) => {
                    return Some(self.missing.take().unwrap_or_else(|| self.classify(error)));
                }
                _ => {}
            }
        }
        None
    }

    fn classify(&self, error: &gst::message::Error) -> SourceError {
        let text = error.error();
        let found = redacted(text.message());
        let element = error.src().map_or_else(|| "pipeline".into(), |src| src.name().to_string());
        let what = self.what.clone();
        match (text.kind::<gst::StreamError>(), text.kind::<gst::ResourceError>()) {
            (Some(gst::StreamError::CodecNotFound), _) => {
                SourceError::CodecUnsupported { what, codec: found }
            }
            (Some(_), _) if !self.delivered => SourceError::NotMedia { what, found },
            _ => {
                let detail = error.debug().unwrap_or_default();
                let detail = detail.lines().last().unwrap_or_default();
                let message = format!("{found} ({})", redacted(detail));
                if text.is::<gst::ResourceError>() && self.connects() {
                    return SourceError::Unreachable { what, message };
                }
                SourceError::Pipeline { element, message }
            }
        }
    }
}

/// The encoding that a `missing-plugin` message names.
fn missing_plugin(structure: &gst::StructureRef) -> Option<SourceError> {
    if structure.name() != "missing-plugin" {
        return None;
    }
    let detail = structure.get::<gst::Caps>("detail").map_or_else(
        |_| structure.get::<String>("detail").unwrap_or_default(),
        |caps| caps.to_string(),
    );
    let name = structure.get::<String>("name").unwrap_or_else(|_| detail.clone());
    Some(SourceError::CodecAbsent { codec: name, package: package_for_caps(&detail) })
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Stopping can only fail for elements that are stopped already.
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}
