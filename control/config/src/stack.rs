//! `stack`: the protocol stack that carries a stream's packets in place of plain UDP, for one stream or
//! a whole link.

use std::net::SocketAddr;

use selvedge_data_net_secure::OVERHEAD;
use selvedge_data_stack::compose::{Composition, Fit};
use selvedge_data_stack::load::Load;
use selvedge_units::{Bytes, Duration};

use super::section::{Entry, Reader, Section};
use super::{ConfigFault, LinkConfig, Placement, StreamConfig};

/// The least that a stack must leave of each datagram for a packet of a frame.
pub const CARRIED_MIN: Bytes = Bytes(256);
const DELAY_MIN: Duration = Duration::from_micros(100);
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The text by which a stream declines the stack of its link.
const NONE: &str = "none";
pub(super) const EXAMPLE: &str = "stack = \"ui | reliable | frag(1400) | net\"";

/// How the packets of a stream to this address fit into its stack's datagrams.
#[must_use]
pub fn carried(stack: &Composition, link: &LinkConfig, to: SocketAddr) -> Fit {
    fit(stack, link.mtu, link.is_encrypted(), to)
}

/// The same on a link of this MTU, on which packets are encrypted or not.
#[must_use]
pub fn fit(stack: &Composition, mtu: Bytes, is_encrypted: bool, to: SocketAddr) -> Fit {
    let below = if to.is_ipv6() { 48 } else { 28 };
    let sealing = if is_encrypted { OVERHEAD as u64 } else { 0 };
    let Fit { message, headers } = stack.fit(Bytes(mtu.0.saturating_sub(below + sealing)));
    Fit { message, headers: Bytes(headers.0 + sealing) }
}

/// The key of a link or a stream: absent, `"none"`, or a stack. An invalid stack is reported.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
) -> Option<Option<Composition>> {
    let entry = reader.entry(section, "stack")?;
    let line = reader.text(&entry, EXAMPLE)?;
    if line == NONE {
        return Some(None);
    }
    composition(reader, &entry).map(Some)
}

/// The processor time of a link's stacks: `stack_share` and `stack_processors`. Invalid ones are reported.
pub(super) fn reservation<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
) -> (Option<Load>, Vec<usize>) {
    let share = reader.entry(section, "stack_share").and_then(|entry| {
        let read = reader.text(&entry, "stack_share = \"30 %\"")?.parse();
        read.map_err(|error| reader.report_value(&entry, ConfigFault::Share(error))).ok()
    });
    let processors = reader.entry(section, "stack_processors").and_then(|entry| {
        let wanted = ("an array of 1 to 64 processors", "stack_processors = [2, 3]");
        let elements = reader.elements(&entry, 1..=64, wanted)?;
        elements.iter().map(|one| reader.integer_of(one, 0..=1023)).collect()
    });
    if !section.has("stack_share") {
        reader.refuse(section, "stack_processors", ConfigFault::NeedsShare);
    }
    (share, processors.unwrap_or_default())
}

/// The firm delay of a link's stacks, `stack_delay`. An invalid one is reported.
pub(super) fn firm_delay<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Duration> {
    if !section.has("stack_share") {
        reader.refuse(section, "stack_delay", ConfigFault::DelayNeedsShare);
    }
    reader.quantity(section, "stack_delay", DELAY_MIN..=DELAY_MAX, "20 ms")
}

/// The stack of an entry. An invalid one is reported.
pub(super) fn composition<'t>(reader: &mut Reader<'t>, entry: &Entry<'t>) -> Option<Composition> {
    let read = reader.text(entry, EXAMPLE)?.parse();
    read.map_err(|error| reader.report_value(entry, ConfigFault::Stack(error))).ok()
}

/// The mistake in a stream's stack on its link, if any; and the key that is to blame.
pub(super) fn find_conflict(
    stream: &StreamConfig,
    link: &LinkConfig,
) -> Option<(&'static str, ConfigFault)> {
    let stack = stream.stack.as_ref()?;
    if link.placement == Placement::Kernel {
        return Some(("stack", ConfigFault::StackElsewhere(link.placement.name())));
    }
    if stream.sdp.is_some() {
        return Some(("sdp", ConfigFault::SdpOfStack));
    }
    let room = carried(stack, link, stream.spec.to).message;
    (room < CARRIED_MIN).then_some(("stack", ConfigFault::StackRoom { room, least: CARRIED_MIN }))
}
