//! The output of the filter: the units of one pad wait here until the link is done with their frames.
//! They go on to the src pad in their order of arrival, with the events between them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gstreamer as gst;
use gstreamer::prelude::*;
use parking_lot::{Condvar, Mutex};

enum Item {
    Event(gst::Event),
    Unit { seq: u32, buffer: gst::Buffer, is_sent: bool },
}

struct Held {
    items: VecDeque<Item>,
    /// The result of the last push.
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
    pub(crate) fn new() -> Arc<Self> {
        let held =
            Held { items: VecDeque::new(), flow: Err(gst::FlowError::Flushing), active: false };
        Arc::new(Self { held: Mutex::new(held), changed: Condvar::new(), qos: AtomicU64::new(0) })
    }

    /// From now on held units go on to this pad.
    pub(crate) fn start(self: &Arc<Self>, pad: &gst::Pad) -> Result<(), gst::glib::BoolError> {
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

    /// Drops held units; nothing goes on.
    pub(crate) fn stop(&self, pad: &gst::Pad) -> Result<(), gst::glib::BoolError> {
        self.flush();
        pad.stop_task()
    }

    /// One step of the pad's thread: waits for the next item, and pushes it.
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
            // The input returns it for the next unit.
            self.held.lock().flow = pushed;
            let _ = pad.pause_task();
        }
    }

    /// The last result from downstream.
    pub(crate) fn flow(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.held.lock().flow
    }

    /// Offers a frame to the link, and holds its unit if the link takes it. The link may be done with
    /// it before `enqueue` returns, so it waits until the unit is here.
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

    /// Takes an event that arrived at the input: flushing acts at once, others keep their place.
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

    pub(crate) fn count_qos(&self) {
        self.qos.fetch_add(1, Ordering::Relaxed);
    }

    /// How often downstream has reported that it is late, or early.
    pub(crate) fn qos(&self) -> u64 {
        self.qos.load(Ordering::Relaxed)
    }
}
