//! A pad of the element: the contract of its stream, and the elements behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use parking_lot::Mutex;
use selvedge_data_stream::Spec;
use selvedge_media::{Encoder, LEAST_PART, RemoteEncoder, key_unit_request};
use selvedge_units::Bitrate;

use crate::input::Input;
use crate::session::Session;
use crate::settings::{PadSettings, SettingError};

glib::wrapper! {
    /// A request pad of the elements, with the properties of its stream.
    pub struct SelvedgeSinkPad(ObjectSubclass<imp::SelvedgeSinkPad>)
        @extends gst::GhostPad, gst::ProxyPad, gst::Pad, gst::Object;
}

impl SelvedgeSinkPad {
    /// Gives the pad the element that its chain ends in.
    pub(crate) fn set_input(&self, input: &Input) {
        self.imp().elements.lock().input = Some(input.clone());
    }

    pub(crate) fn input(&self) -> Option<Input> {
        self.imp().elements.lock().input.clone()
    }

    /// The parser and the media type of its caps, once they are known.
    pub(crate) fn chain(&self) -> Option<(gst::Element, String)> {
        self.imp().elements.lock().chain.clone()
    }

    pub(crate) fn set_chain(&self, chain: Option<(gst::Element, String)>) {
        self.imp().elements.lock().chain = chain;
    }

    /// The stream that the properties describe.
    pub(crate) fn plan(&self, elsewhere: Option<SocketAddr>) -> Result<Spec, SettingError> {
        self.imp().settings.lock().plan(&self.name(), elsewhere)
    }

    /// What stands for the encoder in front of the pad, for a run that begins now.
    pub(crate) fn encoder(&self) -> Encoder {
        self.imp().estimated.store(0, Ordering::Relaxed);
        let most = self.imp().settings.lock().max_bitrate;
        let least = Bitrate(u64::from(most) / LEAST_PART);
        Encoder::remote(least, Bitrate(most.into()), Arc::new(Upstream(self.downgrade())))
    }

    /// From now on the pad is the stream with this number of a run; `None`: of no run.
    pub(crate) fn attach(&self, run: Option<(Arc<Session>, usize)>) {
        if let Some(input) = self.input() {
            input.attach(run, &self.name());
        }
    }

    pub(crate) fn run(&self) -> Option<(Arc<Session>, usize)> {
        self.input()?.run()
    }
}

/// The encoder in front of a pad: the program sets its rate by a property of the pad, and an event asks it for an intra
/// picture.
#[derive(Debug)]
struct Upstream(glib::WeakRef<SelvedgeSinkPad>);

impl Upstream {
    /// Works on the pad in a thread of GStreamer's: handlers of a program may ask the element for what the node's locks
    /// guard.
    fn later(&self, work: impl FnOnce(&SelvedgeSinkPad) + Send + 'static) {
        let Some(pad) = self.0.upgrade() else { return };
        if let Some(element) = pad.parent_element() {
            element.call_async(move |_| work(&pad));
        }
    }
}

impl RemoteEncoder for Upstream {
    fn set_rate(&self, rate: Bitrate) {
        let Some(pad) = self.0.upgrade() else { return };
        pad.imp().estimated.store(u32::try_from(rate.0).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.later(|pad| pad.notify("estimated-bitrate"));
    }

    fn request_intra(&self) {
        // An encoder that can't goes on as before.
        self.later(|pad| {
            let _ = pad.push_event(key_unit_request());
        });
    }
}

mod imp {
    use std::sync::LazyLock;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::settings::{LateFrames, window};
    use crate::{properties, stats};

    #[derive(Debug, Default)]
    pub(crate) struct Elements {
        pub(super) input: Option<Input>,
        pub(super) chain: Option<(gst::Element, String)>,
    }

    #[derive(Default)]
    pub struct SelvedgeSinkPad {
        pub(super) settings: Mutex<PadSettings>,
        /// What its encoder should encode at, in bit/s; 0 while that is not known.
        pub(super) estimated: AtomicU32,
        pub(super) elements: Mutex<Elements>,
    }

    impl SelvedgeSinkPad {
        /// An invalid window is refused while playing, and an error at the start.
        fn set_window(&self, text: String) {
            if let Some((session, stream)) = self.obj().run() {
                match window(&text, &self.obj().name()) {
                    Ok(window) => session.set_window(stream, window),
                    Err(error) => {
                        if let Some(element) = self.obj().parent_element() {
                            gst::element_warning!(
                                element,
                                gst::ResourceError::Settings,
                                ("{error}; the old window stays")
                            );
                        }
                        return;
                    }
                }
            }
            self.settings.lock().window = text;
        }
    }

    #[glib::object_subclass]
    impl ObjectSubclass for SelvedgeSinkPad {
        const NAME: &'static str = "GstSelvedgeSinkPad";
        type Type = super::SelvedgeSinkPad;
        type ParentType = gst::GhostPad;
    }

    impl ObjectImpl for SelvedgeSinkPad {
        fn properties() -> &'static [glib::ParamSpec] {
            static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(properties::of_pad);
            &PROPERTIES
        }

        fn set_property(&self, _: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
            // GObject has checked types and ranges.
            match pspec.name() {
                "to" => self.settings.lock().to = text(value),
                "period" => self.settings.lock().period = number(value),
                "window" => self.set_window(text(value)),
                "late" => self.settings.lock().late = value.get().unwrap_or(LateFrames::Drop),
                "priority" => {
                    let priority = value.get().unwrap_or_default();
                    self.settings.lock().priority = priority;
                    if let Some((session, stream)) = self.obj().run() {
                        session.set_priority(stream, priority);
                    }
                }
                "weight" => self.settings.lock().weight = value.get().unwrap_or(1),
                "delay" => self.settings.lock().delay = number(value),
                "max-bitrate" => {
                    self.settings.lock().max_bitrate = value.get().unwrap_or_default();
                }
                _ => {}
            }
        }

        fn property(&self, _: usize, pspec: &glib::ParamSpec) -> glib::Value {
            let settings = self.settings.lock().clone();
            match pspec.name() {
                "to" => settings.to.to_value(),
                "period" => settings.period.to_value(),
                "window" => settings.window.to_value(),
                "late" => settings.late.to_value(),
                "priority" => settings.priority.to_value(),
                "weight" => settings.weight.to_value(),
                "delay" => settings.delay.to_value(),
                "max-bitrate" => settings.max_bitrate.to_value(),
                "estimated-bitrate" => self.estimated.load(Ordering::Relaxed).to_value(),
                _ => {
                    let stats = self.obj().run().and_then(|(session, stream)| {
                        let (report, pads) = session.report();
                        let qos = pads.get(stream)?.1;
                        report.streams.get(stream).map(|stream| stats::of_stream(stream, qos))
                    });
                    let empty = || gst::Structure::new_empty("application/x-selvedge-pad-stats");
                    stats.unwrap_or_else(empty).to_value()
                }
            }
        }
    }

    fn text(value: &glib::Value) -> String {
        value.get::<Option<String>>().ok().flatten().unwrap_or_default()
    }

    fn number(value: &glib::Value) -> u64 {
        value.get().unwrap_or_default()
    }

    impl GstObjectImpl for SelvedgeSinkPad {}
    impl PadImpl for SelvedgeSinkPad {}
    impl ProxyPadImpl for SelvedgeSinkPad {}
    impl GhostPadImpl for SelvedgeSinkPad {}
}
