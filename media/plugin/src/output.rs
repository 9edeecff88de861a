//! What leaves the filter: the units of one pad wait here until the link is done with their frames,
//! and go on to the src pad in the order in which they came, with the events that came between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gstreamer as gst;
use gstreamer::prelude::*;
use parking_lot::{Condvar, Mutex};

use crate::input::Input;

enum Item {
    Event(gst::Event),
    Unit { seq: u32, buffer: gst::Buffer, is_sent: bool },
}

struct Held {
    items: VecDeque<Item>,
    /// What became of the last unit that was pushed.
    flow: Result<gst::FlowSuccess, gst::FlowError>,
    active: bool,
}

/// The units of one pad between the link's decision and the src pad.
pub(crate) struct Output {
    held: Mutex<Held>,
    changed: Condvar,
    qos: AtomicU64,
}

impl Output {
    /// Adds the src pad of an input to an element.
    pub(crate) fn add(element: &gst::Element, input: &Input, name: &str) -> Option<()> {
        let held =
            Held { items: VecDeque::new(), flow: Err(gst::FlowError::Flushing), active: false };
        let output = Arc::new(Self {
            held: Mutex::new(held),
            changed: Condvar::new(),
            qos: AtomicU64::new(0),
        });
        let (activated, seen) = (Arc::clone(&output), Arc::clone(&output));
        // Strong: the input knows its pad weakly.
        let (upstream, asked) = (input.clone(), input.clone());
        let pad = gst::Pad::builder_from_template(&element.pad_template("src_%u")?)
            .name(name)
            .activatemode_function(move |pad, _, _, active| {
                let done = if active { activated.start(pad) } else { activated.stop(pad) };
                done.map_err(|error| gst::loggable_error!(gst::CAT_RUST, "{error}"))
            })
            .event_function(move |_, _, event| match event.view() {
                // A sink shows a frame by its deadline; it comes in here by `delay` earlier.
                gst::EventView::Latency(latency) => {
                    let until = latency.latency().saturating_sub(upstream.delay());
                    upstream.send_event(gst::event::Latency::new(until))
                }
                view => {
                    let is_qos = matches!(view, gst::EventView::Qos(_));
                    seen.qos.fetch_add(u64::from(is_qos), Ordering::Relaxed);
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

    fn start(self: &Arc<Self>, pad: &gst::Pad) -> Result<(), gst::glib::BoolError> {
        *self.held.lock() =
            Held { items: VecDeque::new(), flow: Ok(gst::FlowSuccess::Ok), active: true };
        let (output, to) = (Arc::clone(self), pad.downgrade());
        pad.start_task(move || {
            if let Some(pad) = to.upgrade() {
                output.push_next(&pad);
            }
        })
    }

    fn flush(&self) {
        let mut held = self.held.lock();
        held.active = false;
        held.items.clear();
        self.changed.notify_one();
    }

    fn stop(&self, pad: &gst::Pad) -> Result<(), gst::glib::BoolError> {
        self.flush();
        pad.stop_task()
    }

    /// What the pad's thread does, again and again: waits for what is next, and pushes it.
    fn push_next(&self, pad: &gst::Pad) {
        let mut held = self.held.lock();
        while held.active
            && matches!(held.items.front(), None | Some(Item::Unit { is_sent: false, .. }))
        {
            self.changed.wait(&mut held);
        }
        let item = held.items.pop_front().filter(|_| held.active);
        drop(held);
        let pushed = match item {
            Some(Item::Unit { buffer, .. }) => pad.push(buffer),
            Some(Item::Event(event)) => {
                pad.push_event(event);
                Ok(gst::FlowSuccess::Ok)
            }
            None => Err(gst::FlowError::Flushing),
        };
        if pushed.is_err() {
            // The input gives it to the next unit that comes.
            self.held.lock().flow = pushed;
            let _ = pad.pause_task();
        }
    }

    /// What downstream answered last.
    pub(crate) fn flow(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.held.lock().flow
    }

    /// Offers a frame to the link, and holds its unit if the link takes it. The link may be done with it
    /// before `enqueue` returns, so it waits until the unit is here.
    pub(crate) fn hold(&self, unit: &gst::Buffer, enqueue: impl FnOnce() -> Option<u32>) {
        let mut held = self.held.lock();
        if let Some(seq) = enqueue() {
            held.items.push_back(Item::Unit { seq, buffer: unit.clone(), is_sent: false });
        }
    }

    /// The link is done with a frame.
    pub(crate) fn settled(&self, frame: u32, sent: bool) {
        let mut held = self.held.lock();
        let is_it = |item: &Item| matches!(item, Item::Unit { seq, .. } if *seq == frame);
        let Some(at) = held.items.iter().position(is_it) else { return };
        match &mut held.items[at] {
            Item::Unit { is_sent, .. } if sent => *is_sent = true,
            _ => drop(held.items.remove(at)),
        }
        self.changed.notify_one();
    }

    /// Takes an event that came to the input: flushing acts at once, others keep their place.
    pub(crate) fn handle_event(self: &Arc<Self>, pad: &gst::Pad, event: &gst::Event) {
        match event.type_() {
            gst::EventType::FlushStart => {
                pad.push_event(event.clone());
                self.flush();
                let _ = pad.pause_task();
            }
            gst::EventType::FlushStop => {
                pad.push_event(event.clone());
                let _ = self.start(pad);
            }
            _ => {
                let mut held = self.held.lock();
                if held.active {
                    held.items.push_back(Item::Event(event.clone()));
                    self.changed.notify_one();
                }
            }
        }
    }

    /// How often downstream has reported that it is late, or early.
    pub(crate) fn qos(&self) -> u64 {
        self.qos.load(Ordering::Relaxed)
    }
}
