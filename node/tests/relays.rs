//! Relays: nodes whose streams come over bonds and go on over others, on the loopback.

#![cfg(feature = "gstreamer")]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Instant;

use selvedge_control_config::view::{NodeView, PictureForm, Pictures, StreamPicture, StreamState};
use selvedge_data_stream::rtp::Packet;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_units::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Between two relays, at most; five times the bound that is promised.
const DELAY: Duration = Duration::from_millis(10);
const SOURCE: &str = "test:video?rate=50&size=160x120";

/// A folder with the secret of all bonds.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("selvedge-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("x.secret"), "5c".repeat(32)).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path.join("x.secret"), permissions).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(name: &str, text: &str, base: &Path) -> Node {
    let text = format!("[node]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n{text}");
    let options = NodeOptions { base: base.to_owned(), ..NodeOptions::default() };
    Node::start(&text, options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A port that was free a moment ago.
fn port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// When the last packet of each frame came, by the frame's bytes.
struct Receiver {
    socket: UdpSocket,
    to: SocketAddr,
    frame: Vec<u8>,
    frames: BTreeMap<Vec<u8>, Instant>,
}

impl Receiver {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let to = socket.local_addr().unwrap();
        Self { socket, to, frame: Vec::new(), frames: BTreeMap::new() }
    }

    fn take(&mut self) -> usize {
        let mut bytes = [0; 2000];
        while let Ok(len) = self.socket.recv(&mut bytes) {
            let packet = Packet::parse(&bytes[..len]).unwrap();
            let tag = packet.tag.unwrap();
            if tag.first {
                self.frame.clear();
            }
            self.frame.extend(packet.payload);
            if tag.last {
                let stamped = [&packet.header.timestamp.to_be_bytes()[..], &self.frame].concat();
                self.frames.entry(stamped).or_insert_with(Instant::now);
            }
        }
        self.frames.len()
    }
}

fn take_all(receivers: &mut [Receiver]) {
    for receiver in receivers {
        receiver.take();
    }
}

/// A node file: where its stream comes from, the port of the next bond, and a receiver of its own.
fn hop(source: &str, next: Option<u16>, receiver: SocketAddr) -> String {
    let mut text = format!(
        "[link.here]\nrate = \"50 Mbit/s\"\n[stream.cam]\nsource = \"{source}\"\nperiod = \"20 ms\"\ndelay = \"2 s\"\n\
         [stream.cam.receiver.here]\nlink = \"here\"\nto = \"rtp://{receiver}\"\n"
    );
    if let Some(port) = next {
        text += &format!(
            "[stream.cam.receiver.next]\nlink = \"next\"\n\
             [link.next]\nto = \"127.0.0.1:{port}\"\nsecret = \"x.secret\"\n"
        );
    }
    text
}

fn relay(at: u16, next: Option<u16>, receiver: SocketAddr) -> String {
    let source = format!("[bond.in]\nlisten = \"127.0.0.1:{at}\"\nsecret = \"x.secret\"\n");
    source + &hop("bond:in/cam/next", next, receiver)
}

#[test]
fn three_relays_carry_every_frame_and_one_that_is_restarted_goes_on() {
    let folder = Folder::new("relays");
    let ports = [(); 3].map(|()| port());
    let mut receivers = [(); 4].map(|()| Receiver::new());
    let of = |n: usize, to: SocketAddr| relay(ports[n], ports.get(n + 1).copied(), to);
    let tos = receivers.each_ref().map(|receiver| receiver.to);
    let mut nodes: Vec<Node> =
        (0..3).rev().map(|n| start(&format!("relay-{n}"), &of(n, tos[n + 1]), &folder.0)).collect();
    let origin = start("origin", &hop(SOURCE, Some(ports[0]), tos[0]), &folder.0);
    let come = wait_until(SOON, || {
        take_all(&mut receivers);
        receivers[3].frames.len() >= 20
    });
    assert!(come, "frames come by three relays");
    // From now on each receiver is read at once.
    let begun = receivers.each_ref().map(|one| one.frames.len());
    let read_at_once = |receivers: &mut [Receiver; 4], count: usize| {
        let deadline = Instant::now() + SOON.to_std();
        while receivers[3].frames.len() < count && Instant::now() < deadline {
            take_all(receivers);
            std::thread::park_timeout(std::time::Duration::from_micros(200));
        }
        assert!(receivers[3].frames.len() >= count, "frames go on");
    };
    read_at_once(&mut receivers, begun[3] + 150);
    for n in 0..3 {
        let [before, after] = [&receivers[n].frames, &receivers[n + 1].frames];
        let mut took: Vec<_> = after
            .iter()
            .filter_map(|(frame, at)| Some(at.saturating_duration_since(*before.get(frame)?)))
            .collect();
        took.sort_unstable();
        let median = took[took.len() / 2];
        assert!(median < DELAY.to_std(), "relay {n}: {median:?}");
        // All that came to the one came to the next, but for those still under way.
        let newest = after.values().max().unwrap();
        let first = after.values().min().unwrap();
        let due = before.iter().filter(|(_, at)| *at > first && *at < newest);
        let (due, lost) = due.fold((0, 0), |(due, lost), (frame, _)| {
            (due + 1, lost + usize::from(!after.contains_key(frame)))
        });
        // 99.9 % are promised; five times as many may be missing.
        assert!(lost * 200 <= due, "relay {n}: {lost} of {due} frames lost");
    }
    // The one in the middle is killed, and another takes its place.
    drop(nodes.remove(1));
    nodes.push(start("relay-again", &of(1, tos[2]), &folder.0));
    let seen = receivers[3].frames.len();
    let again = wait_until(SOON, || {
        take_all(&mut receivers);
        receivers[3].frames.len() >= seen + 20
    });
    assert!(again, "frames go on by the restarted relay");
    drop((origin, nodes));
}

/// The pictures of a node's first track that are new since `last`, for a page.
fn new_pictures(node: &Node, last: &mut Option<u64>) -> Vec<(bool, Option<Duration>)> {
    let Pictures { now, list } = node.pictures(0, PictureForm::Coded, *last);
    *last = list.last().map_or(*last, |picture| Some(picture.number));
    let age = |picture: &StreamPicture| picture.taken.map(|taken| now.since(taken));
    list.iter().map(|picture| (picture.intra, age(picture))).collect()
}

#[test]
fn a_far_end_shows_what_comes_and_how_old_it_is() {
    let folder = Folder::new("shown");
    let ports = [port(), port()];
    let receivers = [(); 3].map(|()| Receiver::new());
    let second = start("second", &relay(ports[1], None, receivers[2].to), &folder.0);
    let first = start("first", &relay(ports[0], Some(ports[1]), receivers[1].to), &folder.0);
    assert_eq!(first.videos(), [], "nobody knows yet what comes");
    let origin = start("origin", &hop(SOURCE, Some(ports[0]), receivers[0].to), &folder.0);
    let codec = |node: &Node| node.videos().first().map(|track| track.codec.clone());
    assert!(wait_until(SOON, || codec(&second).is_some()), "the medium is described");
    for node in [&origin, &first, &second] {
        assert!(codec(node).unwrap().starts_with("avc1."), "{:?}", node.videos());
    }
    // At the origin, one hop away, and behind a relay, which knows nothing of what was before it.
    for (node, is_known) in [(&origin, true), (&first, true), (&second, false)] {
        let (mut last, mut shown) = (None, Vec::new());
        let come = wait_until(SOON, || {
            shown.extend(new_pictures(node, &mut last));
            shown.len() >= 30
        });
        assert!(come && shown[0].0, "it begins with an intra picture: {shown:?}");
        assert!(shown.iter().all(|(_, age)| age.is_some() == is_known), "{shown:?}");
        let mut ages: Vec<_> = shown.iter().filter_map(|(_, age)| *age).collect();
        ages.sort_unstable();
        let median = ages.get(ages.len() / 2).copied().unwrap_or_default();
        assert!(median < Duration::from_secs(2), "{median} of a delay of 2 s");
    }
    drop((origin, first, second));
}

#[test]
fn a_loop_of_relays_is_cut_and_says_so() {
    let folder = Folder::new("loop");
    let ports = [port(), port(), port()];
    let (mut there, back) = (Receiver::new(), Receiver::new());
    // The second relay sends the stream back to the first, which has it from the origin already.
    let bond = format!("[bond.back]\nlisten = \"127.0.0.1:{}\"\nsecret = \"x.secret\"\n", ports[2]);
    let again = format!(
        "[stream.again]\nsource = \"bond:back/cam/next\"\nlink = \"here\"\nto = \"rtp://{}\"\n",
        back.to
    );
    let first = start(
        "first",
        &(relay(ports[0], Some(ports[1]), Receiver::new().to) + &bond + &again),
        &folder.0,
    );
    let second = start("second", &relay(ports[1], Some(ports[2]), there.to), &folder.0);
    let origin = start("origin", &hop(SOURCE, Some(ports[0]), Receiver::new().to), &folder.0);
    assert!(wait_until(SOON, || there.take() >= 20), "frames come to the second relay");
    let state = |name: &str| {
        let streams = first.snapshot().streams;
        let stream = streams.into_iter().find(|one| one.name == name).unwrap();
        (stream.state, stream.detail)
    };
    assert!(wait_until(SOON, || state("again").0 == StreamState::Failed), "{:?}", state("again"));
    let detail = state("again").1;
    assert!(detail.contains("relays form a loop"), "{detail}");
    assert_eq!(state("cam/here").0, StreamState::Running);
    assert!(back.socket.recv(&mut [0; 100]).is_err(), "nothing came round");
    drop((origin, first, second));
}
