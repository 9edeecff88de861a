//! The end of a pad's chain: waits until a unit is due, makes packets of it, and passes them to the
//! engine.
//!
//! A base sink, so that GStreamer handles clock, preroll, latency and flushing. It never waits for the
//! link: a frame that finds no room is dropped with a reason, as it would be on a node.

use std::sync::Arc;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use gstreamer_base as gst_base;

use crate::output::Output;
use crate::session::Session;
use crate::settings::SinkSettings;

glib::wrapper! {
    pub(crate) struct Input(ObjectSubclass<imp::Input>)
        @extends gst_base::BaseSink, gst::Element, gst::Object;
}

impl Input {
    /// An input without a run.
    pub(crate) fn new(name: &str, settings: &SinkSettings) -> Self {
        let input: Self = glib::Object::builder().property("name", name).build();
        input.set_property("sync", settings.sync);
        input.set_property("async", settings.preroll);
        input.set_property("enable-last-sample", false);
        input
    }

    /// From now on units belong to the stream with this number of a run, called `name` in errors.
    pub(crate) fn attach(&self, run: Option<(Arc<Session>, usize)>, name: &str) {
        let run = run.map(|(session, stream)| imp::Run { session, stream, name: name.into() });
        *self.imp().run.lock() = run;
    }

    /// From now on units go on to this pad once the link is done with their frames.
    pub(crate) fn set_output(&self, pad: &gst::Pad, output: Arc<Output>) {
        *self.imp().output.lock() = Some((pad.downgrade(), output));
    }

    /// The output behind it, if there is one.
    pub(crate) fn output(&self) -> Option<Arc<Output>> {
        self.imp().output.lock().as_ref().map(|(_, output)| Arc::clone(output))
    }

    /// How long after its arrival a unit is due.
    pub(crate) fn delay(&self) -> gst::ClockTime {
        let delay = self.run().map(|(session, stream)| session.delay(stream)).unwrap_or_default();
        gst::ClockTime::from_nseconds(delay.0)
    }

    pub(crate) fn sink_pad(&self) -> &gst::Pad {
        gst_base::prelude::BaseSinkExtManual::sink_pad(self)
    }

    /// The run that units belong to, and the stream's number in it.
    pub(crate) fn run(&self) -> Option<(Arc<Session>, usize)> {
        self.imp().run().map(|run| (run.session, run.stream))
    }
}

mod imp {
    use parking_lot::Mutex;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use gst_base::prelude::*;
    use gst_base::subclass::prelude::*;
    use selvedge_media::{Framer, MediaFrame, SourceError};
    use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};

    use super::*;
    use crate::session::NoProducer;
    use crate::settings::PERIOD_DEFAULT;

    static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
        gst::DebugCategory::new("selvedgeinput", gst::DebugColorFlags::empty(), Some("Selvedge"))
    });

    #[derive(Clone)]
    pub(super) struct Run {
        pub(super) session: Arc<Session>,
        pub(super) stream: usize,
        pub(super) name: String,
    }

    /// State that only the streaming thread touches, from start to stop.
    #[derive(Default)]
    struct Stream {
        framer: Option<Framer>,
        frame_producer: Option<FrameProducer>,
        /// Frames that were passed to the engine.
        given: u64,
        /// When the arriving unit is to be decoded, if that differs from the time now written on it.
        decode_time: Option<gst::ClockTime>,
    }

    #[derive(Default)]
    pub(crate) struct Input {
        pub(super) run: Mutex<Option<Run>>,
        stream: Mutex<Stream>,
        pub(super) output: Mutex<Option<(glib::WeakRef<gst::Pad>, Arc<Output>)>>,
        unlocked: AtomicBool,
        /// How often it was unlocked: code that waits outside of `render` must notice an unlock even if
        /// it has ended.
        unlocks: AtomicU64,
    }

    impl Input {
        pub(super) fn run(&self) -> Option<Run> {
            self.run.lock().clone()
        }

        fn fail(&self, error: &SourceError) {
            gst::element_imp_error!(self, gst::StreamError::Format, ("{error}"));
        }

        /// The engine's end of the stream. Pausing and stopping interrupt the wait for it.
        fn fetch_producer(&self, run: &Run) -> Result<FrameProducer, gst::FlowError> {
            loop {
                let unlocked = || self.unlocked.load(Ordering::Acquire);
                match run.session.frame_producer(run.stream, unlocked) {
                    Ok(frame_producer) => return Ok(frame_producer),
                    Err(NoProducer::Interrupted) => {
                        self.obj().wait_preroll()?;
                    }
                    Err(NoProducer::Failed(reason)) => {
                        gst::element_imp_error!(
                            self,
                            gst::ResourceError::OpenWrite,
                            ("can't send {}: {reason}", run.name)
                        );
                        return Err(gst::FlowError::Error);
                    }
                }
            }
        }

        /// The engine has all frames; waits until it is done with them.
        fn end(&self) {
            let Some(run) = self.run() else { return };
            // Other streams need not wait for a period that will never be known.
            run.session.set_media_period(run.stream, PERIOD_DEFAULT);
            let unlocks = self.unlocks.load(Ordering::Acquire);
            let given = {
                let mut stream = self.stream.lock();
                let Stream { framer, frame_producer, given, .. } = &mut *stream;
                if let Some((framer, frame_producer)) = framer.as_mut().zip(frame_producer.as_mut())
                {
                    let ended = framer.finish(&mut |frame: MediaFrame<'_>| {
                        give(frame_producer, given, frame);
                    });
                    if let Err(error) = ended {
                        gst::warning!(CAT, imp = self, "{error}");
                    }
                }
                *given
            };
            let unlocked = || self.unlocks.load(Ordering::Acquire) != unlocks;
            if given > 0 && !run.session.drain(run.stream, given, unlocked) {
                gst::debug!(CAT, imp = self, "{} ends with frames unsent", run.name);
            }
        }
    }

    /// The inlet and the link count a refused frame.
    fn give(
        frame_producer: &mut FrameProducer,
        given: &mut u64,
        frame: MediaFrame<'_>,
    ) -> Option<u32> {
        let offer = FrameMetadata {
            kind: frame.picture.kind,
            referenced: frame.picture.referenced,
            closes: frame.picture.closes,
            refs: frame.picture.refs,
            timestamp: frame.rtp_timestamp,
        };
        let seq = frame_producer.enqueue(offer, frame.packets).ok();
        *given += u64::from(seq.is_some());
        seq
    }

    /// A base sink drops units that are decoded before the segment begins. Frames within it may refer
    /// to such units, and with B frames the first ones always do: they are due at its beginning.
    fn keep_before_segment(
        pad: &gst::Pad,
        info: &mut gst::PadProbeInfo<'_>,
    ) -> gst::PadProbeReturn {
        let segment = pad.sticky_event::<gst::event::Segment>(0);
        let start = segment.and_then(|event| {
            let segment = event.segment().downcast_ref::<gst::ClockTime>()?;
            segment.start()
        });
        if let (Some(start), Some(gst::PadProbeData::Buffer(buffer))) = (start, &mut info.data)
            && buffer.dts_or_pts().is_some_and(|time| time < start)
        {
            if let Some(input) = pad.parent().and_downcast::<super::Input>() {
                input.imp().stream.lock().decode_time = buffer.dts();
            }
            buffer.make_mut().set_dts(start);
        }
        gst::PadProbeReturn::Ok
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Input {
        const NAME: &'static str = "GstSelvedgeInput";
        type Type = super::Input;
        type ParentType = gst_base::BaseSink;
    }

    impl ObjectImpl for Input {
        fn constructed(&self) {
            self.parent_constructed();
            self.obj().sink_pad().add_probe(gst::PadProbeType::BUFFER, keep_before_segment);
        }
    }

    impl GstObjectImpl for Input {}

    impl ElementImpl for Input {
        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                gst::PadTemplate::new(
                    "sink",
                    gst::PadDirection::Sink,
                    gst::PadPresence::Always,
                    &crate::chain::all_caps(),
                )
                .into_iter()
                .collect()
            });
            &TEMPLATES
        }
    }

    impl BaseSinkImpl for Input {
        fn start(&self) -> Result<(), gst::ErrorMessage> {
            *self.stream.lock() = Stream::default();
            self.unlocked.store(false, Ordering::Release);
            Ok(())
        }

        fn stop(&self) -> Result<(), gst::ErrorMessage> {
            *self.stream.lock() = Stream::default();
            Ok(())
        }

        fn unlock(&self) -> Result<(), gst::ErrorMessage> {
            self.unlocked.store(true, Ordering::Release);
            self.unlocks.fetch_add(1, Ordering::AcqRel);
            if let Some(run) = self.run() {
                run.session.wake();
            }
            Ok(())
        }

        fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
            self.unlocked.store(false, Ordering::Release);
            Ok(())
        }

        fn set_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
            let refused = |error: SourceError| {
                self.fail(&error);
                gst::loggable_error!(CAT, "{error}")
            };
            let run = self.run().ok_or_else(|| gst::loggable_error!(CAT, "no run"))?;
            let mut stream = self.stream.lock();
            if let Some(framer) = &mut stream.framer {
                return framer.accept_caps(caps).map_err(refused);
            }
            let payload_max = run.session.payload_max(run.stream);
            let framer = Framer::new(&run.name, caps, payload_max).map_err(refused)?;
            let info = framer.info().clone();
            if !framer.knows_period() {
                let period = info.period;
                gst::info!(CAT, imp = self, "{} states no frame rate: {period} is taken", run.name);
            }
            stream.framer = Some(framer);
            drop(stream);
            run.session.set_media(run.stream, &info);
            Ok(())
        }

        fn render(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
            let run = self.run().ok_or(gst::FlowError::Flushing)?;
            // Bound first: a guard in the condition would be held while waiting.
            let missing = self.stream.lock().frame_producer.is_none();
            if missing {
                let frame_producer = self.fetch_producer(&run)?;
                self.stream.lock().frame_producer = Some(frame_producer);
            }
            let segment = self.obj().segment();
            let mut stream = self.stream.lock();
            let Stream { framer, frame_producer, given, decode_time } = &mut *stream;
            let Some((framer, frame_producer)) = framer.as_mut().zip(frame_producer.as_mut())
            else {
                return Err(gst::FlowError::NotNegotiated);
            };
            let output = self.obj().output();
            let mut unit = buffer.clone();
            if let Some(decode_time) = decode_time.take() {
                unit.make_mut().set_dts(decode_time);
            }
            let mut sink = |frame: MediaFrame<'_>| {
                let mut enqueue = || give(frame_producer, given, frame);
                match &output {
                    Some(output) => output.hold(&unit, enqueue),
                    None => drop(enqueue()),
                }
            };
            framer.push(buffer, &segment, &mut sink).map_err(|error| {
                self.fail(&error);
                gst::FlowError::Error
            })?;
            output.map_or(Ok(gst::FlowSuccess::Ok), |output| output.flow())
        }

        fn event(&self, event: gst::Event) -> bool {
            if event.type_() == gst::EventType::Eos {
                self.end();
            }
            // Not under the lock: flushing waits for the pad's thread.
            let output = self.output.lock().clone();
            if let Some((pad, output)) = output
                && let Some(pad) = pad.upgrade()
            {
                output.handle_event(&pad, &event);
            }
            self.parent_event(event)
        }
    }
}
