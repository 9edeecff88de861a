//! `[tunnel.NAME]`: the IP packets of a network device, or the datagrams of a UDP port, which go over a bond beside its streams.
//!
//! At the near end a tunnel is a stream of the bond's link, at the far end of a link of its own, back to the near end. Its
//! flows are the streamlets of that stream, and each packet is a frame.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use selvedge_data_net_bond::FLOWS;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Late, Spec, Window, rtp};
use selvedge_units::{Bytes, Duration};
use toml::de::DeValue;

use super::bond::{START, address, bonded};
use super::link::{MTU_MAX, MTU_MIN};
use super::section::{Entry, NamedTables, Reader, Section};
use super::slot::{SetConfig, SlotConfig, Streamlet, StreamletGroup};
use super::{BondConfig, ConfigFault, LinkConfig, SourceUri, StreamConfig, quoted};

pub(super) const KNOWN: &[&str] =
    &["link", "bond", "address", "device", "mtu", "routes", "nat", "port", "weight"];
/// Keys that say something of the device.
const OF_DEVICE: [&str; 3] = ["device", "routes", "nat"];
const TUNNELS: NamedTables = NamedTables {
    key: "tunnel",
    what: "tunnel",
    example: "[tunnel.net] with address = \"10.77.0.1/30\"",
    is_required: false,
    most: 16,
    of: "node",
};
const ADDRESS: &str = "address = \"10.77.0.1/30\"";
const PORT: &str = "port = \"127.0.0.1:7000\"";
const HOST: &str = "address with the length of its network's prefix";
const NETWORK: &str = "network, whose bits behind the prefix are 0";
const ROUTES: &str = "routes = [\"0.0.0.0/0\"]";
const NAT: &str = "true, or \"eth0\" for one device only";
/// How long a packet may wait for its turn: TCP slows down when packets that waited longer are lost.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// A tunnel's deadlines lie so far behind one another that streams with deadlines go before it.
const PERIOD: Duration = Duration::from_secs(1);
/// Packets of one flow that may wait, and of all that have come and are not sorted yet.
const QUEUE: u32 = 4_096;
const ROUTES_MAX: usize = 256;

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// The table's name, which is its stream's.
    pub name: String,
    /// `bond`: the far end whose bond it is. `None` at a near end, where its stream's link has the bond.
    pub bond: Option<String>,
    /// `device`: the TUN device that it makes; default `selvedge0`.
    pub device: String,
    /// `address`: the addresses of the device, with the lengths of their prefixes; without any there is no device.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The largest packet: `mtu`, or less if a datagram of the bond has less room.
    pub mtu: Bytes,
    /// `routes`: the networks that the device leads to. One with all addresses is two halves, so that the host's own
    /// default route stays.
    pub routes: Vec<(IpAddr, u8)>,
    /// `nat`: whose address packets get that leave by other devices.
    pub nat: Option<Nat>,
    /// `port`: where the near end listens for datagrams; at the far end, where it sends them to.
    pub port: Option<SocketAddr>,
}

/// Where packets of a tunnel leave with the address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nat {
    /// By any device.
    Any,
    /// By this one.
    Device(String),
}

/// The tunnels of a file; each adds its stream, and at a far end its link.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    bonds: &[BondConfig],
    (links, streams): (&mut Vec<LinkConfig>, &mut Vec<StreamConfig>),
) -> Vec<TunnelConfig> {
    let tables = reader.named(root, &TUNNELS);
    let mut tunnels: Vec<TunnelConfig> = Vec::new();
    let own_links = links.len();
    for section in &tables {
        let Some((tunnel, link, stream)) = tunnel(reader, section, bonds, &links[..own_links])
        else {
            continue;
        };
        let has_device = |tunnel: &TunnelConfig| !tunnel.addresses.is_empty();
        let is_used = |other: &TunnelConfig| {
            has_device(other) && has_device(&tunnel) && other.device == tunnel.device
        };
        if let Some(other) = tunnels.iter().find(|other| is_used(other)) {
            let mistake = ConfigFault::TunnelDevice(quoted(&other.name));
            reader.report(section.at, &section.path_of("device"), mistake);
        }
        let at = stream.link;
        let is_full = match &link {
            Some(_) => tunnels.iter().any(|other| other.bond == tunnel.bond),
            None => streams.iter().any(|other| other.is_tunnel() && other.link == at),
        };
        if is_full {
            reader.report(section.at, &section.path, ConfigFault::TunnelTwice);
        }
        let is_stream = streams.iter().any(|other| other.spec.name == tunnel.name);
        if is_stream || link.is_some() && links.iter().any(|other| other.name == tunnel.name) {
            reader.report(section.at, &section.path, ConfigFault::TunnelName);
        }
        let link = link.map_or(at, |link| {
            links.push(link);
            links.len() - 1
        });
        streams.push(StreamConfig { link, ..stream });
        tunnels.push(tunnel);
    }
    tunnels
}

/// A tunnel, its link if that is its own, and its stream; `None` if it is wrong, which has been reported.
fn tunnel<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    bonds: &[BondConfig],
    links: &[LinkConfig],
) -> Option<(TunnelConfig, Option<LinkConfig>, StreamConfig)> {
    reader.refuse_unknown(section, KNOWN);
    let end = end(reader, section, bonds, links);
    let addresses = networks(reader, section, ("address", HOST, ADDRESS), |_, _| true);
    let port = address(reader, section, ("port", PORT));
    if !section.has("address") && !section.has("port") {
        reader.report(section.at, &section.path_of("address"), ConfigFault::Missing(ADDRESS));
    }
    for key in OF_DEVICE.into_iter().filter(|_| !section.has("address")) {
        reader.refuse(section, key, ConfigFault::TunnelNoDevice);
    }
    let is_network = |address: IpAddr, prefix: u8| masked(address, prefix) == address;
    let routes = networks(reader, section, ("routes", NETWORK, ROUTES), is_network);
    let is_plain = |device: &str| is_device(device);
    let device =
        reader.fit(section, ("device", "device = \"selvedge0\""), is_plain, ConfigFault::Device);
    let device = device.unwrap_or("selvedge0").to_owned();
    let most = reader.quantity(section, "mtu", MTU_MIN..=MTU_MAX, "1300 B").unwrap_or(MTU_MAX);
    let nat = nat(reader, section);
    let weight = reader.integer(section, "weight", 1..=u16::MAX.into());
    let name = section.name.to_owned();
    let own = || LinkConfig { is_auto: true, ..LinkConfig::new(&name, START, Discipline::Dwcs) };
    let (link, at, to, far, bond) = match end? {
        End::Near(at) => {
            let bond = links[at].bond.as_ref()?;
            refuse_loop(reader, section, &links[at], &routes);
            (None, at, bond.address(), bond.to.clone(), None)
        }
        End::Far(bond) => (Some(own()), 0, bond.listen, bond.name.clone(), Some(bond.name.clone())),
    };
    // What the stream's source is called: the device, or without one the port.
    let of =
        port.filter(|_| addresses.is_empty()).map_or_else(|| device.clone(), |at| at.to_string());
    let fit = bonded(link.as_ref().unwrap_or_else(|| &links[at]), to);
    let stream = StreamConfig {
        spec: spec(&name, to, weight.unwrap_or(1)),
        link: at,
        thumbnail: false,
        far: Some(far),
        slot: Some(Arc::new(flows(to))),
        ..StreamConfig::new(&name, SourceUri::Tunnel(of), to)
    };
    let routes = routes.into_iter().flat_map(halves).collect();
    let mtu = fit.message.min(most);
    let tunnel = TunnelConfig { name, bond, device, addresses, mtu, routes, nat, port };
    Some((tunnel, link, stream))
}

/// An end of a bond.
enum End<'a> {
    /// The link at this place.
    Near(usize),
    Far(&'a BondConfig),
}

/// The end of the bond that carries a tunnel; one that is the only one need not be named.
fn end<'t, 'a>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    bonds: &'a [BondConfig],
    links: &[LinkConfig],
) -> Option<End<'a>> {
    if section.has("link") {
        reader.refuse(section, "bond", ConfigFault::TunnelEnds);
    }
    if let Some(entry) = reader.entry(section, "link") {
        let names: Vec<&str> = links.iter().map(|link| &*link.name).collect();
        let at = reader.find(&entry, ("link", "link = \"uplink\""), &names)?;
        if links[at].bond.is_none() {
            reader.report_value(&entry, ConfigFault::TunnelNeedsBond);
        }
        return Some(End::Near(at));
    }
    let names: Vec<&str> = bonds.iter().map(|bond| &*bond.name).collect();
    if let Some(entry) = reader.entry(section, "bond") {
        let at = reader.find(&entry, ("bond", "bond = \"van\""), &names)?;
        return Some(End::Far(&bonds[at]));
    }
    let near = links.iter().enumerate().filter(|(_, link)| link.bond.is_some());
    let mut ends = near.map(|(at, _)| End::Near(at)).chain(bonds.iter().map(End::Far));
    let first = ends.next();
    if first.is_none() || ends.next().is_some() {
        reader.report(section.at, &section.path_of("link"), ConfigFault::TunnelWhere);
        return None;
    }
    first
}

/// The addresses or networks of a key, one or several.
fn networks<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    (key, what, example): (&'static str, &'static str, &'static str),
    will_do: impl Fn(IpAddr, u8) -> bool,
) -> Vec<(IpAddr, u8)> {
    let Some(entry) = reader.entry(section, key) else { return Vec::new() };
    let one = |entry| vec![entry];
    let entries = match entry.value {
        DeValue::String(_) => Some(one(entry)),
        _ => reader.elements(&entry, 1..=ROUTES_MAX, ("a text or an array of texts", example)),
    };
    let mut read = |entry: Entry<'t>| {
        let text = reader.text(&entry, example)?;
        let network = text.split_once('/').and_then(|(address, prefix)| {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv6() { 128 } else { 32 };
            let prefix = prefix.parse().ok().filter(|prefix| *prefix <= most)?;
            will_do(address, prefix).then_some((address, prefix))
        });
        if network.is_none() {
            let mistake = ConfigFault::TunnelNetwork { value: quoted(text), what, example };
            reader.report_value(&entry, mistake);
        }
        network
    };
    entries.into_iter().flatten().filter_map(&mut read).collect()
}

/// The first address of the network of this prefix that holds an address.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let kept = |bits: u32| bits - u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(kept(32)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(kept(128)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

/// The two halves of the network of all addresses; any other one as it is.
fn halves((network, prefix): (IpAddr, u8)) -> Vec<(IpAddr, u8)> {
    let upper = match network {
        _ if prefix > 0 => return vec![(network, prefix)],
        IpAddr::V4(_) => IpAddr::from([128, 0, 0, 0]),
        IpAddr::V6(_) => IpAddr::from([0x8000, 0, 0, 0, 0, 0, 0, 0]),
    };
    vec![(network, 1), (upper, 1)]
}

/// Refuses routes that lead the bond's own datagrams into the tunnel: only a path with a device stays outside.
fn refuse_loop<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    link: &LinkConfig,
    routes: &[(IpAddr, u8)],
) {
    let Some(bond) = &link.bond else { return };
    for path in bond.paths.iter().filter(|path| path.device.is_none()) {
        let to = path.to.as_ref().unwrap_or(&bond.to);
        let to = to.parse::<SocketAddr>().map(|to| to.ip());
        let leads = |(network, prefix): &(IpAddr, u8)| match to {
            Ok(to) => to.is_ipv6() == network.is_ipv6() && masked(to, *prefix) == *network,
            // A name may become any address.
            Err(_) => *prefix == 0,
        };
        if routes.iter().any(leads) {
            let mistake = ConfigFault::TunnelLoop(quoted(&path.name));
            reader.refuse(section, "routes", mistake);
            return;
        }
    }
}

fn nat<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Nat> {
    let entry = reader.entry(section, "nat")?;
    match entry.value {
        DeValue::Boolean(is_on) => is_on.then_some(Nat::Any),
        DeValue::String(device) => {
            let will_do = is_device(device);
            if !will_do {
                reader.report_value(&entry, ConfigFault::Device(quoted(device)));
            }
            will_do.then(|| Nat::Device(device.to_string()))
        }
        _ => {
            reader.wrong_type(&entry, "a boolean or a device", NAT);
            None
        }
    }
}

/// Whether it is a plain name of a device, which rules of a firewall may hold.
fn is_device(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=15).contains(&name.len())
        && name.chars().all(is_plain)
        && name.starts_with(char::is_alphabetic)
}

/// What a tunnel asks of its link: what the streams with deadlines leave, and of that a part by weight.
fn spec(name: &str, to: SocketAddr, weight: u32) -> Spec {
    let contract = Contract::new(PERIOD, Window { lose: 1, of: 1 });
    let contract = Contract { delay: Some(WAIT_MAX), weight, late: Late::Drop, ..contract };
    Spec { ring: QUEUE, ..Spec::new(name, to).with_contract(contract) }
}

/// The flows of a tunnel: those beyond share the same streamlets. Each has its number as its source identifier.
fn flows(to: SocketAddr) -> SlotConfig {
    let streamlet = Streamlet { from: None, ssrc: Some(0), to, set: 0 };
    let group = StreamletGroup { first: 0, count: FLOWS.into(), streamlet };
    let set = SetConfig { name: "flows".to_owned(), weight: 1 };
    SlotConfig { sets: vec![set], groups: vec![group], queue: QUEUE }
}

/// What the packets of a tunnel have before them at a link, and not on the way behind it.
#[must_use]
pub const fn framing() -> Bytes {
    Bytes(rtp::packet_len(0) as u64)
}
