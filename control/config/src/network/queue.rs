//! `queue` of a link: a word, or a table with the word under `kind`, to a [`QueueModel`].
//!
//! A new kind of queue is its word in [`KINDS`], its default in [`of_kind`], its keys in a list, and
//! an arm in [`adjust`], which does not compile without.

use selvedge_data_net_line::{
    CodelParams, DisciplineParams, DualPi2Params, FqCodelParams, Limit, LineModel, QueueModel,
};
use selvedge_data_sched::Discipline;
use selvedge_units::{Bytes, Duration};
use toml::de::DeValue;

use super::super::section::{Entry, Reader, Section};
use super::traffic::contract;

/// The kinds, as the file names them.
pub(super) const KINDS: &[&str] = &["drop-tail", "codel", "fq-codel", "dualpi2", "discipline"];
pub(super) const DROP_TAIL: &[&str] = &["kind", "bytes", "packets"];
pub(super) const CODEL: &[&str] = &["kind", "bytes", "packets", "target", "interval", "marks"];
#[rustfmt::skip]
pub(super) const FQ_CODEL: &[&str] = &[
    "kind", "bytes", "packets", "target", "interval", "marks", "quantum", "queues",
];
#[rustfmt::skip]
pub(super) const DUAL_PI2: &[&str] = &[
    "kind", "bytes", "packets", "target", "rtt_max", "coupling", "ramp_from", "ramp", "unmarked", "classic_one_in",
];
#[rustfmt::skip]
pub(super) const DISCIPLINE: &[&str] = &[
    "kind", "bytes", "packets", "discipline", "period", "window", "late", "weight", "priority", "class", "delay",
];
/// More than this is refused: it would be held in memory.
const BYTES_MAX: Bytes = Bytes(1 << 30);
const PACKETS_MAX: u32 = 1_000_000;
/// The shortest and the longest time of a queue's management.
const TIME_MIN: Duration = Duration::from_micros(1);
const TIME_MAX: Duration = Duration::from_secs(60);

/// The kind with the defaults of all its keys.
fn of_kind(kind: &str) -> QueueModel {
    match kind {
        "codel" => QueueModel::Codel(CodelParams::default()),
        "fq-codel" => QueueModel::FqCodel(FqCodelParams::default()),
        "dualpi2" => QueueModel::DualPi2(DualPi2Params::default()),
        "discipline" => QueueModel::Discipline(DisciplineParams::default()),
        _ => LineModel::default().queue,
    }
}

/// The queue that the key `queue` describes.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    entry: &Entry<'t>,
) -> Option<QueueModel> {
    if !matches!(entry.value, DeValue::Table(_)) {
        return reader.choice(section, "queue", KINDS).map(of_kind);
    }
    let table = reader.section(section, "queue", "queue = \"drop-tail\"")?;
    reader.required(&table, "kind", "kind = \"drop-tail\"")?;
    let mut model = of_kind(reader.choice(&table, "kind", KINDS)?);
    adjust(reader, &table, &mut model);
    Some(model)
}

/// Sets what the keys of a table change.
fn adjust<'t>(reader: &mut Reader<'t>, table: &Section<'t>, model: &mut QueueModel) {
    match model {
        QueueModel::DropTail { limit: most } => {
            reader.refuse_unknown(table, DROP_TAIL);
            limit(reader, table, most);
        }
        QueueModel::Codel(params) => {
            reader.refuse_unknown(table, CODEL);
            codel(reader, table, params);
        }
        QueueModel::FqCodel(params) => {
            reader.refuse_unknown(table, FQ_CODEL);
            codel(reader, table, &mut params.codel);
            let quantum = reader.quantity(table, "quantum", Bytes(1)..=Bytes(1 << 20), "1514 B");
            params.quantum = quantum.unwrap_or(params.quantum);
            params.queues = reader.integer(table, "queues", 1..=1 << 16).unwrap_or(params.queues);
        }
        QueueModel::DualPi2(params) => {
            reader.refuse_unknown(table, DUAL_PI2);
            dual_pi2(reader, table, params);
        }
        QueueModel::Discipline(params) => {
            reader.refuse_unknown(table, DISCIPLINE);
            discipline(reader, table, params);
        }
    }
}

fn dual_pi2<'t>(reader: &mut Reader<'t>, table: &Section<'t>, params: &mut DualPi2Params) {
    let ms = Duration::from_millis;
    limit(reader, table, &mut params.limit);
    let target = reader.quantity(table, "target", ms(1)..=ms(10_000), "15 ms");
    params.target = target.unwrap_or(params.target);
    let rtt_max = reader.quantity(table, "rtt_max", ms(3)..=ms(10_000), "100 ms");
    params.rtt_max = rtt_max.unwrap_or(params.rtt_max);
    params.coupling = reader.integer(table, "coupling", 1..=1_000).unwrap_or(params.coupling);
    let ramp_from = reader.quantity(table, "ramp_from", Duration::ZERO..=TIME_MAX, "800 us");
    params.ramp_from = ramp_from.unwrap_or(params.ramp_from);
    let ramp = reader.quantity(table, "ramp", Duration::ZERO..=TIME_MAX, "400 us");
    params.ramp = ramp.unwrap_or(params.ramp);
    let unmarked = reader.integer(table, "unmarked", 0..=PACKETS_MAX);
    params.unmarked = unmarked.unwrap_or(params.unmarked);
    let one_in = reader.integer(table, "classic_one_in", 1..=1 << 16);
    params.classic_one_in = one_in.unwrap_or(params.classic_one_in);
}

/// All flows have one contract: a file can't name a flow.
fn discipline<'t>(reader: &mut Reader<'t>, table: &Section<'t>, params: &mut DisciplineParams) {
    limit(reader, table, &mut params.limit);
    let named = reader.choice(table, "discipline", &Discipline::NAMES);
    params.discipline = named.and_then(Discipline::from_name).unwrap_or(params.discipline);
    params.others = contract(reader, table, params.others);
}

/// Where only one of the two limits is given, it is the one that counts, beside a bound on memory.
fn limit<'t>(reader: &mut Reader<'t>, table: &Section<'t>, limit: &mut Limit) {
    let bytes = reader.quantity(table, "bytes", Bytes(1)..=BYTES_MAX, "100 kB");
    let packets = reader.integer(table, "packets", 1..=PACKETS_MAX);
    if bytes.is_some() || packets.is_some() {
        *limit = Limit { bytes: bytes.unwrap_or(BYTES_MAX), packets: packets.unwrap_or(u32::MAX) };
    }
}

fn codel<'t>(reader: &mut Reader<'t>, table: &Section<'t>, params: &mut CodelParams) {
    limit(reader, table, &mut params.limit);
    let target = reader.quantity(table, "target", TIME_MIN..=TIME_MAX, "5 ms");
    params.target = target.unwrap_or(params.target);
    let interval = reader.quantity(table, "interval", TIME_MIN..=TIME_MAX, "100 ms");
    params.interval = interval.unwrap_or(params.interval);
    params.marks = reader.flag(table, "marks").unwrap_or(params.marks);
}
