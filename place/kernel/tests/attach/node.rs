//! `selvedge run` with a link in the kernel: the device has the qdisc for as long as the node runs, and the
//! page counts frames as usual.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, write_packet};
use selvedge_data_stream::{Kind, References};
use selvedge_place_kernel::Attached;
use selvedge_tests_wait::until;
use serde_json::Value;

use crate::machine::{qdiscs, receiver, run, selvedge};

const FRAMES: u32 = 40;
const PACKETS: usize = 3;
const PAYLOAD: usize = 400;

/// A recording of frames 20 ms apart, three packets each.
fn recording() -> PathBuf {
    let mut bytes = b"#!rtpplay1.0 127.0.0.1/5004\n".to_vec();
    bytes.extend([0; 16]);
    for seq in 0..FRAMES {
        for n in 0..PACKETS {
            let mut packet = vec![0; packet_len(PAYLOAD)];
            let header = Header {
                marker: n + 1 == PACKETS,
                payload_type: 26,
                sequence: (seq as usize * PACKETS + n) as u16,
                timestamp: seq * 1800,
                ssrc: 7,
            };
            let tag = FrameTag {
                seq,
                kind: Kind::Still,
                referenced: false,
                first: n == 0,
                last: n + 1 == PACKETS,
                refs: References::NONE,
                left_ms: 0,
                deadline_ms: 0,
            };
            write_packet(&mut packet, header, tag, &[7; PAYLOAD]);
            bytes.extend((packet.len() as u16 + 8).to_be_bytes());
            bytes.extend((packet.len() as u16).to_be_bytes());
            bytes.extend((seq * 20).to_be_bytes());
            bytes.extend(packet);
        }
    }
    let path = std::env::temp_dir().join("frames.rtpdump");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A node file with one link in the kernel and one stream.
fn node_file(name: &str, link: &str, stream: &str, to: &str, repeat: bool) -> PathBuf {
    let again = if repeat { "&loop" } else { "" };
    let text = format!(
        "[node]\nlisten = \"127.0.0.1:0\"\n[link.wire]\nplacement = \"kernel\"\n{link}\n\
         [stream.card]\nsource = \"record:{}?encoding=JPEG{again}\"\nto = \"rtp://{to}\"\n{stream}\n",
        recording().display()
    );
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn start(path: &std::path::Path) -> Child {
    let mut command = Command::new("selvedge");
    command.arg("run").arg(path).arg("--json").stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It runs once it prints where its page is.
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("page: ") {
        line.clear();
        assert!(err.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    std::thread::spawn(move || err.read_to_string(&mut String::new()));
    child
}

/// The last word of a node that ends by itself.
fn last(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn packets_at(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).unwrap();
    let mut packet = [0; 2000];
    std::iter::from_fn(|| socket.recv(&mut packet).ok()).count() as u64
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn a_node_sends_through_the_kernel_and_gives_the_device_back() {
    let before = qdiscs();
    let (socket, _) = receiver("127.0.0.1:0");
    all_goes_out(&socket, "rate = \"2 Mbit/s\"", "delay = \"20 s\"");
    // The same below a node of a tree, remapped.
    let tree = "rate = \"2 Mbit/s\"\ndiscipline = \"hwfq\"\nremap = \"10 ms\"\n\
                [link.wire.tree.video]\nweight = 3";
    all_goes_out(&socket, tree, "delay = \"20 s\"\nparent = \"video\"");
    assert_eq!(qdiscs(), before);
    assert!(!std::path::Path::new("/sys/fs/bpf/selvedge").exists());
}

/// Runs a node of this link and stream to its end: every frame is sent, on time.
fn all_goes_out(socket: &UdpSocket, link: &str, stream: &str) {
    let to = socket.local_addr().unwrap().to_string();
    let node = start(&node_file("fits.toml", link, stream, &to, false));
    // Its route leads to the loopback device.
    let report = Attached::open("lo").unwrap().report().unwrap();
    assert_eq!(report.streams[0].name, "card");
    let last = last(node);
    let card = &last["streams"][0];
    for key in ["frames", "sent", "on_time", "decodable"] {
        assert_eq!(card[key], FRAMES, "{key}: {card}");
    }
    assert_eq!((&card["dropped"], &card["queued_frames"]), (&serde_json::json!({}), &0.into()));
    assert_eq!(packets_at(socket), u64::from(FRAMES) * PACKETS as u64);
    let on_wire = packet_len(PAYLOAD) + 28;
    assert_eq!(card["sent_bytes"], FRAMES as usize * PACKETS * on_wire, "{card}");
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn under_overload_every_frame_is_accounted_for() {
    let before = qdiscs();
    let (socket, at) = receiver("127.0.0.1:0");
    // The frames need 540 kbit/s.
    let path = node_file(
        "tight.toml",
        "rate = \"200 kbit/s\"\ndevice = \"lo\"",
        "delay = \"100 ms\"\nwindow = \"1/2\"",
        &at.to_string(),
        false,
    );
    let last = last(start(&path));
    let card = &last["streams"][0];
    let count = |key: &str| card[key].as_u64().unwrap();
    let expired = card["dropped"]["expired"].as_u64().unwrap_or(0);
    assert_eq!(count("frames"), u64::from(FRAMES), "{card}");
    assert_eq!(count("sent") + expired, u64::from(FRAMES), "{card}");
    assert!(expired > 0 && count("sent") > 0 && count("violations") > 0, "{card}");
    // Packets always waited for the link, and it was used.
    let link = &last["links"][0];
    let figure = |key: &str| link[key].as_f64().unwrap_or_else(|| panic!("no {key}: {link}"));
    assert!(
        figure("late_p99_ms") >= figure("late_p50_ms") && figure("late_p50_ms") > 0.0,
        "{link}"
    );
    assert!((0.5..=1.0).contains(&figure("used_share")), "{link}");
    assert_eq!(count("decodable"), count("on_time"), "{card}");
    // The kernel counts packets: those that it dropped did not arrive.
    assert_eq!(packets_at(&socket) + count("missed"), u64::from(FRAMES) * PACKETS as u64, "{card}");
    assert_eq!(qdiscs(), before);
}

#[test]
#[ignore = "needs a kernel with BPF qdiscs: tools/kernel.sh test"]
fn knobs_turn_in_the_kernel_and_a_killed_node_is_followed_by_another() {
    let before = qdiscs();
    let (_socket, at) = receiver("127.0.0.1:0");
    let path =
        node_file("loops.toml", "rate = \"2 Mbit/s\"", "delay = \"5 s\"", &at.to_string(), true);
    let mut first = start(&path);
    let sent = || Attached::open("lo").unwrap().report().unwrap().streams[0].counters.sent;
    until("packets are sent", || sent() > 10);
    // A second one does not fit beside it.
    let (code, _, err) = selvedge(&["attach", "lo"]);
    assert!(code == 2 && err.contains("already"), "{err}");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_ne!(qdiscs(), before, "its qdisc stays");
    let mut second = start(&path);
    until("packets are sent", || sent() > 10);
    run("kill", &[&second.id().to_string()]);
    second.wait().unwrap();
    assert_eq!(qdiscs(), before);
    let absent = node_file(
        "absent.toml",
        "rate = \"2 Mbit/s\"\ndevice = \"nodev0\"",
        "",
        &at.to_string(),
        false,
    );
    let refused = run("selvedge", &["run", absent.to_str().unwrap()]);
    let err = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{err}");
    assert!(
        err.contains("absent.toml:6:10: link.wire.device: ") && err.contains("nodev0"),
        "{err}"
    );
}
