//! Bonds: the near end is a link with `to` and `[link.NAME.path.NAME]`, the far end `[bond.NAME]`, whose streams have the
//! source `bond:NAME`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use selvedge_data_net_bond::{OVERHEAD, PARITY_OVERHEAD};
use selvedge_data_net_rtcp::{REPAIR_OVERHEAD, TRANSPORT_OVERHEAD};
use selvedge_data_net_secure::OVERHEAD as SEALING;
use selvedge_data_stack::compose::Fit;
use selvedge_data_stream::rtp::ip_udp;
use selvedge_units::{Bitrate, Bytes};

use super::section::{NamedTables, Reader, Section};
use super::{ConfigFault, LinkConfig, quoted};

/// The most paths of a bond.
const PATHS_MAX: usize = 16;
/// The most far ends of a node.
const BONDS_MAX: usize = 256;
const EXAMPLE: &str = "to = \"198.51.100.7:7800\"";
pub(super) const AUTO: &str = "auto";
/// The highest rate of a path.
const PATH_RATE_MAX: Bitrate = Bitrate::from_mbps(1_000_000);
/// What a path may carry in a month.
const BUDGETS: RangeInclusive<Bytes> = Bytes(1_000_000)..=Bytes(1_000_000_000_000_000);
/// The rate of a link until it is measured.
pub(super) const START: Bitrate = Bitrate::from_kbps(500);
/// Keys of a link that its rate could not be measured with.
const NOT_MEASURED: [&str; 9] = [
    "stack",
    "stack_share",
    "stack_processors",
    "stack_delay",
    "placement",
    "socket",
    "core",
    "send",
    "device",
];

/// The paths by which a link reaches the far end of a bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondLink {
    /// `to`: where the far end listens: an address or a name, and a port.
    pub to: String,
    /// `[link.NAME.path.NAME]`, in the order of the file; at least one.
    pub paths: Vec<PathConfig>,
}

impl BondLink {
    /// Where the far end listens; with a name, an address that nobody has (RFC 6666), of the family with larger headers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        const NOBODY: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);
        self.to.parse().unwrap_or_else(|_| SocketAddr::new(NOBODY.into(), 1))
    }

    /// The rate that its link begins with.
    #[must_use]
    pub fn start(&self) -> Bitrate {
        let rates = self.paths.iter().map(|path| path.rate.unwrap_or(START).min(START).0);
        Bitrate(rates.sum())
    }
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// The table's name.
    pub name: String,
    /// `device`: the device by which its packets leave. `None`: as routes say.
    pub device: Option<String>,
    /// `address`: the address from which they are sent. `None`: any.
    pub address: Option<IpAddr>,
    /// `to`: where it reaches the far end, if not at the link's `to`.
    pub to: Option<String>,
    /// `rate`: what it carries at most. `None`, or `auto`: as measured.
    pub rate: Option<Bitrate>,
    /// `cost = "metered"`: it carries only what no free path brings in time.
    pub is_metered: bool,
    /// `budget`: the bytes that a metered path may carry in a calendar month. `None`: any.
    pub budget: Option<Bytes>,
    /// `role = "spare"`: it carries packets only while no other path brings them in time.
    pub is_spare: bool,
}

impl PathConfig {
    /// A path about which the file says nothing.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            device: None,
            address: None,
            to: None,
            rate: None,
            is_metered: false,
            budget: None,
            is_spare: false,
        }
    }
}

/// The far end of a bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondConfig {
    /// The table's name.
    pub name: String,
    /// `listen`: where paths arrive.
    pub listen: SocketAddr,
    /// `secret`: a file with the secret that both ends share.
    pub secret: Option<String>,
    /// `key`: a file with this end's static key, instead of a secret.
    pub key: Option<String>,
}

const PATHS: NamedTables = NamedTables {
    key: "path",
    what: "path",
    example: "[link.uplink.path.lte] with device = \"wwan0\"",
    is_required: false,
    most: PATHS_MAX,
    of: "bond",
};
const BONDS: NamedTables = NamedTables {
    key: "bond",
    what: "bond",
    example: "[bond.van] with listen = \"0.0.0.0:7800\"",
    is_required: false,
    most: BONDS_MAX,
    of: "node",
};

/// How the packets of a bonded link's streams fit into its datagrams.
#[must_use]
pub fn bonded(link: &LinkConfig, to: SocketAddr) -> Fit {
    let below = ip_udp(to) + Bytes(SEALING as u64);
    // A parity of the longest packets has to fit, too.
    let most = link.mtu.0.saturating_sub((below + PARITY_OVERHEAD).0);
    Fit { message: Bytes(most), headers: below + OVERHEAD }
}

/// How the packets of a stream whose receiver reports fit into packets of the link: they carry a number, and may be sent
/// again.
#[must_use]
pub fn reported(link: &LinkConfig, to: SocketAddr) -> Fit {
    let headers = ip_udp(to) + TRANSPORT_OVERHEAD;
    Fit { message: link.mtu - headers - REPAIR_OVERHEAD, headers }
}

/// The bond of a link, and the rate that the link begins with; `None` if the link has none. Reports what does not go
/// with a bond.
pub(super) fn of_link<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
) -> Option<(BondLink, Bitrate)> {
    let is_auto = section.is("rate", AUTO);
    if !section.has("to") && !section.has("path") {
        let keys = NOT_MEASURED.iter().filter(|_| is_auto);
        keys.for_each(|key| reader.refuse(section, key, ConfigFault::NotMeasured));
        return None;
    }
    if !is_auto {
        reader.refuse(section, "rate", ConfigFault::BondRate);
    }
    for key in NOT_MEASURED {
        reader.refuse(section, key, ConfigFault::NotBonded);
    }
    if !section.has("secret") && !section.has("key") {
        reader.report(section.at, &section.path_of("secret"), ConfigFault::BondUnsealed);
    }
    let tables = reader.named(section, &PATHS);
    let mut paths: Vec<PathConfig> = tables.iter().map(|table| path(reader, table)).collect();
    if paths.is_empty() {
        paths.push(PathConfig::new("default"));
    }
    let entry = reader.required(section, "to", EXAMPLE)?;
    let to = far_end(reader, section)?;
    let is_other = |path: &&PathConfig| {
        let leads_to = path.to.as_ref().unwrap_or(&to).parse::<SocketAddr>();
        let from = path.address.zip(leads_to.ok());
        from.is_some_and(|(from, to)| from.is_ipv6() != to.is_ipv6())
    };
    if let Some(path) = paths.iter().find(is_other) {
        reader.report_value(&entry, ConfigFault::BondFamily(quoted(&path.name)));
    }
    let bond = BondLink { to, paths };
    let start = bond.start();
    Some((bond, start))
}

fn path<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> PathConfig {
    reader.refuse_unknown(section, &["device", "address", "to", "rate", "cost", "budget", "role"]);
    let rate = if section.is("rate", AUTO) {
        None
    } else {
        reader.quantity(section, "rate", Bitrate::from_kbps(50)..=PATH_RATE_MAX, "6 Mbit/s")
    };
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let key = ("address", "address = \"192.0.2.7\"");
    let address = reader.fit(section, key, is_address, ConfigFault::PathAddress);
    let is_metered = reader.choice(section, "cost", &["free", "metered"]) == Some("metered");
    let budget = reader.quantity(section, "budget", BUDGETS, "5 GB");
    if !is_metered {
        reader.refuse(section, "budget", ConfigFault::BudgetOfFree);
    }
    PathConfig {
        name: section.name.to_owned(),
        to: far_end(reader, section),
        device: reader.device(section),
        address: address.and_then(|text| text.parse().ok()),
        rate,
        is_metered,
        budget,
        is_spare: reader.choice(section, "role", &["use", "spare"]) == Some("spare"),
    }
}

/// The far ends of a file.
pub(super) fn read<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Vec<BondConfig> {
    const LISTEN: &str = "listen = \"0.0.0.0:7800\"";
    let tables = reader.named(root, &BONDS);
    let mut bonds: Vec<BondConfig> = Vec::new();
    for section in &tables {
        reader.refuse_unknown(section, &["listen", "secret", "key"]);
        let secret = reader.path(section, "secret", "secret = \"van.secret\"");
        let key = reader.path(section, "key", "key = \"van.key\"");
        match (&secret, &key) {
            (Some(_), _) => reader.refuse(section, "key", ConfigFault::SecretAndKey),
            (None, None) if !section.has("secret") && !section.has("key") => {
                reader.report(section.at, &section.path_of("secret"), ConfigFault::BondUnsealed);
            }
            _ => {}
        }
        if reader.required(section, "listen", LISTEN).is_none() {
            continue;
        }
        let Some(listen) = address(reader, section, ("listen", LISTEN)) else { continue };
        if let Some(other) = bonds.iter().find(|other| other.listen == listen) {
            let mistake = ConfigFault::BondTaken { listen, other: quoted(&other.name) };
            reader.report(section.at, &section.path_of("listen"), mistake);
        }
        bonds.push(BondConfig { name: section.name.to_owned(), listen, secret, key });
    }
    bonds
}

/// Where a link or a path reaches the far end: the address or the name of one host, and a port.
fn far_end<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<String> {
    let is_one =
        |at: SocketAddr| at.port() != 0 && !at.ip().is_multicast() && !at.ip().is_unspecified();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    // A resolver would take numbers for an address.
    let is_letter = |c: char| c.is_ascii_alphabetic();
    let is_name = |host: &str| host.chars().all(is_plain) && host.contains(is_letter);
    let is_named =
        |(host, port): (&str, &str)| is_name(host) && port.parse().is_ok_and(|port: u16| port != 0);
    let will_do = |text: &str| match text.parse() {
        Ok(at) => is_one(at),
        Err(_) => text.rsplit_once(':').is_some_and(is_named),
    };
    reader.fit(section, ("to", EXAMPLE), will_do, ConfigFault::FarEnd).map(str::to_owned)
}

/// A numeric address with a port, at which a host can listen.
pub(super) fn address<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    (key, example): (&str, &'static str),
) -> Option<SocketAddr> {
    let read = |text: &str| text.parse::<SocketAddr>().ok();
    let is_own = |at: SocketAddr| at.port() != 0 && !at.ip().is_multicast();
    let will_do = |text: &str| read(text).is_some_and(is_own);
    let mistake = |value| ConfigFault::BondAddress { value, example };
    reader.fit(section, (key, example), will_do, mistake).and_then(read)
}
