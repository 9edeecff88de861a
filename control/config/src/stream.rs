//! `[stream.NAME]`.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;

use selvedge_data_stream::{KEYS, Key, Kind, Spec, Values, Window, WindowError, Windows};
use toml::de::DeValue;

use super::destination;
use super::quote::cut;
use super::section::{Entry, Reader, Section, listed};
use super::tree::Nodes;
use super::{
    ConfigFault, Destination, LinkConfig, SourceUri, StreamConfig, knobs, quoted, slot, stack,
};

/// The keys that need more than a look at their own value; the rest are [`KEYS`].
const OWN: &[&str] = &[
    "source",
    "to",
    "link",
    "parent",
    "stack",
    "sdp",
    "thumbnail",
    "rtcp_port",
    "from",
    "knobs",
    "streamlets",
    "sets",
    "streamlet_queue",
];
pub(super) const KNOWN: &[&str] = &known();
const KNOWN_LEN: usize = OWN.len() + KEYS.len();

const fn known() -> [&'static str; KNOWN_LEN] {
    let mut all = [""; KNOWN_LEN];
    let mut n = 0;
    while n < KNOWN_LEN {
        all[n] = if n < OWN.len() { OWN[n] } else { KEYS[n - OWN.len()].name };
        n += 1;
    }
    all
}

/// The ports at which RTCP may arrive: RTP has the one before.
const RTCP_PORTS: RangeInclusive<u16> = 1_025..=u16::MAX;
const KINDS: &[&str] = &["I", "P", "B", "still", "audio", "data", "other"];

/// A stream; `None` if it has no valid source, receiver or link, which has been reported. `trees` are
/// the links' nodes, and `sound` the links, `None` for a link that is not valid itself.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    links: &[&str],
    trees: &[Option<Nodes>],
    sound: &[Option<LinkConfig>],
) -> Option<StreamConfig> {
    reader.refuse_unknown(section, KNOWN);
    let is_slot = section.has("streamlets");
    let slot = slot::read(reader, section);
    let source = match is_slot {
        true if !section.has("source") => Some(SourceUri::Streamlets),
        true => source(reader, section),
        false => {
            let source = source(reader, section);
            let source = from(reader, section, source);
            knobs::read(reader, section, source)
        }
    };
    let link = link(reader, section, links);
    let bond = link.and_then(|link| sound.get(link)?.as_ref()?.bond.as_ref());
    let to = match bond {
        _ if is_slot => slot.as_ref().map(|slot| (slot.groups[0].streamlet.to, None)),
        Some(bond) => {
            reader.refuse(section, "to", ConfigFault::ToOfBond);
            reader.refuse(section, "sdp", ConfigFault::ToOfBond);
            Some((bond.address(), None))
        }
        // What is wrong with the link has been reported, and it may be a bond.
        None if link.is_some_and(|link| sound[link].is_none()) && !section.has("to") => None,
        None => to(reader, section),
    };
    let measured =
        link.and_then(|link| sound.get(link)?.as_ref()).filter(|link| link.is_measured());
    let measured = measured.filter(|link| link.bond.is_none());
    if let Some(link) = measured {
        reader.refuse(section, "stack", ConfigFault::NotMeasured);
        if let (Some((_, Some(_))), Some(entry)) = (&to, reader.entry(section, "to")) {
            reader.report_value(&entry, ConfigFault::MeasuredTo(quoted(&link.name)));
        }
    }
    let tree = link.and_then(|link| trees.get(link)?.as_ref());
    let parent = match (reader.entry(section, "parent"), tree) {
        (Some(entry), Some(tree)) => tree.find(reader, &entry),
        _ => None,
    };
    let mut spec = Spec::new(section.name, UNKNOWN);
    KEYS.iter().for_each(|key| read_key(reader, section, key, &mut spec));
    let sdp = reader.path(section, "sdp", "sdp = \"out/lecture.sdp\"");
    let thumbnail = reader.flag(section, "thumbnail");
    let stack = stack::read(reader, section);
    let rtcp_port = reader.integer(section, "rtcp_port", RTCP_PORTS);
    if measured.is_none() {
        reader.refuse(section, "rtcp_port", ConfigFault::NotReported);
    }

    let (to, output) = to?;
    let default = StreamConfig::new(section.name, source?, to);
    let link = link?;
    let links_own = || sound.get(link)?.as_ref()?.stack.clone();
    spec.to = default.spec.to;
    spec.contract.parent = parent.unwrap_or(spec.contract.parent);
    Some(StreamConfig {
        spec,
        link,
        sdp,
        thumbnail: thumbnail.unwrap_or(default.thumbnail),
        stack: stack.unwrap_or_else(links_own),
        output,
        far: bond.map(|bond| bond.to.clone()),
        is_reported: measured.is_some(),
        rtcp_port,
        slot: slot.map(Arc::new),
        ..default
    })
}

/// The receiver until the real one has been read.
pub(super) const UNKNOWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Reads one key into the spec; without it, or if it is wrong, the default stays.
pub(super) fn read_key<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    key: &'static Key,
    spec: &mut Spec,
) {
    let example = key.example();
    match key.values {
        Values::Integer(least, most, set) => {
            if let Some(number) = reader.integer(section, key.name, least..=most) {
                set(spec, number);
            }
        }
        Values::Flag(set) => {
            if let Some(flag) = reader.flag(section, key.name) {
                set(spec, flag);
            }
        }
        Values::Word(words, set) => {
            let word = reader.choice(section, key.name, words);
            if let Some(word) = words.iter().position(|one| Some(*one) == word) {
                set(spec, word);
            }
        }
        Values::Duration(least, most, none, set) => {
            let Some(entry) = reader.entry(section, key.name) else { return };
            if none.is_some() && entry.value.as_str() == none {
                set(spec, None);
            } else if let Some(duration) = reader.quantity_of(&entry, least..=most, example) {
                set(spec, Some(duration));
            }
        }
        Values::Bytes(least, most, set) => {
            if let Some(size) = reader.quantity(section, key.name, least..=most, example) {
                set(spec, size);
            }
        }
        Values::Text(most, set) => {
            if let Some(text) = reader.line(section, key.name, most, example) {
                set(spec, text);
            }
        }
        Values::Windows(set) => {
            if let Some(windows) = windows(reader, section, key.name) {
                set(spec, windows);
            }
        }
    }
}

fn source<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<SourceUri> {
    const EXAMPLE: &str = "source = \"file:clips/lecture.mp4\"";
    let entry = reader.required(section, "source", EXAMPLE)?;
    let text = reader.text(&entry, EXAMPLE)?;
    text.parse().map_err(|error| reader.report_value(&entry, ConfigFault::Source(error))).ok()
}

/// The source, restricted to the sender that the stream names.
fn from<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    source: Option<SourceUri>,
) -> Option<SourceUri> {
    let Some(entry) = reader.entry(section, "from") else { return source };
    let text = reader.text(&entry, "from = \"192.0.2.7\"")?;
    let mut source = source?;
    let kept = text.parse().ok().is_some_and(|sender| source.keep_to(sender));
    if !kept {
        reader.report_value(&entry, ConfigFault::Sender(quoted(text)));
    }
    kept.then_some(source)
}

fn to<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
) -> Option<(SocketAddr, Option<Destination>)> {
    const EXAMPLE: &str = "to = \"rtp://127.0.0.1:5004\"";
    let entry = reader.required(section, "to", EXAMPLE)?;
    let text = reader.text(&entry, EXAMPLE)?;
    destination::read(text)
        .map_err(|error| reader.report_value(&entry, ConfigFault::Destination(error)))
        .ok()
}

/// The index of the link among all. A file without any links has already been reported.
fn link<'t>(reader: &mut Reader<'t>, section: &Section<'t>, links: &[&str]) -> Option<usize> {
    let Some(entry) = reader.entry(section, "link") else {
        if links.len() > 1 {
            let mistake = ConfigFault::WhichLink(listed(links));
            reader.report(section.at, &section.path_of("link"), mistake);
        }
        return (links.len() == 1).then_some(0);
    };
    if links.is_empty() {
        return None;
    }
    reader.find(&entry, ("link", "link = \"uplink\""), links)
}

fn windows<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    key: &'static str,
) -> Option<Windows> {
    let entry = reader.entry(section, key)?;
    if !matches!(entry.value, DeValue::Table(_)) {
        return window(reader, &entry).map(Windows::Whole);
    }
    let table = reader.section(section, key, "window = \"1/5\"")?;
    reader.refuse_unknown(&table, KINDS);
    if table.is_empty() {
        reader.report_value(&entry, ConfigFault::NoKinds);
    }
    let mut of = |key| reader.entry(&table, key).and_then(|entry| window(reader, &entry));
    let other = of("other").unwrap_or(Window { lose: 0, of: 1 });
    Some(Windows::PerKind(Kind::ALL.map(|kind| of(kind.name()).unwrap_or(other))))
}

fn window<'t>(reader: &mut Reader<'t>, entry: &Entry<'t>) -> Option<Window> {
    let text = reader.text(entry, "\"x/y\" in quotes, such as \"1/5\"")?;
    let error = match text.parse::<Window>() {
        Ok(window) => return Some(window),
        Err(WindowError::Malformed(text)) => WindowError::Malformed(cut(&text)),
        Err(error) => error,
    };
    reader.report_value(entry, ConfigFault::Window(error));
    None
}
