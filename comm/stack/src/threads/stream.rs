//! A stream of messages through modules that do nothing, on threads: what a hand-over between
//! elements costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use selvedge_data_stack::elements::{ElementId, Elements};
use selvedge_data_stack::module::Direction;
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

use crate::element::{Element, Outside, Plant, Port, Work};

/// Modules that do nothing, to measure what is around them.
#[derive(Debug)]
pub struct Null {
    places: usize,
    left: AtomicU64,
}

impl Null {
    /// So many of them.
    #[must_use]
    pub const fn new(places: usize) -> Self {
        Self { places, left: AtomicU64::new(0) }
    }

    /// Messages that have left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }
}

impl Work for Null {
    type Message = u64;

    fn places(&self) -> usize {
        self.places
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

    fn leave(&self, _: Direction, _: u64, _: Instant) {
        self.left.fetch_add(1, Ordering::AcqRel);
    }
}

/// How long `count` messages take through as many modules as there are elements, one each, on
/// threads of their own: a stream of hand-overs.
///
/// # Panics
/// If a thread panics, or it takes longer than a minute.
#[must_use]
pub fn stream(elements: u8, count: u64) -> Duration {
    let plant = Arc::new(Plant::new(Null::new(elements.into()), 256));
    for n in 0..elements {
        plant.assign_both(n.into(), Elements::only(ElementId(n)));
    }
    let (ready, begun) = (AtomicU64::new(0), Clock::new());
    thread::scope(|scope| {
        for n in 1..elements {
            let (plant, ready) = (Arc::clone(&plant), &ready);
            scope.spawn(move || {
                let mut element = Element::new(ElementId(n));
                element.add(Arc::clone(&plant));
                ready.fetch_add(1, Ordering::AcqRel);
                run(&mut element, begun, || plant.work().left() == count);
            });
        }
        while ready.load(Ordering::Acquire) + 1 < u64::from(elements) {
            thread::yield_now();
            assert!(begun.now() < STREAM_MAX, "the other elements never begin");
        }
        let mut element = Element::new(ElementId(0));
        element.add(Arc::clone(&plant));
        let mut port = Port::new(Arc::clone(&plant), Outside::Application);
        let (clock, mut put) = (Clock::new(), 0);
        run(&mut element, begun, || {
            while put < count && port.put(put).is_ok() {
                put += 1;
            }
            plant.work().left() == count
        });
        clock.now().since(Instant::ZERO)
    })
}

/// How long a stream may take on the most loaded machine.
pub(super) const STREAM_MAX: Instant = Instant(60_000_000_000);

fn run(element: &mut Element<Null>, begun: Clock, mut done: impl FnMut() -> bool) {
    let mut idle = 0_u64;
    loop {
        let mut worked = false;
        for _ in 0..32 {
            let Some(job) = element.begin(Instant::ZERO) else { break };
            element.end(job, Instant::ZERO);
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
