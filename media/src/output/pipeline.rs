//! The common parts of GStreamer outputs: packets enter at one end, errors come from the bus, and bytes
//! on the wire beyond the packets are counted and charged to the link.

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use parking_lot::Mutex;
use selvedge_units::Bytes;

use super::transport_stream::{Continuity, RTP_LEN};

/// Bytes that may wait for the elements.
pub(super) const WAITING: u64 = 1 << 20;

/// The entry of packets into a pipeline.
#[derive(Debug)]
pub(super) struct Entry {
    input: gst_app::AppSrc,
    /// Bytes of headers that the link is charged for with each packet.
    headers: u64,
    pub(super) state: Mutex<State>,
}

/// The counts of sent bytes.
#[derive(Debug, Default)]
pub(super) struct State {
    continuity: Continuity,
    /// Bytes of packets with their headers that the link was charged for when they were passed on.
    paid: u64,
    /// The most by which the wire has been ahead of that; already charged.
    ahead: u64,
}

impl State {
    /// Charges the link for this number of bytes.
    pub(super) const fn pay(&mut self, bytes: u64) {
        self.paid += bytes;
    }

    /// Resets the debt of the link: this number of bytes have gone on the wire.
    pub(super) fn begin_at(&mut self, wire: u64) {
        (self.paid, self.ahead) = (wire, 0);
    }

    /// The bytes that the link has yet to be charged for, if this number went on the wire.
    pub(super) fn extra(&mut self, wire: u64) -> Bytes {
        let ahead = wire.saturating_sub(self.paid).max(self.ahead);
        Bytes(ahead - std::mem::replace(&mut self.ahead, ahead))
    }
}

impl Entry {
    pub(super) fn new(input: gst_app::AppSrc, headers: u64) -> Self {
        Self { input, headers, state: Mutex::default() }
    }

    /// Takes a packet; false if too much waits already.
    pub(super) fn send(&self, packet: &[u8]) -> bool {
        let state = &mut *self.state.lock();
        if self.input.current_level_bytes() >= WAITING {
            return false;
        }
        state.pay((packet.len() - RTP_LEN) as u64 + self.headers);
        let push =
            |bytes: &[u8]| self.input.push_buffer(gst::Buffer::from_slice(bytes.to_vec())).is_ok();
        state.continuity.sent(packet, push).0
    }
}

/// The error that a pipeline has reported, if any, and the element that did.
pub(super) fn error(bus: &gst::Bus) -> Option<(String, String)> {
    let message = bus.pop_filtered(&[gst::MessageType::Error])?;
    let gst::MessageView::Error(error) = message.view() else { return None };
    let element = message.src().map_or_else(|| "the output".into(), |from| from.name());
    Some((element.into(), error.error().to_string()))
}
