//! A node inside a program, without GStreamer: the program's own frames over the loopback.

use std::net::{SocketAddr, UdpSocket};

use selvedge_control_config::view::{Knob, KnobError, NodeView, StreamState};
use selvedge_control_config::{LinkConfig, NodeConfig, PageConfig, SourceUri, StreamConfig};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Kind, Window};
use selvedge_node::{AddError, Node, NodeOptions, PlacementError, StartError, wait_until};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration};

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);
/// The name of the link; a thread's name shows 15 letters.
const LINK: &str = "embedded";

fn receiver() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    (socket, to)
}

fn stream(name: &str, to: SocketAddr) -> StreamConfig {
    let mut stream = StreamConfig::new(name, SourceUri::Program, to);
    stream.spec.contract.delay = Some(Duration::from_secs(60));
    stream
}

fn config(link: &str, streams: Vec<StreamConfig>) -> NodeConfig {
    NodeConfig {
        name: "test".into(),
        page: PageConfig { listen: ([127, 0, 0, 1], 0).into(), ..PageConfig::default() },
        links: vec![LinkConfig::new(link, Bitrate::from_mbps(10), Discipline::Dwcs)],
        bonds: Vec::new(),
        tunnels: Vec::new(),
        streams,
    }
}

fn running(link: &str, streams: Vec<StreamConfig>) -> Node {
    let node = Node::prepare(&config(link, streams), NodeOptions::default()).unwrap();
    node.start_sources().unwrap();
    node
}

fn enqueue(frame_producer: &mut FrameProducer, frames: u32) {
    let mut packet = [7; 200];
    packet[..2].copy_from_slice(&[0x80, 0xe0]);
    for timestamp in 0..frames {
        let frame = FrameMetadata {
            kind: Kind::Data,
            referenced: false,
            closes: true,
            refs: None,
            timestamp,
        };
        frame_producer.enqueue(frame, &[&packet]).unwrap();
    }
}

/// The number of this process's threads that run a link of this name.
fn threads(link: &str) -> usize {
    let name = format!("link {link}\n");
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| *found == name).count()
}

#[test]
fn a_program_feeds_a_stream_reads_its_counts_and_stops_the_node() {
    let (socket, to) = receiver();
    let node = running(LINK, vec![stream("own", to)]);
    let mut own = node.frame_producer("own").expect("it is the program's");
    assert!(node.frame_producer("own").is_none(), "it is taken");
    enqueue(&mut own, 20);
    assert!(wait_until(SOON, || node.counts("own").is_some_and(|c| c.totals.sent == 20)));
    assert!(node.counts("other").is_none());
    socket.set_read_timeout(Some(SOON.into())).unwrap();
    let mut bytes = [0; 2000];
    assert!(socket.recv(&mut bytes).unwrap() >= 200);
    let snapshot = node.snapshot();
    assert_eq!(snapshot.streams[0].state, StreamState::Running);
    assert!(!node.is_over(), "the program may offer more");
    let ended = node.stop();
    assert_eq!((ended.links.len(), ended.snapshot.streams[0].on_time), (1, 20));
}

#[test]
fn a_stream_is_added_while_the_node_runs() {
    let ((_first, to), (_second, other)) = (receiver(), receiver());
    let node = running(LINK, vec![stream("first", to)]);
    node.add_stream(stream("second", other)).unwrap();
    let mut ends =
        ["first", "second"].map(|name| node.frame_producer(name).expect("it is the program's"));
    ends.iter_mut().for_each(|end| enqueue(end, 5));
    let sent = |name: &str| node.counts(name).is_some_and(|counts| counts.totals.sent == 5);
    assert!(wait_until(SOON, || sent("first") && sent("second")));
    let names: Vec<_> = node.snapshot().streams.into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["first", "second"]);
    let window = Window { lose: 2, of: 7 };
    node.set_knob(Knob::Window { stream: "second".into(), window }).unwrap();
    assert!(wait_until(SOON, || node.snapshot().streams[1].window == "2/7"));
    assert_eq!(node.snapshot().streams[0].window, "1/5");
    let absent = Knob::Priority { stream: "third".into(), priority: 1 };
    assert_eq!(node.set_knob(absent), Err(KnobError::NoStream("third".into())));
}

#[test]
fn a_stream_that_can_not_be_added_changes_nothing() {
    let ((_first, to), (_second, other)) = (receiver(), receiver());
    let node = running(LINK, vec![stream("first", to)]);
    let add = |stream| node.add_stream(stream).expect_err("it can't be added");
    assert!(matches!(add(stream("first", other)), AddError::NameTaken(name) if name == "first"));
    assert!(
        matches!(add(stream("x", to)), AddError::ToTaken { to: taken, .. } if taken == format!("rtp://{to}"))
    );
    let elsewhere = StreamConfig { link: 3, ..stream("x", other) };
    assert!(matches!(add(elsewhere), AddError::NoLink { index: 3, links: 1 }));
    let (path, encoding) = ("/no/such/recording".to_owned(), "H264".to_owned());
    let source = SourceUri::Record { path, encoding, repeat: false };
    let unreadable = StreamConfig { source, ..stream("x", other) };
    assert!(matches!(add(unreadable), AddError::Source { .. }));
    assert_eq!(node.snapshot().streams.len(), 1);
}

#[test]
fn a_link_takes_1024_streams_while_it_runs() {
    let node = running(LINK, Vec::new());
    let to = |n: u16| SocketAddr::from(([127, 0, 0, 1], 40_000 + n));
    let small = |n| {
        let mut stream = stream(&format!("s{n}"), to(n));
        (stream.spec.ring, stream.spec.pool) = (4, Bytes(64_000));
        stream
    };
    for n in 0..1024 {
        node.add_stream(small(n)).unwrap();
    }
    let full = node.add_stream(small(1024)).expect_err("it is full");
    assert!(
        matches!(full, AddError::Start(StartError::Link { why: PlacementError::Full(1024), .. })),
        "{full}"
    );
}

#[test]
fn a_wrong_text_gives_the_errors_of_the_file() {
    let text =
        "[link.up]\nrate = \"6\"\n[stream.a]\nsource = \"test:video\"\nto = \"rtp://[::1]:9\"\n";
    let options = || NodeOptions { file: "own.toml".into(), ..NodeOptions::default() };
    let Err(StartError::File(errors)) = Node::start(text, options()) else {
        panic!("the rate has no unit")
    };
    assert!(errors.to_string().starts_with("own.toml:2:8: link.up.rate: "), "{errors}");
    let text = "[link.up]\nrate = \"6 Mbit/s\"\n[stream.a]\n\
                source = \"record:/no/such.rtpdump?encoding=H264\"\nto = \"rtp://[::1]:9\"\n";
    let Err(StartError::File(errors)) = Node::start(text, options()) else {
        panic!("there is no such recording")
    };
    assert!(errors.to_string().starts_with("own.toml:4:10: stream.a.source: "), "{errors}");
}

#[cfg(not(feature = "kernel"))]
#[test]
fn a_placement_that_is_not_built_is_named() {
    let mut config = config(LINK, Vec::new());
    config.links[0].placement = selvedge_control_config::Placement::Kernel;
    let Err(StartError::Link { link, why }) = Node::prepare(&config, NodeOptions::default()) else {
        panic!("this build has no kernel placement")
    };
    assert_eq!((link.as_str(), why.to_string().contains("feature `kernel`")), (LINK, true));
}

#[test]
fn a_node_that_is_dropped_leaves_no_thread() {
    let (_socket, to) = receiver();
    let node = running("dropped", vec![stream("own", to)]);
    let mut own = node.frame_producer("own").expect("it is the program's");
    assert!(wait_until(SOON, || threads("dropped") == 1));
    drop(node);
    assert_eq!(threads("dropped"), 0);
    let frame = FrameMetadata {
        kind: Kind::Data,
        referenced: false,
        closes: true,
        refs: None,
        timestamp: 0,
    };
    // Its end may outlive it: frames are discarded, and nothing waits or panics.
    let _ = own.enqueue(frame, &[&[0x80; 20]]);
}
