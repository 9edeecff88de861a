//! `selvedgesrc`: a stream that Selvedge sends, received as whole frames. Packets come from the receiver that
//! `selvedge play` has, which knows of each frame whether it is whole, on time and decodable; a depayloader of
//! GStreamer makes access units of them. Each says in a meta what it is. Nothing is requested of the sender.
//!
//! `UDP -> receiver's thread -> appsrc -> depayloader -> ghost pad`; what waits in front of the depayloader is
//! bounded.

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;

glib::wrapper! {
    /// The source.
    pub struct SelvedgeSrc(ObjectSubclass<imp::SelvedgeSrc>)
        @extends gst::Bin, gst::Element, gst::Object;
}

mod imp {
    use std::io::Read;
    use std::net::SocketAddr;
    use std::str::FromStr;
    use std::sync::LazyLock;

    use gstreamer_app as gst_app;
    use parking_lot::Mutex;
    use selvedge_data_receive::{ClockRate, MeterSnapshot, StreamMeter};
    use selvedge_media::packet_caps;
    use selvedge_media::sdp::{SdpError, Session, TEXT_MAX};
    use selvedge_os::clock::Clock;
    use selvedge_os::socket::SocketError;
    use selvedge_place_engine::receive::{ReceiveOptions, Receiver, StreamReception};

    use super::*;
    use crate::frames::{Frames, Known};

    /// How late frames may come after the first one, unless the property says otherwise.
    const LATENCY: gst::ClockTime = gst::ClockTime::from_mseconds(200);

    #[derive(Clone)]
    struct Settings {
        sdp: String,
        stream: u32,
        address: String,
        caps: Option<gst::Caps>,
        undecodable: bool,
        latency: gst::ClockTime,
    }

    impl Default for Settings {
        fn default() -> Self {
            let (sdp, address) = Default::default();
            Self { sdp, stream: 0, address, caps: None, undecodable: false, latency: LATENCY }
        }
    }

    #[derive(Default)]
    pub struct SelvedgeSrc {
        settings: Mutex<Settings>,
        receiver: Mutex<Option<Receiver>>,
        last: Mutex<MeterSnapshot>,
    }

    /// Why a stream can't be received.
    #[derive(Debug, thiserror::Error)]
    enum ReceiveError {
        #[error(
            "property \"address\" is \"{0}\"; set it to a numeric HOST:PORT, such as 0.0.0.0:5004, or property \"sdp\" to a file"
        )]
        Address(String),
        #[error(
            "property \"caps\" is not set; set it to what comes at the address, such as \
             application/x-rtp,media=video,encoding-name=H264,clock-rate=90000"
        )]
        NoCaps,
        #[error("{0} has no clock rate; write such as clock-rate=90000")]
        ClockRate(gst::Caps),
        #[error("no depayloader is installed for {0}; see gst-inspect-1.0")]
        Depayloader(gst::Caps),
        #[error("can't read {path}: {why}")]
        File { path: String, why: std::io::Error },
        #[error("{path}: {why}")]
        Sdp { path: String, why: SdpError },
        #[error("property \"stream\" is {stream}, and {path} has {streams}; the first is 0")]
        Stream { path: String, stream: u32, streams: usize },
        #[error("the packets of {0} are sealed (SRTP); a node receives them, as sdp:FILE")]
        Sealed(String),
        #[error(transparent)]
        Socket(#[from] SocketError),
        #[error("GStreamer's elements don't fit: {0}")]
        Elements(#[from] glib::BoolError),
    }

    impl Settings {
        /// Where the stream comes, and what comes there.
        fn described(&self) -> Result<(SocketAddr, gst::Caps), ReceiveError> {
            let path = || self.sdp.clone();
            if self.sdp.is_empty() {
                let address = self.address.strip_prefix("rtp://").unwrap_or(&self.address);
                let at = address.parse().map_err(|_| ReceiveError::Address(address.to_owned()))?;
                return Ok((at, self.caps.clone().ok_or(ReceiveError::NoCaps)?));
            }
            let unread = |why| ReceiveError::File { path: path(), why };
            // No more than an SDP file may have, and one byte that shows that it has more.
            let file = std::fs::File::open(&self.sdp).map_err(unread)?;
            let mut text = String::new();
            file.take(TEXT_MAX as u64 + 1).read_to_string(&mut text).map_err(unread)?;
            let session =
                Session::parse(&text).map_err(|why| ReceiveError::Sdp { path: path(), why })?;
            let (stream, streams) = (self.stream, session.streams.len());
            let described = session.streams.get(stream as usize);
            let described =
                described.ok_or_else(|| ReceiveError::Stream { path: path(), stream, streams })?;
            if described.key.is_some() {
                return Err(ReceiveError::Sealed(path()));
            }
            Ok((described.to, packet_caps(described)))
        }
    }

    impl SelvedgeSrc {
        /// Opens the socket and builds the chain.
        fn begin(&self) -> Result<(), ReceiveError> {
            let settings = self.settings.lock().clone();
            let (at, caps) = settings.described()?;
            let format = caps.structure(0);
            let clock_rate = format.and_then(|format| format.get::<i32>("clock-rate").ok());
            let clock_rate = clock_rate.and_then(|rate| ClockRate::new(rate.cast_unsigned()));
            let clock_rate = clock_rate.ok_or_else(|| ReceiveError::ClockRate(caps.clone()))?;
            let depay = depayloader(&caps)?;
            let input = gst_app::AppSrc::builder()
                .caps(&caps)
                .format(gst::Format::Time)
                .is_live(true)
                .min_latency(settings.latency.nseconds().cast_signed())
                .build();
            let filter = gst::ElementFactory::make("capsfilter").build()?;
            // Encodings of which GStreamer could deliver less than an access unit at a time.
            let name = format.and_then(|format| format.get::<&str>("encoding-name").ok());
            if name.is_some_and(|name| ["H264", "H265"].contains(&&*name.to_ascii_uppercase())) {
                let whole = "video/x-h264,alignment=au;video/x-h265,alignment=au";
                filter.set_property("caps", gst::Caps::from_str(whole)?);
            }
            let parts = [input.upcast_ref(), &depay, &filter];
            self.obj().add_many(parts)?;
            gst::Element::link_many(parts)?;
            let known = Known::default();
            if let Some(pad) = filter.static_pad("sink") {
                let marks = known.clone();
                pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
                    info.buffer_mut().into_iter().for_each(|buffer| marks.mark(buffer));
                    gst::PadProbeReturn::Ok
                });
            }
            if let Some(ghost) = self.ghost() {
                ghost.set_target(filter.static_pad("src").as_ref())?;
            }
            let element = self.obj().upcast_ref::<gst::Element>().downgrade();
            let rate = clock_rate.hertz();
            let frames = Frames::new(element, input, rate, known, settings.undecodable);
            let reception = StreamReception { listen: at, meter: StreamMeter::new(clock_rate) };
            let options = ReceiveOptions { tap: Some(Box::new(frames)), ..Default::default() };
            *self.receiver.lock() = Some(Receiver::start(Clock::new(), vec![reception], options)?);
            Ok(())
        }

        /// Closes the socket; the last statistics stay.
        fn finish(&self) {
            let receiver = self.receiver.lock().take();
            if let Some(last) = receiver.and_then(|receiver| receiver.stop().0.pop()) {
                *self.last.lock() = last;
            }
        }

        fn ghost(&self) -> Option<gst::GhostPad> {
            self.obj().static_pad("src")?.downcast().ok()
        }

        /// Takes the chain down.
        fn clear(&self) {
            // Fails only without a target.
            let _ = self.ghost().map(|ghost| ghost.set_target(None::<&gst::Pad>));
            for part in self.obj().children() {
                let _ = part.set_state(gst::State::Null);
                let _ = self.obj().remove(&part);
            }
        }

        fn stats(&self) -> gst::Structure {
            let now = self.receiver.lock().as_ref().and_then(|receiver| receiver.snapshots().pop());
            let seen = now.unwrap_or_else(|| self.last.lock().clone());
            gst::Structure::builder("application/x-selvedge-source-stats")
                .field("packets", seen.packets)
                .field("lost", seen.lost)
                .field("duplicates", seen.duplicates)
                .field("reordered", seen.reordered)
                .field("frames", seen.frames)
                .field("complete", seen.complete)
                .field_if_some("on-time", seen.on_time)
                .field_if_some("decodable", seen.decodable)
                .field("jitter-ms", seen.jitter_ms)
                .field("socket-drops", seen.socket_drops)
                .build()
        }
    }

    /// The depayloader for these packets that ranks first.
    fn depayloader(caps: &gst::Caps) -> Result<gst::Element, ReceiveError> {
        let kind = gst::ElementFactoryType::DEPAYLOADER;
        let all = gst::ElementFactory::factories_with_type(kind, gst::Rank::MARGINAL);
        let able = all.iter().filter(|factory| factory.can_sink_all_caps(caps));
        let best = able.max_by_key(|factory| factory.rank());
        let best = best.ok_or_else(|| ReceiveError::Depayloader(caps.clone()))?;
        Ok(best.create().build()?)
    }

    #[glib::object_subclass]
    impl ObjectSubclass for SelvedgeSrc {
        const NAME: &'static str = "GstSelvedgeSrc";
        type Type = super::SelvedgeSrc;
        type ParentType = gst::Bin;
    }

    impl ObjectImpl for SelvedgeSrc {
        fn properties() -> &'static [glib::ParamSpec] {
            static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> =
                LazyLock::new(crate::properties::of_source);
            &PROPERTIES
        }

        fn constructed(&self) {
            self.parent_constructed();
            self.obj().set_suppressed_flags(gst::ElementFlags::SOURCE | gst::ElementFlags::SINK);
            self.obj().set_element_flags(gst::ElementFlags::SOURCE);
            if let Some(template) = self.obj().pad_template("src") {
                let _ = self.obj().add_pad(&gst::GhostPad::from_template(&template));
            }
        }

        fn set_property(&self, _: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
            let mut settings = self.settings.lock();
            let text = || value.get::<Option<String>>().ok().flatten().unwrap_or_default();
            // GObject has checked types and ranges.
            match pspec.name() {
                "sdp" => settings.sdp = text(),
                "address" => settings.address = text(),
                "stream" => settings.stream = value.get().unwrap_or_default(),
                "caps" => settings.caps = value.get().ok().flatten(),
                "undecodable" => settings.undecodable = value.get().unwrap_or_default(),
                "latency" => {
                    let ms = value.get::<u32>().unwrap_or_default();
                    settings.latency = gst::ClockTime::from_mseconds(ms.into());
                }
                _ => {}
            }
        }

        fn property(&self, _: usize, pspec: &glib::ParamSpec) -> glib::Value {
            let settings = self.settings.lock().clone();
            match pspec.name() {
                "sdp" => settings.sdp.to_value(),
                "address" => settings.address.to_value(),
                "stream" => settings.stream.to_value(),
                "caps" => settings.caps.to_value(),
                "undecodable" => settings.undecodable.to_value(),
                "latency" => (settings.latency.mseconds() as u32).to_value(),
                _ => self.stats().to_value(),
            }
        }
    }

    impl GstObjectImpl for SelvedgeSrc {}

    impl ElementImpl for SelvedgeSrc {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Selvedge source",
                    "Source/Network/RTP",
                    "Receives a stream that Selvedge sends as whole frames, and says of each what it is",
                    "The Selvedge developers",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                let (out, always) = (gst::PadDirection::Src, gst::PadPresence::Always);
                gst::PadTemplate::new("src", out, always, &gst::Caps::new_any())
                    .into_iter()
                    .collect()
            });
            &TEMPLATES
        }

        fn change_state(
            &self,
            transition: gst::StateChange,
        ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
            let begins = transition == gst::StateChange::ReadyToPaused;
            if begins && let Err(error) = self.begin() {
                self.finish();
                self.clear();
                gst::element_imp_error!(self, gst::ResourceError::Settings, ("{error}"));
                return Err(gst::StateChangeError);
            }
            if transition == gst::StateChange::PausedToReady {
                self.finish();
            }
            let changed = self.parent_change_state(transition);
            if transition == gst::StateChange::PausedToReady || begins && changed.is_err() {
                self.finish();
                self.clear();
            }
            // A live source delivers nothing in PAUSED.
            changed.map(|done| match transition.next() {
                gst::State::Paused => gst::StateChangeSuccess::NoPreroll,
                _ => done,
            })
        }
    }

    impl BinImpl for SelvedgeSrc {}
}
