//! Small pictures of a stream, for pages: encoded access units in, small JPEG images out: two a
//! second of any stream, or all of one that is watched.
//!
//! For two a second only referenced pictures are decoded, in GStreamer's threads. Feeding never waits:
//! a thumbnailer that can't keep up skips to the next intra picture.

use std::sync::Arc;

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use parking_lot::Mutex;
use selvedge_data_stream::Kind;
use selvedge_units::Duration;

use crate::error::SourceError;
use crate::onlookers::Onlookers;
use crate::picture::{Codec, Picture};
use crate::source::elements::{bin, init, link_later, make, wiring};
use crate::source::forms;

/// Units that may wait for the decoder.
const WAITING: u64 = 16;

/// How large images are, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Pixels across.
    pub width: u32,
    /// The shortest time between two images; zero for all.
    interval: Duration,
}

impl ImageSize {
    /// Those beside a stream's name: two a second.
    pub const SMALL: Self = Self { width: 192, interval: Duration::from_millis(500) };
    /// Those of a stream that is watched: all of them.
    pub const WATCHED: Self = Self { width: 384, interval: Duration::ZERO };
}

/// Makes small pictures. Stopped when dropped.
#[derive(Debug)]
pub struct Thumbnailer {
    codec: Codec,
    interval: Duration,
    pipeline: gst::Pipeline,
    input: gst_app::AppSrc,
    bus: gst::Bus,
    /// Pictures that need earlier ones are of no use until an intra picture.
    needs_intra: bool,
    last: Option<Duration>,
    failed: bool,
}

impl Thumbnailer {
    /// A thumbnailer for this codec; `None` for sound. `give` receives JPEG images of this size, each
    /// with its media time, from a GStreamer thread; it should not wait long.
    ///
    /// # Errors
    /// [`SourceError::CodecAbsent`] if an element is not installed.
    pub fn new(
        codec: Codec,
        ImageSize { width, interval }: ImageSize,
        give: impl FnMut(&[u8], Duration) + Send + 'static,
    ) -> Result<Option<Self>, SourceError> {
        init()?;
        if codec.is_audio() {
            return Ok(None);
        }
        let mut caps = forms::caps(codec);
        caps.fixate();
        let pipeline = gst::Pipeline::new();
        let input = gst_app::AppSrc::builder().caps(&caps).format(gst::Format::Time).build();
        let decode = make("decodebin")?;
        let scale = bin(&format!(
            "videoscale ! videoconvert ! \
             capsfilter caps=video/x-raw,format=I420,width={width},pixel-aspect-ratio=1/1 ! \
             jpegenc quality=70"
        ))?;
        let output = collector(Some(1), give);
        let parts = [input.upcast_ref(), &decode, scale.upcast_ref(), output.upcast_ref()];
        pipeline.add_many(parts).map_err(|e| wiring("thumbnailer", e))?;
        input.link(&decode).map_err(|e| wiring("decodebin", e))?;
        scale.link(&output).map_err(|e| wiring("appsink", e))?;
        let entry = scale.static_pad("sink").ok_or_else(|| wiring("videoscale", "no input"))?;
        limit_rate(&entry, interval);
        link_later(&decode, &entry, "decoded pictures do not fit");
        keep_to_one_thread(&decode);
        let bus = pipeline.bus().ok_or_else(|| wiring("thumbnailer", "it has no bus"))?;
        pipeline.set_state(gst::State::Playing).map_err(|e| wiring("thumbnailer", e))?;
        let (needs_intra, last, failed) = (true, None, false);
        Ok(Some(Self { codec, interval, pipeline, input, bus, needs_intra, last, failed }))
    }

    /// Takes an access unit, in decoding order; copies it if it is to be decoded.
    pub fn feed(&mut self, picture: Picture, media_time: Duration, unit: &[u8]) {
        if self.wants(picture, media_time) {
            self.push(gst::Buffer::from_slice(unit.to_vec()), media_time);
        }
    }

    /// Takes an access unit without copying it.
    pub(crate) fn feed_buffer(
        &mut self,
        picture: Picture,
        media_time: Duration,
        unit: &gst::Buffer,
    ) {
        if self.wants(picture, media_time)
            && let Ok(unit) = unit.copy_region(gst::BufferCopyFlags::MEMORY, ..)
        {
            self.push(unit, media_time);
        }
    }

    fn wants(&mut self, picture: Picture, media_time: Duration) -> bool {
        if self.failed || self.broke() {
            return false;
        }
        match picture.kind {
            Kind::Still => self.last.is_none_or(|last| media_time - last >= self.interval),
            Kind::Intra => true,
            Kind::Predicted | Kind::Bidirectional => {
                !self.needs_intra && (picture.referenced || self.interval == Duration::ZERO)
            }
            Kind::Audio | Kind::Data => false,
        }
    }

    fn push(&mut self, mut unit: gst::Buffer, media_time: Duration) {
        // Without it, later pictures can't be decoded.
        self.needs_intra = self.input.current_level_buffers() >= WAITING;
        if self.needs_intra {
            return;
        }
        self.last = Some(media_time);
        unit.make_mut().set_pts(gst::ClockTime::from_nseconds(media_time.0));
        if let Err(flow) = self.input.push_buffer(unit) {
            tracing::debug!(?flow, "the thumbnailer takes no more");
        }
    }

    /// Whether the pipeline has failed; true only once.
    fn broke(&mut self) -> bool {
        while let Some(message) = self.bus.pop() {
            if let gst::MessageView::Error(error) = message.view() {
                let codec = self.codec.encoding();
                tracing::warn!(
                    "no small pictures of {codec}: {}; is gstreamer1.0-libav installed?",
                    error.error().message()
                );
                self.failed = true;
            }
        }
        self.failed
    }
}

/// Makes images of all pictures of a stream, while pages watch them.
#[derive(Debug)]
pub(crate) struct Imager {
    codec: Codec,
    pub(crate) onlookers: Arc<dyn Onlookers>,
    thumbnailer: Option<Thumbnailer>,
}

impl Imager {
    pub(crate) const fn new(codec: Codec, onlookers: Arc<dyn Onlookers>) -> Self {
        Self { codec, onlookers, thumbnailer: None }
    }

    /// The thumbnailer for the next picture, if images are watched now.
    pub(crate) fn made(&mut self) -> Option<&mut Thumbnailer> {
        if !self.onlookers.watched().images {
            self.thumbnailer = None;
        } else if self.thumbnailer.is_none() {
            let to = Arc::clone(&self.onlookers);
            let give = move |jpeg: &[u8], present| to.image(present, jpeg);
            match Thumbnailer::new(self.codec, ImageSize::WATCHED, give) {
                Ok(made) => self.thumbnailer = made,
                Err(error) => tracing::debug!(%error, "no images"),
            }
        }
        self.thumbnailer.as_mut()
    }
}

/// The output of pictures, each with its time; `most` may wait.
pub(crate) fn collector(
    most: Option<u32>,
    mut give: impl FnMut(&[u8], Duration) + Send + 'static,
) -> gst_app::AppSink {
    let output = gst_app::AppSink::builder().sync(false).max_buffers(most.unwrap_or(0)).build();
    output.set_property("enable-last-sample", false);
    let callbacks = gst_app::AppSinkCallbacks::builder().new_sample(move |output| {
        let sample = output.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        if let Some(buffer) = sample.buffer()
            && let Ok(image) = buffer.map_readable()
        {
            give(&image, Duration(buffer.pts().map_or(0, gst::ClockTime::nseconds)));
        }
        Ok(gst::FlowSuccess::Ok)
    });
    output.set_callbacks(callbacks.build());
    output
}

/// Passes only as many decoded pictures as are wanted.
fn limit_rate(entry: &gst::Pad, interval: Duration) {
    let last = Arc::new(Mutex::new(None::<gst::ClockTime>));
    let interval = gst::ClockTime::from_nseconds(interval.0);
    entry.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let time = info.buffer().and_then(|buffer| buffer.pts());
        let mut last = last.lock();
        match (time, *last) {
            (Some(time), Some(before)) if time < before + interval => gst::PadProbeReturn::Drop,
            (time, _) => {
                *last = time;
                gst::PadProbeReturn::Ok
            }
        }
    });
}

/// Keeps a decoder to one thread: more would hold pictures back, and compete with more important work.
fn keep_to_one_thread(decode: &gst::Element) {
    decode.connect("element-added", false, |values| {
        let element = values.get(1).and_then(|value| value.get::<gst::Element>().ok());
        if let Some(element) = element.filter(|element| element.has_property("max-threads")) {
            element.set_property_from_str("max-threads", "1");
        }
        None
    });
}

impl Drop for Thumbnailer {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}
