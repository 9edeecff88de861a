//! A network as its file describes it, once checked: hosts, links of
//! [`selvedge_data_net_line`]'s models between them, and traffic. The simulator and `selvedge line`
//! make their lines of it.
//!
//! [`parse`] makes it from the text of a TOML file. What that file names (traces, lists of frames,
//! captures) is read by the caller's function; node files are not read here. Places in the file are
//! in [`NetworkConfig::map`], so that the caller reports what it finds out later at the right line.

pub(super) mod file_error;
mod line;
mod queue;
mod shipped;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::HashMap;
use std::net::IpAddr;

use selvedge_data_net_line::{LineModel, QueueModel};
use selvedge_data_sched::Discipline;
use selvedge_data_stack::compose::Composition;
use selvedge_data_stream::{Contract, FrameList};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};
use toml::de::DeTable;

pub use self::file_error::FileError;
pub use self::line::{LineChange, LineChangeError};
pub use self::shipped::{SHIPPED, ShippedNetwork, shipped};
use super::quote::cut;
use super::read::read_tables;
use super::section::{Entry, NamedTables, Reader, Section, path};
use super::{ConfigErrors, ConfigFault, SourceMap, quoted};

/// The most hosts of a network.
pub const HOSTS_MAX: usize = 1_000;
/// The most links of a network.
pub const LINKS_MAX: usize = 4_000;
/// The most senders of a network.
pub const SENDERS_MAX: usize = 1_000;
/// The most tables of traffic of a network.
pub const TRAFFIC_MAX: usize = 10_000;
/// The most bytes of all files together that a network names, each as often as it is named: 64 MiB.
pub const FILES_MAX: Bytes = Bytes(64 << 20);
/// The most flows of all transfers.
const FLOWS_MAX: u64 = 100_000;
/// The most queues of all FQ-CoDels.
const FLOW_QUEUES_MAX: u64 = 4 << 20;
/// The longest run, and the longest time of anything that happens in one.
const DAY: Duration = Duration::from_secs(86_400);

const HEADER: &[&str] = &["name", "about", "source", "lasts"];
const HOST: &[&str] = &["node", "address", "kill", "clock"];
const KILL: &[&str] = &["at", "lasts"];
const CLOCK: &[&str] = &["at", "by", "back"];
const SENDER: &[&str] = &["host", "rate", "discipline"];
const HOSTS: NamedTables = NamedTables {
    key: "host",
    what: "host",
    example: "[host.near] on a line of its own",
    is_required: true,
    most: HOSTS_MAX,
    of: "network",
};
const LINKS: NamedTables = NamedTables {
    key: "link",
    what: "link",
    example: "[link.uplink] with between = [\"near\", \"far\"]",
    most: LINKS_MAX,
    ..HOSTS
};
const SENDERS: NamedTables = NamedTables {
    key: "sender",
    what: "sender",
    example: "[sender.own] with host and rate",
    is_required: false,
    most: SENDERS_MAX,
    ..HOSTS
};
const TRAFFIC: NamedTables = NamedTables {
    key: "traffic",
    what: "traffic table",
    example: "[traffic.backup] with kind, from and to",
    is_required: false,
    most: TRAFFIC_MAX,
    ..HOSTS
};

/// A whole network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// `[network] name`, default `network`.
    pub name: String,
    /// `about`: what it is like, in a line; default empty.
    pub about: String,
    /// `source`, required: where its numbers come from.
    pub source: String,
    /// `lasts`, default 60 s, at most a day: how long a simulation of it runs.
    pub lasts: Duration,
    /// `[host.NAME]`, in the order of the file; at least two.
    pub hosts: Vec<Host>,
    /// `[link.NAME]`, in the order of the file; at least one.
    pub links: Vec<NetworkLink>,
    /// `[sender.NAME]`, in the order of the file.
    pub senders: Vec<Sender>,
    /// `[traffic.NAME]`, in the order of the file.
    pub traffic: Vec<Traffic>,
    /// The places of the file's keys.
    pub map: SourceMap,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The table's name.
    pub name: String,
    /// `address`: streams of node files to it arrive here. No two hosts have the same.
    pub address: Option<IpAddr>,
    /// `node`: the path of a node file as written, whose streams this host sends.
    pub node: Option<String>,
    /// `kill`: when the senders and receivers of frames here, the sources of events and the first subscriber of
    /// each channel are killed, and for how long they are gone.
    pub kill: Option<(Instant, Duration)>,
    /// `clock`: when the clock by which packets are stamped here jumps, and where to.
    pub clock: Option<(Instant, ClockJump)>,
}

/// How a clock jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// By so much.
    pub by: Duration,
    /// Whether it shows an earlier time then.
    pub is_back: bool,
}

/// A link between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkLink {
    /// The table's name.
    pub name: String,
    /// `between`: the two hosts, as places in [`NetworkConfig::hosts`].
    pub ends: [usize; 2],
    /// From the first to the second.
    pub there: LineModel,
    /// From the second to the first: as `there`, but for the keys of `[link.NAME.back]`.
    pub back: LineModel,
}

/// A paced link of the product at a host, which frames of several tables of traffic share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The table's name.
    pub name: String,
    /// `host`: a place in [`NetworkConfig::hosts`].
    pub host: usize,
    /// `rate`, required, as in node files.
    pub rate: Bitrate,
    /// `discipline`, default `dwcs`.
    pub discipline: Discipline,
}

/// Traffic between two hosts, which links lead from one to the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The table's name.
    pub name: String,
    /// `from`: a place in [`NetworkConfig::hosts`].
    pub from: usize,
    /// `to`: another such place.
    pub to: usize,
    /// `start`, default 0, at most a day.
    pub start: Duration,
    /// `kind` and its keys.
    pub kind: TrafficKind,
}

/// What kind of traffic it is.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficKind {
    /// `bulk`: transfers by a model of TCP.
    Bulk {
        /// `control`, default `cubic`.
        control: Control,
        /// `flows`, default 1, at most 1000.
        flows: u32,
        /// `bytes` of each flow; `None`: without end.
        bytes: Option<Bytes>,
    },
    /// `requests`: a packet of 100 B asks again and again, and an answer comes back.
    Requests {
        /// `control` of the answers, default `cubic`.
        control: Control,
        /// `every`: from one request to the next.
        every: Duration,
        /// `size` of an answer.
        size: Bytes,
    },
    /// `on-off`: packets at a rate, for times of exponential distribution.
    OnOff {
        /// `rate` while on.
        rate: Bitrate,
        /// `packet`: the size of each.
        packet: Bytes,
        /// `on`: the mean time on, more than zero.
        on: Duration,
        /// `off`: the mean time off.
        off: Duration,
    },
    /// `measured`: packets at the rate that the path is measured to carry.
    Measured {
        /// `packet`: the size of each.
        packet: Bytes,
        /// `most`: the rate that it never exceeds, if there is one.
        most: Option<Bitrate>,
    },
    /// `frames`: those of a list, by a sender.
    Frames {
        /// `frames`: the list.
        list: FrameList,
        /// `period`, `window`, `delay` and the other keys of a stream's contract, as in node files.
        contract: Contract,
        /// `link`: a place in [`NetworkConfig::senders`], a sender of the host `from`.
        sender: usize,
    },
    /// `hostile`: packets of an attacker, to the receivers of frames and the ends of stacks at the host `to`.
    Hostile {
        /// `every`: from one packet to the next.
        every: Duration,
    },
    /// `replay`: sizes and times of a capture's packets.
    Replay {
        /// `pcap`: the bytes of the capture, which are not looked into here.
        pcap: Vec<u8>,
    },
    /// `events`: numbered events on a channel, to subscribers at the host `to`.
    Events {
        /// `every`: from one event to the next.
        every: Duration,
        /// `size` of an event's record.
        size: Bytes,
        /// `reliable`, default `false`: whether an event is kept until it was taken.
        reliable: bool,
        /// `sinks`, default 1, at most 16: how many subscribers there are.
        sinks: u32,
    },
    /// `messages`: those of two programs to each other, over a protocol stack of the product.
    Messages {
        /// `every`: from one to the next, of each program.
        every: Duration,
        /// `size` of each.
        size: Bytes,
        /// `stack`: its modules.
        stack: Composition,
        /// `connections`, default 0: how many the first program opens by handshakes and sends messages on. With 0
        /// there is one connection, whose keys both know.
        connections: u32,
    },
}

selvedge_units::named! {
    /// How a model of TCP controls congestion.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Control {
        /// NewReno (RFC 6582).
        NewReno = "new-reno",
        /// CUBIC (RFC 9438).
        #[default]
        Cubic = "cubic",
    }
}

/// Reads the text of a network file. `file_name` is for messages only. `files` reads a file that it
/// names, by the name as written: it resolves paths from the network file's folder, and bounds what it
/// reads; all together may be [`FILES_MAX`]. O(length of the text and the files).
///
/// # Errors
/// All mistakes that were found; the file is then not valid at all.
pub fn parse(
    text: &str,
    file_name: &str,
    files: &mut dyn FnMut(&str) -> Result<Vec<u8>, FileError>,
) -> Result<NetworkConfig, ConfigErrors> {
    let mut files = Files { read: files, left: FILES_MAX.0 };
    let read = read_tables(text, file_name, |reader, tables| network(reader, tables, &mut files));
    read.map(|(config, map)| NetworkConfig { map, ..config })
}

/// The files that a network names, up to a bound.
struct Files<'f> {
    read: &'f mut dyn FnMut(&str) -> Result<Vec<u8>, FileError>,
    left: u64,
}

impl Files<'_> {
    /// What is in the file that a key names, which must be there; a mistake is reported.
    fn bytes<'t>(
        &mut self,
        reader: &mut Reader<'t>,
        section: &Section<'t>,
        (key, example): (&'static str, &'static str),
    ) -> Option<(Entry<'t>, Vec<u8>)> {
        let entry = reader.required(section, key, example)?;
        let path = reader.path(section, key, example)?;
        let found = (self.read)(&path).and_then(|bytes| {
            let left = self.left.checked_sub(bytes.len() as u64);
            self.left = left.ok_or(FileError::TooLong(FILES_MAX))?;
            Ok(bytes)
        });
        let found = found.map_err(|error| {
            reader.report_value(&entry, ConfigFault::File { path: quoted(&path), error });
        });
        Some((entry, found.ok()?))
    }

    /// The text in the file that a key names; several lines are the text itself.
    fn text<'t>(
        &mut self,
        reader: &mut Reader<'t>,
        section: &Section<'t>,
        key: (&'static str, &'static str),
    ) -> Option<(Entry<'t>, String)> {
        if let Some(entry) = reader.entry(section, key.0)
            && let Some(text) = entry.value.as_str().filter(|text| text.contains('\n'))
        {
            return Some((entry, text.to_owned()));
        }
        let (entry, bytes) = self.bytes(reader, section, key)?;
        if let Ok(text) = String::from_utf8(bytes) {
            return Some((entry, text));
        }
        let path = quoted(entry.value.as_str().unwrap_or_default());
        reader.report_value(&entry, ConfigFault::File { path, error: FileError::NotText });
        None
    }
}

fn network<'t>(
    reader: &mut Reader<'t>,
    tables: &'t DeTable<'t>,
    files: &mut Files<'_>,
) -> Option<NetworkConfig> {
    let root = Section::root(tables);
    reader.refuse_unknown(&root, &["network", "host", "link", "traffic", "sender"]);
    let header = header(reader, &root);

    let tables = reader.named(&root, &HOSTS);
    if let [only] = &tables[..] {
        let example = "[host.far] on a line of its own";
        reader.report(only.at, "host", ConfigFault::NoTable { what: "second host", example });
    }
    let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
    let hosts: Vec<Host> = tables.iter().map(|table| host(reader, table)).collect();
    refuse_shared_addresses(reader, &hosts);

    let tables = reader.named(&root, &LINKS);
    let links: Vec<Option<NetworkLink>> =
        tables.iter().map(|table| link(reader, table, &names, files)).collect();
    let tables = reader.named(&root, &SENDERS);
    let sender_names: Vec<&str> = tables.iter().map(|table| table.name).collect();
    let senders: Vec<Option<Sender>> =
        tables.iter().map(|table| sender(reader, table, &names)).collect();
    let tables = reader.named(&root, &TRAFFIC);
    let traffic: Vec<Option<Traffic>> = tables
        .iter()
        .map(|table| traffic::read(reader, table, &names, &sender_names, files))
        .collect();

    let config = NetworkConfig {
        hosts,
        links: links.into_iter().collect::<Option<_>>()?,
        senders: senders.into_iter().collect::<Option<_>>()?,
        traffic: traffic.into_iter().collect::<Option<_>>()?,
        ..header?
    };
    refuse_too_much(reader, &config);
    refuse_senders_elsewhere(reader, &config);
    refuse_unreachable(reader, &config);
    Some(config)
}

/// `[network]`; hosts and the rest are empty.
fn header<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<NetworkConfig> {
    const EXAMPLE: &str = "source = \"made up\"";
    let what = "[network] with source = \"made up\"";
    let Some(section) = reader.section(root, "network", what) else {
        if !root.has("network") {
            let mistake = ConfigFault::NoTable { what: "table [network]", example: what };
            reader.report(0, "network", mistake);
        }
        return None;
    };
    reader.refuse_unknown(&section, HEADER);
    let name = reader.own_name(&section, "name = \"lte-bad\"");
    let about = reader.line(&section, "about", 200, "about = \"LTE at the edge of a cell\"");
    let lasts = reader.quantity(&section, "lasts", Duration::from_millis(1)..=DAY, "60 s");
    reader.required(&section, "source", EXAMPLE)?;
    Some(NetworkConfig {
        name: name.unwrap_or("network").to_owned(),
        about: about.unwrap_or_default().to_owned(),
        source: reader.line(&section, "source", 500, EXAMPLE)?.to_owned(),
        lasts: lasts.unwrap_or(Duration::from_secs(60)),
        hosts: Vec::new(),
        links: Vec::new(),
        senders: Vec::new(),
        traffic: Vec::new(),
        map: SourceMap::default(),
    })
}

fn host<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Host {
    reader.refuse_unknown(section, HOST);
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let key = ("address", "address = \"10.0.0.2\"");
    let address = reader.fit(section, key, is_address, ConfigFault::Address);
    Host {
        name: section.name.to_owned(),
        address: address.and_then(|address| address.parse().ok()),
        node: reader.path(section, "node", "node = \"studio.toml\""),
        kill: kill(reader, section),
        clock: clock(reader, section),
    }
}

fn kill<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<(Instant, Duration)> {
    let table = reader.section(section, "kill", "kill = { at = \"3 s\", lasts = \"500 ms\" }")?;
    reader.refuse_unknown(&table, KILL);
    let at = time_of_fault(reader, &table);
    let lasts = reader.quantity(&table, "lasts", Duration::ZERO..=DAY, "500 ms");
    Some((at?, lasts.unwrap_or(Duration::from_millis(500))))
}

fn clock<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<(Instant, ClockJump)> {
    let table = reader.section(section, "clock", "clock = { at = \"3 s\", by = \"200 ms\" }")?;
    reader.refuse_unknown(&table, CLOCK);
    let at = time_of_fault(reader, &table);
    let example = ("by = \"200 ms\"", "200 ms");
    let by = reader.required_quantity(&table, "by", Duration::ZERO..=DAY, example);
    let is_back = reader.flag(&table, "back").unwrap_or(false);
    Some((at?, ClockJump { by: by?, is_back }))
}

fn time_of_fault<'t>(reader: &mut Reader<'t>, table: &Section<'t>) -> Option<Instant> {
    let example = ("at = \"3 s\"", "3 s");
    let at = reader.required_quantity(table, "at", Duration::ZERO..=DAY, example)?;
    Some(Instant::ZERO + at)
}

fn refuse_shared_addresses(reader: &mut Reader<'_>, hosts: &[Host]) {
    let mut by_address: HashMap<IpAddr, &str> = HashMap::new();
    let key_of = |name: &str| path(&path("host", name), "address");
    for host in hosts {
        let Some(address) = host.address else { continue };
        let Some(&other) = by_address.get(&address) else {
            by_address.insert(address, &host.name);
            continue;
        };
        let line = reader.map.at(&key_of(other)).map_or(1, |at| at.line);
        let (what, used, whose) = (address.to_string(), "the address of", "host");
        let mistake = ConfigFault::Taken { what, used, whose, other: cut(other), line };
        reader.errors.push_key(&reader.map, &key_of(&host.name), mistake);
    }
}

fn link<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    hosts: &[&str],
    files: &mut Files<'_>,
) -> Option<NetworkLink> {
    reader.refuse_unknown(section, line::OF_LINK);
    let ends = ends(reader, section, hosts);
    if section.has("recording") {
        let models = line::recorded(reader, section, files);
        let ([mut there, mut back], ends) = (models?, ends?);
        if hosts[ends[0]] == "far" {
            std::mem::swap(&mut there, &mut back);
        }
        return Some(NetworkLink { name: section.name.to_owned(), ends, there, back });
    }
    let there = line::read(reader, section, LineModel::default(), files);
    let mut back = there.clone();
    if let Some(section) = reader.section(section, "back", "[link.uplink.back]") {
        reader.refuse_unknown(&section, line::KEYS);
        back = line::read(reader, &section, back, files);
    }
    Some(NetworkLink { name: section.name.to_owned(), ends: ends?, there, back })
}

fn ends<'t>(reader: &mut Reader<'t>, section: &Section<'t>, hosts: &[&str]) -> Option<[usize; 2]> {
    const EXAMPLE: &str = "between = [\"near\", \"far\"]";
    let entry = reader.required(section, "between", EXAMPLE)?;
    let both = reader.elements(&entry, 2..=2, ("an array of two hosts", EXAMPLE))?;
    let found = both.iter().map(|one| reader.find(one, ("host", EXAMPLE), hosts));
    let found: Vec<Option<usize>> = found.collect();
    two_hosts(reader, &entry, [found[0]?, found[1]?], hosts)
}

/// Refuses an end that is the other end.
fn two_hosts<'t>(
    reader: &mut Reader<'t>,
    entry: &Entry<'t>,
    ends: [usize; 2],
    hosts: &[&str],
) -> Option<[usize; 2]> {
    if ends[0] == ends[1] {
        reader.report_value(entry, ConfigFault::SameHost(quoted(hosts[ends[0]])));
        return None;
    }
    Some(ends)
}

fn sender<'t>(reader: &mut Reader<'t>, section: &Section<'t>, hosts: &[&str]) -> Option<Sender> {
    reader.refuse_unknown(section, SENDER);
    let host = named_host(reader, section, ("host", "host = \"near\""), hosts);
    let rate = super::link::rate(reader, section);
    let discipline = reader.choice(section, "discipline", &Discipline::NAMES);
    let discipline = discipline.and_then(Discipline::from_name).unwrap_or_default();
    Some(Sender { name: section.name.to_owned(), host: host?, rate: rate?, discipline })
}

/// The host that a key names, which must be there.
fn named_host<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    (key, example): (&'static str, &'static str),
    hosts: &[&str],
) -> Option<usize> {
    let entry = reader.required(section, key, example)?;
    reader.find(&entry, ("host", example), hosts)
}

/// Refuses what would not fit into memory, at the first table that exceeds it.
fn refuse_too_much(reader: &mut Reader<'_>, config: &NetworkConfig) {
    let mut queues = 0;
    let models = config.links.iter().flat_map(|link| [(link, &link.there), (link, &link.back)]);
    for (link, model) in models {
        let before = queues;
        if let QueueModel::FqCodel(params) = &model.queue {
            queues += u64::from(params.queues);
        }
        let key = path(&path("link", &link.name), "queue");
        refuse_sum(reader, &key, before, (queues, "queues of fq-codel", FLOW_QUEUES_MAX));
    }
    let mut all = 0;
    for traffic in &config.traffic {
        let before = all;
        if let TrafficKind::Bulk { flows, .. } = traffic.kind {
            all += u64::from(flows);
        }
        let key = path(&path("traffic", &traffic.name), "flows");
        refuse_sum(reader, &key, before, (all, "flows", FLOWS_MAX));
    }
}

/// Reports a sum that has come over its limit just now.
fn refuse_sum(
    reader: &mut Reader<'_>,
    key: &str,
    before: u64,
    (count, what, most): (u64, &'static str, u64),
) {
    if count > most && before <= most {
        reader.errors.push_key(&reader.map, key, ConfigFault::InAll { count, what, most });
    }
}

/// Refuses frames that go by a sender of another host.
fn refuse_senders_elsewhere(reader: &mut Reader<'_>, config: &NetworkConfig) {
    for traffic in &config.traffic {
        let TrafficKind::Frames { sender, .. } = traffic.kind else { continue };
        let sender = &config.senders[sender];
        if sender.host != traffic.from {
            let [at, from] =
                [sender.host, traffic.from].map(|host| quoted(&config.hosts[host].name));
            let mistake = ConfigFault::OtherHost { sender: quoted(&sender.name), at, from };
            let key = path(&path("traffic", &traffic.name), "link");
            reader.errors.push_key(&reader.map, &key, mistake);
        }
    }
}

/// Refuses traffic between hosts that no links connect. O((hosts + links + traffic) * log(hosts)).
fn refuse_unreachable(reader: &mut Reader<'_>, config: &NetworkConfig) {
    // Links go both ways: hosts that can reach each other are one group, named by one of them.
    let mut above: Vec<usize> = (0..config.hosts.len()).collect();
    for link in &config.links {
        let [a, b] = link.ends.map(|end| group(&mut above, end));
        above[a] = b;
    }
    for traffic in &config.traffic {
        let (from, to) = (traffic.from, traffic.to);
        if group(&mut above, from) != group(&mut above, to) {
            let [from, to] = [from, to].map(|host| quoted(&config.hosts[host].name));
            let key = path(&path("traffic", &traffic.name), "to");
            let mistake = ConfigFault::Unreachable { from, to };
            reader.errors.push_key(&reader.map, &key, mistake);
        }
    }
}

/// The host that stands for the group of this one; halves the way to it.
fn group(above: &mut [usize], mut host: usize) -> usize {
    while above[host] != host {
        above[host] = above[above[host]];
        host = above[host];
    }
    host
}
