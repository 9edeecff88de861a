//! `selvedgesink` over a bond to a node: what arrives there, and what the encoder in front of a pad gets to know.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_node::{Node, NodeOptions};
use selvedge_os::clock::Clock;
use selvedge_place_engine::receive::{ReceiveOptions, Receiver, StreamReception};
use selvedge_tests_wait::until;

/// A far end, and the pipeline that sends to it.
struct Bonded {
    pipeline: gst::Pipeline,
    receiver: Receiver,
    _far: Node,
    _folder: tempfile::TempDir,
}

impl Bonded {
    /// Sends noise at this rate in kbit/s; with more properties of the element.
    fn start(kbps: u32, more: &str) -> Self {
        gst::init().unwrap();
        // The other test may have done it.
        let _ = gstselvedge::register_static();
        let reception = StreamReception {
            listen: "127.0.0.1:0".parse().unwrap(),
            meter: StreamMeter::new(ClockRate::VIDEO),
        };
        let options = ReceiveOptions::default();
        let receiver = Receiver::start(Clock::new(), vec![reception], options).unwrap();
        let to = receiver.addresses()[0];
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "a".repeat(64)).unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let far = format!(
            "[bond.van]\nlisten = \"{free}\"\nsecret = \"secret\"\n[link.out]\nrate = \"100 Mbit/s\"\n\
             [stream.lecture]\nsource = \"bond:van/sink_0\"\nto = \"rtp://{to}\"\ndelay = \"5 s\"\n"
        );
        let options = NodeOptions { base: folder.path().to_owned(), ..NodeOptions::default() };
        let far = Node::start(&far, options).unwrap();
        let line = format!(
            "selvedgesink name=s bond={free} secret={} {more} \
             videotestsrc is-live=true pattern=snow ! video/x-raw,width=320,height=240,framerate=25/1 ! \
             x264enc name=enc bitrate={kbps} key-int-max=250 speed-preset=ultrafast tune=zerolatency ! s.sink_0",
            secret.display()
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast().unwrap();
        Self { pipeline, receiver, _far: far, _folder: folder }
    }

    fn element(&self, name: &str) -> gst::Element {
        self.pipeline.by_name(name).unwrap()
    }

    fn pad(&self) -> gst::Pad {
        self.element("s").static_pad("sink_0").unwrap()
    }

    fn play(&self) {
        self.pipeline.set_state(gst::State::Playing).unwrap();
    }
}

impl Drop for Bonded {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

#[test]
fn a_program_sets_its_encoder_to_the_estimate_and_the_far_end_gets_the_frames() {
    let bonded = Bonded::start(2000, "sink_0::max-bitrate=2000000");
    let (encoder, sink) = (bonded.element("enc"), bonded.element("s"));
    let notified = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&notified);
    let of = (encoder.downgrade(), sink.downgrade());
    bonded.pad().connect_notify(Some("estimated-bitrate"), move |pad, _| {
        let (Some(encoder), Some(sink)) = (of.0.upgrade(), of.1.upgrade()) else { return };
        let estimated: u32 = pad.property("estimated-bitrate");
        encoder.set_property("bitrate", estimated / 1000);
        // A handler may ask for what the node knows.
        assert!(sink.property::<gst::Structure>("stats").has_field("sink_0"));
        count.fetch_add(1, Ordering::Relaxed);
    });
    // One of the same unit is bound without a handler.
    let other = gst::ElementFactory::make("vp8enc").build().unwrap();
    bonded.pad().bind_property("estimated-bitrate", &other, "target-bitrate").build();
    let estimate = || bonded.pad().property::<u32>("estimated-bitrate");
    assert_eq!(estimate(), 0);
    bonded.play();
    until("an estimate", || notified.load(Ordering::Relaxed) > 0);
    assert!((200_000..=2_000_000).contains(&estimate()), "{}", estimate());
    until("the encoder follows", || encoder.property::<u32>("bitrate") == estimate() / 1000);
    until("the other follows", || {
        // It keeps kbit/s.
        other.property::<i32>("target-bitrate") as u32 / 1000 == estimate() / 1000
    });
    until("frames at the far end's receiver", || bonded.receiver.snapshots()[0].complete > 50);
}

#[test]
fn a_lost_picture_asks_the_encoder_for_an_intra_picture() {
    // A bond begins with less than that, and no estimate is wanted.
    let bonded = Bonded::start(50_000, "");
    let requests = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&requests);
    let output = bonded.element("enc").static_pad("src").unwrap();
    output.add_probe(gst::PadProbeType::EVENT_UPSTREAM, move |_, info| {
        let asks = info.event().and_then(|event| event.structure()).map(gst::StructureRef::name);
        if asks.is_some_and(|name| name == "GstForceKeyUnit") {
            count.fetch_add(1, Ordering::Relaxed);
        }
        gst::PadProbeReturn::Ok
    });
    bonded.play();
    until("a request", || requests.load(Ordering::Relaxed) > 0);
    assert_eq!(bonded.pad().property::<u32>("estimated-bitrate"), 0);
}

#[test]
fn a_filter_has_no_bond() {
    gst::init().unwrap();
    let _ = gstselvedge::register_static();
    let line = "audiotestsrc ! opusenc ! selvedge bond=127.0.0.1:9 secret=x ! fakesink";
    let pipeline: gst::Pipeline = gst::parse::launch(line).unwrap().downcast().unwrap();
    assert!(pipeline.set_state(gst::State::Playing).is_err());
    let message = pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]).unwrap();
    let gst::MessageView::Error(error) = message.view() else { unreachable!("it was filtered") };
    let text = error.error().message().to_owned();
    let _ = pipeline.set_state(gst::State::Null);
    assert!(text.contains("property \"bond\" is 127.0.0.1:9, and"), "{text}");
}
