//! `streamlets` and `sets` of `[stream.NAME]`: many small streams that share one slot of a link's scheduler, and
//! its one contract (ShareStreams, section 5.1 "Stream aggregation").
//!
//! Tables that stand for many streamlets stay what they are: the addresses of each are computed.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use selvedge_data_sched::aggregate::{Aggregate, SetError, SetLoad, turns};
use selvedge_units::{Bytes, Duration};
use serde::{Deserialize, Serialize};

use super::address::{listen, receiver};
use super::quote::cut;
use super::section::{Entry, Reader, Section};
use super::source::options;
use super::{
    ConfigFault, DestinationError, LinkConfig, Placement, SourceError, StreamConfig, quoted,
};

/// The most streamlets of one stream.
pub const STREAMLETS_MAX: u32 = 1 << 17;
/// The most addresses at which the streamlets of one stream receive.
pub const LISTENERS_MAX: usize = 256;

/// The most frames of one streamlet that wait.
const QUEUE_MAX: u32 = 1024;
/// What the node keeps of a streamlet without frames: its queue, counters, and frame numbers.
pub const STREAMLET_MEMORY: Bytes = Bytes(256);

pub(super) const KNOWN: &[&str] = &["from", "to", "set", "count"];
const EXAMPLE: &str =
    "streamlets = [{ from = \"rtp://127.0.0.1:5004\", to = \"rtp://127.0.0.1:6004\" }]";
const SETS: &str = "sets = { gold = 2, plain = 1 }";
/// Keys of a stream that stand for one receiver, or for what a slot does not have.
const REFUSED: [&str; 7] = ["to", "from", "stack", "sdp", "rtcp_port", "full", "knobs"];

/// The streamlets of a stream. Those of a file are valid; of what came from another process see [`SlotConfig::check`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotConfig {
    /// `sets`; one of weight 1 if the file names none.
    pub sets: Vec<SetConfig>,
    /// `streamlets`, in the order of the file; at least one.
    pub groups: Vec<StreamletGroup>,
    /// `streamlet_queue`, default 64: the most frames of one streamlet that may wait.
    pub queue: u32,
}

/// A set of streamlets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetConfig {
    /// Its name.
    pub name: String,
    /// Its share beside the other sets.
    pub weight: u16,
}

/// One table of `streamlets`, which stands for one streamlet or many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamletGroup {
    /// The number of its first streamlet.
    pub first: u32,
    /// `count`, default 1: how many it stands for.
    pub count: u32,
    /// Those of its first one. The next has the next SSRC, or without SSRC both ports higher by 2.
    pub streamlet: Streamlet,
}

/// A streamlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streamlet {
    /// `from`: where its packets arrive. `None`: it gets every frame of the stream's source.
    pub from: Option<SocketAddr>,
    /// `?ssrc=` of `from`: only packets of this source count, and it keeps this identifier.
    pub ssrc: Option<u32>,
    /// `to`: its receiver.
    pub to: SocketAddr,
    /// The index of its set.
    pub set: usize,
}

/// A set in short, and how long a frame of it waits at most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetSummary {
    /// Its name.
    pub name: String,
    /// Its share beside the other sets.
    pub weight: u16,
    /// Its streamlets.
    pub streamlets: u32,
    /// The most turns of the slot until a frame was sent whose streamlet had none waiting.
    pub turns: u64,
    /// The same in milliseconds, where the slot's period is known: one turn each period.
    pub bound_ms: Option<f64>,
}

/// Why streamlets that came from another process can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Not as many as a stream can have.
    #[error("{0} streamlets; there may be 1 to {STREAMLETS_MAX}, numbered without a gap")]
    Count(u64),
    /// Ports or SSRCs of a group end before it does.
    #[error("the group of streamlet {0} has more streamlets than its ports or SSRCs allow")]
    Range(u32),
    /// A set that is not there.
    #[error("streamlet {0} is of a set that is not there")]
    NoSet(u32),
    /// Receivers of both families.
    #[error("the receiver of streamlet {0} is of another IP version than the stream's")]
    Family(u32),
    /// Sets that can't share by their weights.
    #[error(transparent)]
    Set(#[from] SetError),
    /// No room for a frame, or too much.
    #[error("a queue of {0} frames for each streamlet; write 1 to {QUEUE_MAX}")]
    Queue(u32),
}

impl StreamletGroup {
    /// Whether its ports, or its SSRCs, go as far as it does.
    fn is_in_range(&self) -> bool {
        let Streamlet { from, ssrc, to, .. } = self.streamlet;
        let Some(last) = self.count.checked_sub(1) else { return false };
        let port = u32::from(from.map_or(0, |at| at.port()).max(to.port()));
        match ssrc {
            Some(first) => first.checked_add(last).is_some(),
            None => u64::from(port) + 2 * u64::from(last) <= u64::from(u16::MAX),
        }
    }

    fn nth(&self, n: u32) -> Streamlet {
        let Streamlet { from, ssrc, to, set } = self.streamlet;
        let next = |at: SocketAddr| match ssrc {
            Some(_) => at,
            None => SocketAddr::new(at.ip(), at.port() + 2 * n as u16),
        };
        Streamlet { from: from.map(next), ssrc: ssrc.map(|first| first + n), to: next(to), set }
    }
}

impl SlotConfig {
    /// Whether all that a file guarantees holds, for a stream whose receivers have addresses of this IP version.
    ///
    /// # Errors
    /// [`SlotError`]. O(n) for n tables.
    pub fn check(&self, v6: bool) -> Result<(), SlotError> {
        let mut aggregate = Aggregate::new();
        self.sets.iter().try_for_each(|set| aggregate.add_set(set.weight).map(drop))?;
        if !(1..=QUEUE_MAX).contains(&self.queue) {
            return Err(SlotError::Queue(self.queue));
        }
        let mut count = 0;
        for group in &self.groups {
            let first = group.first;
            if u64::from(first) != count || first >= STREAMLETS_MAX {
                return Err(SlotError::Count(count));
            }
            count += u64::from(group.count);
            if !group.is_in_range() {
                return Err(SlotError::Range(first));
            }
            if group.streamlet.set >= self.sets.len() {
                return Err(SlotError::NoSet(first));
            }
            if group.streamlet.to.is_ipv6() != v6 {
                return Err(SlotError::Family(first));
            }
        }
        let fits = (1..=u64::from(STREAMLETS_MAX)).contains(&count);
        if fits { Ok(()) } else { Err(SlotError::Count(count)) }
    }

    /// The memory of its streamlets without their frames.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        Bytes(u64::from(self.count()) * STREAMLET_MEMORY.0)
    }

    /// How many streamlets there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.groups.last().map_or(0, |last| last.first + last.count)
    }

    /// The streamlet with this number. O(log n) for n tables.
    #[must_use]
    pub fn streamlet(&self, number: u32) -> Option<Streamlet> {
        let at = self.groups.partition_point(|group| group.first <= number).checked_sub(1)?;
        let group = &self.groups[at];
        let n = number - group.first;
        (n < group.count).then(|| group.nth(n))
    }

    /// All streamlets, in the order of their numbers.
    pub fn streamlets(&self) -> impl Iterator<Item = Streamlet> {
        self.groups.iter().flat_map(|group| (0..group.count).map(|n| group.nth(n)))
    }

    /// Whether streamlets have sources of their own.
    #[must_use]
    pub fn has_sources(&self) -> bool {
        self.groups.iter().any(|group| group.streamlet.from.is_some())
    }

    /// Where streamlets receive: each address once, in the order of the streamlets.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        let mut seen = HashSet::new();
        let from = self.streamlets().filter_map(|streamlet| streamlet.from);
        from.filter(|&from| seen.insert(from)).collect()
    }

    /// The sets, and the longest waits of their frames while the link sends one frame of the slot in each of
    /// these periods.
    #[must_use]
    pub fn summary(&self, period: Option<Duration>) -> Vec<SetSummary> {
        let mut loads: Vec<SetLoad> =
            self.sets.iter().map(|set| SetLoad { weight: set.weight, streamlets: 0 }).collect();
        self.groups.iter().for_each(|group| loads[group.streamlet.set].streamlets += group.count);
        let set = |(at, set): (usize, &SetConfig)| {
            let turns = turns(&loads, at).unwrap_or(0);
            SetSummary {
                name: set.name.clone(),
                weight: set.weight,
                streamlets: loads[at].streamlets,
                turns,
                bound_ms: period
                    .map(|period| Duration(period.0.saturating_mul(turns)).as_millis_f64()),
            }
        };
        self.sets.iter().enumerate().map(set).collect()
    }
}

/// The streamlets of a stream; `None` if it has none, or they are wrong, which has been reported.
pub(super) fn read<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<SlotConfig> {
    let Some(listed) = reader.entry(section, "streamlets") else {
        for key in ["sets", "streamlet_queue"] {
            reader.refuse(section, key, ConfigFault::NoStreamlets(EXAMPLE));
        }
        return None;
    };
    REFUSED.iter().for_each(|key| reader.refuse(section, key, ConfigFault::NotOfSlot));
    let queue = reader.integer(section, "streamlet_queue", 1..=QUEUE_MAX).unwrap_or(64);
    let sets = sets(reader, section)?;
    if listed.value.as_array().is_some_and(|array| array.is_empty()) {
        reader.report_value(&listed, ConfigFault::NamesNone("streamlet", EXAMPLE));
        return None;
    }
    let wanted = ("an array of streamlets", EXAMPLE);
    let elements = reader.elements(&listed, 1..=STREAMLETS_MAX as usize, wanted)?;
    let mut groups: Vec<StreamletGroup> = Vec::with_capacity(elements.len());
    let (mut first, mut sound) = (0, true);
    for entry in &elements {
        let read = group(reader, entry, &sets, first);
        sound &= read.is_some();
        let Some(group) = read else { continue };
        first += group.count;
        if first > STREAMLETS_MAX {
            let mistake = ConfigFault::TooManyStreamlets { count: first, most: STREAMLETS_MAX };
            reader.report_value(entry, mistake);
            return None;
        }
        groups.push(group);
    }
    let slot = SlotConfig { sets, groups, queue };
    let places: Vec<usize> = elements.iter().map(|entry| entry.at).collect();
    (sound && fits(reader, section, &listed, &slot, &places)).then_some(slot)
}

fn sets<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Vec<SetConfig>> {
    if !section.has("sets") {
        return Some(vec![SetConfig { name: "all".to_owned(), weight: 1 }]);
    }
    let table = reader.section(section, "sets", SETS)?;
    if table.is_empty() {
        reader.report(table.at, &table.path, ConfigFault::NamesNone("set", SETS));
    }
    let mut aggregate = Aggregate::new();
    let mut sets = Some(Vec::new());
    for (name, value) in table.in_order() {
        let at = value.span().start;
        reader.name(at, &table.path_of(name), name);
        let weight = reader.integer(&table, name, 1..=u16::MAX);
        let added = weight.map(|weight| aggregate.add_set(weight));
        if let Some(Err(error)) = added {
            reader.report(at, &table.path_of(name), ConfigFault::Set(error));
        }
        let set = weight.map(|weight| SetConfig { name: name.to_owned(), weight });
        sets = sets.zip(set).map(|(mut sets, set)| {
            sets.push(set);
            sets
        });
    }
    sets.filter(|sets| !sets.is_empty())
}

/// One streamlet, or as many as its `count`; a text is its receiver.
fn group<'t>(
    reader: &mut Reader<'t>,
    entry: &Entry<'t>,
    sets: &[SetConfig],
    first: u32,
) -> Option<StreamletGroup> {
    if let Some(text) = entry.value.as_str() {
        let to = to(reader, entry, text)?;
        if sets.len() > 1 {
            let key = format!("{}.set", entry.path);
            reader.report(
                entry.at,
                &key,
                ConfigFault::Missing("{ to = \"rtp://127.0.0.1:6004\", set = \"gold\" }"),
            );
        }
        let streamlet = Streamlet { from: None, ssrc: None, to, set: 0 };
        return Some(StreamletGroup { first, count: 1, streamlet });
    }
    let table = reader.table_of(entry, EXAMPLE)?;
    reader.refuse_unknown(&table, KNOWN);
    let count = match reader.entry(&table, "count") {
        Some(_) => reader.integer(&table, "count", 1..=STREAMLETS_MAX),
        None => Some(1),
    };
    let names: Vec<&str> = sets.iter().map(|set| &*set.name).collect();
    let set = match reader.entry(&table, "set") {
        Some(entry) => reader.find(&entry, ("set", "set = \"gold\""), &names),
        None if sets.len() == 1 => Some(0),
        None => reader.required(&table, "set", "set = \"gold\"").map(|_| 0),
    };
    let to_entry = reader.required(&table, "to", "to = \"rtp://127.0.0.1:6004\"");
    let to = to_entry.and_then(|entry| {
        let text = reader.text(&entry, "to = \"rtp://127.0.0.1:6004\"")?;
        to(reader, &entry, text)
    });
    let (from, ssrc) = match reader.entry(&table, "from") {
        None => (None, None),
        Some(entry) => {
            let text = reader.text(&entry, "from = \"rtp://127.0.0.1:5004\"")?;
            match from(text) {
                Ok((from, ssrc)) => (Some(from), ssrc),
                Err(error) => {
                    reader.report_value(&entry, ConfigFault::Source(error));
                    return None;
                }
            }
        }
    };
    let (count, to, set) = (count?, to?, set?);
    let group = StreamletGroup { first, count, streamlet: Streamlet { from, ssrc, to, set } };
    if !group.is_in_range() {
        let key = table.path_of("count");
        reader.report(entry.at, &key, ConfigFault::StreamletCount(count));
        return None;
    }
    if from == Some(to) {
        reader.report_value(entry, ConfigFault::Loop(to));
    }
    Some(group)
}

fn to<'t>(reader: &mut Reader<'t>, entry: &Entry<'t>, text: &str) -> Option<SocketAddr> {
    let report = |error: super::AddressError| {
        reader.report_value(entry, ConfigFault::Destination(DestinationError::Address(error)));
    };
    receiver(text).map_err(report).ok()
}

/// `rtp://HOST:PORT`, and `?ssrc=N` behind it.
fn from(text: &str) -> Result<(SocketAddr, Option<u32>), SourceError> {
    let address = text.split_once('?').map_or(text, |(address, _)| address);
    let mut ssrc = None;
    for (name, value, option) in options(text)? {
        if name != "ssrc" {
            let option = quoted(option);
            return Err(SourceError::Option { option, known: "there is ssrc=, its SSRC" });
        }
        let hex = value.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
        let number = hex.unwrap_or_else(|| value.parse()).ok();
        let instead = "a number of 32 bits, such as ssrc=1000 or ssrc=0x3e8";
        let wrong = SourceError::Value { option: quoted(option), instead };
        ssrc = Some(number.ok_or(wrong)?);
    }
    Ok((listen(address)?, ssrc))
}

/// Whether the streamlets go together; what is wrong is reported. `places` are those of the tables.
fn fits<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    listed: &Entry<'t>,
    slot: &SlotConfig,
    places: &[usize],
) -> bool {
    if let Some(set) = slot.summary(None).iter().find(|set| set.streamlets == 0) {
        let key = section.path_of("sets");
        reader.report(listed.at, &key, ConfigFault::EmptySet(cut(&set.name)));
        return false;
    }
    if slot.has_sources() && !section.has("period") {
        reader.report(
            section.at,
            &section.path_of("period"),
            ConfigFault::Missing(
                "period = \"10 ms\": the slot sends one frame of its streamlets in each",
            ),
        );
    }
    let v6 = slot.groups[0].streamlet.to.is_ipv6();
    let has_source = section.has("source");
    let (mut receivers, mut sources) = (HashSet::new(), HashSet::new());
    let mut listeners: HashMap<SocketAddr, bool> = HashMap::new();
    for (group, &at) in slot.groups.iter().zip(places) {
        let mut report = |mistake| reader.report(at, &listed.path, mistake);
        if group.streamlet.to.is_ipv6() != v6 {
            report(ConfigFault::StreamletFamily);
            return false;
        }
        match (has_source, group.streamlet.from.is_some()) {
            (true, true) => report(ConfigFault::StreamletSource),
            (false, false) => report(ConfigFault::NoStreamletSource),
            _ => {}
        }
        for Streamlet { from, ssrc, to, .. } in (0..group.count).map(|n| group.nth(n)) {
            if !receivers.insert((to, ssrc)) {
                report(ConfigFault::TwoStreamlets { what: "send to", at: to, ssrc });
                return false;
            }
            let Some(from) = from else { continue };
            let by_ssrc = listeners.entry(from).or_insert_with(|| ssrc.is_some());
            if *by_ssrc != ssrc.is_some() || !sources.insert((from, ssrc)) {
                report(ConfigFault::TwoStreamlets { what: "receive at", at: from, ssrc });
                return false;
            }
        }
    }
    if listeners.len() > LISTENERS_MAX {
        let mistake = ConfigFault::TooManyListeners { count: listeners.len(), most: LISTENERS_MAX };
        reader.report_value(listed, mistake);
    }
    listeners.len() <= LISTENERS_MAX
}

/// Why a link can't carry streamlets, if so.
pub(super) fn find_conflict(stream: &StreamConfig, link: &LinkConfig) -> Option<ConfigFault> {
    let carries =
        link.placement != Placement::Kernel && !link.is_measured() && link.stack.is_none();
    (stream.slot.is_some() && !carries).then(|| ConfigFault::SlotElsewhere(cut(&link.name)))
}
