//! The share of decodable frames, as a node states it, held against a decoder that knows nothing
//! of Selvedge: FFmpeg decodes what comes through a link of the kernel's that is too small, and a
//! frame counts if its picture is bit for bit that of the clip.
//!
//! FFmpeg conceals what is missing: pictures that were made up differ from the clip's and do not
//! count, and neither does what refers to them. Each stream goes in order, so that the pictures
//! that came are a subsequence of the clip's; the few pictures of the clip that equal another one
//! are next to it, and are distinguished by the order.

#[path = "support/decoded.rs"]
mod decoded;
#[path = "../place/engine/tests/namespace/mod.rs"]
mod namespace;
mod support;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use decoded::{Decoder, pictures, reference, subsequence};
use namespace::inside_slow_loopback;
use serde_json::Value;
use support::{
    CORRIDOR, Folder, Running, Stream, clip, ffmpeg, file_source, http, node_file, skipped,
};

/// Copies of the clip, which together need some 998 kbit/s.
const STREAMS: u16 = 5;
/// The bottleneck: 75 % of that, a burst of about one packet, and room for half a second.
const RATE: &str = "748700bit";
const BURST: &str = "4k";
const LIMIT: &str = "60000";
/// What the node may send: less, since the kernel counts Ethernet headers as well.
const LINK: &str = "rate = \"726 kbit/s\"";
/// Frames of each stream, 10 a second: in all, half a minute.
const FRAMES: u64 = 300;
/// How far the node's share may be from the decoder's.
const TOLERANCE: f64 = 0.02;

#[test]
fn a_decoder_finds_as_many_frames_by_dwcs_as_the_node_says() {
    let name = "a_decoder_finds_as_many_frames_by_dwcs_as_the_node_says";
    if !has_ffmpeg() {
        return skipped(name, "needs ffmpeg");
    }
    inside_slow_loopback(name, RATE, BURST, LIMIT, || {
        let [node, decoder] = measured("dwcs");
        // By fifo, a decoder finds about a fifth.
        assert!(node > 0.45 && decoder > 0.45, "node {node:.3}, decoder {decoder:.3}");
    });
}

#[test]
fn a_decoder_finds_as_many_frames_by_fifo_as_the_node_says() {
    let name = "a_decoder_finds_as_many_frames_by_fifo_as_the_node_says";
    if !has_ffmpeg() {
        return skipped(name, "needs ffmpeg");
    }
    inside_slow_loopback(name, RATE, BURST, LIMIT, || {
        let [node, decoder] = measured("fifo");
        assert!(node < 0.45 && decoder < 0.45, "node {node:.3}, decoder {decoder:.3}");
    });
}

fn has_ffmpeg() -> bool {
    ffmpeg(["-version"])
}

/// Runs a node of this discipline; the decodable share of all streams as it says, and as decoders
/// found. Fails if they differ for any stream.
fn measured(discipline: &str) -> [f64; 2] {
    let folder = Folder::new();
    let original = pictures(&reference(&folder, "reference", &clip(CORRIDOR)));
    let session = session(&folder);
    let receivers: Vec<Receiver> =
        (0..STREAMS).map(|n| Receiver::start(&folder, &session, n)).collect();
    let node = node(&folder, discipline, &receivers);
    let dropped = dropped_by_the_kernel();
    assert_eq!(dropped, 0, "the node keeps to its rate, so that it is who chooses");

    let (mut said, mut found, mut all) = (0, 0, 0);
    for (receiver, stream) in receivers.into_iter().zip(node["streams"].as_array().expect("a list"))
    {
        let count = |name: &str| stream[name].as_u64().unwrap_or_else(|| panic!("no {name}"));
        let name = receiver.name.clone();
        let came = pictures(&receiver.decoder.end());
        let exact = subsequence(&came, &original);
        let share = |n: u64| n as f64 / count("frames") as f64;
        let (node, decoder) = (share(count("decodable")), share(exact));
        println!(
            "{discipline} {name}: {} frames, {} sent, {} decodable; decoded {}, exact {exact}: \
             {node:.3} and {decoder:.3}",
            count("frames"),
            count("sent"),
            count("decodable"),
            came.len(),
        );
        assert!((node - decoder).abs() <= TOLERANCE, "{name}: {node:.3}, {decoder:.3}: {stream}");
        said += count("decodable");
        found += exact;
        all += count("frames");
    }
    [said, found].map(|n| n as f64 / all as f64)
}

/// Runs the node until each stream had so many frames; what it said last.
fn node(folder: &Folder, discipline: &str, receivers: &[Receiver]) -> Value {
    let streams: Vec<Stream<'_>> = receivers
        .iter()
        .map(|receiver| Stream {
            name: &receiver.name,
            source: file_source(&clip(CORRIDOR), true),
            to: receiver.at,
            more: "",
        })
        .collect();
    let link = format!("{LINK}\ndiscipline = \"{discipline}\"");
    let path = folder.write("node.toml", node_file(&link, &streams));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    let page = node.page();
    support::until("every stream had its frames", || {
        let node = http::node(&page);
        let streams = node["streams"].as_array().expect("a list");
        streams.iter().all(|stream| stream["frames"].as_u64() >= Some(FRAMES))
    });
    node.signal("INT");
    node.end(Duration::from_secs(20)).json()
}

/// Packets that the bottleneck had no room for.
fn dropped_by_the_kernel() -> u64 {
    let shown = Command::new("tc").args(["-s", "qdisc", "show", "dev", "lo"]).output();
    let shown = String::from_utf8_lossy(&shown.expect("tc has run before").stdout).into_owned();
    let rest = shown.split_once("(dropped ").map(|(_, rest)| rest);
    let count = rest.and_then(|rest| rest.split_once(',')).map(|(count, _)| count);
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {shown}"))
}

/// An FFmpeg that decodes one stream.
struct Receiver {
    name: String,
    at: SocketAddr,
    decoder: Decoder,
}

impl Receiver {
    fn start(folder: &Folder, session: &str, n: u16) -> Self {
        // Nobody else is in this namespace.
        let at = SocketAddr::from(([127, 0, 0, 1], 6000 + 2 * n));
        let description = session.replace("m=video 5000 ", &format!("m=video {} ", at.port()));
        let sdp = folder.write(&format!("{n}.sdp"), description);
        let name = format!("copy-{n}");
        let decoder = Decoder::start(folder, &name, &sdp, at);
        Self { name, at, decoder }
    }
}

/// A description of the clip as a stream to port 5000, with the parameter sets: without them a
/// decoder whose first key picture is lost has no idea of the size, and gives up.
fn session(folder: &Folder) -> String {
    let out = folder.join("5000.sdp");
    let clip = clip(CORRIDOR);
    let (input, output) = (clip.as_os_str(), out.as_os_str());
    let head = ["-i"].map(AsRef::as_ref);
    // It sends the first picture to a port where nobody is.
    let tail = ["-an", "-c", "copy", "-frames:v", "1", "-sdp_file"].map(AsRef::as_ref);
    let to = ["-f", "rtp", "rtp://127.0.0.1:5000"].map(AsRef::as_ref);
    let args = head.into_iter().chain([input]).chain(tail).chain([output]).chain(to);
    assert!(ffmpeg(args), "it was there");
    let text = std::fs::read_to_string(out).expect("it was written");
    assert!(text.contains("sprop-parameter-sets=") && text.contains("m=video 5000 "), "{text}");
    text
}

#[test]
fn pictures_are_counted_once_and_in_order() {
    let list = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
    let original = list("abbcd");
    assert_eq!(subsequence(&list("abbcd"), &original), 5);
    assert_eq!(subsequence(&list("abbbcd"), &original), 5, "there are two of them");
    assert_eq!(subsequence(&list("axbyd"), &original), 3, "made up ones do not count");
    assert_eq!(subsequence(&list("dabc"), &original), 1, "nothing goes back");
}
