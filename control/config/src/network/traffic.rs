//! `[traffic.NAME]`: what hosts send each other beside the streams of node files.

use selvedge_data_stack::compose::Composition;
use selvedge_data_stack::contract::MESSAGE_MAX;
use selvedge_data_stream::{Contract, FrameList, KEYS, Spec};
use selvedge_units::{Bitrate, Bytes, Duration};

use super::super::link::{self, MTU_MAX, RATE_MAX};
use super::super::section::{Reader, Section};
use super::super::stack;
use super::super::stream::{UNKNOWN, read_key};
use super::super::{ConfigFault, quoted};
use super::{Control, DAY, Files, Traffic, TrafficKind, named_host, two_hosts};

/// The kinds, each with its keys.
#[rustfmt::skip]
pub(super) const KINDS: [(&str, &[&str]); 9] = [
    ("bulk", &["kind", "from", "to", "start", "control", "flows", "bytes"]),
    ("requests", &["kind", "from", "to", "start", "control", "every", "size"]),
    ("on-off", &["kind", "from", "to", "start", "rate", "packet", "on", "off"]),
    ("frames", &[
        "kind", "from", "to", "start", "frames", "link", "period", "window", "late", "work_conserving", "weight",
        "priority", "class", "delay",
    ]),
    ("hostile", &["kind", "from", "to", "start", "every"]),
    ("replay", &["kind", "from", "to", "start", "pcap"]),
    ("events", &["kind", "from", "to", "start", "every", "size", "reliable", "sinks"]),
    ("messages", &["kind", "from", "to", "start", "every", "size", "stack", "connections"]),
    ("measured", &["kind", "from", "to", "start", "packet", "most"]),
];
const NAMES: &[&str] = &[
    KINDS[0].0, KINDS[1].0, KINDS[2].0, KINDS[3].0, KINDS[4].0, KINDS[5].0, KINDS[6].0, KINDS[7].0,
    KINDS[8].0,
];
/// The keys of a contract that a list of frames has, too; `period` is read by itself.
const CONTRACT: &[&str] =
    &["window", "late", "work_conserving", "weight", "priority", "class", "delay"];
/// The shortest time from one request, or frame, to the next.
const PERIOD_MIN: Duration = Duration::from_micros(100);
const PERIOD_MAX: Duration = Duration::from_secs(3_600);
/// The smallest packet: IPv4 and UDP headers.
const PACKET_MIN: Bytes = Bytes(28);
/// The largest transfer, and the largest answer.
const TRANSFER_MAX: Bytes = Bytes(1_000_000_000_000);
const ANSWER_MAX: Bytes = Bytes(1_000_000_000);
/// An event has a number, and fits into a packet with all headers.
const EVENT_MIN: Bytes = Bytes(8);
const EVENT_MAX: Bytes = Bytes(1_200);
const SINKS_MAX: u32 = 16;
/// The smallest message: it shows what it is, and its number.
const MESSAGE_MIN: Bytes = Bytes(20);
/// The most connections that a program opens.
const CONNECTIONS_MAX: u32 = 1_000;

/// One table; `None` if something that it needs is missing or wrong, which has been reported.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    hosts: &[&str],
    senders: &[&str],
    files: &mut Files<'_>,
) -> Option<Traffic> {
    reader.required(section, "kind", "kind = \"bulk\"")?;
    let kind = reader.choice(section, "kind", NAMES)?;
    let (_, keys) = KINDS.into_iter().find(|(name, _)| *name == kind)?;
    reader.refuse_unknown(section, keys);
    let from = named_host(reader, section, ("from", "from = \"near\""), hosts);
    let to = named_host(reader, section, ("to", "to = \"far\""), hosts);
    let start = reader.quantity(section, "start", Duration::ZERO..=DAY, "1 s");
    let kind = match kind {
        "bulk" => Some(bulk(reader, section)),
        "requests" => requests(reader, section),
        "on-off" => on_off(reader, section),
        "frames" => frames(reader, section, senders, files),
        "hostile" => {
            let example = ("every = \"10 ms\"", "10 ms");
            let every =
                reader.required_quantity(section, "every", PERIOD_MIN..=PERIOD_MAX, example);
            every.map(|every| TrafficKind::Hostile { every })
        }
        "events" => events(reader, section),
        "messages" => messages(reader, section),
        "measured" => {
            let most = reader.quantity(section, "most", Bitrate(1)..=RATE_MAX, "6 Mbit/s");
            packet(reader, section).map(|packet| TrafficKind::Measured { packet, most })
        }
        _ => {
            let pcap = files.bytes(reader, section, ("pcap", "pcap = \"x.pcap\""));
            pcap.map(|(_, pcap)| TrafficKind::Replay { pcap })
        }
    };
    let entry = reader.entry(section, "to")?;
    let [from, to] = two_hosts(reader, &entry, [from?, to?], hosts)?;
    let start = start.unwrap_or(Duration::ZERO);
    Some(Traffic { name: section.name.to_owned(), from, to, start, kind: kind? })
}

fn control<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Control {
    let control = reader.choice(section, "control", &Control::NAMES);
    control.and_then(Control::from_name).unwrap_or_default()
}

fn bulk<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> TrafficKind {
    TrafficKind::Bulk {
        control: control(reader, section),
        flows: reader.integer(section, "flows", 1..=1_000).unwrap_or(1),
        bytes: reader.quantity(section, "bytes", Bytes(1)..=TRANSFER_MAX, "10 MB"),
    }
}

fn requests<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<TrafficKind> {
    let control = control(reader, section);
    let example = ("every = \"200 ms\"", "200 ms");
    let every = reader.required_quantity(section, "every", PERIOD_MIN..=PERIOD_MAX, example);
    let example = ("size = \"50 kB\"", "50 kB");
    let size = reader.required_quantity(section, "size", Bytes(1)..=ANSWER_MAX, example);
    Some(TrafficKind::Requests { control, every: every?, size: size? })
}

fn messages<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<TrafficKind> {
    let example = ("every = \"20 ms\"", "20 ms");
    let every = reader.required_quantity(section, "every", PERIOD_MIN..=PERIOD_MAX, example);
    let entry = reader.required(section, "stack", stack::EXAMPLE);
    let stack = entry.and_then(|entry| stack::composition(reader, &entry));
    let most = stack.as_ref().map_or(MESSAGE_MAX, Composition::largest);
    let example = ("size = \"1 kB\"", "1 kB");
    let size = reader.required_quantity(section, "size", MESSAGE_MIN..=most, example);
    let connections = reader.integer(section, "connections", 0..=CONNECTIONS_MAX).unwrap_or(0);
    Some(TrafficKind::Messages { every: every?, size: size?, stack: stack?, connections })
}

fn on_off<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<TrafficKind> {
    let rate = link::rate(reader, section);
    let packet = packet(reader, section);
    let example = ("on = \"1 s\"", "1 s");
    let on = reader.required_quantity(section, "on", PERIOD_MIN..=DAY, example);
    let example = ("off = \"3 s\"", "3 s");
    let off = reader.required_quantity(section, "off", Duration::ZERO..=DAY, example);
    Some(TrafficKind::OnOff { rate: rate?, packet: packet?, on: on?, off: off? })
}

/// The size of each packet.
fn packet<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Bytes> {
    let example = ("packet = \"1200 B\"", "1200 B");
    reader.required_quantity(section, "packet", PACKET_MIN..=MTU_MAX, example)
}

fn events<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<TrafficKind> {
    let example = ("every = \"10 ms\"", "10 ms");
    let every = reader.required_quantity(section, "every", PERIOD_MIN..=PERIOD_MAX, example);
    let example = ("size = \"100 B\"", "100 B");
    let size = reader.required_quantity(section, "size", EVENT_MIN..=EVENT_MAX, example);
    let reliable = reader.flag(section, "reliable").unwrap_or(false);
    let sinks = reader.integer(section, "sinks", 1..=SINKS_MAX).unwrap_or(1);
    Some(TrafficKind::Events { every: every?, size: size?, reliable, sinks })
}

fn frames<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    senders: &[&str],
    files: &mut Files<'_>,
) -> Option<TrafficKind> {
    let list = files.text(reader, section, ("frames", "frames = \"camera.txt\""));
    let contract = contract(reader, section, Spec::new("", UNKNOWN).contract);
    const EXAMPLE: &str = "link = \"own\"";
    let link = reader.required(section, "link", EXAMPLE);
    let sender = link.and_then(|link| reader.find(&link, ("sender", EXAMPLE), senders));
    let (entry, text) = list?;
    match FrameList::parse(&text) {
        Ok(list) => Some(TrafficKind::Frames { list, contract, sender: sender? }),
        Err(error) => {
            let path = quoted(entry.value.as_str().unwrap_or_default());
            reader.report_value(&entry, ConfigFault::Frames { path, error });
            None
        }
    }
}

/// The contract of a stream, with what a table's keys change.
pub(super) fn contract<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    default: Contract,
) -> Contract {
    let mut spec = Spec { contract: default, ..Spec::new("", UNKNOWN) };
    for key in KEYS.iter().filter(|key| CONTRACT.contains(&key.name)) {
        read_key(reader, section, key, &mut spec);
    }
    let period = reader.quantity(section, "period", PERIOD_MIN..=PERIOD_MAX, "40 ms");
    Contract { period: period.unwrap_or(spec.contract.period), ..spec.contract }
}
