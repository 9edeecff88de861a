//! Streamlets of a node: packets of many sources come at one socket, share a slot by sets, and leave with their
//! SSRCs; frames of a program's source go to every streamlet.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

use selvedge_control_config::view::{NodeView, StreamletQuery};
use selvedge_control_config::{SourceUri, parse};
use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::Packet;
use selvedge_node::{Node, NodeOptions, StartError, wait_until};
use selvedge_place_coprocessor::realtime::{RealtimeRequest, SchedClass};
use selvedge_place_coprocessor::server::{LocalCoprocessor, Options};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::{Bytes, Duration};

const SOON: Duration = Duration::from_secs(60);

fn receiver() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(SOON.to_std())).unwrap();
    let to = socket.local_addr().unwrap();
    (socket, to)
}

/// A port that is free now.
fn free_port() -> SocketAddr {
    receiver().1
}

fn packet(ssrc: u32, sequence: u16) -> Vec<u8> {
    let mut packet = vec![0x80, 96];
    packet.extend(sequence.to_be_bytes());
    packet.extend(u32::from(sequence).to_be_bytes());
    packet.extend(ssrc.to_be_bytes());
    packet.extend([9; 88]);
    packet
}

/// The next packets: SSRC and sequence number of each.
fn received(socket: &UdpSocket, count: usize) -> Vec<(u32, u16)> {
    let mut bytes = [0; 2000];
    let mut next = || {
        let len = socket.recv(&mut bytes).unwrap();
        let header = Packet::parse(&bytes[..len]).unwrap().header;
        (header.ssrc, header.sequence)
    };
    (0..count).map(|_| next()).collect()
}

/// 164 B on the wire take 1.3 ms.
fn sensors(from: SocketAddr, to: SocketAddr, link: &str) -> String {
    format!(
        "[link.up]\nrate = \"1 Mbit/s\"\n{link}\n[stream.sensors]\nperiod = \"2 ms\"\ndelay = \"60 s\"\n\
         sets = {{ gold = 2, plain = 1 }}\nstreamlets = [\n\
         {{ from = \"rtp://{from}?ssrc=100\", to = \"rtp://{to}\", set = \"gold\", count = 4 }},\n\
         {{ from = \"rtp://{from}?ssrc=200\", to = \"rtp://{to}\", set = \"plain\", count = 4 }},\n]\n"
    )
}

#[test]
fn packets_of_many_sources_share_a_slot() {
    share_a_slot("");
}

#[test]
fn they_share_one_in_a_coprocessor() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let keys = format!("placement = \"coprocessor\"\nsocket = \"{}\"", socket.display());
    let link =
        parse(&sensors(free_port(), free_port(), &keys), "x.toml").unwrap().config.links[0].clone();
    let realtime_request = RealtimeRequest { core: None, lock: false, class: SchedClass::Fair };
    let (watch, memory) = (Duration::from_micros(20), Bytes(50_000_000));
    let options = Options { link, socket, realtime_request, watch, memory, alone: None };
    let coprocessor = LocalCoprocessor::start(options.clone()).unwrap();
    share_a_slot(&keys);
    drop(coprocessor);
    // There is no memory for the frames of streamlets.
    let _full = LocalCoprocessor::start(Options { memory: Bytes(5_000_000), ..options }).unwrap();
    let error = Node::start(&sensors(free_port(), free_port(), &keys), NodeOptions::default());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("--memory"), "{error}");
}

fn share_a_slot(link: &str) {
    let ((socket, to), from) = (receiver(), free_port());
    let node = Node::start(&sensors(from, to, link), NodeOptions::default()).unwrap();
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    for sequence in 0..60_u16 {
        for ssrc in (100..104).chain(200..204).chain([300]) {
            source.send_to(&packet(ssrc, 1000 + sequence), from).unwrap();
        }
        // The last of each round is of no streamlet; the kernel keeps 20 rounds.
        let read = || node.snapshot().streams[0].refused_packets > u64::from(sequence);
        assert!(sequence % 20 < 19 || wait_until(SOON, read));
    }
    let sent = received(&socket, 8 * 60);
    // The first of each set may go before the others have come.
    let early = &sent[20..260];
    let gold = early.iter().filter(|(ssrc, _)| *ssrc < 200).count();
    assert!((150..=170).contains(&gold), "{gold} of {} where two thirds are due", early.len());
    let mut last = BTreeMap::new();
    for (ssrc, sequence) in sent {
        if let Some(before) = last.insert(ssrc, sequence) {
            assert_eq!(sequence, before + 1, "of {ssrc}");
        }
    }
    assert_eq!(last.len(), 8);
    let all_counted = || {
        let streams = node.snapshot().streams;
        streams[0].sets.iter().map(|set| set.counts.sent).sum::<u64>() == 480
    };
    assert!(wait_until(SOON, all_counted));
    let stream = &node.snapshot().streams[0];
    let [gold, plain] = &stream.sets[..] else { panic!("{:?}", stream.sets) };
    assert_eq!((&*gold.name, gold.weight, gold.streamlets, gold.bound_ms), ("gold", 2, 4, 16.0));
    assert_eq!((plain.counts.sent, plain.counts.dropped, plain.counts.waiting), (240, 0, 0));
    assert_eq!(plain.counts.sent_bytes, 240 * (100 + 24 + 28));
    assert!(plain.counts.delay_mean_ms > gold.counts.delay_mean_ms);
    assert_eq!(stream.refused_packets, 60);
    let by = |query| node.streamlet("sensors", query);
    let one = by(StreamletQuery { ssrc: Some(202), ..StreamletQuery::default() }).unwrap();
    assert_eq!((one.number, &*one.set, one.counts.sent), (6, "plain", 60));
    assert_eq!(one.from.as_deref(), Some(&*format!("rtp://{from}")));
    let first = StreamletQuery { to: Some(to), ..StreamletQuery::default() };
    assert_eq!(by(first).unwrap().ssrc, Some(100));
    assert_eq!(by(StreamletQuery { number: Some(6), ssrc: Some(100), to: None }), None);
    assert_eq!(by(StreamletQuery { number: Some(8), ..StreamletQuery::default() }), None);
    assert_eq!(node.streamlet("other", first), None);
}

#[test]
fn an_address_that_is_taken_is_an_error_at_the_streamlets() {
    let ((_socket, to), (_taken, from)) = (receiver(), receiver());
    let error = Node::start(&sensors(from, to, ""), NodeOptions::default()).err().unwrap();
    let StartError::File(errors) = error else { panic!("{error}") };
    let text = errors.to_string();
    assert!(text.contains("stream.sensors.streamlets: cannot listen on"), "{text}");
}

#[test]
fn each_frame_of_a_source_goes_to_every_streamlet() {
    let receivers = [receiver(), receiver(), receiver()];
    let to = receivers.each_ref().map(|(_, to)| format!("\"rtp://{to}\"")).join(", ");
    let text = format!(
        "[link.up]\nrate = \"10 Mbit/s\"\n[stream.fan]\nsource = \"test:video\"\nstreamlets = [{to}]\n"
    );
    let mut config = parse(&text, "x.toml").unwrap().config;
    config.streams[0].source = SourceUri::Program;
    let node = Node::prepare(&config, NodeOptions::default()).unwrap();
    node.start_sources().unwrap();
    let mut producer = node.frame_producer("fan").unwrap();
    let packets = [packet(1, 0), packet(1, 1)];
    let slices: Vec<&[u8]> = packets.iter().map(|packet| &packet[..]).collect();
    for _ in 0..5 {
        producer.enqueue(FrameMetadata::alone(Kind::Still), &slices).unwrap();
    }
    let ssrcs = receivers.each_ref().map(|(socket, _)| {
        let sent = received(socket, 10);
        let first = sent[0];
        assert!((0..10).all(|n| sent[n as usize] == (first.0, first.1 + n)), "{sent:?}");
        first.0
    });
    assert!(ssrcs[0] != ssrcs[1] && ssrcs[1] != ssrcs[2], "{ssrcs:?}");
}
