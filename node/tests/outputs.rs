//! Outputs of a node: names and groups over the loopback, and a name that nobody knows.

use std::net::{Ipv4Addr, UdpSocket};

use selvedge_control_config::view::NodeView;
use selvedge_control_config::{SourceUri, parse};
use selvedge_data_stream::Kind;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::Duration;

/// No slowness of the machine takes so long.
const SOON: Duration = Duration::from_secs(60);

/// A node whose program feeds one stream to each of these.
fn node(to: &[String]) -> Node {
    let mut text = "[link.up]\nrate = \"10 Mbit/s\"\n".to_owned();
    for (n, to) in to.iter().enumerate() {
        text +=
            &format!("[stream.s{n}]\nsource = \"test:video\"\nto = \"{to}\"\ndelay = \"60 s\"\n");
    }
    let mut config = parse(&text, "own.toml").unwrap_or_else(|error| panic!("{error}")).config;
    config.streams.iter_mut().for_each(|stream| stream.source = SourceUri::Program);
    let node = Node::prepare(&config, NodeOptions::default()).unwrap();
    node.start_sources().unwrap();
    node
}

fn detail(node: &Node, stream: usize) -> String {
    node.snapshot().streams[stream].detail.clone()
}

/// Sends frames of a stream until one arrives; its packet.
fn arrives(node: &Node, stream: usize, socket: &UdpSocket) -> Vec<u8> {
    socket.set_nonblocking(true).unwrap();
    let mut producer = node.frame_producer(&format!("s{stream}")).expect("it is the program's");
    let (mut bytes, mut timestamp) = (vec![0; 2000], 0);
    let arrived = wait_until(SOON, || {
        let (kind, closes, refs) = (Kind::Data, true, None);
        let frame = FrameMetadata { kind, referenced: false, closes, refs, timestamp };
        timestamp += 1;
        let _ = producer.enqueue(frame, &[&[0x80, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]]);
        socket.recv(&mut bytes).map(|len| bytes.truncate(len)).is_ok()
    });
    assert!(arrived, "{}", detail(node, stream));
    bytes
}

#[test]
fn a_name_that_nobody_knows_keeps_no_other_from_being_sent() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let node = node(&["rtp://nobody.invalid:5004".to_owned(), format!("rtp://localhost:{port}")]);
    assert!(arrives(&node, 1, &socket).ends_with(&[1, 2, 3]));
    assert_eq!(detail(&node, 1), "");
    let why = || detail(&node, 0);
    let is_named = || why().contains("\"nobody.invalid\" does not resolve: ");
    assert!(wait_until(SOON, is_named), "{}", why());
    // It waits for an answer of the network's, and nobody for it.
    drop(node);
}

#[test]
fn groups_are_reached_by_the_device_that_is_named() {
    let v4 = UdpSocket::bind("0.0.0.0:0").unwrap();
    v4.join_multicast_v4(&Ipv4Addr::new(239, 255, 71, 5), &Ipv4Addr::LOCALHOST).unwrap();
    let v6 = UdpSocket::bind("[::1]:0").unwrap();
    let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
    let node = node(&[
        format!("rtp://239.255.71.5:{}?ttl=4&interface=lo", port(&v4)),
        format!("rtp://[::1]:{}?interface=lo", port(&v6)),
        "rtp://239.255.71.6:9?interface=nosuch".to_owned(),
    ]);
    assert!(arrives(&node, 0, &v4).ends_with(&[1, 2, 3]));
    assert!(arrives(&node, 1, &v6).ends_with(&[1, 2, 3]));
    let is_named = || detail(&node, 2).contains("cannot set the device");
    assert!(wait_until(SOON, is_named), "{}", detail(&node, 2));
}
