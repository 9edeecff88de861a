//! The identity that an output by SRT sends, as GStreamer's receiver sees it; and refused callers.

#![cfg(feature = "gstreamer")]

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_control_config::{Destination, parse};
use selvedge_media::output::{Output, OutputError, kind};
use selvedge_tests_wait::until;

/// A receiver at this port that notes the stream ids of its callers.
struct Receiver(gst::Element, Arc<Mutex<Vec<String>>>);

impl Receiver {
    fn start(port: u16) -> Self {
        gst::init().unwrap();
        let line = format!(
            "srtsrc name=end uri=srt://127.0.0.1:{port}?mode=listener passphrase=0123456789abc \
             authentication=true ! fakesink"
        );
        let pipeline = gst::parse::launch(&line).unwrap();
        let end = pipeline.downcast_ref::<gst::Bin>().unwrap().by_name("end").unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        end.connect("caller-connecting", false, move |values| {
            let id = values[2].get::<Option<String>>().unwrap().unwrap_or_default();
            hears.lock().unwrap().push(id);
            Some(true.to_value())
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        Self(pipeline, heard)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

fn destination(to: &str) -> Destination {
    let link = "[link.up]\nrate = \"6 Mbit/s\"\n";
    let text = format!("{link}[stream.a]\nsource = \"test:video\"\nto = \"{to}\"\n");
    parse(&text, "own.toml").unwrap().config.streams.remove(0).output.unwrap()
}

fn open(to: &Destination) -> Box<dyn Output> {
    kind(to).and_then(|kind| kind.open(to, 1)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn stream_id_and_passphrase_reach_the_receiver_and_a_wrong_one_is_refused() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let receiver = Receiver::start(port);
    let to = |passphrase: &str| {
        let options = format!("passphrase={passphrase}&streamid=publish:studio/1");
        destination(&format!("srt://127.0.0.1:{port}?{options}"))
    };
    // Each attempt uses a new output, as in the node.
    let mut why = None;
    let wrong = open(&to("not-the-right"));
    until("the receiver refuses", || {
        why = wrong.poll().err();
        why.is_some()
    });
    let why = why.expect("it is refused");
    assert!(matches!(why, OutputError::Silent(at) if at.port() == port), "{why}");
    assert!(why.to_string().contains("see its address, passphrase and streamid"), "{why}");
    assert!(!why.to_string().contains("not-the-right"), "{why}");
    drop(wrong);
    let right = open(&to("0123456789abc"));
    until("the receiver has answered", || right.poll().is_ok() && right.waits().is_none());
    let heard = receiver.1.lock().unwrap();
    assert!(heard.iter().all(|id| id == "publish:studio/1") && !heard.is_empty(), "{heard:?}");
}
