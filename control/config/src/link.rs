//! `[link.NAME]`.

use selvedge_units::{Bitrate, Bytes, Duration};

use super::section::{Reader, Section};
use selvedge_data_sched::Discipline;

use super::{ConfigFault, LinkConfig, Placement, Sending, bond, stack, step, tree};

#[rustfmt::skip]
pub(super) const KNOWN: &[&str] = &[
    "rate", "discipline", "selection", "burst", "catch_up", "mtu", "queue", "tree", "remap", "placement",
    "socket", "core", "send", "device", "stack", "stack_share", "stack_processors", "stack_delay", "secret", "key", "peer",
    "to", "path", "step",
];
pub(super) const RATE_MAX: Bitrate = Bitrate::from_mbps(1_000_000);
pub(super) const MTU_MIN: Bytes = Bytes(576);
pub(super) const MTU_MAX: Bytes = Bytes(65_535);
const BURST_MAX: Bytes = Bytes(64_000_000);
const CATCH_UP_MAX: Bytes = Bytes(64_000_000);
const REMAP_MIN: Duration = Duration::from_micros(100);
const REMAP_MAX: Duration = Duration::from_secs(60);
const QUEUE_MAX: Bytes = Bytes(4_000_000_000);

/// A link; `None` if it has no valid rate, which has been reported.
pub(super) fn read<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<LinkConfig> {
    reader.refuse_unknown(section, KNOWN);
    let (bond, rate) = match bond::of_link(reader, section) {
        Some((bond, rate)) => (Some(bond), Some(rate)),
        // What is wrong with a bond has been reported.
        None if section.has("to") || section.has("path") => (None, None),
        None if section.is("rate", bond::AUTO) => (None, Some(bond::START)),
        None => (None, rate(reader, section)),
    };
    let named =
        reader.choice(section, "discipline", &Discipline::NAMES).and_then(Discipline::from_name);
    let discipline = named.unwrap_or_default();
    let selection = reader.flag(section, "selection");
    let mtu = reader.quantity(section, "mtu", MTU_MIN..=MTU_MAX, "1500 B");
    // One packet must fit; a wrong packet size has already been reported.
    let packet = match mtu {
        Some(mtu) => mtu,
        None if section.has("mtu") => MTU_MIN,
        None => Bytes(1500),
    };
    let burst = reader.quantity(section, "burst", packet..=BURST_MAX, "1500 B");
    let catch_up = reader.quantity(section, "catch_up", Bytes(0)..=CATCH_UP_MAX, "20 kB");
    let queue = reader.quantity(section, "queue", packet..=QUEUE_MAX, "100 kB");
    let remap = reader.quantity(section, "remap", REMAP_MIN..=REMAP_MAX, "10 ms");
    let (nodes, names) = tree::read(reader, section);
    // A wrong discipline has already been reported.
    let known = !section.has("discipline") || named.is_some();
    if known && discipline != Discipline::Hwfq {
        for key in ["tree", "remap"] {
            reader.refuse(section, key, ConfigFault::NotHwfq(discipline.name()));
        }
    }
    let placement = reader.choice(section, "placement", &Placement::NAMES);
    let placement = placement.and_then(Placement::from_name);
    let socket = socket(reader, section);
    let core = reader.integer(section, "core", 0..=1023);
    let device = reader.device(section);
    let carrier = stack::read(reader, section);
    let (share, processors) = stack::reservation(reader, section);
    let stack_delay = stack::firm_delay(reader, section);
    let secret = reader.path(section, "secret", "secret = \"uplink.secret\"");
    let key = reader.path(section, "key", "key = \"uplink.key\"");
    let peer = reader.line(section, "peer", 64, "peer = \"lobby\"").map(str::to_owned);
    if secret.is_some() {
        reader.refuse(section, "key", ConfigFault::SecretAndKey);
    }
    let sending = reader.choice(section, "send", &Sending::NAMES);
    let sending = sending.and_then(Sending::from_name);
    let in_kernel = placement == Some(Placement::Kernel);
    if in_kernel || (placement.is_none() && !section.has("placement")) {
        for key in ["socket", "core"] {
            reader.refuse(section, key, ConfigFault::NeedsCoprocessor);
        }
    }
    if in_kernel {
        refuse_in_kernel(reader, section, nodes.len(), selection);
    } else if bond.is_none() && !section.is("rate", bond::AUTO) {
        reader.refuse(section, "device", ConfigFault::NeedsKernel);
    }

    let steps = step::read(reader, section, placement.unwrap_or_default());

    let mut link = LinkConfig::new(section.name, rate?, discipline);
    link.selection = selection.unwrap_or(link.selection && !in_kernel);
    link.mtu = mtu.unwrap_or(link.mtu);
    link.burst = burst.unwrap_or(link.mtu);
    link.catch_up = catch_up;
    let whole = link.selection || in_kernel;
    link.queue = queue.or_else(|| LinkConfig::default_queue(link.rate, link.mtu, whole));
    link.tree = tree::planted(nodes, remap);
    link.nodes = names;
    link.placement = placement.unwrap_or_default();
    link.socket = socket;
    link.core = core;
    link.device = device;
    link.sending = sending.unwrap_or_default();
    link.stack = carrier.flatten();
    (link.stack_share, link.stack_processors, link.stack_delay) = (share, processors, stack_delay);
    (link.secret, link.key, link.peer) = (secret, key, peer);
    link.is_auto = bond.is_some() || section.is("rate", bond::AUTO);
    link.bond = bond;
    link.steps = steps;
    Some(link)
}

/// Refuses the features that the kernel's programs lack.
fn refuse_in_kernel<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    nodes: usize,
    selection: Option<bool>,
) {
    // The room of `bpf/slots.h`, without the link itself.
    const NODES_MAX: usize = 255;
    if nodes > NODES_MAX {
        let mistake = ConfigFault::TooManyNodes { count: nodes, most: NODES_MAX };
        reader.refuse(section, "tree", mistake);
    }
    if selection == Some(true) {
        reader.refuse(section, "selection", ConfigFault::NotInKernel("selection of frames"));
    }
    for (key, what) in
        [("queue", "a bound of all streams' bytes"), ("send", "a choice of how to send")]
    {
        reader.refuse(section, key, ConfigFault::NotInKernel(what));
    }
}

fn socket<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<String> {
    // The kernel's limit for such addresses, less the byte at the end.
    const LONGEST: usize = 107;
    let example = "socket = \"/run/selvedge/uplink.sock\"";
    let will_do = |path: &str| {
        path.starts_with('/') && path.len() <= LONGEST && !path.contains(char::is_control)
    };
    let path = reader.fit(section, ("socket", example), will_do, ConfigFault::Socket);
    path.map(str::to_owned)
}

pub(super) fn rate<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Bitrate> {
    let example = ("rate = \"6 Mbit/s\"", "6 Mbit/s");
    reader.required_quantity(section, "rate", Bitrate(1)..=RATE_MAX, example)
}
