//! The keys of one direction of a link, from `[link.NAME]` or `KEY=VALUE` to a [`LineModel`]. Each is
//! read as a [`LineChange`], so that a file and a command say the same in the same words.

use selvedge_data_net_line::{Jitter, LineModel, LossModel, Outages, QueueModel, Rate};
use selvedge_data_net_line::{Trace, TraceError};
use selvedge_units::{Bitrate, Bytes, Duration, Share, nearest};
use toml::de::DeValue;

use super::super::link::{MTU_MAX, MTU_MIN, RATE_MAX};
use super::super::quote::cut;
use super::super::read::read_tables;
use super::super::section::{Entry, Reader, Section};
use super::super::{ConfigFault, quoted};
use super::{DAY, FILES_MAX, FileError, Files, queue};

/// The keys of `[link.NAME]`.
#[rustfmt::skip]
pub(super) const OF_LINK: &[&str] = &[
    "between", "recording", "rate", "delay", "jitter", "reorders", "loss", "corrupts", "duplicates", "mtu",
    "outages", "queue", "back",
];
/// The keys of a direction: those of `[link.NAME.back]`.
pub(super) const KEYS: &[&str] = OF_LINK.split_at(2).1.split_at(OF_LINK.len() - 3).0;

pub(super) const OUTAGES: &[&str] = &["every", "lasts", "holds"];
pub(super) const BURSTS: &[&str] = &["worsens", "recovers", "good", "bad"];
/// The longest delay, of the jitter too: a packet under way takes memory.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// The most delays of a recording.
const QUANTILES_MAX: usize = 4_096;
/// The value of what is switched off.
const NONE: &str = "none";

/// Another value of one key of a direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineChange {
    /// `rate`.
    Rate(Option<Rate>),
    /// `delay`.
    Delay(Duration),
    /// `jitter`.
    Jitter(Jitter),
    /// `reorders`.
    Reorders(bool),
    /// `loss`.
    Loss(LossModel),
    /// `corrupts`.
    Corrupts(Share),
    /// `duplicates`.
    Duplicates(Share),
    /// `mtu`.
    Mtu(Option<Bytes>),
    /// `outages`.
    Outages(Option<Outages>),
    /// `queue`; of files only.
    Queue(QueueModel),
}

/// Why a text does not change a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineChangeError {
    /// It has no key, or its value holds control characters or stray quotes.
    #[error("{0} is not KEY=VALUE; write such as loss=3%")]
    Form(String),
    /// It is the one key that only a file may have.
    #[error("a line that runs keeps its queue; start one with queue = in its file")]
    Queue,
    /// The key or its value is wrong.
    #[error("{key}: {mistake}")]
    Wrong {
        /// The key, or the one inside its table.
        key: String,
        /// What is wrong with it.
        mistake: ConfigFault,
    },
}

impl LineChange {
    /// Reads `KEY=VALUE`: a key of a link and its value as in a network file, quotes around a text may be
    /// left out. `files` reads a trace, as for [`parse`](super::parse).
    ///
    /// # Errors
    /// [`LineChangeError`], with the first mistake.
    pub fn parse(
        text: &str,
        files: &mut dyn FnMut(&str) -> Result<Vec<u8>, FileError>,
    ) -> Result<Self, LineChangeError> {
        let form = || LineChangeError::Form(quoted(text));
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        let (key, value) = (key.trim(), value.trim());
        let Some(&known) = KEYS.iter().find(|&&known| known == key) else {
            let mistake = ConfigFault::UnknownKey {
                nearest: nearest(key, KEYS.iter().copied()),
                known: KEYS,
            };
            return Err(LineChangeError::Wrong { key: cut(key), mistake });
        };
        if known == "queue" {
            return Err(LineChangeError::Queue);
        }
        let is_toml = value.starts_with(['{', '"', '\'']) || ["true", "false"].contains(&value);
        if text.contains(char::is_control) || (!is_toml && value.contains('\'')) {
            return Err(form());
        }
        let line = if is_toml { format!("{key} = {value}") } else { format!("{key} = '{value}'") };
        let mut files = Files { read: files, left: FILES_MAX.0 };
        let read = read_tables(&line, "", |reader, tables| {
            read_key(reader, &Section::root(tables), known, &mut files)
        });
        read.map(|(change, _)| change).map_err(|errors| match errors.errors().first() {
            Some(error) if !error.key.is_empty() => {
                let (key, mistake) = (error.key.clone(), error.mistake.clone());
                LineChangeError::Wrong { key, mistake }
            }
            _ => form(),
        })
    }

    /// Changes a model. A recorded one becomes perfect before that.
    pub fn apply(self, model: &mut LineModel) {
        model.recording = None;
        match self {
            Self::Rate(rate) => model.rate = rate,
            Self::Delay(delay) => model.delay.delay = delay,
            Self::Jitter(jitter) => model.delay.jitter = jitter,
            Self::Reorders(reorders) => model.delay.reorders = reorders,
            Self::Loss(loss) => model.loss = loss,
            Self::Corrupts(share) => model.corrupts = share,
            Self::Duplicates(share) => model.duplicates = share,
            Self::Mtu(mtu) => model.mtu = mtu,
            Self::Outages(outages) => model.outages = outages,
            Self::Queue(queue) => model.queue = queue,
        }
    }
}

/// A model with what the keys of a table change.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    mut model: LineModel,
    files: &mut Files<'_>,
) -> LineModel {
    for key in KEYS {
        if let Some(change) = read_key(reader, section, key, files) {
            change.apply(&mut model);
        }
    }
    model
}

/// The value of one of [`KEYS`], if it is present; a wrong one is reported.
fn read_key<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    key: &'static str,
    files: &mut Files<'_>,
) -> Option<LineChange> {
    let entry = reader.entry(section, key)?;
    let is_none = entry.value.as_str() == Some(NONE);
    Some(match key {
        "rate" if is_none => LineChange::Rate(None),
        "rate" => LineChange::Rate(Some(rate(reader, section, &entry, files)?)),
        "delay" => LineChange::Delay(delay(reader, &entry)?),
        "jitter" => LineChange::Jitter(jitter(reader, section, &entry)?),
        "reorders" => LineChange::Reorders(reader.flag(section, key)?),
        "loss" => LineChange::Loss(loss(reader, section, &entry)?),
        "corrupts" => LineChange::Corrupts(share(reader, &entry)?),
        "duplicates" => LineChange::Duplicates(share(reader, &entry)?),
        "mtu" if is_none => LineChange::Mtu(None),
        "mtu" => LineChange::Mtu(Some(reader.quantity_of(&entry, MTU_MIN..=MTU_MAX, "1500 B")?)),
        "outages" if is_none => LineChange::Outages(None),
        "outages" => LineChange::Outages(Some(outages(reader, section)?)),
        _ => LineChange::Queue(queue::read(reader, section, &entry)?),
    })
}

fn share<'t>(reader: &mut Reader<'t>, entry: &Entry<'t>) -> Option<Share> {
    reader.quantity_of(entry, Share::ZERO..=Share::ONE, "3 %")
}

fn delay<'t>(reader: &mut Reader<'t>, entry: &Entry<'t>) -> Option<Duration> {
    reader.quantity_of(entry, Duration::ZERO..=DELAY_MAX, "40 ms")
}

/// The one key that a table has, out of these.
fn one_key<'t>(
    reader: &mut Reader<'t>,
    table: &Section<'t>,
    known: &'static [&'static str],
) -> Option<(&'static str, Entry<'t>)> {
    reader.refuse_unknown(table, known);
    let present: Vec<_> = known.iter().copied().filter(|key| table.has(key)).collect();
    let [key] = present[..] else {
        if table.in_order().iter().all(|(key, _)| known.contains(key)) {
            reader.report(table.at, &table.path, ConfigFault::OneKey(known));
        }
        return None;
    };
    Some((key, reader.entry(table, key)?))
}

fn rate<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    entry: &Entry<'t>,
    files: &mut Files<'_>,
) -> Option<Rate> {
    if !matches!(entry.value, DeValue::Table(_)) {
        let rate = reader.quantity_of(entry, Bitrate(1)..=RATE_MAX, "6 Mbit/s");
        return rate.map(Rate::Constant);
    }
    const EXAMPLE: &str = "rate = { mahimahi = \"lte.trace\" }";
    let table = reader.section(section, "rate", EXAMPLE)?;
    let (form, _) = one_key(reader, &table, &["mahimahi", "csv"])?;
    let (entry, text) = files.text(reader, &table, (form, EXAMPLE))?;
    let trace = if form == "csv" { Trace::from_csv(&text) } else { Trace::from_mahimahi(&text) };
    match trace {
        Ok(trace) => Some(Rate::Trace(trace)),
        Err(error) => refuse_trace(reader, &entry, error),
    }
}

fn refuse_trace<'t, T>(
    reader: &mut Reader<'t>,
    entry: &Entry<'t>,
    mut error: TraceError,
) -> Option<T> {
    if let TraceError::Malformed { text, .. } = &mut error {
        *text = cut(text);
    }
    let path = quoted(entry.value.as_str().unwrap_or_default());
    reader.report_value(entry, ConfigFault::Trace { path, error });
    None
}

/// The directions of a link that is all recorded, from the host near, or else the first, and back.
pub(super) fn recorded<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    files: &mut Files<'_>,
) -> Option<[LineModel; 2]> {
    for key in OF_LINK.iter().skip(2).filter(|key| section.has(key)) {
        reader.refuse(section, key, ConfigFault::Recorded);
    }
    const EXAMPLE: &str = "recording = \"packets.csv\"";
    let (entry, text) = files.text(reader, section, ("recording", EXAMPLE))?;
    let models = LineModel::recorded(&text, section.name);
    models.map_or_else(|error| refuse_trace(reader, &entry, error), Some)
}

fn jitter<'t>(reader: &mut Reader<'t>, section: &Section<'t>, entry: &Entry<'t>) -> Option<Jitter> {
    if !matches!(entry.value, DeValue::Table(_)) {
        return delay(reader, entry).map(Jitter::Normal);
    }
    let table = reader.section(section, "jitter", "jitter = \"5 ms\"")?;
    let (form, entry) = one_key(reader, &table, &["normal", "uniform", "recorded"])?;
    match form {
        "normal" => delay(reader, &entry).map(Jitter::Normal),
        "uniform" => delay(reader, &entry).map(Jitter::Uniform),
        _ => {
            let wanted = ("an array of 1 to 4096 times", "recorded = [\"0 ms\", \"30 ms\"]");
            let all = reader.elements(&entry, 1..=QUANTILES_MAX, wanted)?;
            let all: Option<Vec<_>> = all.iter().map(|one| delay(reader, one)).collect();
            all.map(Jitter::Recorded)
        }
    }
}

fn loss<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    entry: &Entry<'t>,
) -> Option<LossModel> {
    if !matches!(entry.value, DeValue::Table(_)) {
        return share(reader, entry).map(LossModel::Bernoulli);
    }
    let table = reader.section(section, "loss", "loss = \"1 %\"")?;
    reader.refuse_unknown(&table, BURSTS);
    let all = Share::ZERO..=Share::ONE;
    let example = ("worsens = \"1 %\"", "1 %");
    let worsens = reader.required_quantity(&table, "worsens", all.clone(), example);
    let example = ("recovers = \"20 %\"", "20 %");
    let recovers = reader.required_quantity(&table, "recovers", all.clone(), example);
    let good = reader.quantity(&table, "good", all.clone(), "0 %").unwrap_or(Share::ZERO);
    let bad = reader.quantity(&table, "bad", all, "100 %").unwrap_or(Share::ONE);
    Some(LossModel::GilbertElliott { worsens: worsens?, recovers: recovers?, good, bad })
}

fn outages<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Outages> {
    const EXAMPLE: &str = "outages = { every = \"30 s\", lasts = \"300 ms\" }";
    let table = reader.section(section, "outages", EXAMPLE)?;
    reader.refuse_unknown(&table, OUTAGES);
    let times = Duration::from_micros(1)..=DAY;
    let example = ("every = \"30 s\"", "30 s");
    let every = reader.required_quantity(&table, "every", times.clone(), example);
    let example = ("lasts = \"300 ms\"", "300 ms");
    let lasts = reader.required_quantity(&table, "lasts", times, example);
    let holds = reader.flag(&table, "holds").unwrap_or(false);
    let (every, lasts) = (every?, lasts?);
    if lasts >= every {
        reader.refuse(&table, "lasts", ConfigFault::Outage { lasts, every });
        return None;
    }
    Some(Outages { every, lasts, holds })
}
