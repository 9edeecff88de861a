//! Tunnels in node files: both ends, and what is refused.

use selvedge_data_stack::compose::BOND_DATAGRAM_MAX;

use super::*;
use crate::{Nat, TunnelConfig};

const NEAR: &str = r#"
    [link.uplink]
    to = "198.51.100.7:7800"
    secret = "van.secret"
    [link.uplink.path.lte]
    device = "wwan0"
    [link.uplink.path.dsl]
    device = "eth1"
"#;
const FAR: &str = "[bond.van]\nlisten = \"0.0.0.0:7800\"\nsecret = \"van.secret\"\n";

/// A tunnel may have a port alone; it makes no device then.
#[test]
fn a_tunnel_with_a_port_makes_no_device() {
    let port = "[tunnel.net]\nport = \"127.0.0.1:7000\"\n";
    for end in [NEAR, FAR] {
        let config = parsed(&format!("{end}{port}")).config;
        let tunnel = &config.tunnels[0];
        assert_eq!(tunnel.port, "127.0.0.1:7000".parse().ok());
        assert!(tunnel.addresses.is_empty());
        assert_eq!(config.streams[0].source.to_string(), "tunnel:127.0.0.1:7000");
    }
    for (keys, why) in [
        ("nat = true", "the tunnel has no address, so it makes no device"),
        ("routes = \"192.0.2.0/24\"", "leave this out, or write address"),
        ("device = \"a\"", "leave this out"),
        ("port = \"127.0.0.1:0\"", "is not a numeric address with a port"),
    ] {
        let port = if keys.starts_with("port") { "[tunnel.net]\n" } else { port };
        let found = error(&format!("{NEAR}{port}{keys}\n"));
        assert!(found.contains(why), "{keys}: {found}");
    }
}

/// The least that a bond carries is what stacks above it count on.
#[test]
fn the_datagrams_of_stacks_fit_into_those_of_each_bond() {
    let near =
        NEAR.replace("to =", "mtu = \"1280 B\"\nto =").replace("198.51.100.7", "[2001:db8::7]");
    let config = parsed(&format!("{near}[tunnel.net]\nport = \"[::1]:7000\"\n")).config;
    // The header of the tunnel, and of the secure layer of the stack.
    let room = config.tunnels[0].mtu - Bytes(3) - Bytes(28);
    assert_eq!(room, Bytes(BOND_DATAGRAM_MAX as u64));
}

fn tunnel(end: &str, keys: &str) -> String {
    format!("{end}[tunnel.net]\naddress = [\"10.77.0.1/30\", \"fd77::1/126\"]\n{keys}")
}

fn error(text: &str) -> String {
    parse(text, "node.toml").expect_err("it is wrong").to_string()
}

#[test]
fn both_ends_of_a_tunnel_are_read() {
    let text = tunnel(NEAR, "routes = [\"0.0.0.0/0\", \"192.0.2.0/24\"]\nweight = 3");
    let config = parsed(&text).config;
    let network = |text: &str, prefix| (text.parse().unwrap(), prefix);
    let near = TunnelConfig {
        name: "net".to_owned(),
        bond: None,
        device: "selvedge0".to_owned(),
        addresses: vec![network("10.77.0.1", 30), network("fd77::1", 126)],
        mtu: Bytes(1416),
        // The host's own default route stays.
        routes: vec![network("0.0.0.0", 1), network("128.0.0.0", 1), network("192.0.2.0", 24)],
        nat: None,
        port: None,
    };
    assert_eq!(config.tunnels.first(), Some(&near));
    let stream = &config.streams[0];
    assert_eq!((stream.spec.name.as_str(), stream.spec.contract.weight), ("net", 3));
    assert_eq!(stream.receiver(), "bond://198.51.100.7:7800/net");
    assert_eq!(stream.slot.as_ref().map(|slot| slot.count()), Some(256));
    assert!(config.summary().streams[0].sets.is_empty());

    let text = tunnel(FAR, "device = \"tun7\"\nmtu = \"1300 B\"\nnat = \"eth0\"");
    let config = parsed(&text).config;
    let nat = Some(Nat::Device("eth0".to_owned()));
    let (bond, device) = (Some("van".to_owned()), "tun7".to_owned());
    let far = TunnelConfig { bond, device, nat, mtu: Bytes(1300), routes: vec![], ..near };
    assert_eq!(config.tunnels, [far]);
    assert_eq!((config.links.len(), config.links[0].name.as_str()), (1, "net"));
    assert!(config.links[0].is_measured());
    let changed = parsed(&text.replace("eth0", "eth1")).config;
    assert_eq!(crate::difference::Difference::new(&config, &changed).restart, ["tunnel"]);
}

#[test]
fn what_is_no_tunnel_is_refused() {
    for (end, keys, why) in [
        (NEAR, "bond = \"van\"", "no bond is named"),
        (
            NEAR,
            "routes = \"192.0.2.1/24\"",
            "no network, whose bits behind the prefix are 0; write such as routes = [\"0.0.0.0/0\"]",
        ),
        (NEAR, "routes = \"192.0.2.0/33\"", "no network"),
        (NEAR, "nat = 3", "a boolean or a device"),
        (NEAR, "device = \"a\\\"b\"", "is not a device"),
        (NEAR, "devise = \"a\"", "did you mean \"device\"?"),
        (NEAR, "link = \"uplink\"\nbond = \"van\"", "leave one of them out"),
        ("[link.up]\nrate = \"1 Mbit/s\"\n", "link = \"up\"", "name a link with to and paths"),
        ("[link.up]\nrate = \"1 Mbit/s\"\n", "", "which bond carries the tunnel?"),
        (NEAR, "[tunnel.two]\naddress = \"10.0.0.1/8\"", "makes a device of this name"),
        (
            NEAR,
            "[tunnel.two]\naddress = \"10.0.0.1/8\"\ndevice = \"b\"",
            "the bond carries another tunnel",
        ),
        (NEAR, "[stream.net]\nsource = \"test:audio\"", "a stream or a link has this name"),
    ] {
        let found = error(&tunnel(end, keys));
        assert!(found.contains(why), "{keys}: {found}");
    }
    let without = NEAR.replace("device = \"eth1\"", "");
    for routes in ["0.0.0.0/0", "198.51.100.0/24"] {
        let found = error(&tunnel(&without, &format!("routes = \"{routes}\"")));
        assert!(found.contains("lead path \"dsl\" of the bond into the tunnel"), "{found}");
    }
    parsed(&tunnel(&without, "routes = \"192.0.2.0/24\""));
    let found = error(&format!("{NEAR}[tunnel.net]\n"));
    assert!(found.contains("tunnel.net.address"), "{found}");
}
