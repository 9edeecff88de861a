//! Dependency descriptors of an RTP input, from its packets to the units made of these packets.
//!
//! Each depayloader of a pipeline is watched: descriptors enter with packets and belong to the next
//! unit that leaves. Where an SDP names the extension, the caps do so too, as `extmap-ID`. The thread
//! that pulls units takes their references by presentation time, and marks the buffers with them.

use std::collections::VecDeque;
use std::sync::Arc;

use gstreamer as gst;
use gstreamer::prelude::*;
use parking_lot::Mutex;
use selvedge_data_stream::{References, rtp};

use crate::dependency::{DEPENDENCY_URI, DependencyTracker, Descriptor, DescriptorReader};

/// Descriptors of this number of units may wait for their units; more would belong to units that
/// parsers discarded.
const WAITING_MAX: usize = 256;
/// Frames of a unit: more than there are layers.
const FRAMES_MAX: usize = 32;
/// The mark on a buffer, and its only field.
const MARK: &str = "SelvedgeReferences";
const BITS: &str = "bits";

/// The descriptors that a pipeline's depayloaders have seen.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    arrived: Arc<Mutex<Arrived>>,
    tracker: DependencyTracker,
}

#[derive(Debug, Default)]
struct Arrived {
    /// The extension's local identifier; `None` if it is not sent.
    id: Option<u8>,
    reader: DescriptorReader,
    /// Frames of the arriving unit, and whether one of its descriptors can't be read.
    current: Vec<Descriptor>,
    is_unreadable: bool,
    waiting: VecDeque<(Option<gst::ClockTime>, Vec<Descriptor>)>,
}

impl Descriptors {
    /// Watches all depayloaders that are added to this pipeline from now on.
    pub(super) fn of(pipeline: &gst::Pipeline) -> Self {
        let descriptors = Self::default();
        let arrived = Arc::downgrade(&descriptors.arrived);
        pipeline.connect_deep_element_added(move |_, _, element| {
            let class =
                element.factory().and_then(|made| made.metadata("klass").map(str::to_owned));
            if !class.is_some_and(|class| class.contains("Depayloader/Network/RTP")) {
                return;
            }
            if let Some(arrived) = arrived.upgrade() {
                watch(element, &arrived);
            }
        });
        descriptors
    }

    /// Marks a unit's buffer with the references of its descriptors, if it had any. Must be called for
    /// every unit.
    pub(super) fn mark(&mut self, buffer: &mut gst::Buffer) {
        let frames = {
            let mut arrived = self.arrived.lock();
            if arrived.id.is_none() {
                return;
            }
            arrived.take(buffer.pts())
        };
        if let Some(refs) = self.tracker.push(&frames) {
            gst::meta::CustomMeta::register(MARK, &[]);
            if let Ok(mut mark) = gst::meta::CustomMeta::add(buffer.make_mut(), MARK) {
                mark.mut_structure().set(BITS, refs.bits());
            }
        }
    }
}

/// The references that a buffer was marked with.
pub(super) fn references(unit: &gst::BufferRef) -> Option<References> {
    // An unregistered name must not be looked up.
    gst::meta::CustomMeta::is_registered(MARK).then_some(())?;
    let mark = gst::meta::CustomMeta::from_buffer(unit, MARK).ok()?;
    mark.structure().get(BITS).ok().map(References::from_bits)
}

fn watch(depayloader: &gst::Element, arrived: &Arc<Mutex<Arrived>>) {
    let (Some(input), Some(output)) =
        (depayloader.static_pad("sink"), depayloader.static_pad("src"))
    else {
        return;
    };
    let kinds = gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST;
    let (packets, units) = (Arc::clone(arrived), Arc::clone(arrived));
    input.add_probe(kinds | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        if let Some(gst::EventView::Caps(caps)) = info.event().map(|event| event.view()) {
            packets.lock().id = extension_id(caps.caps());
        }
        each(info, |packet| packets.lock().packet(packet));
        gst::PadProbeReturn::Ok
    });
    output.add_probe(kinds, move |_, info| {
        each(info, |unit| units.lock().unit(unit.pts()));
        gst::PadProbeReturn::Ok
    });
}

fn each(info: &gst::PadProbeInfo<'_>, mut handle: impl FnMut(&gst::BufferRef)) {
    match &info.data {
        Some(gst::PadProbeData::Buffer(buffer)) => handle(buffer),
        Some(gst::PadProbeData::BufferList(list)) => list.iter().for_each(handle),
        _ => {}
    }
}

/// The local identifier that caps name for the descriptor, by a string or after a direction.
fn extension_id(caps: &gst::CapsRef) -> Option<u8> {
    let structure = caps.structure(0).filter(|s| s.name() == "application/x-rtp")?;
    structure.iter().find_map(|(name, value)| {
        let id = name.strip_prefix("extmap-")?.parse().ok()?;
        let is_uri = |value: &gst::glib::SendValue| {
            value.get::<&str>().is_ok_and(|uri| uri == DEPENDENCY_URI)
        };
        let in_list = || value.get::<gst::ArrayRef<'_>>().is_ok_and(|list| list.iter().any(is_uri));
        (is_uri(value) || in_list()).then_some(id)
    })
}

impl Arrived {
    fn packet(&mut self, packet: &gst::BufferRef) {
        let Some(id) = self.id else { return };
        let Ok(map) = packet.map_readable() else { return };
        let Some(descriptor) = rtp::extension_element(&map, id) else { return };
        let Some(read) = self.reader.read(descriptor) else {
            self.is_unreadable = true;
            return;
        };
        let is_new = self.current.iter().all(|frame| frame.frame_number != read.frame_number);
        if is_new && self.current.len() < FRAMES_MAX {
            self.current.push(read);
        }
    }

    /// The packets so far make this unit.
    fn unit(&mut self, time: Option<gst::ClockTime>) {
        let mut frames = std::mem::take(&mut self.current);
        if std::mem::take(&mut self.is_unreadable) {
            frames.clear();
        }
        if self.id.is_some() {
            self.waiting.push_back((time, frames));
            let surplus = self.waiting.len().saturating_sub(WAITING_MAX);
            self.waiting.drain(..surplus);
        }
    }

    /// The frames of the unit of this time. A parser may have joined several buffers to this unit,
    /// discarded others before it, and given it a time where it had none.
    fn take(&mut self, time: Option<gst::ClockTime>) -> Vec<Descriptor> {
        let is_its = |(of, _): &(Option<gst::ClockTime>, _)| of.is_none() || *of == time;
        let Some(at) = self.waiting.iter().position(is_its) else { return Vec::new() };
        self.waiting.drain(..at);
        let mut frames = Vec::new();
        while let Some((of, part)) = self.waiting.pop_front() {
            frames.extend(part);
            let goes_on = of.is_some() && self.waiting.front().is_some_and(|(next, _)| *next == of);
            if !goes_on {
                break;
            }
        }
        frames
    }
}
