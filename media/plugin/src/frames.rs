//! Received frames on their way into a pipeline: from the packets and fates of a receiver to buffers with times,
//! and to access units that say which frame they are.

use std::collections::VecDeque;
use std::sync::Arc;

use gstreamer as gst;
use gstreamer::glib::WeakRef;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use parking_lot::Mutex;
use selvedge_data_stream::rtp::{FrameTag, Packet, SEQUENCE_AT, stamp_sequence};
use selvedge_place_engine::receive::{GatheredFrame, OpenFrames, PacketTap};
use selvedge_units::{Duration, Instant};

/// The name of the custom meta of frames: `frame` (its number), `kind`, `referenced`, `decodable`, and `left`, how
/// long before its deadline it left, in ns.
pub const FRAME_META: &str = "SelvedgeFrame";

/// Bytes that may wait for the depayloader, and frames that may be in it.
const WAITING: u64 = 8 << 20;
const INSIDE: usize = 256;
/// A time stamp that is this far from the clock belongs to another beginning.
const APART_NS: u64 = 10_000_000_000;

/// What is known of the frames that are in the depayloader, by their times.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Mutex<VecDeque<Facts>>>);

struct Facts {
    pts: gst::ClockTime,
    tag: Option<FrameTag>,
    left: Duration,
    decodable: bool,
}

impl Known {
    fn note(&self, facts: Facts) {
        let mut inside = self.0.lock();
        if inside.len() >= INSIDE {
            inside.pop_front();
        }
        inside.push_back(facts);
    }

    /// Marks an access unit that has left the depayloader.
    pub(crate) fn mark(&self, buffer: &mut gst::Buffer) {
        let Some(pts) = buffer.pts() else { return };
        let inside = self.0.lock();
        let Some(facts) = inside.iter().rev().find(|facts| facts.pts == pts) else { return };
        let buffer = buffer.make_mut();
        if !facts.decodable {
            buffer.set_flags(gst::BufferFlags::CORRUPTED);
        }
        let Some(tag) = facts.tag else { return };
        if let Ok(mut meta) = gst::meta::CustomMeta::add(buffer, FRAME_META) {
            let fields = meta.mut_structure();
            fields.set("frame", tag.seq);
            fields.set("kind", tag.kind.name());
            fields.set("referenced", tag.referenced);
            fields.set("decodable", facts.decodable);
            fields.set("left", facts.left.0);
        }
    }
}

/// Puts the frames of a receiver into a pipeline.
pub(crate) struct Frames {
    element: WeakRef<gst::Element>,
    input: gst_app::AppSrc,
    clock_rate: u32,
    known: Known,
    /// Whether frames that can't be decoded are delivered, too.
    undecodable: bool,
    open: OpenFrames,
    /// The last time stamp, and its time in the pipeline.
    last: Option<(u32, u64)>,
    sequence: u16,
}

impl Frames {
    pub(crate) fn new(
        element: WeakRef<gst::Element>,
        input: gst_app::AppSrc,
        clock_rate: u32,
        known: Known,
        undecodable: bool,
    ) -> Self {
        let (open, last, sequence) = (OpenFrames::default(), None, 0);
        Self { element, input, clock_rate, known, undecodable, open, last, sequence }
    }

    fn deliver(&mut self, frame: GatheredFrame, decodable: bool) {
        let first = frame.packets.first().and_then(|bytes| Packet::parse(bytes).ok());
        let Some(timestamp) = first.map(|packet| packet.header.timestamp) else { return };
        let Some(pts) = self.time(timestamp) else { return };
        let is_wanted = decodable || self.undecodable;
        if !is_wanted || self.input.current_level_bytes() >= WAITING {
            return;
        }
        let (tag, left) = (frame.tag, frame.left);
        self.known.note(Facts { pts, tag, left, decodable });
        for mut bytes in frame.packets {
            if bytes.len() <= SEQUENCE_AT + 2 {
                continue;
            }
            // Gaps are known already, and would make the depayloader drop more.
            stamp_sequence(&mut bytes, self.sequence);
            self.sequence = self.sequence.wrapping_add(1);
            let mut buffer = gst::Buffer::from_mut_slice(bytes);
            if let Some(buffer) = buffer.get_mut() {
                buffer.set_pts(pts);
            }
            // Refused only by a pipeline that stops.
            let _ = self.input.push_buffer(buffer);
        }
    }

    /// When a frame of this time stamp is shown in the pipeline's time; `None` before that runs. The first frame
    /// is shown when it has come.
    fn time(&mut self, timestamp: u32) -> Option<gst::ClockTime> {
        let now = self.element.upgrade()?.current_running_time()?.nseconds();
        let next = self.last.map(|(last, at)| {
            let ticks = i64::from(timestamp.wrapping_sub(last).cast_signed());
            let nanos = i128::from(ticks) * 1_000_000_000 / i128::from(self.clock_rate);
            at.saturating_add_signed(i64::try_from(nanos).unwrap_or(0))
        });
        let at = next.filter(|at| at.abs_diff(now) < APART_NS).unwrap_or(now);
        self.last = Some((timestamp, at));
        Some(gst::ClockTime::from_nseconds(at))
    }
}

impl PacketTap for Frames {
    fn packet(&mut self, _: usize, _: Instant, bytes: &[u8]) {
        if let Some(whole) = self.open.handle_packet(bytes) {
            self.deliver(whole, true);
        }
    }

    fn settled(&mut self, _: usize, seq: u32, decodable: bool) {
        if let Some(frame) = self.open.handle_settled(seq) {
            self.deliver(frame, decodable);
        }
    }
}
