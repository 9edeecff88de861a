//! The plugin as a file, in GStreamer's own tools.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use selvedge_data_stream::rtp::Packet;

/// A folder with nothing but the plugin, and a registry of its own.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        std::os::unix::fs::symlink(built(), plugins.join("libgstselvedge.so")).unwrap();
        Self(folder)
    }

    fn run(&self, tool: &str, arguments: &[&str]) -> Output {
        Command::new("timeout")
            .args(["60", tool])
            .args(arguments)
            .env("GST_PLUGIN_PATH", self.0.path().join("plugins"))
            .env("GST_REGISTRY", self.0.path().join("registry.bin"))
            .output()
            .unwrap_or_else(|e| panic!("timeout {tool}: {e}"))
    }
}

/// The library that was built with this test.
fn built() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let found = exe.ancestors().skip(1).map(|folder| folder.join("libgstselvedge.so"));
    found.into_iter().find(|path| path.exists()).expect("it is built before its tests")
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[test]
fn inspect_shows_the_element_and_its_pads() {
    let output = Installed::new().run("gst-inspect-1.0", &["selvedgesink"]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "sink_%u",
        "GstChildProxy",
        "rate ",
        "catch-up ",
        "discipline ",
        "stats ",
        "window ",
        "to ",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn inspect_shows_the_filter_and_both_its_pads() {
    let output = Installed::new().run("gst-inspect-1.0", &["selvedge"]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for part in ["Filter/Network", "sink_%u", "src_%u", "Sometimes", "rate ", "delay ", "stats "] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn inspect_shows_the_source() {
    let output = Installed::new().run("gst-inspect-1.0", &["selvedgesrc"]);
    let text = text(&output);
    assert!(output.status.success() && !text.contains("CRITICAL"), "{text}");
    for part in ["Source/Network/RTP", "Always", "sdp ", "address ", "undecodable ", "stats "] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn launch_sends_what_a_receiver_gets() {
    let installed = Installed::new();
    let clip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clips");
    let clip = clip.join("one-by-one-person-detection.mp4");
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = sockets.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
    let line = format!(
        "-q selvedgesink name=s rate=700000 sink_0::to={} sink_0::window=1/5 \
         sink_1::to={} sink_1::priority=3 sink_1::late=send \
         filesrc num-buffers=40 location={} ! qtdemux ! h264parse ! s.sink_0 \
         videotestsrc num-buffers=60 ! x264enc bframes=2 key-int-max=15 bitrate=500 ! s.sink_1",
        to[0],
        to[1],
        clip.display()
    );
    let output = installed.run("gst-launch-1.0", &line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{}", text(&output));
    for socket in sockets {
        // The packets lie in the sockets' buffers.
        socket.set_nonblocking(true).unwrap();
        let mut bytes = [0; 2000];
        let mut packets = 0;
        while let Ok(len) = socket.recv(&mut bytes) {
            let packet = Packet::parse(&bytes[..len]).unwrap();
            assert!(packet.tag.is_some());
            assert_eq!(packet.header.payload_type, 96);
            packets += 1;
        }
        assert!(packets > 20, "{packets} packets");
    }
}

#[test]
fn launch_tells_what_is_missing() {
    let line = "selvedgesink name=s rate=700000 videotestsrc ! x264enc ! s.sink_0";
    let output =
        Installed::new().run("gst-launch-1.0", &line.split_whitespace().collect::<Vec<_>>());
    let text = text(&output);
    assert!(!output.status.success());
    assert!(text.contains("sink_0::to=127.0.0.1:5004"), "{text}");
}
