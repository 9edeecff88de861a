//! The filter's src pads: each delivers the units that [`crate::output`] holds for it, and passes
//! queries and events from downstream to the pad where its stream enters.

use std::sync::Arc;

use gstreamer as gst;
use gstreamer::prelude::*;

use crate::input::Input;
use crate::output::Output;

/// Adds the src pad of an input to an element.
pub(crate) fn add(element: &gst::Element, input: &Input, name: &str) -> Option<()> {
    let output = Output::new();
    let (activated, seen) = (Arc::clone(&output), Arc::clone(&output));
    // Strong: the input holds its pad weakly.
    let (upstream, asked) = (input.clone(), input.clone());
    let pad = gst::Pad::builder_from_template(&element.pad_template("src_%u")?)
        .name(name)
        .activatemode_function(move |pad, _, _, active| {
            let done = if active { activated.start(pad) } else { activated.stop(pad) };
            done.map_err(|error| gst::loggable_error!(gst::CAT_RUST, "{error}"))
        })
        .event_function(move |_, _, event| match event.view() {
            // A sink shows a frame by its deadline; the frame arrives here earlier by `delay`.
            gst::EventView::Latency(latency) => {
                let until = latency.latency().saturating_sub(upstream.delay());
                upstream.send_event(gst::event::Latency::new(until))
            }
            view => {
                if matches!(view, gst::EventView::Qos(_)) {
                    seen.count_qos();
                }
                upstream.sink_pad().push_event(event)
            }
        })
        .query_function(move |pad, parent, query| match query.view_mut() {
            gst::QueryViewMut::Latency(latency) => {
                let mut before = gst::query::Latency::new();
                // Until its caps are known, nothing is linked to the input.
                let known = asked.sink_pad().peer_query(&mut before);
                let (_, min, max) = if known { before.result() } else { Default::default() };
                let max = max.filter(|_| known).map(|max| max + asked.delay());
                latency.set(true, min + asked.delay(), max);
                true
            }
            gst::QueryViewMut::Position(_)
            | gst::QueryViewMut::Duration(_)
            | gst::QueryViewMut::Seeking(_)
            | gst::QueryViewMut::Segment(_) => asked.sink_pad().peer_query(query),
            _ => gst::Pad::query_default(pad, parent, query),
        })
        .build();
    input.set_output(&pad, output);
    element.add_pad(&pad).ok()
}
