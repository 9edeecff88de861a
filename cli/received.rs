//! Received streams as pictures for the page: packets and their frames' fates in from a receiver, whole
//! frames that can be decoded on time out to a [`Preview`]. So the pictures match the counts.

use std::sync::Arc;

use selvedge_control_config::view::VideoTrack;
use selvedge_media::{Codec, Picture, PictureTimes, Preview};
use selvedge_place_engine::receive::{GatheredFrame, OpenFrames, PacketTap};
use selvedge_units::Instant;

/// A stream whose pictures are kept.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    name: String,
    preview: Option<Arc<Preview>>,
}

impl Watched {
    /// A stream with this RTP encoding name; encodings that can't be shown have no pictures.
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
            sound: self.preview.as_ref().and_then(|preview| preview.sound()),
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
    open: OpenFrames,
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
            let whole = stream.open.handle_packet(bytes);
            stream.show(whole);
        }
        if let Some(next) = &mut self.next {
            next.packet(stream, now, bytes);
        }
    }

    fn settled(&mut self, stream: usize, seq: u32, decodable: bool) {
        if let Some(stream) = self.streams.get_mut(stream) {
            let settled = stream.open.handle_settled(seq);
            stream.show(settled.filter(|_| decodable));
        }
    }
}

impl Assembler {
    fn show(&self, frame: Option<GatheredFrame>) {
        if let (Some(frame), Some(preview)) = (frame, &self.preview) {
            let stated = frame.tag.map(|tag| Picture::stated(tag.kind, tag.referenced));
            let times = PictureTimes { left: frame.left, age: None };
            preview.push(&frame.packets, stated.unwrap_or(Picture::DATA), times);
        }
    }
}
