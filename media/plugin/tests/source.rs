//! `selvedgesrc` behind `selvedgesink`, in one process over the loopback: which frames come, what each says of
//! itself, and what a lost frame does to those that refer to it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread::JoinHandle;

use gstreamer as gst;
use gstreamer::prelude::*;
use gstselvedge::FRAME_META;
use selvedge_data_stream::rtp::Packet;
use selvedge_tests_wait::until;

const FRAMES: usize = 60;
/// Every so many pictures one needs no other.
const GROUP: u32 = 15;
/// The number of a frame that is lost where one is.
const LOST: u32 = 20;
const CAPS: &str = "application/x-rtp,media=video,encoding-name=H264,clock-rate=90000,payload=96";

/// A frame as it came.
#[derive(Clone, Debug)]
struct Came {
    frame: u32,
    kind: String,
    decodable: bool,
    corrupted: bool,
    pts: gst::ClockTime,
    caps: String,
}

fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A pipeline; dropped, it stops.
struct Playing(gst::Pipeline);

impl Playing {
    fn new(line: &str) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            gst::init().unwrap();
            gstselvedge::register_static().unwrap();
        });
        let element = gst::parse::launch(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let pipeline = element.downcast::<gst::Pipeline>().unwrap();
        let _ = pipeline.set_state(gst::State::Playing);
        Self(pipeline)
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

/// What comes to the end of a receiving pipeline.
fn receiver(at: SocketAddr, more: &str) -> (Playing, Arc<Mutex<Vec<Came>>>) {
    let line = format!(
        "selvedgesrc name=src address={at} caps={CAPS} {more} ! fakesink name=end sync=false async=false"
    );
    let playing = Playing::new(&line);
    let came = Arc::new(Mutex::new(Vec::new()));
    let (notes, end) = (Arc::clone(&came), playing.0.by_name("end").unwrap());
    let pad = end.static_pad("sink").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let buffer = info.buffer().unwrap();
        let meta = gst::meta::CustomMeta::from_buffer(buffer, FRAME_META).expect("each has one");
        let fields = meta.structure();
        notes.lock().unwrap().push(Came {
            frame: fields.get("frame").unwrap(),
            kind: fields.get("kind").unwrap(),
            decodable: fields.get("decodable").unwrap(),
            corrupted: buffer.flags().contains(gst::BufferFlags::CORRUPTED),
            pts: buffer.pts().unwrap(),
            caps: pad.current_caps().unwrap().to_string(),
        });
        gst::PadProbeReturn::Ok
    });
    let (reached, state, _) = playing.0.state(gst::ClockTime::from_seconds(30));
    assert!(reached.is_ok() && state == gst::State::Playing, "{state:?}");
    (playing, came)
}

/// Sends pictures, all to their end.
fn send(to: SocketAddr) {
    let line = format!(
        "videotestsrc is-live=true num-buffers={FRAMES} ! video/x-raw,width=160,height=120,framerate=30/1 ! \
         x264enc tune=zerolatency key-int-max={GROUP} bframes=0 ref=1 ! \
         selvedgesink rate=4000000 sink_0::to={to} sink_0::delay=1000000000"
    );
    let sender = Playing::new(&line);
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message =
        sender.0.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds);
    assert!(matches!(message.unwrap().view(), gst::MessageView::Eos(_)));
}

/// Passes datagrams on, but for those of one frame.
struct Lossy(SocketAddr, Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Lossy {
    fn to(receiver: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        let (at, stop) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let stops = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 2000];
            while !stops.load(Ordering::Relaxed) {
                let Ok(len) = socket.recv(&mut bytes) else { continue };
                let tag = Packet::parse(&bytes[..len]).unwrap().tag.unwrap();
                if tag.seq != LOST {
                    socket.send_to(&bytes[..len], receiver).unwrap();
                }
            }
        });
        Self(at, stop, Some(thread))
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        self.2.take().map(JoinHandle::join);
    }
}

#[test]
fn every_frame_comes_with_its_kind_its_time_and_its_caps() {
    let at = free();
    let (playing, came) = receiver(at, "");
    send(at);
    until("all have come", || came.lock().unwrap().len() >= FRAMES);
    let came = came.lock().unwrap();
    for (n, frame) in came.iter().enumerate() {
        let kind = if (n as u32).is_multiple_of(GROUP) { "I" } else { "P" };
        assert_eq!((frame.frame as usize, &*frame.kind), (n, kind), "{frame:?}");
        assert!(frame.decodable && !frame.corrupted, "{frame:?}");
        assert!(
            frame.caps.contains("video/x-h264") && frame.caps.contains("alignment=(string)au"),
            "{frame:?}"
        );
    }
    for pair in came.windows(2) {
        let apart = pair[1].pts.saturating_sub(pair[0].pts).mseconds();
        assert!((30..=36).contains(&apart), "{pair:?}");
    }
    let source = playing.0.by_name("src").unwrap();
    let stats = source.property::<gst::Structure>("stats");
    let counts = ["frames", "decodable"].map(|name| stats.get::<u64>(name).unwrap());
    assert_eq!(counts, [FRAMES as u64; 2], "{stats}");
}

#[test]
fn a_lost_frame_makes_those_that_refer_to_it_undecodable_and_no_others() {
    let (all, whole) = (free(), free());
    for (at, more) in [(all, "undecodable=true"), (whole, "")] {
        let (_playing, came) = receiver(at, more);
        let lossy = Lossy::to(at);
        send(lossy.0);
        let last = || came.lock().unwrap().last().map(|frame| frame.frame);
        until("the last has come", || last() == Some(FRAMES as u32 - 1));
        let came = came.lock().unwrap();
        let broken = LOST + 1..LOST.next_multiple_of(GROUP);
        let expected: Vec<(u32, bool)> = (0..FRAMES as u32)
            .filter(|&n| n != LOST && (at == all || !broken.contains(&n)))
            .map(|n| (n, broken.contains(&n)))
            .collect();
        let corrupted: Vec<_> = came.iter().map(|frame| (frame.frame, frame.corrupted)).collect();
        assert_eq!(corrupted, expected);
        assert!(came.iter().all(|frame| frame.decodable != frame.corrupted));
    }
}

#[test]
fn what_it_can_not_receive_is_said() {
    for (settings, part) in [
        ("", "such as 0.0.0.0:5004, or property"),
        ("address=127.0.0.1:5004", "property \"caps\" is not set"),
        ("address=studio:5004", "\"studio:5004\"; set it to a numeric HOST:PORT"),
        ("address=127.0.0.1:0 caps=application/x-rtp", "clock-rate=90000"),
        (
            "address=127.0.0.1:0 caps=application/x-rtp,clock-rate=90000,media=video,encoding-name=X",
            "no depayloader",
        ),
        ("sdp=/nowhere.sdp", "can't read /nowhere.sdp: No such file"),
    ] {
        let playing = Playing::new(&format!("selvedgesrc {settings} ! fakesink"));
        let kinds = [gst::MessageType::Error];
        let message =
            playing.0.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(30), &kinds);
        let message = message.unwrap_or_else(|| panic!("{settings}"));
        let gst::MessageView::Error(error) = message.view() else { unreachable!() };
        assert!(error.error().to_string().contains(part), "{settings}: {}", error.error());
    }
}
