//! Reloads of a running node, over the loopback: streams that continue lose nothing, whatever is added
//! and removed beside them; impossible changes change nothing.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use selvedge_control_config::view::{Knob, NodeView, ReloadError, StreamSnapshot};
use selvedge_control_config::{
    LinkConfig, NodeConfig, PageConfig, Placement, SourceUri, StreamConfig,
};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Kind, Late, Window, Windows};
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_place_coprocessor::client::Attachment;
use selvedge_place_coprocessor::realtime::{RealtimeRequest, SchedClass};
use selvedge_place_coprocessor::server::{LocalCoprocessor, Options};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration};

const SOON: Duration = Duration::from_secs(60);
const RELOADS: usize = 200;
/// Frames of the steady stream that wait while a reload happens, and packets of each.
const FRAMES: usize = 8;
const PACKETS: usize = 3;

/// Numbers that look random and are the same in each run.
struct Seeded(u64);

impl Seeded {
    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn receiver() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let to = socket.local_addr().unwrap();
    (socket, to)
}

fn stream(name: &str, to: SocketAddr) -> StreamConfig {
    StreamConfig::new(name, SourceUri::Program, to)
}

fn link(name: &str) -> LinkConfig {
    LinkConfig::new(name, Bitrate::from_mbps(50), Discipline::Dwcs)
}

fn config(streams: Vec<StreamConfig>) -> NodeConfig {
    NodeConfig {
        name: "test".into(),
        page: PageConfig { listen: ([127, 0, 0, 1], 0).into(), ..PageConfig::default() },
        links: vec![link("first")],
        bonds: Vec::new(),
        tunnels: Vec::new(),
        streams,
    }
}

fn running(config: &NodeConfig) -> Node {
    let node = Node::prepare(config, NodeOptions::default()).unwrap();
    node.start_sources().unwrap();
    node
}

fn enqueue(producer: &mut FrameProducer, frames: usize) {
    let mut packet = [7; 1000];
    packet[..2].copy_from_slice(&[0x80, 0xe0]);
    for _ in 0..frames {
        producer.enqueue(FrameMetadata::alone(Kind::Data), &[&packet[..]; PACKETS]).unwrap();
    }
}

/// The fields that distinguish packets.
#[derive(Clone, Copy)]
struct Packet {
    number: u16,
    source: [u8; 4],
}

/// The packets of one stream that arrived, in order. A thread reads them, since a socket's buffer holds
/// few.
struct Received {
    packets: Arc<Mutex<Vec<Packet>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Received {
    fn from(socket: UdpSocket) -> Self {
        let (packets, stop) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (into, stopped) = (Arc::clone(&packets), Arc::clone(&stop));
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50).to_std())).unwrap();
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 2000];
            while !stopped.load(Ordering::Relaxed) {
                if socket.recv(&mut bytes).is_ok_and(|len| len > 1000) {
                    let number = u16::from_be_bytes([bytes[2], bytes[3]]);
                    let source = [bytes[8], bytes[9], bytes[10], bytes[11]];
                    into.lock().unwrap().push(Packet { number, source });
                }
            }
        });
        Self { packets, stop, thread: Some(thread) }
    }

    fn count(&self) -> usize {
        self.packets.lock().unwrap().len()
    }

    /// Asserts that all packets are from one source, without a gap in their numbers.
    fn has_no_gap(&self) {
        for pair in self.packets.lock().unwrap().windows(2) {
            let next = (pair[0].number.wrapping_add(1), pair[0].source);
            assert_eq!((pair[1].number, pair[1].source), next, "no gap, one source");
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Changes something at random about the links and streams beside the first stream.
fn changed(random: &mut Seeded, config: &NodeConfig, ports: &[SocketAddr]) -> NodeConfig {
    let mut new = config.clone();
    for _ in 0..=random.below(3) {
        let others = new.streams.len() as u64 - 1;
        let one = 1 + random.below(others.max(1)) as usize;
        match random.below(10) {
            0 | 1 if new.streams.len() < ports.len() => {
                let n = new.streams.len() + random.below(1000) as usize * 10;
                let free =
                    ports.iter().find(|port| new.streams.iter().all(|s| s.spec.to != **port));
                let link = random.below(new.links.len() as u64) as usize;
                let added = StreamConfig { link, ..stream(&format!("s{n}"), *free.unwrap()) };
                if new.streams.iter().all(|s| s.spec.name != added.spec.name) {
                    new.streams.push(added);
                }
            }
            2 if others > 0 => drop(new.streams.remove(one)),
            // Started anew.
            3 if others > 0 => new.streams[one].spec.ring ^= 256 | 128,
            4 if others > 0 => new.streams[one].spec.contract.weight = 1 + random.below(9) as u32,
            5 if others > 0 => {
                let window = Window { lose: random.below(5) as u16, of: 5 };
                new.streams[one].spec.contract.windows = Windows::Whole(window);
            }
            6 => {
                let at = random.below(new.links.len() as u64) as usize;
                new.links[at].rate = Bitrate::from_mbps(40 + random.below(20));
            }
            7 if new.links.len() == 1 => new.links.push(link("second")),
            8 if new.links.len() == 2 => {
                new.links.pop();
                new.streams.retain(|stream| stream.link == 0);
            }
            // The order of the file does not matter.
            9 if others > 1 => new.streams[1..].reverse(),
            _ => {}
        }
    }
    new
}

/// Asserts that counters only grow.
fn grown(
    before: &BTreeMap<String, StreamSnapshot>,
    node: &Node,
    goes_on: impl Fn(&str) -> bool,
) -> BTreeMap<String, StreamSnapshot> {
    let now: BTreeMap<_, _> =
        node.snapshot().streams.into_iter().map(|stream| (stream.name.clone(), stream)).collect();
    for (name, old) in before.iter().filter(|(name, _)| goes_on(name)) {
        let new = &now[name];
        assert!(
            new.frames >= old.frames && new.sent >= old.sent && new.sent_bytes >= old.sent_bytes,
            "{old:?} {new:?}"
        );
    }
    now
}

#[test]
fn what_goes_on_loses_nothing_over_200_random_reloads_under_load() {
    let (socket, to) = receiver();
    let others: Vec<_> = (0..8).map(|_| receiver()).collect();
    let ports: Vec<_> = others.iter().map(|(_, to)| *to).collect();
    let mut steady = stream("steady", to);
    steady.spec.contract.windows = Windows::Whole(Window { lose: 0, of: 1 });
    steady.spec.contract.delay = Some(SOON);
    let mut config = config(vec![steady]);
    let node = running(&config);
    let mut producer = node.frame_producer("steady").unwrap();
    let received = Received::from(socket);
    let mut producers: BTreeMap<String, FrameProducer> = BTreeMap::new();
    let (mut random, mut seen, mut sent) = (Seeded(7), BTreeMap::new(), 0);
    let mut in_flight = 0;
    for round in 0..RELOADS {
        // Half of them wait when the reload comes, half are offered right after it.
        enqueue(&mut producer, FRAMES);
        producers.values_mut().for_each(|producer| enqueue(producer, 2));
        let new = changed(&mut random, &config, &ports);
        in_flight += usize::from(received.count() < sent + FRAMES * PACKETS);
        let applied = node.reload_config(&new).unwrap_or_else(|why| panic!("{round}: {why}"));
        enqueue(&mut producer, FRAMES);
        sent += 2 * FRAMES * PACKETS;
        let anew = |name: &str| {
            let path = format!("stream.{name}");
            [&applied.added, &applied.removed, &applied.restarted]
                .iter()
                .any(|all| all.contains(&path))
        };
        assert!(!anew("steady"), "{applied:?}");
        producers.retain(|name, _| !anew(name));
        for stream in new.streams.iter().filter(|stream| anew(&stream.spec.name)) {
            let name = stream.spec.name.clone();
            let taken = node.frame_producer(&name).expect("it is the program's");
            producers.insert(name, taken);
        }
        seen = grown(&seen, &node, |name| !anew(name));
        let names: Vec<_> = node.snapshot().streams.into_iter().map(|s| (s.name, s.link)).collect();
        let expected = new.streams.iter();
        let expected = expected.map(|s| (s.spec.name.clone(), new.links[s.link].name.clone()));
        assert_eq!(names, expected.collect::<Vec<_>>(), "the order of the file");
        config = new;
        // With the packets that the next round adds, the socket's buffer holds everything in transit.
        assert!(wait_until(SOON, || received.count() + FRAMES * PACKETS >= sent), "{round}");
    }
    let came = wait_until(SOON, || received.count() == sent);
    received.has_no_gap();
    assert!(came, "{} of {sent}", received.count());
    assert!(in_flight > RELOADS / 2, "{in_flight} reloads came while packets waited");
    let all = sent as u64 / PACKETS as u64;
    assert!(wait_until(SOON, || node.counts("steady").is_some_and(|c| c.totals.on_time == all)));
    assert!(node.events().len() == 64, "the last ones");
}

#[test]
fn keys_change_in_place_and_knobs_go_on() {
    let ((_a, to), (_b, other)) = (receiver(), receiver());
    let before = config(vec![stream("a", to), stream("b", other)]);
    let node = running(&before);
    node.set_knob(Knob::Priority { stream: "a".into(), priority: 5 }).unwrap();
    let mut new = before.clone();
    let contract = &mut new.streams[0].spec.contract;
    contract.weight = 7;
    contract.windows = Windows::Whole(Window { lose: 2, of: 9 });
    contract.delay = Some(Duration::from_millis(300));
    new.streams[0].spec.period_from_media = false;
    new.streams[0].spec.contract.period = Duration::from_millis(20);
    new.links[0].rate = Bitrate::from_mbps(12);
    let applied = node.reload_config(&new).unwrap();
    let keys = [
        "link.first.rate",
        "stream.a.period",
        "stream.a.delay",
        "stream.a.window",
        "stream.a.weight",
    ];
    assert_eq!(applied.changed, keys);
    assert!(applied.added.is_empty() && applied.removed.is_empty() && applied.restarted.is_empty());
    assert!(wait_until(SOON, || {
        let now = node.snapshot();
        let a = &now.streams[0];
        now.links[0].rate_bps == 12_000_000
            && (a.weight, a.period_ms) == (7, 20.0)
            && a.window == "2/9"
            && a.priority == 5
    }));
    assert_eq!(node.snapshot().streams[1].weight, 1);
    assert_eq!(node.longest_delay(), Duration::from_secs(1));
}

#[test]
fn streams_of_a_coprocessor_come_go_and_change() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("coprocessor.sock");
    let path = socket.to_str().unwrap().to_owned();
    let mut before = config(Vec::new());
    before.links[0].placement = Placement::Coprocessor;
    before.links[0].socket = Some(path.clone());
    let (watch, memory) = (Duration::from_micros(20), Bytes(50_000_000));
    let realtime_request = RealtimeRequest { core: None, lock: false, class: SchedClass::Fair };
    let link = before.links[0].clone();
    let options = Options { link, socket, realtime_request, watch, memory, alone: None };
    let _coprocessor = LocalCoprocessor::start(options).unwrap();

    let ((_a, to), (b, other)) = (receiver(), receiver());
    before.streams = vec![stream("a", to), stream("b", other)];
    let node = running(&before);
    let mut steady = node.frame_producer("b").unwrap();
    let received = Received::from(b);
    enqueue(&mut steady, FRAMES);
    // One is removed, one is added in its place; then that one begins anew, and the other changes.
    let (_c, third) = receiver();
    let mut new = before.clone();
    new.streams[0] = stream("c", third);
    let applied = node.reload_config(&new).unwrap();
    assert_eq!(
        (applied.added, applied.removed),
        (vec!["stream.c".into()], vec!["stream.a".into()])
    );
    new.streams[0].spec.contract.late = Late::Send;
    new.streams[1].spec.contract.weight = 4;
    let applied = node.reload_config(&new).unwrap();
    let (changed, restarted) = (vec!["stream.b.weight".into()], vec!["stream.c".into()]);
    assert_eq!((applied.changed, applied.restarted), (changed, restarted));
    enqueue(&mut steady, FRAMES);
    assert!(wait_until(SOON, || received.count() == 2 * FRAMES * PACKETS));
    received.has_no_gap();
    // A refused reload leaves nothing in it.
    let mut refused = new.clone();
    refused.streams.push(stream("d", to));
    refused.streams.extend((0..20).map(|n| {
        let mut large = stream(&format!("large{n}"), ([127, 0, 0, 1], 42_000 + n).into());
        large.spec.pool = Bytes(10_000_000);
        large
    }));
    assert!(matches!(node.reload_config(&refused), Err(ReloadError::Refused(_))));
    let there = Attachment::new("looks", path.into(), None).unwrap();
    assert!(wait_until(SOON, || there.statistics().unwrap().streams.len() == 2));
    let sent = |name| node.counts(name).unwrap().totals.sent;
    assert!(wait_until(SOON, || sent("b") == 2 * FRAMES as u64 && sent("c") == 0));
}

#[test]
fn what_needs_a_restart_is_named_and_nothing_changes() {
    let ((_a, to), (_b, other)) = (receiver(), receiver());
    let before = config(vec![stream("a", to)]);
    let node = running(&before);
    let mut new = before.clone();
    new.name = "another".into();
    new.links[0].discipline = Discipline::Edf;
    new.links[0].rate = Bitrate::from_mbps(1);
    new.streams.push(stream("b", other));
    let why = node.reload_config(&new).unwrap_err();
    assert_eq!(
        why.to_string(),
        "needs a restart: node.name, link.first.discipline; nothing was changed"
    );
    let last = node.events().pop().unwrap();
    assert_eq!((last.kind.as_str(), last.text), ("refused", why.to_string()));
    let now = node.snapshot();
    assert_eq!((now.streams.len(), now.links[0].rate_bps), (1, 50_000_000));
}

#[test]
fn a_source_that_can_not_be_opened_changes_nothing() {
    let ((_a, to), (_b, other)) = (receiver(), receiver());
    let (_c, third) = receiver();
    let before = config(vec![stream("a", to)]);
    let node = running(&before);
    let (path, encoding) = ("/no/such/recording".to_owned(), "H264".to_owned());
    let source = SourceUri::Record { path, encoding, repeat: false };
    let mut new = before.clone();
    new.links.push(link("second"));
    new.streams[0].spec.contract.weight = 9;
    new.streams.push(StreamConfig { link: 1, ..stream("b", other) });
    new.streams.push(StreamConfig { source, ..stream("c", third) });
    let why = node.reload_config(&new).unwrap_err();
    assert!(
        matches!(&why, ReloadError::Refused(text) if text.contains("/no/such/recording")),
        "{why}"
    );
    let now = node.snapshot();
    assert_eq!((now.streams.len(), now.links.len(), now.streams[0].weight), (1, 1, 1));
    // A full link does not keep some of them.
    let ports = (0..1030).map(|n| SocketAddr::from(([127, 0, 0, 1], 41_000 + n)));
    let many = ports.enumerate().map(|(n, to)| stream(&format!("s{n}"), to));
    new = before.clone();
    new.streams.extend(many);
    assert!(matches!(node.reload_config(&new), Err(ReloadError::Refused(_))));
    new.streams.truncate(1025);
    node.reload_config(&new).unwrap();
    assert_eq!(node.snapshot().streams.len(), 1025);
    node.reload_config(&before).unwrap();
    node.reload_config(&new).unwrap();
}

#[test]
fn streams_of_the_program_stay() {
    let ((_a, to), (_b, other), (_c, third)) = (receiver(), receiver(), receiver());
    let before = config(vec![stream("a", to)]);
    let node = running(&before);
    node.add_stream(stream("own", other)).unwrap();
    let mut own = node.frame_producer("own").unwrap();
    enqueue(&mut own, 2);
    let mut new = before.clone();
    new.links.insert(0, link("zeroth"));
    new.streams[0].link = 1;
    new.streams.push(stream("b", third));
    node.reload_config(&new).unwrap();
    enqueue(&mut own, 2);
    assert!(wait_until(SOON, || node.counts("own").is_some_and(|counts| counts.totals.sent == 4)));
    new.streams.push(stream("own", receiver().1));
    assert_eq!(node.reload_config(&new), Err(ReloadError::Restart(vec!["stream.own".into()])));
}
