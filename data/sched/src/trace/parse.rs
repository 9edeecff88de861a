//! A trace from its text: every field checked, every fault named with its line.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::string::String;
use alloc::vec::Vec;

use selvedge_data_stream::{Class, Contract, Late, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant, nearest};

use super::error::{Fault, TraceError, shorten};
use super::json::{Object, Source, Value};
use super::tree::{self, Nodes};
use crate::replay::{Arrival, Arrivals, Trace, TraceStream};
use crate::{Discipline, StreamIndex};

/// The most ticks of a trace. Each is at least one line of output.
pub const TICKS_MAX: u64 = 10_000_000;

const TRACE: [&str; 7] =
    ["discipline", "ticks", "streams", "arrivals", "backlogged", "tree", "remap"];
const STREAM: [&str; 10] = [
    "id",
    "period",
    "window",
    "late",
    "work_conserving",
    "first_deadline",
    "weight",
    "priority",
    "class",
    "parent",
];

impl Trace {
    /// Reads a trace. `file_name` is for messages only.
    ///
    /// Required are `ticks` (at most [`TICKS_MAX`]), `streams`, `arrivals` or `"backlogged": true`, and of
    /// each stream `id` and `period`. Defaults: discipline `dwcs`, window `[0, 0]`, late `drop`,
    /// work-conserving, weight 1, priority 0, class `fair`, no tree, exact sharing, parent the link itself,
    /// size 1000. Arrivals need not be in order of time, but those of one stream must be; arrivals after the
    /// last tick are never seen. Times may be up to 2^64-1; deadlines saturate there, and that one is never
    /// missed.
    ///
    /// # Errors
    /// [`TraceError`] for the first fault, in the order of checking.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, TraceError> {
        let source = Source { file: file_name, text };
        let top = source.value()?.object(&TRACE)?;
        let name = |value: &Value<'_, '_>| named(value, &Discipline::NAMES, Discipline::from_name);
        let discipline = top.optional("discipline", name)?.unwrap_or_default();
        let ticks = top.required("ticks", "\"ticks\": 12")?.number(0, TICKS_MAX)?;
        let (tree, nodes) = tree::tree(&top)?;
        let example = "\"streams\": [{\"id\": \"a\", \"period\": 2, \"window\": [1, 2]}]";
        let value = top.required("streams", example)?;
        let mut streams = Vec::new();
        let mut ids = BTreeMap::new();
        for (index, raw) in value.list()?.into_iter().enumerate() {
            let value = value.element(index, raw);
            let stream = stream(value, &nodes)?;
            let index = u32::try_from(index).expect("no text in memory lists 2^32 streams");
            match ids.entry(stream.id.clone()) {
                Entry::Vacant(place) => place.insert(StreamIndex(index)),
                Entry::Occupied(_) => {
                    let fault = Fault::DuplicateId(shorten(&stream.id));
                    let object = value.object(&STREAM)?;
                    return Err(object.required("id", "")?.error(fault));
                }
            };
            streams.push(stream);
        }
        let arrivals = arrivals(&top, &ids)?;
        Ok(Self { discipline, ticks, streams, tree, arrivals })
    }
}

/// The value of this name among those of a type.
fn named<T>(
    value: &Value<'_, '_>,
    names: &[&str],
    of: fn(&str) -> Option<T>,
) -> Result<T, TraceError> {
    let name = value.string()?;
    of(&name).ok_or_else(|| value.error(Fault::unknown_name(&name, names)))
}

fn stream(value: Value<'_, '_>, nodes: &Nodes) -> Result<TraceStream, TraceError> {
    let object = value.object(&STREAM)?;
    let id_value = object.required("id", "\"id\": \"a\"")?;
    let id = id_value.string()?;
    if id.is_empty() {
        return Err(id_value.error(Fault::EmptyId));
    }
    let period = object.required("period", "\"period\": 2")?.number(1, u64::MAX)?;
    let mut contract = Contract::new(Duration(period), Window::NONE);
    if let Some(value) = object.get("window") {
        contract.windows = Windows::Whole(window(&value)?);
    }
    if let Some(value) = object.get("late") {
        contract.late = named(&value, &Late::NAMES, Late::from_name)?;
    }
    if let Some(value) = object.get("work_conserving") {
        contract.work_conserving = value.boolean()?;
    }
    if let Some(value) = object.get("weight") {
        contract.weight = value.number(1, u32::MAX)?;
    }
    if let Some(value) = object.get("priority") {
        contract.priority = value.number(i32::MIN, i32::MAX)?;
    }
    if let Some(value) = object.get("class") {
        contract.class = named(&value, &Class::NAMES, Class::from_name)?;
    }
    if let Some(value) = object.get("parent") {
        contract.parent = nodes.find(&value)?;
    }
    let first_deadline = object.optional("first_deadline", |at| at.number(0, u64::MAX))?;
    Ok(TraceStream { id, contract, first_deadline: first_deadline.map(Instant) })
}

fn window(value: &Value<'_, '_>) -> Result<Window, TraceError> {
    let list = value.list()?;
    let [x, y] = list[..] else {
        let found = list.len();
        return Err(value.error(Fault::Length { found, expected: "2", example: "[1, 2]" }));
    };
    let x = value.element(0, x).number(0, u16::MAX)?;
    let y = value.element(1, y).number(0, u16::MAX)?;
    Window::new(x, y).map_err(|_| value.error(Fault::Window { x, y }))
}

fn arrivals(
    top: &Object<'_, '_>,
    ids: &BTreeMap<String, StreamIndex>,
) -> Result<Arrivals, TraceError> {
    const EXAMPLE: &str = "\"arrivals\": [[0, \"a\"]], or \"backlogged\": true";
    if top.optional("backlogged", Value::boolean)?.unwrap_or(false) {
        return match top.get("arrivals") {
            Some(value) => Err(value.error(Fault::BothBacklogAndArrivals)),
            None => Ok(Arrivals::Backlogged),
        };
    }
    let value = top.required("arrivals", EXAMPLE)?;
    let mut latest = BTreeMap::new();
    let mut listed = Vec::new();
    for (index, raw) in value.list()?.into_iter().enumerate() {
        let value = value.element(index, raw);
        let arrival = arrival(&value, ids)?;
        let previous = latest.insert(arrival.stream, arrival.at).unwrap_or_default();
        if arrival.at < previous {
            let named = ids.iter().find(|(_, stream)| **stream == arrival.stream);
            return Err(value.error(Fault::Backwards {
                id: named.map(|(id, _)| shorten(id)).unwrap_or_default(),
                at: arrival.at.0,
                previous: previous.0,
            }));
        }
        listed.push(arrival);
    }
    Ok(Arrivals::Listed(listed))
}

/// `[time, "stream"]` or `[time, "stream", size]`.
fn arrival(
    value: &Value<'_, '_>,
    ids: &BTreeMap<String, StreamIndex>,
) -> Result<Arrival, TraceError> {
    const SIZE: Bytes = Bytes(1000);
    let list = value.list()?;
    let (at, id, size) = match list[..] {
        [at, id] => (at, id, None),
        [at, id, size] => (at, id, Some(size)),
        _ => {
            let (found, expected, example) = (list.len(), "2 or 3", "[0, \"a\"]");
            return Err(value.error(Fault::Length { found, expected, example }));
        }
    };
    let at = Instant(value.element(0, at).number(0, u64::MAX)?);
    let id_value = value.element(1, id);
    let id = id_value.string()?;
    let stream = *ids.get(&id).ok_or_else(|| {
        let suggestion = nearest(&id, ids.keys().map(|id| &**id)).map(Into::into);
        id_value.error(Fault::UnknownStream { id: shorten(&id), suggestion })
    })?;
    let size = match size {
        Some(size) => Bytes(value.element(2, size).number(1, u64::MAX)?),
        None => SIZE,
    };
    Ok(Arrival { at, stream, size })
}
