//! Outputs of a node: names and groups over the loopback, and a name that does not resolve.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;

use selvedge_control_config::view::NodeView;
use selvedge_control_config::{SourceUri, parse};
use selvedge_data_stream::Kind;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::Duration;

/// Longer than anything takes on a slow machine.
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

/// Sends frames of a stream until one arrives; returns its packet.
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
    // Its thread waits for an answer from the network, and the drop must not wait for that.
    drop(node);
}

#[test]
fn groups_are_reached_by_the_device_that_is_named() {
    let v4 = UdpSocket::bind("0.0.0.0:0").unwrap();
    v4.join_multicast_v4(&Ipv4Addr::new(239, 255, 71, 5), &Ipv4Addr::LOCALHOST).unwrap();
    let one = UdpSocket::bind("[::1]:0").unwrap();
    let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
    let node = node(&[
        format!("rtp://239.255.71.5:{}?ttl=4&interface=lo", port(&v4)),
        format!("rtp://[::1]:{}?interface=lo", port(&one)),
        "rtp://239.255.71.6:9?interface=nosuch".to_owned(),
    ]);
    for (stream, socket) in [&v4, &one].into_iter().enumerate() {
        assert!(arrives(&node, stream, socket).ends_with(&[1, 2, 3]), "{stream}");
    }
    let is_named = || detail(&node, 2).contains("cannot set the device");
    assert!(wait_until(SOON, is_named), "{}", detail(&node, 2));
}

/// Set in a process that has a network of its own.
const ALONE: &str = "SELVEDGE_TEST_ALONE";

#[test]
fn a_group_of_ipv6_is_reached_by_the_device_that_is_named() {
    if std::env::var_os(ALONE).is_none() {
        // Groups of IPv6 need a device that is not the loopback.
        let network = "ip link add v0 type veth peer name v1 && ip link set v1 up && ip link set v0 up && \
            ip -6 address add fe80::77/64 dev v0 nodad && exec \"$@\"";
        let test = "a_group_of_ipv6_is_reached_by_the_device_that_is_named";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", network, "sh"]).arg(std::env::current_exe().unwrap());
        let done = command.args(["--exact", test, "--nocapture"]).env(ALONE, "").output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("unshare failed") {
            return eprintln!("SKIPPED: {said}");
        }
        return assert!(done.status.success(), "{said}");
    }
    let devices = Command::new("ip").args(["-o", "link", "show", "v0"]).output().unwrap().stdout;
    let number = String::from_utf8(devices).unwrap().split(':').next().unwrap().parse().unwrap();
    let socket = UdpSocket::bind("[::]:0").unwrap();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0x71, 5);
    socket.join_multicast_v6(&group, number).unwrap();
    let port = socket.local_addr().unwrap().port();
    let node = node(&[format!("rtp://[{group}]:{port}?ttl=2&interface=v0")]);
    assert!(arrives(&node, 0, &socket).ends_with(&[1, 2, 3]));
}

#[test]
fn the_engine_itself_sends_to_numeric_addresses_of_both_families() {
    let sockets = ["127.0.0.1:0", "[::1]:0"].map(|at| UdpSocket::bind(at).unwrap());
    let node = node(&sockets.each_ref().map(|s| format!("rtp://{}", s.local_addr().unwrap())));
    for (stream, socket) in sockets.iter().enumerate() {
        assert!(arrives(&node, stream, socket).ends_with(&[1, 2, 3]), "{stream}");
        assert_eq!(detail(&node, stream), "");
    }
}
