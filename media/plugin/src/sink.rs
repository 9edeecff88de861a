//! The element: a bin that takes streams on request pads and owns the run of the engine. The filter
//! ([`crate::filter`]) inherits all of it and adds the src pads.

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;

glib::wrapper! {
    /// `selvedgesink`: schedules the streams of its pads onto one paced link, as RTP over UDP.
    pub struct SelvedgeSink(ObjectSubclass<imp::SelvedgeSink>)
        @extends gst::Bin, gst::Element, gst::Object,
        @implements gst::ChildProxy;
}

/// Elements with the sink's pads, properties and runs, and another end.
pub(crate) trait SelvedgeSinkImpl: BinImpl {}

// SAFETY: The sink adds nothing to the class structure of bins, which bins fill in themselves.
unsafe impl<T: SelvedgeSinkImpl> IsSubclassable<T> for SelvedgeSink {}

mod imp {
    use parking_lot::Mutex;
    use std::sync::{Arc, LazyLock};

    use selvedge_media::{Framer, SourceError};

    use super::*;
    use crate::chain;
    use crate::input::Input;
    use crate::pad::SelvedgeSinkPad;
    use crate::session::Session;
    use crate::settings::{self, SettingError, SinkSettings};
    use crate::{properties, src_pad, stats};

    #[derive(Default)]
    pub struct SelvedgeSink {
        settings: Mutex<SinkSettings>,
        pads: Mutex<Pads>,
        run: Mutex<Run>,
    }

    #[derive(Default)]
    struct Pads {
        list: Vec<SelvedgeSinkPad>,
        /// The number that the next pad without a name gets, if it is free.
        next: u32,
    }

    #[derive(Default)]
    struct Run {
        /// The current run, or the last one, for its statistics.
        session: Option<Arc<Session>>,
        active: bool,
    }

    impl SelvedgeSink {
        fn active(&self) -> Option<Arc<Session>> {
            let run = self.run.lock();
            run.session.clone().filter(|_| run.active)
        }

        fn pads(&self) -> Vec<SelvedgeSinkPad> {
            self.pads.lock().list.clone()
        }

        /// Whether frames go on to src pads: it is a `selvedge`.
        fn filters(&self) -> bool {
            self.obj().type_() != super::SelvedgeSink::static_type()
        }

        /// Checks all properties and begins a run.
        fn begin(&self) -> Result<(), SettingError> {
            let link = self.settings.lock().link(&self.obj().name())?;
            let pads = self.pads();
            if pads.is_empty() {
                return Err(SettingError::NoPads);
            }
            let bond = link.bond.as_ref().map(|bond| bond.address());
            let elsewhere = match (self.filters(), bond) {
                (true, Some(to)) => return Err(SettingError::BondUnused(to)),
                (true, None) => Some(([0, 0, 0, 0], 0).into()),
                (false, bond) => bond,
            };
            let plans =
                pads.iter().map(|pad| pad.plan(elsewhere)).collect::<Result<Vec<_>, _>>()?;
            if elsewhere.is_none() {
                settings::check_receivers(&plans)?;
            }
            let outputs = pads.iter().filter_map(|pad| pad.input()?.output()).collect();
            let encoders = pads.iter().map(|pad| pad.encoder()).collect();
            let session = Session::new(link, plans, outputs, encoders);
            for (stream, pad) in pads.iter().enumerate() {
                pad.attach(Some((Arc::clone(&session), stream)));
            }
            *self.run.lock() = Run { session: Some(session), active: true };
            Ok(())
        }

        /// Stops the engine and takes the chains down; the last statistics stay.
        fn finish(&self) {
            let session = {
                let mut run = self.run.lock();
                run.active = false;
                run.session.clone()
            };
            if let Some(session) = session {
                session.stop();
            }
            for pad in self.pads() {
                self.remove_chain(&pad);
            }
        }

        fn remove_chain(&self, pad: &SelvedgeSinkPad) {
            let Some((chain, _)) = pad.chain() else { return };
            pad.set_chain(None);
            // Fails only if the chain's pad is gone already.
            let _ = pad.set_target(None::<&gst::Pad>);
            self.discard(&chain);
        }

        fn discard(&self, element: &gst::Element) {
            // Fails only for elements that can't stop, which must not keep us from stopping.
            let _ = element.set_state(gst::State::Null);
            // While the element itself goes away, its parts are no longer in it.
            if element.parent().is_some_and(|parent| parent == *self.obj()) {
                let _ = self.obj().remove(element);
            }
        }

        /// The first caps of a pad decide what stands between it and its input.
        fn handle_caps(&self, pad: &SelvedgeSinkPad, caps: &gst::CapsRef) -> bool {
            let media = caps.structure(0).map_or("", |s| s.name().as_str());
            let built = match pad.chain() {
                Some((_, was)) if was == media => return true,
                Some((_, was)) => Err(SourceError::Pipeline {
                    element: caps.to_string(),
                    message: format!("the stream was {was} before"),
                }),
                None => self.build(pad, caps),
            };
            match built {
                Ok(chain) => {
                    pad.set_chain(Some((chain, media.to_owned())));
                    true
                }
                Err(error) => {
                    gst::element_imp_error!(
                        self,
                        gst::StreamError::WrongType,
                        ("pad {}: {error}", pad.name())
                    );
                    false
                }
            }
        }

        fn build(
            &self,
            pad: &SelvedgeSinkPad,
            caps: &gst::CapsRef,
        ) -> Result<gst::Element, SourceError> {
            let chain = Framer::entry(&pad.name(), caps)?.upcast();
            let wiring = |message: &dyn ToString| SourceError::Pipeline {
                element: caps.to_string(),
                message: message.to_string(),
            };
            let end = |element: &gst::Element, name| {
                element.static_pad(name).ok_or_else(|| wiring(&"a pad is missing"))
            };
            let input = pad.input().ok_or_else(|| wiring(&"the pad was released"))?;
            self.obj().add(&chain).map_err(|e| wiring(&e))?;
            let linked = || {
                end(&chain, "src")?
                    .link(&end(input.upcast_ref(), "sink")?)
                    .map_err(|e| wiring(&e))?;
                chain.sync_state_with_parent().map_err(|e| wiring(&e))?;
                pad.set_target(Some(&end(&chain, "sink")?)).map_err(|e| wiring(&e))
            };
            linked().inspect_err(|_| self.discard(&chain))?;
            Ok(chain)
        }

        fn handle_event(&self, pad: &SelvedgeSinkPad, event: gst::Event) -> bool {
            if let gst::EventView::Caps(caps) = event.view()
                && !self.handle_caps(pad, caps.caps())
            {
                return false;
            }
            let ended = event.type_() == gst::EventType::Eos && pad.chain().is_none();
            match pad.input().filter(|_| ended) {
                // It ends before it has begun; the input must be notified all the same.
                Some(input) => input.static_pad("sink").is_some_and(|end| {
                    let start = pad.sticky_event::<gst::event::StreamStart>(0);
                    start.is_some_and(|start| end.send_event(start)) && end.send_event(event)
                }),
                None => gst::Pad::event_default(pad, Some(&*self.obj()), event),
            }
        }

        fn set_rate(&self, bps: u64) {
            if let Some(session) = self.active() {
                let other = self.settings.lock().other_rate(bps);
                match other {
                    Ok(rate) => session.set_rate(rate),
                    Err(error) => {
                        gst::element_imp_warning!(
                            self,
                            gst::ResourceError::Settings,
                            ("{error}; the old rate stays")
                        );
                        return;
                    }
                }
            }
            self.settings.lock().rate = bps;
        }
    }

    #[glib::object_subclass]
    impl ObjectSubclass for SelvedgeSink {
        const NAME: &'static str = "GstSelvedgeSink";
        type Type = super::SelvedgeSink;
        type ParentType = gst::Bin;
        type Interfaces = (gst::ChildProxy,);
    }

    impl ObjectImpl for SelvedgeSink {
        fn properties() -> &'static [glib::ParamSpec] {
            static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(properties::of_sink);
            &PROPERTIES
        }

        fn set_property(&self, _: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
            // GObject has checked types and ranges.
            match pspec.name() {
                "rate" => self.set_rate(value.get().unwrap_or_default()),
                name @ ("discipline" | "bond" | "secret" | "devices") => {
                    let text = value.get::<Option<String>>().ok().flatten().unwrap_or_default();
                    let mut settings = self.settings.lock();
                    match name {
                        "bond" => settings.bond = text,
                        "secret" => settings.secret = text,
                        "devices" => settings.devices = text,
                        _ => settings.discipline = text,
                    }
                }
                "selection" => self.settings.lock().selection = value.get().unwrap_or(true),
                "burst" => self.settings.lock().burst = value.get().unwrap_or_default(),
                "catch-up" => self.settings.lock().catch_up = value.get().unwrap_or(-1),
                name @ ("sync" | "async") => {
                    let set: bool = value.get().unwrap_or(true);
                    match name {
                        "sync" => self.settings.lock().sync = set,
                        _ => self.settings.lock().preroll = set,
                    }
                    let set = set && (name == "sync" || !self.filters());
                    for input in self.pads().iter().filter_map(SelvedgeSinkPad::input) {
                        input.set_property(name, set);
                    }
                }
                _ => {}
            }
        }

        fn property(&self, _: usize, pspec: &glib::ParamSpec) -> glib::Value {
            let settings = self.settings.lock().clone();
            match pspec.name() {
                "rate" => settings.rate.to_value(),
                "bond" => settings.bond.to_value(),
                "secret" => settings.secret.to_value(),
                "devices" => settings.devices.to_value(),
                "discipline" => settings.discipline.to_value(),
                "selection" => settings.selection.to_value(),
                "burst" => settings.burst.to_value(),
                "catch-up" => settings.catch_up.to_value(),
                "sync" => settings.sync.to_value(),
                "async" => settings.preroll.to_value(),
                _ => {
                    let session = self.run.lock().session.clone();
                    let (report, pads) = session.map(|s| s.report()).unwrap_or_default();
                    stats::of_link(&report, &pads).to_value()
                }
            }
        }
    }

    impl GstObjectImpl for SelvedgeSink {}

    impl ElementImpl for SelvedgeSink {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Selvedge sink",
                    "Sink/Network/RTP",
                    "Schedules many streams onto one paced link that may be too small, as RTP over UDP",
                    "The Selvedge developers",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                gst::PadTemplate::with_gtype(
                    "sink_%u",
                    gst::PadDirection::Sink,
                    gst::PadPresence::Request,
                    &chain::all_caps(),
                    SelvedgeSinkPad::static_type(),
                )
                .into_iter()
                .collect()
            });
            &TEMPLATES
        }

        fn request_new_pad(
            &self,
            template: &gst::PadTemplate,
            name: Option<&str>,
            _: Option<&gst::Caps>,
        ) -> Option<gst::Pad> {
            if self.active().is_some() {
                gst::element_imp_warning!(
                    self,
                    gst::CoreError::Pad,
                    ("pads can't be requested while the element runs; request all of them before it \
                      goes to PAUSED (behind a demuxer put a parser or a queue between)")
                );
                return None;
            }
            let number = {
                let mut pads = self.pads.lock();
                let asked = name.and_then(|name| name.strip_prefix("sink_")?.parse::<u32>().ok());
                let taken = |n: u32| {
                    let name = format!("sink_{n}");
                    pads.list.iter().any(|pad| pad.name() == name)
                };
                let number = match asked {
                    Some(number) if taken(number) => return None,
                    Some(number) => number,
                    None => (pads.next..=u32::MAX).find(|&n| !taken(n))?,
                };
                pads.next = pads.next.max(number.saturating_add(1));
                number
            };
            let input = Input::new(&format!("input_{number}"), &self.settings.lock());
            if self.filters() {
                input.set_property("async", false);
            }
            self.obj().add(&input).ok()?;
            let _ = input.sync_state_with_parent();
            let pad = gst::PadBuilder::<SelvedgeSinkPad>::from_template(template)
                .name(format!("sink_{number}"))
                .event_function(|pad, parent, event| {
                    Self::catch_panic_pad_function(
                        parent,
                        || false,
                        |sink| sink.handle_event(pad, event),
                    )
                })
                .build();
            pad.set_input(&input);
            self.obj().add_pad(&pad).ok()?;
            if self.filters() {
                src_pad::add(self.obj().upcast_ref(), &input, &format!("src_{number}"))?;
            }
            self.pads.lock().list.push(pad.clone());
            self.obj().child_added(&pad, &pad.name());
            Some(pad.upcast())
        }

        fn release_pad(&self, pad: &gst::Pad) {
            let Some(pad) = pad.downcast_ref::<SelvedgeSinkPad>() else { return };
            self.pads.lock().list.retain(|other| other != pad);
            let _ = pad.set_active(false);
            if let Some((session, stream)) = pad.run() {
                session.set_media_period(stream, settings::PERIOD_DEFAULT);
            }
            self.remove_chain(pad);
            if let Some(input) = pad.input() {
                self.discard(input.upcast_ref());
            }
            pad.attach(None);
            let _ = self.obj().remove_pad(pad);
            if let Some(src) = self.obj().static_pad(&pad.name().replace("sink", "src")) {
                let _ = src.set_active(false);
                let _ = self.obj().remove_pad(&src);
            }
            self.obj().child_removed(pad, &pad.name());
        }

        fn change_state(
            &self,
            transition: gst::StateChange,
        ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
            match transition {
                gst::StateChange::ReadyToPaused => self.begin().map_err(|error| {
                    gst::element_imp_error!(self, gst::ResourceError::Settings, ("{error}"));
                    gst::StateChangeError
                })?,
                gst::StateChange::PausedToReady => {
                    if let Some(session) = self.active() {
                        session.close();
                    }
                }
                _ => {}
            }
            let changed = self.parent_change_state(transition);
            let failed = changed.is_err() && transition == gst::StateChange::ReadyToPaused;
            if transition == gst::StateChange::PausedToReady || failed {
                self.finish();
            }
            // The filter delivers nothing in PAUSED, as a camera: the link keeps its own time.
            let stands = gst::State::Paused == transition.next();
            changed.map(|done| match self.filters() && stands {
                true => gst::StateChangeSuccess::NoPreroll,
                false => done,
            })
        }
    }

    impl BinImpl for SelvedgeSink {}

    /// Pads are the children whose properties can be set from outside, also from a launch line; the
    /// elements within are private.
    impl ChildProxyImpl for SelvedgeSink {
        fn child_by_name(&self, name: &str) -> Option<glib::Object> {
            self.pads().into_iter().find(|pad| pad.name() == name).map(Cast::upcast)
        }

        fn child_by_index(&self, index: u32) -> Option<glib::Object> {
            self.pads().into_iter().nth(index as usize).map(Cast::upcast)
        }

        fn children_count(&self) -> u32 {
            u32::try_from(self.pads().len()).unwrap_or(u32::MAX)
        }
    }
}
