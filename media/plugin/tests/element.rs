//! The element in pipelines: the frames that receivers get, the statistics, and the error texts.

use std::sync::Once;
use std::time::Duration as StdDuration;

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_data_receive::{ClockRate, MeterSnapshot, StreamMeter};
use selvedge_os::clock::Clock;
use selvedge_place_engine::receive::{ReceiveOptions, Receiver, StreamReception};
use selvedge_tests_wait::{holds_within, until};

/// How long anything may take.
const TIMEOUT: gst::ClockTime = gst::ClockTime::from_seconds(30);

fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        gst::init().unwrap();
        gstselvedge::register_static().unwrap();
    });
}

/// Receivers for this number of streams, and their addresses.
fn receiver(streams: usize) -> (Receiver, Vec<String>) {
    let clock = Clock::new();
    let reception = |_| StreamReception {
        listen: "127.0.0.1:0".parse().unwrap(),
        meter: StreamMeter::new(ClockRate::VIDEO),
    };
    let receptions = (0..streams).map(reception).collect();
    let receiver = Receiver::start(clock, receptions, ReceiveOptions::default()).unwrap();
    let addresses = receiver.addresses().iter().map(ToString::to_string).collect();
    (receiver, addresses)
}

/// A pipeline of a launch line; its last message of an error or the end.
struct Playing(gst::Pipeline);

impl Playing {
    fn new(line: &str) -> Self {
        init();
        let element = gst::parse::launch(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        Self(element.downcast().unwrap())
    }

    fn sink(&self) -> gst::Element {
        self.0.by_name("s").unwrap()
    }

    fn play(&self) {
        // Failures are reported on the bus.
        let _ = self.0.set_state(gst::State::Playing);
    }

    /// Waits for the end of the streams, or for an error, whose text it returns.
    fn end(&self) -> Result<(), String> {
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let message = self.0.bus().unwrap().timed_pop_filtered(TIMEOUT, &kinds);
        match message.expect("the pipeline neither ended nor failed").view() {
            gst::MessageView::Error(error) => Err(error.error().message().to_owned()),
            _ => Ok(()),
        }
    }

    fn warning(&self) -> Option<String> {
        let kinds = [gst::MessageType::Warning];
        let message = self.0.bus().unwrap().timed_pop_filtered(TIMEOUT, &kinds)?;
        let gst::MessageView::Warning(warning) = message.view() else { return None };
        Some(warning.error().message().to_owned())
    }

    /// Stops it; returns the final statistics.
    fn stop(&self) -> gst::Structure {
        self.0.set_state(gst::State::Null).unwrap();
        self.sink().property("stats")
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

fn video(frames: u32, pad: u32) -> String {
    format!(
        "videotestsrc num-buffers={frames} pattern=snow ! \
         video/x-raw,width=320,height=240,framerate=25/1 ! \
         x264enc bframes=2 key-int-max=12 bitrate=500 rc-lookahead=4 speed-preset=ultrafast ! s.sink_{pad}"
    )
}

/// One number of one pad.
fn count(stats: &gst::StructureRef, pad: &str, field: &str) -> u64 {
    stats.get::<gst::Structure>(pad).unwrap().get(field).unwrap()
}

fn assert_adds_up(stats: &gst::StructureRef, pad: &str) {
    let of = |field: &str| count(stats, pad, field);
    assert_eq!(of("frames"), of("sent") + of("dropped") + of("queued"), "{stats}");
    assert!(of("decodable") <= of("on-time") && of("on-time") <= of("sent"), "{stats}");
    let stats = stats.get::<gst::Structure>(pad).unwrap();
    let reasons = stats.fields().filter(|name| name.starts_with("dropped-"));
    let sum = reasons.map(|name| stats.get::<u64>(name).unwrap()).sum::<u64>();
    assert_eq!(sum, of("dropped"), "{stats}");
}

/// The frames received once as many arrived as were sent, or the time is over.
fn received(receiver: Receiver, sent: &[u64]) -> Vec<MeterSnapshot> {
    holds_within(StdDuration::from_secs(5), || {
        let seen = receiver.snapshots();
        seen.iter().zip(sent).all(|(seen, &sent)| seen.complete + seen.pending >= sent)
    });
    receiver.stop().0
}

#[test]
fn two_pads_over_a_small_link_lose_what_they_may() {
    let (receiver, to) = receiver(2);
    let playing = Playing::new(&format!(
        "selvedgesink name=s rate=600000 sink_0::to={} sink_1::to={} \
         sink_1::window=1/2 {} {}",
        to[0],
        to[1],
        video(100, 0),
        video(100, 1)
    ));
    playing.play();
    playing.end().unwrap();
    let stats = playing.stop();
    println!("{stats}");
    for pad in ["sink_0", "sink_1"] {
        assert_adds_up(&stats, pad);
        assert_eq!(count(&stats, pad, "frames"), 100, "{stats}");
        assert_eq!(count(&stats, pad, "queued"), 0, "{stats}");
        assert!(count(&stats, pad, "sent") > 10, "{stats}");
    }
    let dropped = count(&stats, "sink_0", "dropped") + count(&stats, "sink_1", "dropped");
    assert!(dropped > 20, "a link of 600 kbit/s does not carry twice 500: {stats}");

    let sent = ["sink_0", "sink_1"].map(|pad| count(&stats, pad, "sent"));
    let seen = received(receiver, &sent);
    for (seen, sent) in seen.iter().zip(sent) {
        assert_eq!((seen.malformed, seen.stray), (0, 0), "{seen:?}");
        // Only with tags are decodable frames known.
        assert!(seen.decodable.is_some_and(|n| n > 10), "{seen:?}");
        assert_eq!(seen.complete, sent, "{seen:?}");
    }
}

#[test]
fn the_end_comes_after_the_last_frame_had_its_chance() {
    let (receiver, to) = receiver(1);
    // Frames arrive at once, and wait for the link when the stream ends.
    let playing = Playing::new(&format!(
        "selvedgesink name=s rate=250000 sync=false selection=false discipline=edf \
         sink_0::to={} sink_0::late=send sink_0::delay=4000000000 {}",
        to[0],
        video(25, 0)
    ));
    playing.play();
    playing.end().unwrap();
    let stats = playing.stop();
    assert_adds_up(&stats, "sink_0");
    // The link's queue takes a quarter of a second without selection, and the rest is dropped.
    let (sent, full) = (count(&stats, "sink_0", "sent"), count(&stats, "sink_0", "dropped-full"));
    assert!(sent > 0 && sent + full == 25, "{stats}");
    assert_eq!(received(receiver, &[sent])[0].complete, sent);
}

#[test]
fn every_encoding_arrives_whole() {
    let (receiver, to) = receiver(3);
    let playing = Playing::new(&format!(
        "selvedgesink name=s rate=20000000 sync=false sink_0::to={} sink_1::to={} sink_2::to={} \
         filesrc location={} num-buffers=50 ! tsdemux ! mpegvideoparse ! s.sink_0 \
         videotestsrc num-buffers=25 ! video/x-raw,format=I420 ! jpegenc ! s.sink_1 \
         audiotestsrc num-buffers=40 ! audio/x-raw,format=F32LE,rate=48000 ! s.sink_2",
        to[0],
        to[1],
        to[2],
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips/one-by-one-mpeg2.ts"),
    ));
    playing.play();
    playing.end().unwrap();
    let stats = playing.stop();
    for pad in ["sink_0", "sink_1", "sink_2"] {
        assert_adds_up(&stats, pad);
        assert_eq!(count(&stats, pad, "sent"), count(&stats, pad, "frames"), "{stats}");
    }
    let mpeg = count(&stats, "sink_0", "frames");
    assert!(mpeg > 5, "{stats}");
    assert_eq!(count(&stats, "sink_1", "frames"), 25, "{stats}");
    // 40 * 1024 samples of one channel, in blocks that fit a packet: 20 ms would be 1920 bytes.
    let blocks = count(&stats, "sink_2", "frames");
    assert!(blocks > 40, "{stats}");
    let seen = received(receiver, &[mpeg, 25, blocks]);
    assert_eq!([&seen[0], &seen[1], &seen[2]].map(|s| s.complete), [mpeg, 25, blocks]);
}

#[test]
fn a_mistake_names_the_property_and_the_remedy() {
    let cases = [
        ("sink_0::to=127.0.0.1:9", "property \"rate\" is 0; set it to"),
        ("rate=9 burst=3 sink_0::to=127.0.0.1:9", "property \"burst\" is 3; set it to"),
        ("rate=9 discipline=cbq sink_0::to=127.0.0.1:9", "\"cbq\"; set it to one of"),
        ("rate=9", "property \"to\" of pad sink_0 is not set; set it to"),
        ("rate=9 sink_0::to=localhost:9", "write its address"),
        ("rate=9 sink_0::to=127.0.0.1:9 sink_0::window=7/2", "x must be at most y"),
        ("rate=9 sink_0::to=127.0.0.1:9 sink_0::period=5", "is 5 ns; set it to 0"),
    ];
    for (properties, text) in cases {
        let line = format!("selvedgesink name=s {properties} {}", video(1, 0));
        let playing = Playing::new(&line);
        playing.play();
        let error = playing.end().unwrap_err();
        assert!(error.contains(text), "{properties}: {error}");
    }
    let alone = Playing::new("selvedgesink name=s rate=9 fakesrc ! fakesink");
    alone.play();
    assert!(alone.end().unwrap_err().contains("put a parser or a queue"));
    let shared = "selvedgesink name=s rate=9 sink_0::to=127.0.0.1:9 sink_1::to=127.0.0.1:9";
    let shared = Playing::new(&format!("{shared} {} {}", video(1, 0), video(1, 1)));
    shared.play();
    assert!(shared.end().unwrap_err().contains("where pad sink_0 sends"));
}

#[test]
fn what_runs_can_be_changed_but_gets_no_pads() {
    let (receiver, to) = receiver(1);
    let live = video(75, 0).replace("videotestsrc", "videotestsrc is-live=true");
    let line = format!("selvedgesink name=s rate=3000000 sink_0::to={} {live}", to[0]);
    let playing = Playing::new(&line);
    playing.play();
    let sink = playing.sink();
    let frames = || count(&sink.property::<gst::Structure>("stats"), "sink_0", "frames");
    until("the pad has counts", || {
        sink.property::<gst::Structure>("stats").has_field("sink_0") && frames() > 0
    });

    assert!(sink.request_pad_simple("sink_1").is_none());
    assert!(playing.warning().unwrap().contains("put a parser or a queue"));

    let pad = sink.static_pad("sink_0").unwrap();
    pad.set_property("window", "9/1");
    assert!(playing.warning().unwrap().contains("the old window stays"));
    assert_eq!(pad.property::<String>("window"), "1/5");
    pad.set_property("window", "1/3");
    pad.set_property("priority", 7);
    assert_eq!(pad.property::<String>("window"), "1/3");
    sink.set_property("rate", 0u64);
    assert!(playing.warning().unwrap().contains("the old rate stays"));
    sink.set_property("rate", 2_000_000u64);
    until("the rate is the new one", || {
        sink.property::<gst::Structure>("stats").get::<u64>("rate") == Ok(2_000_000)
    });

    playing.end().unwrap();
    let stats = playing.stop();
    assert_adds_up(&stats, "sink_0");
    assert_eq!(count(&stats, "sink_0", "sent"), 75, "{stats}");
    assert_eq!(received(receiver, &[75])[0].complete, 75);
}

#[test]
fn a_silent_pad_does_not_hold_up_the_others_and_can_be_released() {
    let (receiver, to) = receiver(1);
    let live = video(100, 0).replace("videotestsrc", "videotestsrc is-live=true");
    let line = format!("selvedgesink name=s async=false rate=3000000 sink_0::to={} {live}", to[0]);
    let playing = Playing::new(&line);
    let sink = playing.sink();
    let silent = sink.request_pad_simple("sink_%u").unwrap();
    assert_eq!(silent.name(), "sink_1");
    silent.set_property("to", "127.0.0.1:9");
    playing.play();
    until("packets come", || receiver.snapshots()[0].packets > 0);
    sink.release_request_pad(&silent);
    playing.end().unwrap();
    let stats = playing.stop();
    assert_eq!(count(&stats, "sink_0", "frames"), 100, "{stats}");
}

#[test]
fn it_plays_again_after_it_was_stopped_in_the_middle() {
    let (receiver, to) = receiver(1);
    let line = format!("selvedgesink name=s rate=3000000 sink_0::to={} {}", to[0], video(50, 0));
    let playing = Playing::new(&line);
    playing.play();
    until("packets come", || receiver.snapshots()[0].packets > 0);
    let stats = playing.stop();
    assert_adds_up(&stats, "sink_0");
    playing.play();
    playing.end().unwrap();
    let stats = playing.stop();
    assert_eq!(count(&stats, "sink_0", "frames"), 50, "{stats}");
    // Another run is another source.
    assert_eq!(receiver.stop().0[0].restarts, 1);
}

#[test]
fn a_pad_that_ends_before_it_begins_ends_with_the_others() {
    let (_receiver, to) = receiver(2);
    let playing = Playing::new(&format!(
        "selvedgesink name=s rate=3000000 sink_0::to={} sink_1::to={} {} \
         fakesrc num-buffers=0 ! queue ! s.sink_1",
        to[0],
        to[1],
        video(10, 0)
    ));
    playing.play();
    playing.end().unwrap();
    let stats = playing.stop();
    assert_eq!(count(&stats, "sink_0", "sent"), 10, "{stats}");
    assert_eq!(count(&stats, "sink_1", "frames"), 0, "{stats}");
}

#[test]
fn it_goes_on_after_a_pause_and_a_seek() {
    let (receiver, to) = receiver(1);
    let line = format!("selvedgesink name=s rate=3000000 sink_0::to={} {}", to[0], video(50, 0));
    let playing = Playing::new(&line);
    playing.play();
    until("packets come", || receiver.snapshots()[0].packets > 5);
    playing.0.set_state(gst::State::Paused).unwrap();
    playing.0.state(TIMEOUT).0.unwrap();
    let before = receiver.snapshots()[0].packets;
    playing.0.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO).unwrap();
    playing.play();
    playing.end().unwrap();
    let stats = playing.stop();
    assert_adds_up(&stats, "sink_0");
    // Still one source without gaps.
    let seen = receiver.stop().0.remove(0);
    assert!(seen.packets > before + 10, "{before} before, then {seen:?}");
    assert_eq!((seen.restarts, seen.lost), (0, 0), "{seen:?}");
}
