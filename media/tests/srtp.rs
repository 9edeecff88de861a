//! Sources of SRTP: packets that a GStreamer sender sealed with the key in the SDP are accepted, and no
//! others.

#![cfg(feature = "gstreamer")]

mod support;

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_media::{MediaFrame, Onlookers, Source, Watched};
use selvedge_tests_wait::until;
use selvedge_units::Duration;
use support::{open, take};

const SUITES: [(&str, &str, &str, usize); 3] = [
    ("AES_CM_128_HMAC_SHA1_80", "aes-128-icm", "hmac-sha1-80", 30),
    ("AES_CM_128_HMAC_SHA1_32", "aes-128-icm", "hmac-sha1-32", 30),
    ("AES_256_CM_HMAC_SHA1_80", "aes-256-icm", "hmac-sha1-80", 46),
];

/// A sender of a test card; stopped when dropped.
struct Sender(gst::Pipeline);

impl Sender {
    /// Sends to this port, through an element.
    fn through(element: &str, port: u16) -> Self {
        gst::init().unwrap();
        let line = format!(
            "videotestsrc is-live=true ! video/x-raw,width=160,height=120,framerate=25/1 ! \
             x264enc tune=zerolatency key-int-max=10 ! rtph264pay pt=96 config-interval=-1 ! {element} ! \
             udpsink host=127.0.0.1 port={port}"
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        Self(pipeline)
    }

    fn sealed((_, cipher, auth, _): (&str, &str, &str, usize), key: &[u8], port: u16) -> Self {
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::through(&format!("srtpenc key={hex} rtp-cipher={cipher} rtp-auth={auth}"), port)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

/// A description of a port with this key.
fn described(folder: &Path, suite: &str, key: &[u8], profile: &str) -> (String, u16) {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = folder.join("sealed.sdp");
    let key = BASE64_STANDARD.encode(key);
    let text = format!(
        "v=0\nc=IN IP4 127.0.0.1\nm=video {port} {profile} 96\na=rtpmap:96 H264/90000\n\
         a=crypto:1 {suite} inline:{key}|2^31\n"
    );
    std::fs::write(&path, text).unwrap();
    (format!("sdp:{}", path.display()), port)
}

fn opened(text: &str) -> Source {
    open(&text.parse().unwrap()).unwrap()
}

#[test]
fn packets_sealed_with_the_key_in_the_description_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    for (suite, profile) in SUITES.into_iter().zip(["RTP/SAVP", "RTP/AVP", "RTP/SAVPF"]) {
        let key = vec![0x5a; suite.3];
        let (sdp, port) = described(folder.path(), suite.0, &key, profile);
        let mut source = opened(&sdp);
        let _sender = Sender::sealed(suite, &key, port);
        assert_eq!(take(&mut source, 20).0.len(), 20, "{suite:?}");
        let shown = format!("{source:?}");
        assert!(!shown.contains("5a5a") && !shown.contains("90, 90"), "a key in: {shown}");
    }
}

#[derive(Debug, Default)]
struct Refused(AtomicU64);

impl Onlookers for Refused {
    fn watched(&self) -> Watched {
        Watched::default()
    }

    fn small(&self, _jpeg: &[u8]) {}

    fn refused(&self, packets: u64) {
        self.0.fetch_add(packets, Ordering::Relaxed);
    }

    fn image(&self, _present: Duration, _jpeg: &[u8]) {}
}

/// Runs a source until this many packets were refused, and returns the number of frames that arrived.
fn frames_while_refusing(sdp: &str, packets: u64) -> u64 {
    let (mut source, refused) = (opened(sdp), Arc::new(Refused::default()));
    source.show(Arc::clone(&refused) as Arc<dyn Onlookers>, false).unwrap();
    let (stop, frames) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            let mut count = |_: MediaFrame<'_>| {
                frames.fetch_add(1, Ordering::Relaxed);
            };
            source.run(&mut count, &stop)
        });
        until("packets are refused", || refused.0.load(Ordering::Relaxed) >= packets);
        stop.store(true, Ordering::Relaxed);
        runs.join().unwrap().unwrap();
    });
    frames.into_inner()
}

#[test]
fn plain_packets_and_those_of_another_key_are_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, key) = (SUITES[0], [0x5a; 30]);
    let (sdp, port) = described(folder.path(), suite.0, &key, "RTP/SAVP");
    for sender in [Sender::through("identity", port), Sender::sealed(suite, &[0x5b; 30], port)] {
        assert_eq!(frames_while_refusing(&sdp, 30), 0);
        drop(sender);
    }
}

#[test]
fn an_authentic_sender_is_kept_whatever_else_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, key) = (SUITES[0], [0x5a; 30]);
    let (sdp, port) = described(folder.path(), suite.0, &key, "RTP/SAVP");
    let mut source = opened(&sdp);
    // More senders than are remembered, and all of them before the authentic one.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut ssrc = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                ssrc = ssrc.wrapping_add(1);
                let head = [&[0x80, 96, 0, 1, 0, 0, 0, 1][..], &ssrc.to_be_bytes(), &[7; 40]];
                let _ = socket.send_to(&head.concat(), ("127.0.0.1", port));
                thread::park_timeout(StdDuration::from_micros(200));
            }
        });
        let _others = [Sender::through("identity", port), Sender::sealed(suite, &[1; 30], port)];
        let began = Instant::now();
        let _sender = Sender::sealed(suite, &key, port);
        let (frames, _) = take(&mut source, 60);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(frames.len(), 60);
        println!("60 frames in {:?}", began.elapsed());
    });
}
