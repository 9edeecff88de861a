//! `[stream.NAME]`.

use selvedge_data_stream::{Class, Kind, Late, Window, WindowError, Windows};
use selvedge_units::{Bytes, Span};
use toml::de::DeValue;

use super::address;
use super::mistake::cut;
use super::nearest::nearest;
use super::section::{Entry, Reader, Section};
use super::tree::Nodes;
use super::{LinkConfig, Mistake, SourceUri, StreamConfig, WhenFull, quoted, stack};

pub(super) const KNOWN: &[&str] = &[
    "source",
    "to",
    "link",
    "period",
    "window",
    "late",
    "work_conserving",
    "weight",
    "priority",
    "class",
    "parent",
    "delay",
    "ring",
    "pool",
    "full",
    "sdp",
    "thumbnail",
    "stack",
];
const CLASSES: &[&str] = &[Class::Edf.name(), Class::Priority.name(), Class::Fair.name()];
const KINDS: &[&str] = &["I", "P", "B", "still", "audio", "data", "other"];
const PERIOD_LEAST: Span = Span::from_micros(100);
const PERIOD_MOST: Span = Span::from_secs(3600);
const DELAY_LEAST: Span = Span::from_millis(1);
const DELAY_MOST: Span = Span::from_secs(600);
const POOL_LEAST: Bytes = Bytes(64_000);
const POOL_MOST: Bytes = Bytes(1_000_000_000);
/// Links that a message names.
const NAMED_LINKS: usize = 8;

/// A stream; `None` if it has no sound source, receiver or link, which has been reported. `trees`
/// are the links' nodes, and `sound` the links, `None` of a link that is not sound itself.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    links: &[&str],
    trees: &[Option<Nodes>],
    sound: &[Option<LinkConfig>],
) -> Option<StreamConfig> {
    reader.refuse_unknown(section, KNOWN);
    let source = source(reader, section);
    let to = to(reader, section);
    let link = link(reader, section, links);
    let period = period(reader, section);
    let windows = windows(reader, section);
    let late = reader.choice(section, "late", &["drop", "send"]);
    let work_conserving = reader.flag(section, "work_conserving");
    let weight = reader.integer(section, "weight", 1..=1000);
    let priority = reader.integer(section, "priority", -1000..=1000);
    let class = reader.choice(section, "class", CLASSES);
    let tree = link.and_then(|link| trees.get(link)?.as_ref());
    let parent = match (reader.entry(section, "parent"), tree) {
        (Some(entry), Some(tree)) => tree.find(reader, &entry),
        _ => None,
    };
    let delay = reader.quantity(section, "delay", DELAY_LEAST..=DELAY_MOST, "1 s");
    let ring = reader.integer(section, "ring", 2..=65_536);
    let pool = reader.quantity(section, "pool", POOL_LEAST..=POOL_MOST, "4 MB");
    let full = reader.choice(section, "full", &["drop", "block"]);
    let sdp = sdp(reader, section);
    let thumbnail = reader.flag(section, "thumbnail");
    let stack = stack::read(reader, section);

    let default = StreamConfig::new(section.name, source?, to?);
    let link = link?;
    let links_own = || sound.get(link)?.as_ref()?.stack.clone();
    Some(StreamConfig {
        link,
        period,
        windows: windows.unwrap_or(default.windows),
        late: late.map_or(default.late, |l| if l == "send" { Late::Send } else { Late::Drop }),
        work_conserving: work_conserving.unwrap_or(default.work_conserving),
        weight: weight.unwrap_or(default.weight),
        priority: priority.unwrap_or(default.priority),
        class: class.and_then(Class::from_name).unwrap_or(default.class),
        parent: parent.unwrap_or(default.parent),
        delay: delay.unwrap_or(default.delay),
        ring: ring.unwrap_or(default.ring),
        pool: pool.unwrap_or(default.pool),
        full: full
            .map_or(default.full, |f| if f == "block" { WhenFull::Block } else { WhenFull::Drop }),
        sdp,
        thumbnail: thumbnail.unwrap_or(default.thumbnail),
        stack: stack.unwrap_or_else(links_own),
        ..default
    })
}

fn source<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<SourceUri> {
    const EXAMPLE: &str = "source = \"file:clips/lecture.mp4\"";
    let entry = reader.required(section, "source", EXAMPLE)?;
    let text = reader.text(&entry, EXAMPLE)?;
    text.parse().map_err(|error| reader.refuse(&entry, Mistake::Source(error))).ok()
}

fn to<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<std::net::SocketAddr> {
    const EXAMPLE: &str = "to = \"rtp://127.0.0.1:5004\"";
    let entry = reader.required(section, "to", EXAMPLE)?;
    let text = reader.text(&entry, EXAMPLE)?;
    address::receiver(text).map_err(|error| reader.refuse(&entry, Mistake::Address(error))).ok()
}

/// The index of the link among all. If the file has no links at all, that has been said.
fn link<'t>(reader: &mut Reader<'t>, section: &Section<'t>, links: &[&str]) -> Option<usize> {
    let first_few = || links.iter().take(NAMED_LINKS).map(|&name| cut(name)).collect();
    let Some(entry) = reader.entry(section, "link") else {
        if links.len() > 1 {
            let mistake = Mistake::WhichLink { links: first_few() };
            reader.report(section.at, &section.path_of("link"), mistake);
        }
        return (links.len() == 1).then_some(0);
    };
    let name = reader.text(&entry, "link = \"uplink\"")?;
    let index = links.iter().position(|&link| link == name);
    if index.is_none() && !links.is_empty() {
        // Comparing with every link costs; past the last message that is kept, nobody reads it.
        let compared = if reader.errors.is_full() { &[] } else { links };
        let nearest = nearest(name, compared.iter().copied()).map(cut);
        let links = first_few();
        reader.refuse(&entry, Mistake::NoSuchLink { name: quoted(name), nearest, links });
    }
    index
}

fn period<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Span> {
    let entry = reader.entry(section, "period")?;
    if entry.value.as_str() == Some("auto") {
        return None;
    }
    reader.quantity_of(&entry, PERIOD_LEAST..=PERIOD_MOST, "40 ms")
}

fn windows<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Windows> {
    let entry = reader.entry(section, "window")?;
    if !matches!(entry.value, DeValue::Table(_)) {
        return window(reader, &entry).map(Windows::Whole);
    }
    let table = reader.section(section, "window", "window = \"1/5\"")?;
    reader.refuse_unknown(&table, KINDS);
    if table.is_empty() {
        reader.refuse(&entry, Mistake::NoKinds);
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
    reader.refuse(entry, Mistake::Window(error));
    None
}

fn sdp<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<String> {
    let entry = reader.entry(section, "sdp")?;
    let path = reader.text(&entry, "sdp = \"out/lecture.sdp\"")?;
    if path.is_empty() || path.len() > 4096 || path.contains(char::is_control) {
        reader.refuse(&entry, Mistake::Path { value: quoted(path) });
        return None;
    }
    Some(path.to_owned())
}
