//! Several receivers of one source, by node file: each gets all frames as a stream of its own, and joins and leaves by a
//! reload while the others go on.

#![cfg(feature = "gstreamer")]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

use selvedge_control_config::view::{AskError, NodeView, StreamState};
use selvedge_data_stream::rtp::Packet;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_units::Duration;

const SOON: Duration = Duration::from_secs(60);

/// A receiver, and its payloads of each frame number so far, in the order of their packets.
struct Receiver {
    socket: UdpSocket,
    to: SocketAddr,
    frames: BTreeMap<u32, Vec<u8>>,
    sources: Vec<u32>,
    /// The last packet's source and number.
    sequence: Option<(u32, u16)>,
}

impl Receiver {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let to = socket.local_addr().unwrap();
        Self { socket, to, frames: BTreeMap::new(), sources: Vec::new(), sequence: None }
    }

    /// How many frames have come.
    fn frames(&mut self) -> usize {
        let mut bytes = [0; 2000];
        while let Ok(len) = self.socket.recv(&mut bytes) {
            let packet = Packet::parse(&bytes[..len]).unwrap();
            let number = packet.header.sequence;
            let source = packet.header.ssrc;
            let last = self.sequence.replace((source, number)).filter(|last| last.0 == source);
            let due = last.map_or(number, |(_, last)| last.wrapping_add(1));
            assert_eq!(number, due, "no gap");
            if !self.sources.contains(&packet.header.ssrc) {
                self.sources.push(packet.header.ssrc);
            }
            self.frames.entry(packet.tag.unwrap().seq).or_default().extend(packet.payload);
        }
        self.frames.len()
    }
}

fn file(receivers: &[(&str, &str, SocketAddr)]) -> String {
    let mut text = "[node]\nlisten = \"127.0.0.1:0\"\n[link.up]\nrate = \"20 Mbit/s\"\n[link.down]\nrate = \"10 Mbit/s\"\n\
                    mtu = 1200\n[stream.cam]\nsource = \"test:video\"\nlink = \"up\"\nperiod = \"40 ms\"\n"
        .replace("mtu = 1200", "mtu = \"1200 B\"");
    for (name, link, to) in receivers {
        text += &format!("[stream.cam.receiver.{name}]\nlink = \"{link}\"\nto = \"rtp://{to}\"\n");
        text += "delay = \"900 ms\"\n";
    }
    text
}

#[test]
fn receivers_join_and_leave_by_a_reload_while_the_others_go_on() {
    let [mut a, mut b, mut c] = [(); 3].map(|()| Receiver::new());
    let both = [("a", "up", a.to), ("b", "down", b.to)];
    let node = Node::start(&file(&both), NodeOptions::default()).unwrap();
    assert!(wait_until(SOON, || a.frames() >= 5 && b.frames() >= 5), "frames come");
    // The one that opened the source leaves, and another joins.
    let others = [("b", "down", b.to), ("c", "up", c.to)];
    let applied = node.reload_text(&file(&others), "x.toml").unwrap();
    assert_eq!(applied.added, ["stream.cam.receiver.c"]);
    assert_eq!(applied.removed, ["stream.cam.receiver.a"]);
    let (of_a, of_b) = (a.frames(), b.frames());
    assert!(wait_until(SOON, || b.frames() >= of_b + 5 && c.frames() >= 5), "frames go on");
    assert!(a.frames() <= of_a + 2, "the one that left gets no more");
    let snapshot = node.snapshot();
    let names: Vec<_> = snapshot.streams.iter().map(|stream| &*stream.name).collect();
    assert_eq!(names, ["cam/b", "cam/c"]);
    assert!(snapshot.streams.iter().all(|stream| stream.state == StreamState::Running));
    assert!(snapshot.streams.iter().all(|stream| stream.queueing.is_some()));
    assert!(
        node.thumbnail("cam/c").is_some() || wait_until(SOON, || node.thumbnail("cam/c").is_some())
    );
    drop(node);
    // The numbers are the source's, and the bytes are the same at all receivers.
    for other in [&a, &c] {
        let same = other.frames.iter().filter(|(seq, bytes)| b.frames.get(seq) == Some(bytes));
        assert!(same.count() >= 4, "{:?} {:?}", other.frames.keys(), b.frames.keys());
    }
    let sources: Vec<_> = [&a, &b, &c].iter().flat_map(|one| &one.sources).collect();
    assert_eq!(sources.len(), 3, "each receiver has one SSRC of its own");
    assert!(sources[0] != sources[1] && sources[1] != sources[2]);
}

#[test]
fn a_source_ends_with_its_last_receiver() {
    let [mut a, mut b] = [(); 2].map(|()| Receiver::new());
    let node = Node::start(&file(&[("a", "up", a.to)]), NodeOptions::default()).unwrap();
    assert!(wait_until(SOON, || a.frames() >= 2));
    let other = file(&[]) + &format!("to = \"rtp://{}\"\n", b.to);
    node.reload_text(&other, "x.toml").unwrap();
    assert!(wait_until(SOON, || b.frames() >= 2));
    let names: Vec<_> = node.snapshot().streams.into_iter().map(|stream| stream.name).collect();
    assert_eq!(names, ["cam"]);
}

#[test]
fn receivers_that_ask_get_the_stream_for_a_while() {
    let (mut a, [mut b, mut c]) = (Receiver::new(), [(); 2].map(|()| Receiver::new()));
    let asks = "receivers = { token = \"of-those-who-ask-for-it\", most = 1 }\n";
    let text = file(&[]) + asks + &format!("to = \"rtp://{}\"\n", a.to);
    let node = Node::start(&text, NodeOptions::default()).unwrap();
    let (short, long) = (Duration::from_millis(1500), Duration::from_secs(100));
    let ask = |to, lasts| node.ask("cam", to, Some(Duration::from_millis(300)), lasts);
    assert_eq!(node.receivers_token("cam").unwrap().as_str(), "of-those-who-ask-for-it");
    assert!(node.receivers_token("other").is_none());
    let granted = ask(b.to, short).unwrap();
    assert_eq!(granted.name, format!("cam/at-127-0-0-1-{}", b.to.port()));
    assert!(granted.sdp.unwrap().contains(&format!("m=video {} ", b.to.port())));
    // A socket's buffer holds few frames, so that all are read meanwhile.
    assert!(wait_until(SOON, || a.frames() > 0 && b.frames() >= 5), "it gets frames");
    assert_eq!(ask(c.to, long), Err(AskError::TooMany(1)));
    assert!(ask(b.to, short).is_ok(), "it asks again");
    let names = || node.snapshot().streams.into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert!(
        wait_until(SOON, || a.frames() > 0 && names() == ["cam"]),
        "it asks no more, and is gone"
    );
    assert!(ask(c.to, long).is_ok());
    assert!(wait_until(SOON, || a.frames() > 0 && c.frames() >= 2));
    assert!(node.leave("cam", c.to) && !node.leave("cam", c.to) && !node.leave("cam", a.to));
    assert_eq!(names(), ["cam"]);
    assert!(matches!(ask(a.to, long), Err(AskError::Refused(_))), "it has the stream already");
    // A reload that takes the token away ends those who asked.
    assert!(ask(c.to, long).is_ok());
    let of_a = a.frames();
    node.reload_text(&text.replace(asks, ""), "x.toml").unwrap();
    assert!(wait_until(SOON, || a.frames() > of_a && names() == ["cam"]), "{:?}", names());
    assert_eq!(ask(c.to, long), Err(AskError::NoStream("cam".into())));
}
