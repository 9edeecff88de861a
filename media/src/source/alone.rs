//! A GStreamer element that stands alone between two pads of ours, and works in the calling thread: its
//! output during a push belongs to the pushed unit, or to those before it.

use std::sync::Arc;

use gstreamer as gst;
use gstreamer::prelude::*;
use parking_lot::Mutex;

use super::elements::wiring;
use crate::error::SourceError;

/// The element with its pads.
#[derive(Debug)]
pub(crate) struct Alone {
    element: gst::Element,
    input: gst::Pad,
    output: gst::Pad,
    bus: gst::Bus,
    out: Arc<Mutex<Output>>,
    caps: Option<gst::Caps>,
}

#[derive(Debug, Default)]
struct Output {
    buffers: Vec<gst::Buffer>,
    caps: Option<gst::Caps>,
}

impl Alone {
    /// Sets up an element that is to output these caps.
    pub(crate) fn new(element: gst::Element, wanted: &gst::Caps) -> Result<Self, SourceError> {
        let failed = |why: &dyn ToString| wiring(&element.name(), why.to_string());
        let bus = gst::Bus::new();
        element.set_bus(Some(&bus));
        let out = Arc::new(Mutex::new(Output::default()));
        let input = gst::Pad::builder(gst::PadDirection::Src).name("units").build();
        let output = collector(&out, wanted).map_err(|e| failed(&e))?;
        let pad = |name| element.static_pad(name).ok_or_else(|| failed(&"no pad"));
        input.link(&pad("sink")?).map_err(|e| failed(&e))?;
        pad("src")?.link(&output).map_err(|e| failed(&e))?;
        let activate = input.set_active(true).and_then(|()| output.set_active(true));
        activate.map_err(|e| failed(&e))?;
        element.set_state(gst::State::Playing).map_err(|e| failed(&e))?;
        Ok(Self { element, input, output, bus, out, caps: None })
    }

    /// Announces the input's caps to the element, at the start and when they change.
    pub(crate) fn announce(&mut self, caps: &gst::Caps) -> Result<(), SourceError> {
        if self.caps.as_ref() == Some(caps) {
            return Ok(());
        }
        let first = self.caps.is_none();
        let segment = gst::FormattedSegment::<gst::ClockTime>::new();
        let start = first.then(|| gst::event::StreamStart::new("selvedge"));
        let time = first.then(|| gst::event::Segment::new(&segment));
        let events = start.into_iter().chain([gst::event::Caps::new(caps)]).chain(time);
        for event in events {
            if !self.input.push_event(event) {
                let message = format!("it does not take {caps}");
                return Err(wiring(&self.element.name(), message));
            }
        }
        self.caps = Some(caps.clone());
        Ok(())
    }

    /// The output while this unit goes in.
    pub(crate) fn push(&self, unit: gst::Buffer) -> Vec<gst::Buffer> {
        if let Err(flow) = self.input.push(unit) {
            tracing::debug!(?flow, "a unit was refused by {}", self.element.name());
        }
        self.log_bus();
        std::mem::take(&mut self.out.lock().buffers)
    }

    /// The output at the end.
    pub(crate) fn end(&self) -> Vec<gst::Buffer> {
        self.input.push_event(gst::event::Eos::new());
        std::mem::take(&mut self.out.lock().buffers)
    }

    /// The caps of its output.
    pub(crate) fn caps(&self) -> Option<gst::Caps> {
        self.out.lock().caps.clone()
    }

    /// Logs warnings of the element, which has no pipeline to report them to.
    fn log_bus(&self) {
        while let Some(message) = self.bus.pop() {
            tracing::debug!(?message, "an element that stands alone");
        }
    }
}

/// A pad that keeps buffers and the caps they come with.
fn collector(
    out: &Arc<Mutex<Output>>,
    wanted: &gst::Caps,
) -> Result<gst::Pad, gst::glib::BoolError> {
    let (one, list, event) = (Arc::clone(out), Arc::clone(out), Arc::clone(out));
    let always = gst::PadPresence::Always;
    let template = gst::PadTemplate::new("packets", gst::PadDirection::Sink, always, wanted)?;
    let pad = gst::Pad::builder_from_template(&template)
        .chain_function(move |_, _, buffer| {
            one.lock().buffers.push(buffer);
            Ok(gst::FlowSuccess::Ok)
        })
        .chain_list_function(move |_, _, buffers| {
            list.lock().buffers.extend(buffers.iter_owned());
            Ok(gst::FlowSuccess::Ok)
        })
        .event_function(move |_, _, message| {
            if let gst::EventView::Caps(caps) = message.view() {
                event.lock().caps = Some(caps.caps_owned());
            }
            true
        })
        .build();
    Ok(pad)
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.element.set_state(gst::State::Null);
        let _ = self.input.set_active(false);
        let _ = self.output.set_active(false);
    }
}
