//! Received streams as pictures for the page: packets and their frames' fates in from a receiver, whole
//! frames that can be decoded on time out to a [`Preview`]. So the pictures match the counts.

use std::collections::VecDeque;
use std::sync::Arc;

use selvedge_control_config::view::VideoTrack;
use selvedge_data_stream::rtp::Packet;
use selvedge_media::{Codec, Preview};
use selvedge_place_engine::receive::PacketTap;
use selvedge_units::{Duration, Instant};

/// Frames of a stream that are open and not settled, at most.
const OPEN_MAX: usize = 96;
/// Packets of a frame, at most; larger frames are not shown.
const PACKETS_MAX: usize = 8192;

/// A stream whose pictures are kept.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    name: String,
    preview: Option<Arc<Preview>>,
}

impl Watched {
    /// A stream with this RTP encoding name; sound and encodings that can't be shown have no pictures.
    pub(crate) fn new(name: &str, encoding: &str, clock_rate: u32) -> Self {
        let made = Codec::from_encoding(encoding).map(|codec| Preview::new(codec, clock_rate));
        let preview = made.and_then(|made| {
            made.inspect_err(|error| tracing::warn!(stream = name, %error, "no pictures")).ok()?
        });
        Self { name: name.to_owned(), preview: preview.map(Arc::new) }
    }

    /// Its pictures, if it has some.
    pub(crate) const fn preview(&self) -> Option<&Arc<Preview>> {
        self.preview.as_ref()
    }

    /// The track as the page names it.
    pub(crate) fn track(&self, by: &str) -> VideoTrack {
        VideoTrack {
            stream: self.name.clone(),
            label: "received".to_owned(),
            by: by.to_owned(),
            codec: self.preview.as_ref().map_or_else(String::new, |preview| preview.codec()),
        }
    }
}

/// Assembles the packets of streams, in the order in which the receiver numbers them.
pub(crate) struct PictureTap {
    streams: Vec<Assembler>,
    /// The next tap that sees the packets.
    next: Option<Box<dyn PacketTap>>,
}

#[derive(Default)]
struct Assembler {
    preview: Option<Arc<Preview>>,
    open: VecDeque<OpenFrame>,
}

/// A frame of which packets have arrived.
struct OpenFrame {
    /// Its number, or its timestamp in a stream without tags.
    seq: u32,
    packets: Vec<Vec<u8>>,
    left: Duration,
}

impl PictureTap {
    pub(crate) fn new(streams: &[Watched], next: Option<Box<dyn PacketTap>>) -> Self {
        let assembler =
            |each: &Watched| Assembler { preview: each.preview.clone(), ..Assembler::default() };
        Self { streams: streams.iter().map(assembler).collect(), next }
    }
}

impl PacketTap for PictureTap {
    fn packet(&mut self, stream: usize, now: Instant, bytes: &[u8]) {
        if let Some(stream) = self.streams.get_mut(stream).filter(|s| s.preview.is_some()) {
            stream.packet(bytes);
        }
        if let Some(next) = &mut self.next {
            next.packet(stream, now, bytes);
        }
    }

    fn settled(&mut self, stream: usize, seq: u32, decodable: bool) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.settle(seq, decodable);
        }
    }
}

impl Assembler {
    fn packet(&mut self, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let (seq, left) = match packet.tag {
            Some(tag) => (tag.seq, Duration::from_millis(tag.left_ms.max(0).unsigned_abs().into())),
            None => (packet.header.timestamp, Duration::ZERO),
        };
        let open = match self.open.iter().position(|frame| frame.seq == seq) {
            Some(at) => &mut self.open[at],
            None => {
                if self.open.len() >= OPEN_MAX {
                    self.open.pop_front();
                }
                self.open.push_back(OpenFrame { seq, packets: Vec::new(), left });
                self.open.back_mut().expect("it was pushed just now")
            }
        };
        if open.packets.len() < PACKETS_MAX {
            open.packets.push(bytes.to_vec());
        }
        open.left = left;
        // Without tags nothing better is known: a frame that ends with a marker counts as whole.
        if packet.tag.is_none() && packet.header.marker {
            self.settle(seq, true);
        }
    }

    fn settle(&mut self, seq: u32, decodable: bool) {
        let Some(at) = self.open.iter().position(|frame| frame.seq == seq) else { return };
        // Earlier frames were settled before it.
        let frame = self.open.drain(..=at).next_back();
        if let (Some(frame), Some(preview)) = (frame.filter(|_| decodable), &self.preview) {
            preview.push(&frame.packets, frame.left);
        }
    }
}
