//! The file of `stack model`: processor shares of elements, costs of modules and pipes, streams with
//! their contracts. Read with serde; errors name their line or their stream.

use std::fmt::Display;
use std::str::FromStr;

use selvedge_comm_stack::profile;
use selvedge_data_stack::compose::{ComposeError, Composition};
use selvedge_data_stack::contract::{Contract, ContractError, Promise, Quality, Traffic};
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::load::Load;
use selvedge_data_stack::model::{Cost, Interface, Machine, Overheads, Slaves, Stream, WakeUp};
use selvedge_data_stack::module::Direction;
use selvedge_units::{Bytes, Duration};
use serde::{Deserialize, Deserializer};

/// The most streams in a file.
const STREAMS_MAX: usize = 256;

/// A quantity as people write it.
#[derive(Clone, Copy, Debug, Default)]
struct Quantity<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Quantity).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    available: Vec<u8>,
    pipes: Option<PipeCosts>,
    interface: Option<ModuleCost>,
    slaves: Option<SlaveCosts>,
    #[serde(default)]
    wake_up: WakeUpCost,
    stream: Vec<StreamText>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PipeCosts {
    get: Quantity<Duration>,
    get_locked: Quantity<Duration>,
    same: Quantity<Duration>,
    other: Quantity<Duration>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlaveCosts {
    count: u64,
    part: Quantity<Bytes>,
    call: Quantity<Duration>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WakeUpCost {
    average: Quantity<Duration>,
    worst: Quantity<Duration>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModuleCost {
    null: Quantity<Duration>,
    kilobyte: Quantity<Duration>,
    kilobyte_remote: Option<Quantity<Duration>>,
    critical: Quantity<Duration>,
    shared: bool,
}

impl ModuleCost {
    fn cost(self) -> Cost {
        let Self { null, kilobyte, kilobyte_remote, critical, shared } = self;
        let kilobyte_remote = kilobyte_remote.unwrap_or(kilobyte).0;
        Cost { null: null.0, kilobyte: kilobyte.0, kilobyte_remote, critical: critical.0, shared }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamText {
    stack: Option<String>,
    #[serde(default)]
    up: bool,
    modules: Option<Vec<ModuleCost>>,
    every: Quantity<Duration>,
    minimum: Option<Quantity<Duration>>,
    interval: Option<Quantity<Duration>>,
    size: Quantity<Bytes>,
    delay: Quantity<Duration>,
    #[serde(default)]
    loss_burst: u64,
    #[serde(default)]
    firm: bool,
    assigned: Option<Vec<String>>,
}

/// Why a file describes no machine with streams.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// It is not TOML, or has other keys and values.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error("available: {0} elements; write 1 to {most}", most = ElementSet::MAX)]
    Elements(usize),
    #[error("available: {0}; an element gives 0 to 100 per cent")]
    Available(u8),
    #[error("{0} streams; at most {STREAMS_MAX} are read")]
    Streams(usize),
    #[error("slaves: {count}, with parts of {part}; write 0 to 64, and a part")]
    Slaves { count: u64, part: Bytes },
    #[error("stream {number}: {error}")]
    Stream { number: usize, error: StreamError },
}

/// Why a stream of the file is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("write either modules, at least one, or stack")]
    Modules,
    #[error("stack \"{line}\": {error}")]
    Stack { line: String, error: ComposeError },
    /// No machine can keep its contract.
    #[error(transparent)]
    Contract(#[from] ContractError),
    #[error("assigned has {given} entries for {modules} modules; write one each")]
    Assigned { given: usize, modules: usize },
    #[error("assigned \"{text}\": write elements 0 to {last}, such as \"0,1\"")]
    Element { text: String, last: usize },
}

/// A machine and streams, each with whether its assignment is stated.
pub(super) fn read(text: &str) -> Result<(Machine, Vec<(Stream, bool)>), FileError> {
    let file: File = toml::from_str(text)?;
    let count = file.available.len();
    if count == 0 || count > ElementSet::MAX {
        return Err(FileError::Elements(count));
    }
    if let Some(&over) = file.available.iter().find(|&&percent| percent > 100) {
        return Err(FileError::Available(over));
    }
    if file.stream.len() > STREAMS_MAX {
        return Err(FileError::Streams(file.stream.len()));
    }
    let overheads = match file.pipes {
        Some(PipeCosts { get, get_locked, same, other }) => {
            Overheads { get: get.0, get_locked: get_locked.0, same: same.0, other: other.0 }
        }
        None => profile::cached().pipes.overheads(),
    };
    let interface = file.interface.map(|cost| Interface {
        null: cost.null.0,
        kilobyte: cost.kilobyte.0,
        available: Load::WHOLE,
    });
    let available = file.available.iter().map(|&percent| Load::percent(percent.into())).collect();
    let slaves = match file.slaves {
        Some(SlaveCosts { count, part: Quantity(part), .. }) if count > 64 || part == Bytes(0) => {
            return Err(FileError::Slaves { count, part });
        }
        Some(SlaveCosts { count, part, call }) => Slaves { count, part: part.0, call: call.0 },
        None => Slaves::default(),
    };
    let wake_up = WakeUp { average: file.wake_up.average.0, worst: file.wake_up.worst.0 };
    // What the file calls available is what its author has reserved.
    let machine = Machine { available, overheads, interface, slaves, wake_up, is_reserved: true };
    let streams = file.stream.iter().enumerate().map(|(number, text)| {
        stream(text, count).map_err(|error| FileError::Stream { number, error })
    });
    Ok((machine, streams.collect::<Result<_, _>>()?))
}

fn stream(text: &StreamText, elements: usize) -> Result<(Stream, bool), StreamError> {
    let modules = match (&text.modules, &text.stack) {
        (Some(modules), None) if !modules.is_empty() => {
            modules.iter().map(|cost| cost.cost()).collect()
        }
        (None, Some(line)) => {
            let composition: Composition =
                line.parse().map_err(|error| StreamError::Stack { line: line.clone(), error })?;
            let (costs, steps) = (profile::cached(), composition.steps());
            let way = if text.up { Direction::Up } else { Direction::Down };
            let mut modules: Vec<_> = steps.iter().map(|step| costs.cost(step, way)).collect();
            if text.up {
                modules.reverse();
            }
            modules
        }
        _ => return Err(StreamError::Modules),
    };
    let (average, loss_burst) = (text.every, text.loss_burst);
    let promise = if text.firm { Promise::Firm } else { Promise::Wanted };
    let traffic = Traffic {
        average: average.0,
        minimum: text.minimum.unwrap_or(average).0,
        interval: text.interval.unwrap_or(average).0,
        largest: text.size.0,
    };
    let quality = Quality { delay: text.delay.0, loss_burst, promise };
    let contract = Contract { traffic, quality }.check()?;
    let mut stream = Stream::new(contract, modules);
    let Some(assigned) = &text.assigned else { return Ok((stream, false)) };
    if assigned.len() != stream.modules.len() {
        let (given, modules) = (assigned.len(), stream.modules.len());
        return Err(StreamError::Assigned { given, modules });
    }
    for (to, text) in stream.assigned.iter_mut().zip(assigned) {
        for number in text.split(',') {
            let number = number.trim();
            let id = number.parse().ok().filter(|&id: &u8| usize::from(id) < elements);
            let none = || StreamError::Element { text: text.clone(), last: elements - 1 };
            *to = to.with(ElementId(id.ok_or_else(none)?));
        }
    }
    Ok((stream, true))
}
