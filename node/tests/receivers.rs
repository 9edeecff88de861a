//! A link whose rate is measured by what receivers of RTP report: of GStreamer, of FFmpeg, and one made here.

#![cfg(feature = "gstreamer")]

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use selvedge_control_config::view::{NodeView, PathSnapshot};
use selvedge_data_net_rtcp::{ArrivalReporter, retransmission_type};
use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::Packet;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_os::clock::Clock;
use selvedge_place_engine::receive::{ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Duration};

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);
/// Where a measured rate begins.
const START: u64 = Bitrate::from_kbps(500).0;
/// Pictures that fill what the encoder is set to, and one intra picture at the start only.
const SOURCE: &str = "launch:videotestsrc is-live=true pattern=snow ! video/x-raw,width=320,height=240,framerate=25/1 \
                      ! x264enc bitrate=2000 tune=zerolatency speed-preset=ultrafast key-int-max=100000 ! h264parse";

/// A port whose successor is free as well.
fn free_pair() -> u16 {
    loop {
        let first = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if first.is_multiple_of(2) && UdpSocket::bind(("127.0.0.1", first + 1)).is_ok() {
            return first;
        }
    }
}

fn node(folder: &Path, to: u16, rtcp: u16) -> Node {
    let text = format!(
        "[link.uplink]\nrate = \"auto\"\n[stream.cam]\nsource = \"{SOURCE}\"\nto = \"rtp://127.0.0.1:{to}\"\n\
         rtcp_port = {rtcp}\nsdp = \"cam.sdp\"\n"
    );
    let options = NodeOptions { base: folder.to_owned(), ..NodeOptions::default() };
    Node::start(&text, options).unwrap()
}

fn path(node: &Node) -> PathSnapshot {
    node.snapshot().links[0].paths.first().cloned().unwrap_or_default()
}

/// A program that is ended at last.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn gstreamer_reports_the_rate_of_a_link() {
    let (folder, to, rtcp) = (tempfile::tempdir().unwrap(), free_pair(), free_pair() + 1);
    let node = node(folder.path(), to, rtcp);
    let says_why =
        || path(&node).detail == "its receiver sends no RTCP reports: state the link's rate";
    assert!(wait_until(SOON, says_why), "{:?}", path(&node));
    assert_eq!(node.snapshot().links[0].rate_bps, START);
    let caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96,\
                rtcp-fb-nack-pli=(boolean)true,rtcp-fb-transport-cc=(boolean)true,extmap-3=(string)\
                \"http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01\"";
    let line = format!(
        "rtpbin name=b rtp-profile=avpf udpsrc port={to} caps=\"{}\" ! b.recv_rtp_sink_0 udpsrc port={} ! \
         b.recv_rtcp_sink_0 b.send_rtcp_src_0 ! udpsink host=127.0.0.1 port={rtcp} sync=false async=false \
         b. ! fakesink",
        caps.replace('"', "\\\""),
        to + 1
    );
    let words = line.split_ascii_whitespace().map(|word| word.replace("\\\"", "\""));
    let receiver =
        Command::new("gst-launch-1.0").arg("-q").args(words).stdout(Stdio::null()).spawn();
    let _receiver = Running(receiver.unwrap());
    let is_found = || path(&node).active && node.snapshot().links[0].rate_bps > 4 * START;
    assert!(wait_until(SOON, is_found), "{:?}", path(&node));
    assert!(path(&node).round_trip_ms > 0.0);
}

#[test]
fn our_own_receiver_reports_the_rate_of_a_link() {
    let (folder, to) = (tempfile::tempdir().unwrap(), free_pair());
    let node = node(folder.path(), to, free_pair() + 1);
    let listen = ([127, 0, 0, 1], to).into();
    let reception = StreamReception { listen, meter: StreamMeter::new(ClockRate::VIDEO) };
    let options = ReceiveOptions::default();
    let receiver = Receiver::start(Clock::new(), vec![reception], options).unwrap();
    let is_found = || path(&node).active && node.snapshot().links[0].rate_bps > 2 * START;
    assert!(wait_until(SOON, is_found), "{:?}", path(&node));
    let (seen, _) = receiver.stop();
    assert!(seen[0].frames > 0, "{seen:?}");
}

#[test]
fn an_encoder_follows_the_first_of_several_receivers() {
    let (measured, other) = (free_pair(), free_pair());
    let [auto, hall] = [("auto", measured), ("hall", other)];
    for (receivers, follows) in [([auto, hall], true), ([hall, auto], false)] {
        let [first, second] = receivers
            .map(|(link, port)| format!("link = \"{link}\"\nto = \"rtp://127.0.0.1:{port}\"\n"));
        let text = format!(
            "[link.auto]\nrate = \"auto\"\n[link.hall]\nrate = \"20 Mbit/s\"\n[stream.cam]\n\
             source = \"{}\"\n{first}[stream.cam.receiver.other]\n{second}",
            SOURCE.replace("bitrate=2000", "bitrate=300")
        );
        let node = Node::start(&text, NodeOptions::default()).unwrap();
        let reception = StreamReception {
            listen: ([127, 0, 0, 1], measured).into(),
            meter: StreamMeter::new(ClockRate::VIDEO),
        };
        let _receiver =
            Receiver::start(Clock::new(), vec![reception], ReceiveOptions::default()).unwrap();
        let is_measured = || {
            let streams = node.snapshot().streams;
            path(&node).active && streams.iter().all(|stream| stream.sent > 50)
        };
        assert!(wait_until(SOON, is_measured), "{:?}", node.snapshot());
        assert_eq!(node.snapshot().streams[0].encoder_bps.is_some(), follows);
    }
}

#[test]
fn ffmpeg_plays_by_the_session_description() {
    let (folder, to) = (tempfile::tempdir().unwrap(), free_pair());
    let _node = node(folder.path(), to, free_pair() + 1);
    let sdp = folder.path().join("cam.sdp");
    let played = Command::new("ffmpeg")
        .args(["-v", "error", "-protocol_whitelist", "file,udp,rtp", "-i"])
        .arg(&sdp)
        .args(["-frames:v", "10", "-f", "framecrc", "-"])
        .output()
        .unwrap();
    let pictures = String::from_utf8_lossy(&played.stdout);
    assert_eq!(pictures.lines().filter(|line| !line.starts_with('#')).count(), 10, "{played:?}");
    let text = std::fs::read_to_string(sdp).unwrap();
    assert!(
        text.contains("RTP/AVPF 96 97") && text.contains("a=fmtp:97 apt=96;rtx-time=1000"),
        "{text}"
    );
}

/// A receiver that reports when packets arrived, and requests.
struct Requester {
    socket: UdpSocket,
    clock: Clock,
    reporter: Option<ArrivalReporter>,
    /// By which its RTCP goes.
    node: Option<SocketAddr>,
}

impl Requester {
    /// The next packet of the node; everything that comes is reported.
    fn next(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 2_000];
        let (len, from) = self.socket.recv_from(&mut bytes).expect("the node sends");
        bytes.truncate(len);
        self.node = Some(from);
        let header = Packet::parse(&bytes).unwrap().header;
        let new = || ArrivalReporter::new(header.ssrc, header.sequence, 1, "receiver");
        let reporter = self.reporter.get_or_insert_with(new);
        if reporter.ssrc() == header.ssrc {
            reporter.handle_packet(self.clock.now(), header.sequence, false);
        }
        if let Some(report) = reporter.poll_transmit(self.clock.now()) {
            self.socket.send_to(&report, from).unwrap();
        }
        bytes
    }

    /// The next packet for which this holds; `each` is sent beside every packet before.
    fn find(&mut self, each: impl Fn(u32) -> Vec<u8>, is_it: impl Fn(&Packet<'_>) -> bool) -> bool {
        (0..50_000).any(|_| {
            let bytes = self.next();
            let packet = Packet::parse(&bytes).unwrap();
            self.socket.send_to(&each(packet.header.ssrc), self.node.unwrap()).unwrap();
            is_it(&packet)
        })
    }
}

#[test]
fn what_a_receiver_requests_is_sent() {
    let (folder, to) = (tempfile::tempdir().unwrap(), free_pair());
    let socket = UdpSocket::bind(("127.0.0.1", to)).unwrap();
    socket.set_read_timeout(Some(SOON.to_std())).unwrap();
    let node = node(folder.path(), to, free_pair() + 1);
    let mut receiver = Requester { socket, clock: Clock::new(), reporter: None, node: None };
    // What is no RTCP changes nothing.
    let junk = |_| vec![0x80, 201, 0xff, 0xff, 1];
    let is_late = |packet: &Packet<'_>| packet.tag.is_some_and(|tag| tag.seq > 100);
    assert!(receiver.find(junk, is_late));
    assert!(wait_until(SOON, || path(&node).active && path(&node).rate_bps > START));
    let request = |kind: u8, code: u8, ssrc: u32, words: &[u32]| {
        let mut bytes = vec![0x80 | code, kind, 0, 2 + words.len() as u8, 0, 0, 0, 1];
        bytes.extend(ssrc.to_be_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        bytes
    };
    // An intra picture, of which the source itself makes one at the start only.
    let is_intra = |packet: &Packet<'_>| packet.tag.is_some_and(|tag| tag.kind == Kind::Intra);
    assert!(receiver.find(|ssrc| request(206, 1, ssrc, &[]), is_intra));
    // A packet of a moment ago.
    let bytes = receiver.next();
    let lost = Packet::parse(&bytes).unwrap();
    let nack = |_| request(205, 1, lost.header.ssrc, &[u32::from(lost.header.sequence) << 16]);
    let again = retransmission_type(lost.header.payload_type);
    let is_again = |packet: &Packet<'_>| {
        let [high, low] = lost.header.sequence.to_be_bytes();
        packet.header.payload_type == again && packet.payload.starts_with(&[high, low])
    };
    assert!(receiver.find(nack, is_again));
}
