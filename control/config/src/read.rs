//! A whole node file: its tables, and the rules that hold between them.

use std::collections::{BTreeSet, HashMap};

use selvedge_data_stream::{WhenFull, Windows};
use selvedge_units::nearest;
use toml::de::DeTable;

use super::position::Lines;
use super::quote::cut;
use super::section::{NamedTables, Reader, Section, listed, path};
use super::tree::Nodes;
use super::{
    BondConfig, ConfigErrors, ConfigFault, LinkConfig, NodeConfig, PageConfig, Placement, Position,
    SourceMap, SourceUri, StreamConfig, bond, destination, link, page, quoted, slot, stack, stream,
    stream_table, syntax, tunnel,
};

/// The longest file that is read, in bytes: 4 MiB.
pub const LONGEST_FILE: usize = 4 << 20;
/// The most links of a node.
pub const LINKS_MAX: usize = 256;
/// The most streams of a node.
pub const STREAMS_MAX: usize = 4096;

/// The longest name of a stream in the kernel, in bytes.
const NAME_IN_KERNEL: usize = 31;

const LINKS: NamedTables = NamedTables {
    key: "link",
    what: "link",
    example: "[link.uplink] with rate = \"6 Mbit/s\"",
    is_required: true,
    most: LINKS_MAX,
    of: "node",
};
const STREAMS: NamedTables = NamedTables {
    key: "stream",
    what: "stream",
    example: "[stream.lecture] with source and to",
    most: STREAMS_MAX,
    ..LINKS
};

/// A node file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// Its contents.
    pub config: NodeConfig,
    /// The places of its keys.
    pub map: SourceMap,
}

/// Reads the text of a node file. `file_name` is for messages only. O(length of the text).
///
/// # Errors
/// All mistakes that were found; the file is then not valid at all.
pub fn parse(text: &str, file_name: &str) -> Result<Parsed, ConfigErrors> {
    let (config, map) = read_tables(text, file_name, node)?;
    Ok(Parsed { config, map })
}

/// Reads the tables of a file by this function, which reports what is wrong with them.
pub(super) fn read_tables<T>(
    text: &str,
    file_name: &str,
    read: impl for<'t> FnOnce(&mut Reader<'t>, &'t DeTable<'t>) -> Option<T>,
) -> Result<(T, SourceMap), ConfigErrors> {
    let mut errors = ConfigErrors::new(file_name);
    if text.len() > LONGEST_FILE {
        let mistake = ConfigFault::FileTooLarge { len: text.len(), most: LONGEST_FILE };
        errors.push(Position::START, "", mistake);
        return Err(errors);
    }
    let lines = Lines::new(text);
    let Some(tables) = syntax::tables(text, &lines, &mut errors) else { return Err(errors) };
    let mut reader = Reader { lines, map: SourceMap::default(), errors };
    match read(&mut reader, &tables) {
        Some(config) if reader.errors.is_empty() => Ok((config, reader.map)),
        _ => Err(reader.errors),
    }
}

fn node<'t>(reader: &mut Reader<'t>, tables: &'t DeTable<'t>) -> Option<NodeConfig> {
    let root = Section::root(tables);
    reader.refuse_unknown(&root, &["node", "link", "bond", "stream", "tunnel"]);
    let (name, page) = header(reader, &root);

    // Tunnels are streams, and at the far end links as well.
    let is_required = !root.has("tunnel");
    let tables = reader.named(&root, &NamedTables { is_required, ..LINKS });
    let link_names: Vec<&str> = tables.iter().map(|table| table.name).collect();
    let links: Vec<Option<LinkConfig>> =
        tables.iter().map(|table| link::read(reader, table)).collect();
    let trees: Vec<Option<Nodes>> =
        links.iter().map(|link| link.as_ref().map(|link| Nodes::new(&link.nodes))).collect();

    let bonds = bond::read(reader, &root);
    let tables = reader.named(&root, &NamedTables { is_required, ..STREAMS });
    let of = stream::Links { names: &link_names, trees: &trees, sound: &links };
    let streams: Vec<Option<Vec<StreamConfig>>> =
        tables.iter().map(|table| stream::read(reader, table, &of)).collect();
    refuse_shared(reader, streams.iter().flatten().flatten());

    let mut links = links.into_iter().collect::<Option<Vec<_>>>()?;
    let mut streams = streams.into_iter().collect::<Option<Vec<_>>>()?.concat();
    if streams.len() > STREAMS_MAX {
        let (count, most) = (streams.len(), STREAMS_MAX);
        let mistake = ConfigFault::TooMany { count, what: "stream", of: "node", most };
        reader.errors.push_key(&reader.map, "stream", mistake);
    }
    for stream in &streams {
        refuse_unknown_bond(reader, stream, &bonds);
        let link = &links[stream.link];
        if let Some((key, mistake)) = stack::find_conflict(stream, link) {
            let inherits = key == "stack" && link.stack == stream.stack;
            let table =
                if inherits { path("link", &link.name) } else { stream_table(&stream.spec.name) };
            reader.errors.push_key(&reader.map, &path(&table, key), mistake);
        }
        if let Some((key, error)) = destination::find_conflict(stream, link) {
            let key = path(&stream_table(&stream.spec.name), key);
            reader.errors.push_key(&reader.map, &key, ConfigFault::Destination(error));
        }
        if let Some(mistake) = slot::find_conflict(stream, link) {
            let key = path(&stream_table(&stream.spec.name), "streamlets");
            reader.errors.push_key(&reader.map, &key, mistake);
        }
        if let Some((key, why)) = stream::find_conflict(stream, link) {
            let key = path(&stream_table(&stream.spec.name), key);
            reader.errors.push_key(&reader.map, &key, ConfigFault::Receivers(why));
        }
        let reads = link.placement == Placement::CoprocessorReads;
        if reads && !matches!(stream.source, SourceUri::Record { .. }) {
            let key = path(&stream_table(&stream.spec.name), "source");
            let mistake = ConfigFault::NotReadable(cut(&link.name));
            reader.errors.push_key(&reader.map, &key, mistake);
        }
        if link.placement == Placement::Kernel {
            let table = stream_table(&stream.spec.name);
            if matches!(stream.spec.contract.windows, Windows::PerKind(_)) {
                let key = path(&table, "window");
                reader.errors.push_key(&reader.map, &key, ConfigFault::KindsInKernel);
            }
            if stream.spec.name.len() > NAME_IN_KERNEL {
                let mistake = ConfigFault::LongInKernel(stream.spec.name.len());
                reader.errors.push_key(&reader.map, &table, mistake);
            }
        }
    }
    let tunnels = tunnel::read(reader, &root, &bonds, (&mut links, &mut streams));
    Some(NodeConfig { name, page, links, bonds, tunnels, streams })
}

/// Refuses a source of which there is no far end.
fn refuse_unknown_bond(reader: &mut Reader<'_>, stream: &StreamConfig, bonds: &[BondConfig]) {
    let SourceUri::Bond { bond, .. } = &stream.source else { return };
    if stream.spec.full == WhenFull::Block {
        let key = path(&stream_table(&stream.spec.name), "full");
        reader.errors.push_key(&reader.map, &key, ConfigFault::BondWaits);
    }
    if bonds.iter().any(|other| other.name == *bond) {
        return;
    }
    let names: Vec<&str> = bonds.iter().map(|bond| &*bond.name).collect();
    let nearest = nearest(bond, names.iter().copied()).map(cut);
    let (name, known) = (quoted(bond), listed(&names));
    let key = path(&stream_table(&stream.spec.name), "source");
    let mistake = ConfigFault::NoSuch { what: "bond", name, nearest, known };
    reader.errors.push_key(&reader.map, &key, mistake);
}

/// `[node]`: its name, and how its page is served.
fn header<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> (String, PageConfig) {
    let default_name = || "selvedge".to_owned();
    let Some(section) = reader.section(root, "node", "[node] on a line of its own") else {
        return (default_name(), PageConfig::default());
    };
    reader.refuse_unknown(&section, page::KNOWN);

    let name = reader.own_name(&section, "name = \"studio\"").map(str::to_owned);
    (name.unwrap_or_else(default_name), page::read(reader, &section))
}

/// Refuses two streams that send to one address, unless they are picture and sound of one output; that
/// listen at one address; or that write one file. Refuses a stream that feeds itself.
fn refuse_shared<'s>(reader: &mut Reader<'_>, streams: impl Iterator<Item = &'s StreamConfig>) {
    let mut receivers = TakenName { used: "sent to by", key: "to", by: HashMap::new() };
    let mut listeners = TakenName { used: "listened at by", key: "source", by: HashMap::new() };
    let mut files = TakenName { used: "written by", key: "sdp", by: HashMap::new() };
    let mut sources: BTreeSet<&str> = BTreeSet::new();
    let mut outputs: HashMap<(&str, &str), Vec<&StreamConfig>> = HashMap::new();
    for stream in streams {
        match stream.output.as_ref().filter(|to| to.scheme() != "rtp") {
            Some(to) => {
                let shared = outputs.entry((to.reveal(), to.path().unwrap_or_default()));
                let shared = shared.or_default();
                refuse_together(reader, stream, shared);
                shared.push(stream);
            }
            None if stream.slot.is_some() => {}
            None => receivers.take(reader, stream.receiver(), &stream.spec.name),
        }
        if let Some(slot) = &stream.slot {
            let to: BTreeSet<_> = slot.streamlets().map(|streamlet| streamlet.to).collect();
            for to in to {
                receivers.take_as("streamlets", reader, format!("rtp://{to}"), &stream.spec.name);
            }
            for from in slot.listeners() {
                listeners.take_as("streamlets", reader, from.to_string(), &stream.spec.name);
            }
        }
        if let Some(path) = &stream.sdp {
            files.take(reader, path.clone(), &stream.spec.name);
        }
        // Receivers of one source listen once.
        let listens = !stream.shares || sources.insert(stream.source_name());
        if let SourceUri::Network(url) = &stream.source
            && listens
            && url.scheme() == "udp"
        {
            listeners.take(reader, url.to_string(), &stream.spec.name);
        }
        if let SourceUri::Rtp { listen, .. } = stream.source {
            if listens {
                listeners.take(reader, listen.to_string(), &stream.spec.name);
            }
            let any = listen.ip().is_unspecified() && stream.spec.to.ip().is_loopback();
            if listen == stream.spec.to || (any && listen.port() == stream.spec.to.port()) {
                let key = path(&stream_table(&stream.spec.name), "to");
                reader.errors.push_key(&reader.map, &key, ConfigFault::Loop(stream.spec.to));
            }
        }
    }
}

/// One output takes a picture and a sound, of one link, which pays for both.
fn refuse_together(reader: &mut Reader<'_>, stream: &StreamConfig, others: &[&StreamConfig]) {
    let Some(first) = others.first() else { return };
    let why = if others.len() > 1 {
        "and takes one picture and one sound; give this stream another destination"
    } else if first.link != stream.link {
        "over another link; write the same link in both, or give this stream another destination"
    } else {
        return;
    };
    let key_of = |stream: &StreamConfig| path(&stream_table(&stream.spec.name), "to");
    let line = reader.map.at(&key_of(first)).map_or(1, |at| at.line);
    let (what, other) = (cut(&first.receiver()), cut(&first.spec.name));
    let mistake = ConfigFault::Together { what, other, line, why };
    reader.errors.push_key(&reader.map, &key_of(stream), mistake);
}

/// Addresses or paths, and the stream that took each.
struct TakenName<'s> {
    used: &'static str,
    key: &'static str,
    /// Each with the stream, and the key of it that names it.
    by: HashMap<String, (&'s str, &'static str)>,
}

impl<'s> TakenName<'s> {
    fn take(&mut self, reader: &mut Reader<'_>, what: String, stream: &'s str) {
        self.take_as(self.key, reader, what, stream);
    }

    /// The same by another key.
    fn take_as(
        &mut self,
        key: &'static str,
        reader: &mut Reader<'_>,
        what: String,
        stream: &'s str,
    ) {
        let key_of = |name, key| path(&stream_table(name), key);
        let Some(&(other, others)) = self.by.get(&what) else {
            self.by.insert(what, (stream, key));
            return;
        };
        let line = reader.map.at(&key_of(other, others)).map_or(1, |at| at.line);
        let (what, used, whose, other) = (cut(&what), self.used, "stream", cut(other));
        let mistake = ConfigFault::Taken { what, used, whose, other, line };
        reader.errors.push_key(&reader.map, &key_of(stream, key), mistake);
    }
}
