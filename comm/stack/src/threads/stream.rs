//! A stream of messages through modules that do nothing, on threads: it measures the cost of a
//! hand-over between elements.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::module::Direction;
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

use crate::element::{EntryPort, External, ModuleChain, Pipeline, ProcessingElement};

/// Modules that do nothing, to measure the machinery around them.
#[derive(Debug)]
pub struct Null {
    module_count: usize,
    left: AtomicU64,
}

impl Null {
    /// A pipeline of this number of modules.
    #[must_use]
    pub const fn new(module_count: usize) -> Self {
        Self { module_count, left: AtomicU64::new(0) }
    }

    /// The number of messages that have left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }
}

impl ModuleChain for Null {
    type Message = u64;

    fn module_count(&self) -> usize {
        self.module_count
    }

    fn run(
        &self,
        _: usize,
        direction: Direction,
        message: u64,
        _: Instant,
        out: &mut Vec<(Direction, u64)>,
    ) -> Duration {
        out.push((direction, message));
        Duration::ZERO
    }

    fn emit(&self, _: Direction, _: u64, _: Instant) {
        self.left.fetch_add(1, Ordering::AcqRel);
    }
}

/// Measures how long `count` messages take through one module per element, each element on a thread
/// of its own: a stream of hand-overs.
///
/// # Panics
/// If a thread panics, or the stream takes longer than a minute.
#[must_use]
pub fn stream(elements: u8, count: u64) -> Duration {
    let pipeline = Arc::new(Pipeline::new(Null::new(elements.into()), 256));
    for n in 0..elements {
        pipeline.assign_both(n.into(), ElementSet::only(ElementId(n)));
    }
    let (ready, begun) = (AtomicU64::new(0), Clock::new());
    thread::scope(|scope| {
        for n in 1..elements {
            let (pipeline, ready) = (Arc::clone(&pipeline), &ready);
            scope.spawn(move || {
                let mut element = ProcessingElement::new(ElementId(n));
                element.add(Arc::clone(&pipeline));
                ready.fetch_add(1, Ordering::AcqRel);
                run(&mut element, begun, || pipeline.work().left() == count);
            });
        }
        while ready.load(Ordering::Acquire) + 1 < u64::from(elements) {
            thread::yield_now();
            assert!(begun.now() < STREAM_MAX, "the other elements never begin");
        }
        let mut element = ProcessingElement::new(ElementId(0));
        element.add(Arc::clone(&pipeline));
        let mut port = EntryPort::new(Arc::clone(&pipeline), External::Application);
        let (clock, mut put) = (Clock::new(), 0);
        run(&mut element, begun, || {
            while put < count && port.enqueue(put).is_ok() {
                put += 1;
            }
            pipeline.work().left() == count
        });
        clock.now().since(Instant::ZERO)
    })
}

/// The longest that a stream may take on the most loaded machine.
pub(super) const STREAM_MAX: Instant = Instant(60_000_000_000);

fn run(element: &mut ProcessingElement<Null>, begun: Clock, mut done: impl FnMut() -> bool) {
    let mut idle = 0_u64;
    loop {
        let mut worked = false;
        for _ in 0..32 {
            let Some(job) = element.process_next(Instant::ZERO) else { break };
            element.forward_result(job, Instant::ZERO);
            worked = true;
        }
        if done() {
            return;
        }
        idle = if worked { 0 } else { idle + 1 };
        if idle > 1000 {
            thread::yield_now();
            assert!(begun.now() < STREAM_MAX, "element {} waits for ever", element.id());
        }
    }
}
