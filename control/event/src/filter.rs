//! Filters in E-code. An **event filter** belongs to one sink and decides whether it gets an event.
//! A **channel filter** sees the whole channel, and may choose sinks for each event; one is called
//! for sent events (OUT), one for received ones (IN). Static variables keep state from event to
//! event. A **shared** record, declared by the filter's own source, is one block of memory for all
//! filters that name it, on any channel. So a control channel's filter can set a parameter of a
//! data channel's filter. After Q-Fabric's section 4.2.3.
//!
//! A filter reads an event's attributes by declaring them: `attributes { long load; };` holds the
//! event's attribute of that name, or 0.
//!
//! The data of a filter beside `input`, the event's record:
//!
//! ```text
//! struct sink_state { long waiting; long delivered; long dropped; };
//! event   { long left; long sequence; };            // ns until the deadline, -1 without one
//! channel { long sinks; long sent; struct sink_state sink[128]; };
//! choice  { char sink[128]; long hold; };           // written by a channel filter; begins as 1, and 0
//! ```
//!
//! With `choice.hold` an OUT filter holds an event back for this number of nanoseconds. It is suppressed if
//! another host's event comes first that answers the same question: see [`ANSWERS`](crate::ANSWERS).

use std::sync::Arc;

use selvedge_control_code::interpret::NoHost;
use selvedge_control_code::{
    Access, CodeError, Environment, Fault, Handler, Number, Program, Storage, Struct, compile,
    numbers,
};

use selvedge_units::{Duration, Instant};

use crate::attribute::Value;
use crate::event::{Delivery, Event};
use crate::format::Format;

/// The largest number of sinks that a channel has on one host, and that filters see.
pub const SINKS_MAX: usize = 128;

const CONTEXT: &str = "
    struct sink_state { long waiting; long delivered; long dropped; };
    struct event { long left; long sequence; };
    struct channel { long sinks; long sent; struct sink_state sink[128]; };
    struct choice { char sink[128]; long hold; };
";

/// The names that a filter may use on a channel of this format: to check one, or to compile it.
pub fn environment(format: &Format) -> Environment {
    let mut environment = Environment::parse("filter", CONTEXT).expect("declared above");
    let layout = |environment: &Environment, name: &str| -> Arc<Struct> {
        Arc::clone(environment.layout(name).expect("declared above"))
    };
    let (event, channel) = (layout(&environment, "event"), layout(&environment, "channel"));
    let choice = layout(&environment, "choice");
    environment
        .record("input", Arc::clone(format.layout()), Access::Read)
        .record("event", event, Access::Read)
        .record("channel", channel, Access::Read)
        .record("choice", choice, Access::Write);
    environment
}

/// Compiles a filter for a format to its typed form.
///
/// # Errors
/// The error in the source.
pub fn program(name: &str, source: &str, format: &Format) -> Result<Program, CodeError> {
    compile(name, source, &environment(format))
}

/// A sink as a filter sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkState {
    /// The number of events that wait for it.
    pub waiting: u64,
    /// The number of events that it got.
    pub delivered: u64,
    /// The number of events that were dropped for it, for any reason except a filter.
    pub dropped: u64,
}

/// The choice of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterResult {
    /// The sinks, as bits.
    pub(crate) sinks: u128,
    /// How long to hold the event back.
    pub(crate) hold: Duration,
}

impl FilterResult {
    /// The choice without a filter.
    pub(crate) const ALL: Self = Self { sinks: u128::MAX, hold: Duration(0) };
    /// The choice of a filter that refused the event, or failed.
    pub(crate) const NONE: Self = Self { sinks: 0, hold: Duration(0) };
}

/// The input of a filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterInput<'a> {
    pub(crate) event: Event<'a>,
    /// When the filter is called.
    pub(crate) now: Instant,
    pub(crate) sequence: u64,
    pub(crate) sinks: &'a [SinkState],
}

/// Blocks of memory that filters share by name.
#[derive(Clone, Debug, Default)]
pub struct SharedBlocks {
    blocks: Vec<(String, Arc<Struct>, Vec<u8>)>,
}

/// Two filters declare the same shared block differently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter's shared record differs from that of \"{0}\"; declare the same members")]
pub struct SharedMismatch(pub String);

impl SharedBlocks {
    /// The bytes of a block.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.blocks.iter().find(|(known, ..)| known == name).map(|(_, _, bytes)| &**bytes)
    }

    fn add_block(&mut self, name: &str, layout: &Arc<Struct>) -> Result<usize, SharedMismatch> {
        if let Some(at) = self.blocks.iter().position(|(known, ..)| known == name) {
            let same = self.blocks[at].1 == *layout;
            return if same { Ok(at) } else { Err(SharedMismatch(name.to_owned())) };
        }
        self.blocks.push((name.to_owned(), Arc::clone(layout), vec![0; layout.size as usize]));
        Ok(self.blocks.len() - 1)
    }
}

/// A filter that is ready to run.
pub struct Filter {
    handler: Box<dyn Handler + Send>,
    places: FilterLayout,
    /// The attributes that it reads, by name.
    attributes: Vec<(String, usize, Storage)>,
    shared: Option<usize>,
    faults: u64,
}

#[derive(Clone, Copy, Debug)]
struct FilterLayout {
    input: usize,
    input_size: usize,
    event: usize,
    channel: usize,
    choice: usize,
    shared: Option<(usize, usize)>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({:?}, {} faults)", self.handler.program().name(), self.faults)
    }
}

impl Filter {
    /// A filter of a handler whose program was compiled with [`environment`] or [`program`]. The
    /// host chooses whether the evaluator runs it, machine code, or the kernel. A program with a
    /// `shared` record joins the block of this name.
    ///
    /// # Errors
    /// If the block's other filters declare it differently.
    ///
    /// # Panics
    /// If the program was compiled in another environment.
    pub fn new(
        handler: Box<dyn Handler + Send>,
        shared_name: &str,
        blocks: &mut SharedBlocks,
    ) -> Result<Self, SharedMismatch> {
        let place = |name: &str| {
            let placed = handler.program().record(name);
            placed.map(|one| (one.offset as usize, Arc::clone(&one.record.layout)))
        };
        let of = |name| place(name).expect("a filter is compiled in a channel's environment");
        let (input, layout) = of("input");
        let shared = place("shared");
        let joined = shared.as_ref().map(|(_, layout)| blocks.add_block(shared_name, layout));
        let joined = joined.transpose()?;
        let places = FilterLayout {
            input,
            input_size: layout.size as usize,
            event: of("event").0,
            channel: of("channel").0,
            choice: of("choice").0,
            shared: shared.map(|(at, layout)| (at, layout.size as usize)),
        };
        let mut attributes = Vec::new();
        if let Some((at, layout)) = place("attributes") {
            numbers(&layout, &mut |path, offset, storage| {
                attributes.push((path.to_owned(), at + offset as usize, storage));
            });
        }
        Ok(Self { handler, places, attributes, shared: joined, faults: 0 })
    }

    /// How often a fault ended it; the event does not pass then.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// The size of the records that it reads.
    pub(crate) fn input_size(&self) -> usize {
        self.places.input_size
    }

    /// Calls the filter; returns its choice if the event passes.
    pub(crate) fn ask(
        &mut self,
        question: &FilterInput<'_>,
        blocks: &mut SharedBlocks,
    ) -> Result<Option<FilterResult>, Fault> {
        let FilterLayout { input, input_size, event, channel, choice, shared } = self.places;
        let memory = self.handler.memory_mut();
        let Event { deadline, attributes, record } = question.event;
        memory[input..input + input_size].copy_from_slice(record);
        let mut put = |at: usize, value: i64| {
            Number::Signed(value).store(memory, at, Storage::Long).expect("the checker's room");
        };
        let long = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        put(event, deadline.map_or(-1, |deadline| long(deadline.since(question.now).0)));
        put(event + 8, long(question.sequence));
        put(channel, question.sinks.len() as i64);
        put(channel + 8, long(question.sequence));
        for (number, sink) in question.sinks.iter().enumerate() {
            let at = channel + 16 + number * 24;
            put(at, long(sink.waiting));
            put(at + 8, long(sink.delivered));
            put(at + 16, long(sink.dropped));
        }
        memory[choice..choice + SINKS_MAX].fill(1);
        memory[choice + SINKS_MAX..choice + SINKS_MAX + 8].fill(0);
        for (name, at, storage) in &self.attributes {
            read(attributes.get(name), memory, *at, *storage);
        }
        let block = self.shared.and_then(|at| blocks.blocks.get_mut(at)).map(|(.., bytes)| bytes);
        if let (Some((at, size)), Some(block)) = (shared, &block) {
            memory[at..at + size].copy_from_slice(block);
        }
        let outcome = self.handler.call(&mut NoHost);
        let memory = self.handler.memory();
        if let (Some((at, size)), Some(block)) = (shared, block) {
            block.copy_from_slice(&memory[at..at + size]);
        }
        let passes = outcome.inspect_err(|_| self.faults += 1)? != 0;
        let chosen = memory[choice..choice + SINKS_MAX].iter().enumerate();
        let sinks = chosen.filter(|(_, byte)| **byte != 0).fold(0, |all, (at, _)| all | 1 << at);
        let hold = match Number::load(memory, choice + SINKS_MAX, Storage::Long) {
            Some(Number::Signed(hold)) => Duration(u64::try_from(hold).unwrap_or(0)),
            _ => Duration(0),
        };
        Ok(passes.then_some(FilterResult { sinks, hold }))
    }

    /// Calls the filter outside of a channel; returns whether the event passes. For handlers that
    /// take events from a sink of their own.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn pass(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        blocks: &mut SharedBlocks,
    ) -> Result<bool, Fault> {
        let Delivery { sequence, event, .. } = *delivery;
        let question = FilterInput { event, now, sequence, sinks: &[] };
        Ok(self.ask(&question, blocks)?.is_some())
    }

    /// The filter's own record of this name, such as `output`, as the last event left it.
    pub fn record(&self, name: &str) -> Option<(&Arc<Struct>, &[u8])> {
        let placed = self.handler.program().record(name)?;
        let (at, layout) = (placed.offset as usize, &placed.record.layout);
        Some((layout, &self.handler.memory()[at..at + layout.size as usize]))
    }
}

/// Puts an attribute into a filter's memory: 0 if the event has no attribute of this name, or one
/// that the member can't hold.
fn read(value: Option<Value<'_>>, memory: &mut [u8], at: usize, storage: Storage) {
    let number = match value {
        Some(Value::Long(value)) => Number::Signed(value),
        // As E-code converts: towards zero, to the nearest value that fits.
        Some(Value::Double(value)) if storage != Storage::Double => Number::Signed(value as i64),
        Some(Value::Double(value)) => Number::Double(value),
        Some(Value::Text(_)) | None => Number::Signed(0),
    };
    if number.store(memory, at, storage).is_none() {
        let _ = Number::Signed(0).store(memory, at, storage);
    }
}
