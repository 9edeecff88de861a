//! One stream of each encoding over a link that is too small: what the node counts as decodable, what
//! `play` does, and what a decoder finds that knows nothing of Selvedge. A frame counts for the decoder if
//! its picture is bit for bit that of the clip. No packet is lost behind the node.
//!
//! Each datagram is passed on to both receivers. FFmpeg decodes what comes, by the node's SDP file; it takes
//! no AV1 out of packets, so that its units are put together here, and decoded afterwards.

#[path = "support/decoded.rs"]
mod decoded;
mod support;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use decoded::{Decoder, pictures, subsequence};
use serde_json::Value;
use support::{
    Folder, Running, Stream, TIMEOUT, ffmpeg, file_source, free_port, node_file, play, played,
    skipped, until,
};

/// How each is encoded, in groups of two seconds. No B picture of H.264 is a reference: where one does not
/// come, FFmpeg counts with wrong distances in the next run of B pictures (`media/tests/references.rs`), and
/// finds 2 % fewer pictures.
const ENCODINGS: [(&str, &str, &[&str]); 5] = [
    (
        "h264",
        "mp4",
        &["-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-x264-params", "b-pyramid=none"],
    ),
    ("h265", "mp4", &["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none"]),
    ("vp8", "webm", &["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8"]),
    ("vp9", "webm", &["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"]),
    ("av1", "mkv", &["-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8"]),
];
/// Frames of each, 25 a second.
const FRAMES: u32 = 300;
/// How far the three counts may be apart, as a share of the frames.
const TOLERANCE: f64 = 0.01;

#[test]
fn node_play_and_ffmpeg_count_alike() {
    let name = "node_play_and_ffmpeg_count_alike";
    if !ffmpeg(["-version"]) {
        return skipped(name, "needs ffmpeg");
    }
    let folder = Folder::new();
    let relays: Vec<Relay> = ENCODINGS.iter().map(|made| Relay::new(&folder, made)).collect();
    let size: u64 = relays.iter().map(|relay| relay.size).sum();
    let needed = size * 8 * 25 / u64::from(FRAMES);
    let streams: Vec<Stream<'_>> = relays.iter().map(Relay::stream).collect();
    // Headers of packets come on top of what the files take.
    let link = format!("rate = \"{} bit/s\"", needed * 3 / 4);
    let file = folder.write("node.toml", node_file(&link, &streams));
    let start = || Running::selvedge(["run".as_ref(), file.as_os_str(), "--json".as_ref()]);
    // Receivers need the description before the first packet comes.
    let first = start();
    until("all streams are described", || relays.iter().all(|relay| relay.is_described(&folder)));
    drop(first);
    let receivers = relays.iter().map(|relay| relay.receivers(&folder)).collect::<Vec<_>>();
    let node = start();
    let stop = AtomicBool::new(false);
    let (said, counted) = std::thread::scope(|scope| {
        let (folder, stop) = (&folder, &stop);
        let received = relays.iter().zip(receivers);
        let received = received.map(|(relay, to)| scope.spawn(|| relay.pass_on(folder, to, stop)));
        let received = received.collect::<Vec<_>>();
        let said = node.end(TIMEOUT).json();
        stop.store(true, Ordering::Relaxed);
        let joined = received.into_iter().map(|one| one.join().expect("no panic"));
        (said, joined.collect::<Vec<_>>())
    });
    for (stream, (relay, [play, decoder])) in
        said["streams"].as_array().expect("a list").iter().zip(relays.iter().zip(counted))
    {
        let count = |name: &str| stream[name].as_u64().unwrap_or_else(|| panic!("no {name}"));
        let share = |n: u64| n as f64 / count("frames") as f64;
        let shares = [share(count("decodable")), share(play), share(decoder)];
        println!(
            "{}: {} frames, {} sent; decodable {shares:.3?} at node, play and FFmpeg",
            relay.name,
            count("frames"),
            count("sent")
        );
        assert!(count("frames").abs_diff(u64::from(FRAMES)) <= 3, "{stream}");
        let apart = shares.iter().map(|share| (share - shares[0]).abs()).fold(0.0, f64::max);
        assert!(apart <= TOLERANCE, "{}: {shares:?} {stream}", relay.name);
        assert!(shares[0] > 0.2, "{}: too little to say anything: {stream}", relay.name);
    }
    let decodable: u64 = counts(&said, "decodable").sum();
    assert!(decodable * 20 < counts(&said, "frames").sum::<u64>() * 19, "the link was not tight");
}

fn counts<'v>(node: &'v Value, name: &'v str) -> impl Iterator<Item = u64> + 'v {
    node["streams"].as_array().expect("a list").iter().map(move |s| s[name].as_u64().unwrap_or(0))
}

/// What stands between the node and the two receivers of a stream.
struct Relay {
    name: &'static str,
    clip: PathBuf,
    size: u64,
    socket: UdpSocket,
    sdp_line: String,
}

impl Relay {
    fn new(folder: &Folder, (name, container, encode): &(&'static str, &str, &[&str])) -> Self {
        let clip = folder.join(&format!("{name}.{container}"));
        let frames = FRAMES.to_string();
        let picture = "testsrc2=size=320x180:rate=25,noise=alls=12:allf=t";
        let head = ["-f", "lavfi", "-i", picture, "-frames:v", &frames];
        let tail = ["-g", "50", "-b:v", "300k", clip.to_str().expect("plain")];
        assert!(ffmpeg([&head[..], encode, &tail].concat()), "it was there");
        let size = clip.metadata().expect("it was made").len();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
        let sdp_line = format!("sdp = \"{name}.sdp\"");
        Self { name, clip, size, socket, sdp_line }
    }

    fn at(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    fn stream(&self) -> Stream<'_> {
        let source = file_source(&self.clip, false);
        Stream { name: self.name, source, to: self.at(), more: &self.sdp_line }
    }

    fn is_described(&self, folder: &Folder) -> bool {
        let sdp = folder.join(&format!("{}.sdp", self.name));
        std::fs::read_to_string(sdp).is_ok_and(|text| text.ends_with("recvonly\r\n"))
    }

    /// Starts both receivers; what came before is thrown away.
    fn receivers(&self, folder: &Folder) -> Receivers {
        let sdp = folder.join(&format!("{}.sdp", self.name));
        let described = std::fs::read_to_string(&sdp).expect("it is there");
        let moved = |to: SocketAddr, what: &str| {
            let here = format!(" {} RTP", self.at().port());
            let text = described.replace(&here, &format!(" {} RTP", to.port()));
            folder.write(&format!("{}-{what}.sdp", self.name), text)
        };
        let [to_play, to_decoder] = [free_port(), free_port()];
        let sdp = moved(to_play, "play");
        let playing = play(&[sdp.to_str().expect("plain")], to_play);
        let sdp = moved(to_decoder, "ffmpeg");
        let decoder = (self.name != "av1")
            .then(|| (Decoder::start(folder, self.name, &sdp, to_decoder), to_decoder));
        self.socket.set_nonblocking(true).expect("sockets can");
        while self.socket.recv(&mut [0; 2048]).is_ok() {}
        self.socket.set_nonblocking(false).expect("sockets can");
        Receivers { playing, to_play, decoder }
    }

    /// Passes packets on until `stop` and nothing more comes: how many frames `play` counts as decodable,
    /// and how many pictures FFmpeg found as they were.
    fn pass_on(&self, folder: &Folder, to: Receivers, stop: &AtomicBool) -> [u64; 2] {
        let (mut units, mut packet) = (Units::default(), [0; 2048]);
        loop {
            match self.socket.recv(&mut packet) {
                Ok(len) => {
                    let packet = &packet[..len];
                    self.socket.send_to(packet, to.to_play).expect("it listens");
                    match to.decoder {
                        Some((_, at)) => drop(self.socket.send_to(packet, at).expect("it listens")),
                        None => units.push(packet),
                    }
                }
                Err(_) if stop.load(Ordering::Relaxed) => break,
                Err(_) => {}
            }
        }
        let out = match to.decoder {
            Some((decoder, _)) => decoder.end(),
            None => units.decoded(folder),
        };
        let original = decoded::reference(folder, self.name, &self.clip);
        let exact = subsequence(&pictures(&out), &pictures(&original));
        [played(to.playing)["decodable"].as_u64().expect("a count"), exact]
    }
}

/// Who receives a stream.
struct Receivers {
    playing: Running,
    to_play: SocketAddr,
    /// Not of AV1.
    decoder: Option<(Decoder, SocketAddr)>,
}

/// AV1 as its packets bring it, in the low-overhead format: RTP Payload Format For AV1, section 4.
#[derive(Default)]
struct Units {
    stream: Vec<u8>,
    elements: Vec<Vec<u8>>,
}

impl Units {
    fn push(&mut self, packet: &[u8]) {
        let extension = if packet[0] & 0x10 == 0 {
            0
        } else {
            4 + 4 * usize::from(u16::from_be_bytes([packet[14], packet[15]]))
        };
        let payload = &packet[12 + extension..];
        let (mut goes_on, count) = (payload[0] & 0x80 != 0, usize::from(payload[0] >> 4 & 3));
        let (mut rest, mut left) = (&payload[1..], count);
        while !rest.is_empty() {
            left = left.wrapping_sub(1);
            // The last of a counted number has no size.
            let (size, len) = if count > 0 && left == 0 { (rest.len(), 0) } else { number(rest) };
            let part = &rest[len..len + size];
            match self.elements.last_mut() {
                Some(element) if goes_on => element.extend_from_slice(part),
                _ => self.elements.push(part.to_vec()),
            }
            (rest, goes_on) = (&rest[len + size..], false);
        }
        if packet[1] & 0x80 != 0 {
            self.stream.extend([0x12, 0]);
            for element in self.elements.drain(..) {
                self.stream.push(element[0] | 0x02);
                let mut size = element.len() - 1;
                while size >= 0x80 {
                    self.stream.push(size as u8 | 0x80);
                    size >>= 7;
                }
                self.stream.push(size as u8);
                self.stream.extend_from_slice(&element[1..]);
            }
        }
    }

    fn decoded(&self, folder: &Folder) -> PathBuf {
        decoded::reference(folder, "av1-received", &folder.write("received.obu", &self.stream))
    }
}

/// A number in groups of seven bits, and how many bytes it takes.
fn number(bytes: &[u8]) -> (usize, usize) {
    let len = bytes.iter().position(|byte| byte & 0x80 == 0).expect("an end") + 1;
    let low = |(n, byte): (usize, &u8)| usize::from(byte & 0x7f) << (7 * n);
    (bytes[..len].iter().enumerate().map(low).sum(), len)
}
