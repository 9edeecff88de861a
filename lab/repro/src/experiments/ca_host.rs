//! A host of the `ca` experiments in virtual time: the product's elements, pipes and plants, on
//! modules that cost what a table says.
//!
//! The network interface is a lock that each message holds while it is copied out, and that costs
//! more the more elements stand at it: each that waits slows the one who holds it by a part of the
//! cost (its polling takes the interconnect). That part is swept, and measured on this machine's interface.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use selvedge_comm_stack::element::{
    EntryPort, External, Job, ModuleChain, Pipeline, ProcessingElement,
};
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::model::{Cost, Interface, Overheads};
use selvedge_data_stack::module::Direction;
use selvedge_units::{Bytes, Duration, Instant};

/// A message's parts, where it is cut.
pub(crate) const PARTS: usize = 3;

/// A message: its size, when it entered, how many parts of it this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) size: Bytes,
    pub(crate) entered: Instant,
}

/// The network interface, which all connections share.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    cost: Interface0,
    /// By which part of its time an element that waits slows the one that holds it.
    polling: f64,
    /// When each of those that asked is done with it.
    held: Mutex<Vec<Instant>>,
}

/// Its costs; nothing by default.
#[derive(Debug, Default)]
struct Interface0(Option<Interface>);

impl Wire {
    pub(crate) fn new(cost: Interface, polling: f64) -> Self {
        Self { cost: Interface0(Some(cost)), polling, held: Mutex::default() }
    }

    /// How long an element is at it from `now` on, waiting included.
    fn pass(&self, size: Bytes, now: Instant) -> Duration {
        let Some(cost) = self.cost.0 else { return Duration::ZERO };
        let mut held = self.held.lock().unwrap_or_else(|error| error.into_inner());
        held.retain(|&until| until > now);
        let before = held.len() as f64;
        let alone = cost.of(size);
        let start = held.iter().copied().max().unwrap_or(now);
        let polled = alone.0 as f64 * before * self.polling;
        let until = start + alone + Duration(polled as u64);
        held.push(until);
        until.since(now)
    }
}

/// The modules of one connection.
#[derive(Debug)]
pub(crate) struct CostedChain {
    costs: Vec<Cost>,
    overheads: Overheads,
    wire: Arc<Wire>,
    /// The place behind which a message goes on in parts, to be put together two places on.
    cut: Option<usize>,
    parts: AtomicU64,
    /// Messages that left, when they entered and left.
    left: Mutex<Vec<(Instant, Instant)>>,
}

impl ModuleChain for CostedChain {
    type Message = Unit;

    fn module_count(&self) -> usize {
        self.costs.len()
    }

    fn run(
        &self,
        place: usize,
        direction: Direction,
        unit: Unit,
        now: Instant,
        out: &mut Vec<(Direction, Unit)>,
    ) -> Duration {
        let part = Bytes(unit.size.0 / PARTS as u64);
        let size = if self.cut.is_some_and(|cut| place == cut + 1) { part } else { unit.size };
        let mut cost = self.costs[place].of(size, false);
        match self.cut {
            Some(cut) if place == cut => out.extend([(direction, unit); PARTS]),
            Some(cut) if place == cut + 2 => {
                let count = self.parts.fetch_add(1, Relaxed) + 1;
                if count.is_multiple_of(PARTS as u64) {
                    out.push((direction, unit));
                } else {
                    return Duration::ZERO;
                }
            }
            _ => out.push((direction, unit)),
        }
        if place + 1 == self.costs.len() {
            cost += self.wire.pass(unit.size, now + cost);
        }
        cost
    }

    fn emit(&self, _: Direction, unit: Unit, now: Instant) {
        self.left.lock().unwrap_or_else(|error| error.into_inner()).push((unit.entered, now));
    }

    fn overheads(&self) -> Overheads {
        self.overheads
    }
}

/// How a connection's messages come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) size: Bytes,
    /// A message each such time; zero: always as many under way as `window`.
    pub(crate) every: Duration,
    pub(crate) window: u64,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

struct Connection {
    pipeline: Arc<Pipeline<CostedChain>>,
    port: EntryPort<CostedChain>,
    source: Source,
    sent: u64,
    left: u64,
    /// Whether its next message waits for a place in its queue.
    is_blocked: bool,
}

struct Worker {
    element: ProcessingElement<CostedChain>,
    job: Option<(Instant, Job<Unit>)>,
    busy: Duration,
}

/// A host.
pub(crate) struct Host {
    wire: Arc<Wire>,
    overheads: Overheads,
    connections: Vec<Connection>,
    workers: Vec<Worker>,
    pub(crate) now: Instant,
}

/// What one connection did in a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionSample {
    pub(crate) messages: u64,
    pub(crate) latency: Duration,
    pub(crate) latency_max: Duration,
}

impl Host {
    pub(crate) fn new(elements: u8, overheads: Overheads, wire: Wire) -> Self {
        let worker = |n| Worker {
            element: ProcessingElement::new(ElementId(n)),
            job: None,
            busy: Duration::ZERO,
        };
        Self {
            wire: Arc::new(wire),
            overheads,
            connections: Vec::new(),
            workers: (0..elements).map(worker).collect(),
            now: Instant::ZERO,
        }
    }

    /// A connection with modules of these costs on these elements.
    pub(crate) fn connect(
        &mut self,
        costs: Vec<Cost>,
        assigned: &[ElementSet],
        cut: Option<usize>,
        source: Source,
    ) {
        let work = CostedChain {
            costs,
            overheads: self.overheads,
            wire: Arc::clone(&self.wire),
            cut,
            parts: AtomicU64::new(0),
            left: Mutex::default(),
        };
        let pipeline = Arc::new(Pipeline::new(work, 256));
        for worker in &mut self.workers {
            worker.element.add(Arc::clone(&pipeline));
        }
        let port = EntryPort::new(Arc::clone(&pipeline), External::Application);
        self.connections.push(Connection {
            pipeline,
            port,
            source,
            sent: 0,
            left: 0,
            is_blocked: false,
        });
        self.assign(self.connections.len() - 1, assigned);
    }

    pub(crate) fn assign(&self, connection: usize, assigned: &[ElementSet]) {
        for (place, &elements) in assigned.iter().enumerate() {
            self.connections[connection].pipeline.assign_both(place, elements);
        }
    }

    /// Changes how a connection's messages come from now on.
    pub(crate) fn change(&mut self, connection: usize, size: Bytes) {
        self.connections[connection].source.size = size;
    }

    /// Runs until then, or until nothing happens any more.
    pub(crate) fn run(&mut self, until: Instant) {
        while self.now < until {
            self.feed();
            for worker in &mut self.workers {
                if let Some((done, job)) = worker.job.take() {
                    if done > self.now {
                        worker.job = Some((done, job));
                        continue;
                    }
                    worker.element.forward_result(job, self.now);
                }
            }
            // What one ends another may begin at the same moment.
            for worker in self.workers.iter_mut().filter(|worker| worker.job.is_none()) {
                if let Some(job) = worker.element.process_next(self.now) {
                    worker.busy += job.cost;
                    worker.job = Some((self.now + job.cost, job));
                }
            }
            let done = self.workers.iter().filter_map(|worker| Some(worker.job.as_ref()?.0)).min();
            let free = self.connections.iter().filter(|connection| !connection.is_blocked);
            let due = free.filter_map(Connection::due).min();
            // Nothing to do: all connections have ended or are blocked.
            let next = done.into_iter().chain(due).min().unwrap_or(until);
            self.now = next.max(self.now + Duration(1)).min(until);
        }
    }

    fn feed(&mut self) {
        let now = self.now;
        for connection in &mut self.connections {
            let Source { size, window, from, until, .. } = connection.source;
            while now >= from && now < until && connection.is_due(now) {
                let entered = connection.due().filter(|_| window == 0).unwrap_or(now);
                connection.is_blocked = connection.port.enqueue(Unit { size, entered }).is_err();
                if connection.is_blocked {
                    break;
                }
                connection.sent += 1;
            }
        }
    }

    /// What left since the last call.
    pub(crate) fn take(&mut self, connection: usize) -> ConnectionSample {
        let connection = &mut self.connections[connection];
        let mut left =
            connection.pipeline.work().left.lock().unwrap_or_else(|error| error.into_inner());
        let all = left.drain(..).map(|(entered, left)| left.since(entered));
        let (mut seen, mut sum) = (ConnectionSample::default(), 0_u64);
        for latency in all {
            seen.messages += 1;
            sum += latency.0;
            seen.latency_max = seen.latency_max.max(latency);
        }
        connection.left += seen.messages;
        seen.latency = Duration(sum / seen.messages.max(1));
        seen
    }

    /// Messages put in so far.
    pub(crate) fn sent(&self, connection: usize) -> u64 {
        self.connections[connection].sent
    }
}

impl Connection {
    /// When the next message comes, if by the clock.
    fn due(&self) -> Option<Instant> {
        let Source { every, from, until, window, .. } = self.source;
        if window > 0 {
            return None;
        }
        Some(from + every * self.sent).filter(|&due| due < until)
    }

    fn is_due(&self, now: Instant) -> bool {
        if self.source.window == 0 {
            return self.due().is_some_and(|due| due <= now);
        }
        let left = self.pipeline.work().left.lock().unwrap_or_else(|error| error.into_inner());
        self.sent - self.left - (left.len() as u64) < self.source.window
    }
}
