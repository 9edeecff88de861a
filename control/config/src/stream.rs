//! `[stream.NAME]`, and `[stream.NAME.receiver.NAME]`: each further receiver is a stream of its own that shares the
//! source's frames.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;

use selvedge_data_stream::{KEYS, Key, Kind, Spec, Values, WhenFull, Window, WindowError, Windows};
use toml::de::DeValue;

use super::destination;
use super::quote::cut;
use super::section::{Entry, NamedTables, Reader, Section, listed};
use super::tree::Nodes;
use super::{
    Asks, ConfigFault, Destination, LinkConfig, Placement, SourceUri, StreamConfig, Token, knobs,
    page, quoted, slot, stack,
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
    "receiver",
    "receivers",
];
/// The same of a further receiver; the rest are [`KEYS`].
const RECEIVER_OWN: &[&str] = &["to", "link", "parent", "sdp", "rtcp_port"];
pub(super) const KNOWN: &[&str] = &known::<{ OWN.len() + KEYS.len() }>(OWN);
pub(super) const RECEIVER_KNOWN: &[&str] =
    &known::<{ RECEIVER_OWN.len() + KEYS.len() }>(RECEIVER_OWN);

const fn known<const LEN: usize>(own: &[&'static str]) -> [&'static str; LEN] {
    let mut all = [""; LEN];
    let mut n = 0;
    while n < LEN {
        all[n] = if n < own.len() { own[n] } else { KEYS[n - own.len()].name };
        n += 1;
    }
    all
}

/// The keys of what receivers that ask may have, and the most of them.
const ASKS_KNOWN: &[&str] = &["token", "most"];
const ASKS_EXAMPLE: &str = "receivers = { token = \"...\", most = 10 }";
const ASKERS_RANGE: RangeInclusive<usize> = 1..=1000;
/// The most further receivers of a stream.
pub(super) const RECEIVERS_MAX: usize = 1024;
const RECEIVERS: NamedTables = NamedTables {
    key: "receiver",
    what: "receiver",
    example: "[stream.lecture.receiver.hall] with to",
    is_required: false,
    most: RECEIVERS_MAX,
    of: "stream",
};

/// The ports at which RTCP may arrive: RTP has the one before.
const RTCP_PORTS: RangeInclusive<u16> = 1_025..=u16::MAX;
const KINDS: &[&str] = &["I", "P", "B", "still", "audio", "data", "other"];

/// The links of a file, for its streams.
pub(super) struct Links<'a> {
    pub(super) names: &'a [&'a str],
    /// Their nodes.
    pub(super) trees: &'a [Option<Nodes>],
    /// Those that are valid themselves.
    pub(super) sound: &'a [Option<LinkConfig>],
}

/// A stream, and its further receivers; `None` if one has no valid source, receiver or link, which has been reported.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    links: &Links<'_>,
) -> Option<Vec<StreamConfig>> {
    let tables = reader.named(section, &RECEIVERS);
    // Without `to` it is sent to its receivers alone.
    let is_sent = tables.is_empty() || section.has("to");
    let stream = own(reader, section, links, is_sent);
    let has_link = section.has("link") || links.names.len() == 1;
    let receivers: Vec<_> = tables
        .iter()
        .map(|table| receiver(reader, table, links, stream.as_ref(), has_link))
        .collect();
    let asks = asks(reader, section);
    let shares = !tables.is_empty() || asks.is_some();
    let stream = stream.map(|stream| StreamConfig { shares, ..stream })?;
    let receivers = receivers.into_iter().collect::<Option<Vec<_>>>()?;
    let like = StreamConfig { sdp: None, rtcp_port: None, output: None, ..stream.clone() };
    let mut all: Vec<_> = is_sent.then_some(stream).into_iter().chain(receivers).collect();
    if let (Some((token, most)), Some(first)) = (asks, all.first_mut()) {
        first.asks = Some(Arc::new(Asks { token, most, like }));
    }
    Some(all)
}

/// Who may ask for the stream's frames, and how many of them.
fn asks<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<(Token, usize)> {
    let table = reader.section(section, "receivers", ASKS_EXAMPLE)?;
    reader.refuse_unknown(&table, ASKS_KNOWN);
    reader.required(&table, "token", ASKS_EXAMPLE);
    let most = reader.integer(&table, "most", ASKERS_RANGE);
    Some((page::token(reader, &table, "token")?, most.unwrap_or(100)))
}

/// What a receiver needs of its link.
struct Route<'a> {
    link: Option<usize>,
    to: Option<(SocketAddr, Option<Destination>)>,
    far: Option<&'a str>,
    is_measured: bool,
    parent: Option<u32>,
}

/// A further receiver of a stream: what its table leaves out is as in the stream's.
fn receiver<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    links: &Links<'_>,
    stream: Option<&StreamConfig>,
    has_link: bool,
) -> Option<StreamConfig> {
    reader.refuse_unknown(section, RECEIVER_KNOWN);
    let default = stream.filter(|_| has_link && !section.has("link")).map(|stream| stream.link);
    let at = default.or_else(|| link(reader, section, links.names));
    let route = route(reader, section, links, at, true);
    let mut spec = stream.map_or_else(|| Spec::new("", UNKNOWN), |stream| stream.spec.clone());
    KEYS.iter().for_each(|key| read_key(reader, section, key, &mut spec));
    let sdp = reader.path(section, "sdp", "sdp = \"out/lecture.sdp\"");
    let rtcp_port = reader.integer(section, "rtcp_port", RTCP_PORTS);
    let stream = stream?;
    let (to, output) = route.to?;
    spec.name = format!("{}/{}", stream.spec.name, section.name);
    spec.to = to;
    spec.contract.parent = route.parent.unwrap_or(0);
    let link = route.link?;
    Some(StreamConfig {
        spec,
        link,
        sdp,
        output,
        far: route.far.map(str::to_owned),
        is_reported: route.is_measured,
        rtcp_port,
        stack: links.sound.get(link)?.as_ref()?.stack.clone(),
        shares: true,
        ..stream.clone()
    })
}

/// The stream of a table, whether or not it is itself sent anywhere.
fn own<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    links: &Links<'_>,
    is_sent: bool,
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
    let at = match is_sent || section.has("link") || links.names.len() == 1 {
        true => link(reader, section, links.names),
        false => Some(0),
    };
    let route = route(reader, section, links, at, is_sent && !is_slot);
    let to = match is_slot {
        true => slot.as_ref().map(|slot| (slot.groups[0].streamlet.to, None)),
        false => route.to,
    };
    let mut spec = Spec::new(section.name, UNKNOWN);
    KEYS.iter().for_each(|key| read_key(reader, section, key, &mut spec));
    let sdp = reader.path(section, "sdp", "sdp = \"out/lecture.sdp\"");
    let thumbnail = reader.flag(section, "thumbnail");
    let stack = stack::read(reader, section);
    let rtcp_port = reader.integer(section, "rtcp_port", RTCP_PORTS);

    let (to, output) = to?;
    let default = StreamConfig::new(section.name, source?, to);
    let link = route.link?;
    let links_own = || links.sound.get(link)?.as_ref()?.stack.clone();
    spec.to = default.spec.to;
    spec.contract.parent = route.parent.unwrap_or(spec.contract.parent);
    Some(StreamConfig {
        spec,
        link,
        sdp,
        thumbnail: thumbnail.unwrap_or(default.thumbnail),
        stack: stack.unwrap_or_else(links_own),
        output,
        far: route.far.map(str::to_owned),
        is_reported: route.is_measured,
        rtcp_port,
        slot: slot.map(Arc::new),
        ..default
    })
}

/// Reads where a receiver is reached, over this link. Without a receiver it reads the rest alone.
fn route<'t, 'a>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    links: &Links<'a>,
    link: Option<usize>,
    is_sent: bool,
) -> Route<'a> {
    let sound = links.sound;
    let bond = link.and_then(|link| sound.get(link)?.as_ref()?.bond.as_ref());
    let to = match bond {
        _ if !is_sent => Some((UNKNOWN, None)),
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
    if measured.is_none() {
        reader.refuse(section, "rtcp_port", ConfigFault::NotReported);
    }
    let tree = link.and_then(|link| links.trees.get(link)?.as_ref());
    let parent = match (reader.entry(section, "parent"), tree) {
        (Some(entry), Some(tree)) => tree.find(reader, &entry),
        _ => None,
    };
    let (far, is_measured) = (bond.map(|bond| &*bond.to), measured.is_some());
    Route { link, to, far, is_measured, parent }
}

/// Why a stream can't share its source's frames with other receivers on this link, if so; and the key that is to blame.
pub(super) fn find_conflict(
    stream: &StreamConfig,
    link: &LinkConfig,
) -> Option<(&'static str, &'static str)> {
    let sends = !link.is_measured() && link.stack.is_none();
    match stream {
        StreamConfig { asks: Some(_), .. } if !sends => Some((
            "receivers",
            "those that ask need a link with a stated rate and without a stack or bond",
        )),
        _ if !stream.shares => None,
        StreamConfig { slot: Some(_), .. } => {
            Some(("receiver", "streamlets are receivers already"))
        }
        _ if link.placement != Placement::Inline => Some((
            "link",
            "its memory can't be shared with that placement; write a link with \
                   placement = \"inline\"",
        )),
        _ if stream.spec.full == WhenFull::Block => {
            Some(("full", "one that waits would hold up all others; write full = \"drop\""))
        }
        _ => None,
    }
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
