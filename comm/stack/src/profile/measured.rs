//! Measuring modules, pipes and hand-overs on this machine.
//!
//! Each module is measured by itself, in both directions, on messages of two sizes. The line
//! through both gives the cost of an empty message and of 1024 bytes more. The figures are medians
//! of several rounds, so that a disturbed round does not count.

use std::hint::black_box;
use std::sync::Arc;

use selvedge_data_stack::compose::Composition;
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::message::Message;
use selvedge_data_stack::model::{Cost, Overheads};
use selvedge_data_stack::module::{Critical, Direction, Key, Keys, Outputs, WorkerPool};
use selvedge_data_stack::stack::ConnectionModules;
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::concurrency::MultiThreaded;
use crate::element::{EntryPort, External, ModuleChain, Pipeline, ProcessingElement};
use crate::pipe::{Pipe, PipeUser, ReaderEnd, WriterEnd};
use crate::threads::{self, Null};

/// A module's costs in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleProfile {
    /// The module as it is written in a stack's line.
    pub module: String,
    /// The cost of an empty message going down, and of 1024 bytes more.
    pub down: [f64; 2],
    /// The same going up.
    pub up: [f64; 2],
    /// An upper bound of the part that only one element at a time can do, of an empty message, down and up.
    pub critical: [f64; 2],
}

impl ModuleProfile {
    /// The cost as the model takes it.
    #[must_use]
    pub fn cost(&self, direction: Direction) -> Cost {
        let down = direction == Direction::Down;
        let [null, kilobyte] = if down { self.down } else { self.up };
        let critical = self.critical[usize::from(!down)];
        let span = |nanos: f64| Duration(nanos.max(0.0).round() as u64);
        Cost {
            null: span(null),
            kilobyte: span(kilobyte),
            kilobyte_remote: span(kilobyte),
            critical: span(critical),
            shared: self.module.starts_with("encrypt"),
        }
    }
}

/// The costs of hand-overs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PipeProfile {
    /// Enqueue and dequeue, each by a sole user.
    pub unlocked: f64,
    /// Enqueue and dequeue by one of several users.
    pub locked: f64,
    /// A hand-over to the next module on the same element.
    pub same: f64,
    /// A hand-over to another element: the time per message in a stream between two threads.
    pub other: f64,
}

impl PipeProfile {
    /// The cost as the model takes it; half of enqueue and dequeue counts as the dequeue.
    #[must_use]
    pub fn overheads(&self) -> Overheads {
        let span = |nanos: f64| Duration(nanos.max(0.0).round() as u64);
        Overheads {
            get: span(self.unlocked / 2.0),
            get_locked: span(self.locked / 2.0),
            same: span(self.same),
            other: span(self.other),
        }
    }
}

/// The measured modules: a stack's line, and the module's place in it.
const LINES: [(&str, usize); 10] = [
    ("ui | unreliable | net", 0),
    ("ui | unreliable | net", 1),
    ("ui | reliable | net", 1),
    ("ui | checksum | unreliable | net", 1),
    ("ui | compress | unreliable | net", 1),
    ("ui | encrypt(chacha20) | unreliable | net", 1),
    ("ui | encrypt(aes256) | unreliable | net", 1),
    ("ui | unreliable | frag(1400) | net", 2),
    ("ui | unreliable | fec(8,2) | net", 2),
    ("ui | unreliable | net", 2),
];
/// The two sizes: one below a fragment, one above; the second does not change the number of calls.
const SIZES: [usize; 2] = [64, 8 * 1024 + 64];
const MESSAGES: u64 = 64;

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Measures every module in `rounds` rounds each.
#[must_use]
pub fn modules(rounds: usize) -> Vec<ModuleProfile> {
    let mut modules: Vec<_> =
        LINES.iter().map(|&(line, place)| module(line, place, rounds)).collect();
    // The time to number a message is that of the transport that does nothing else.
    let transport = modules.iter().find(|module| module.module == "unreliable");
    let mark = transport.map_or(0.0, |module| module.up[0]);
    for (module, &(line, place)) in modules.iter_mut().zip(&LINES) {
        let critical = [(Direction::Down, module.down[0]), (Direction::Up, module.up[0])];
        module.critical = critical.map(|(way, null)| match critical_of(line, place, way) {
            Critical::Nothing => 0.0,
            Critical::Window => mark.min(null),
            Critical::Whole => null,
        });
    }
    modules
}

fn critical_of(line: &str, place: usize, direction: Direction) -> Critical {
    let keys = Keys { send: Key([1; 32]), receive: Key([2; 32]) };
    let built = line
        .parse::<Composition>()
        .ok()
        .and_then(|line| line.build::<MultiThreaded>(Some(&keys), None).ok());
    built.map_or(Critical::Nothing, |modules| modules[place].critical(direction))
}

fn module(line: &str, place: usize, rounds: usize) -> ModuleProfile {
    let composition: Composition = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
    let name = composition.steps()[place].to_string();
    let [small, large] = SIZES.map(|size| sized(&composition, place, size, rounds, None));
    let kilobytes = (SIZES[1] - SIZES[0]) as f64 / 1024.0;
    let through = |n: usize| {
        let each = (large[n] - small[n]) / kilobytes;
        [(small[n] - each * SIZES[0] as f64 / 1024.0).max(0.0), each]
    };
    ModuleProfile { module: name, down: through(0), up: through(1), critical: [0.0; 2] }
}

/// Nanoseconds of a message of this size, down and up.
pub(super) fn sized(
    composition: &Composition,
    place: usize,
    size: usize,
    rounds: usize,
    worker_pool: Option<&Arc<dyn WorkerPool>>,
) -> [f64; 2] {
    let keys = Keys { send: Key([1; 32]), receive: Key([2; 32]) };
    let [sender, receiver] = [keys.clone(), keys.swapped()].map(|keys| {
        ConnectionModules::<MultiThreaded>::with_worker_pool(
            composition,
            1,
            Some(&keys),
            worker_pool,
        )
        .unwrap_or_else(|error| panic!("{error}"))
    });
    let clock = Clock::new();
    // The bytes are neither all alike nor random.
    let body: Vec<u8> = (0..size).map(|n| (n % 61 * (n % 7)) as u8).collect();
    let (mut out, mut way) = (Outputs::default(), Vec::new());
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..rounds as u64 + 2 {
        let messages: Vec<Message> = (0..MESSAGES)
            .map(|n| sender.message(&body, round * MESSAGES + n, clock.now()))
            .collect();
        let now = clock.now();
        for message in messages {
            sender.modules()[place].handle(Direction::Down, message, &sender.call(now), &mut out);
        }
        let down = clock.now().since(now);
        way.extend(out.drain().map(|(_, message)| message));
        let now = clock.now();
        for message in way.drain(..) {
            let call = receiver.call(now);
            receiver.modules()[place].handle(Direction::Up, message, &call, &mut out);
        }
        let up = clock.now().since(now);
        let later = now + Duration::from_secs(1);
        receiver.modules()[place].handle_timeout(&receiver.call(later), &mut out);
        for (direction, message) in out.drain().collect::<Vec<_>>() {
            match direction {
                Direction::Up => receiver.buffers().recycle(message),
                // An acknowledgement.
                Direction::Down => sender.modules()[place].handle(
                    Direction::Up,
                    message,
                    &sender.call(later),
                    &mut Outputs::default(),
                ),
            }
        }
        if round >= 2 {
            took[0].push(down.0 as f64 / MESSAGES as f64);
            took[1].push(up.0 as f64 / MESSAGES as f64);
        }
    }
    took.map(median)
}

/// Measures pipes and hand-overs in `rounds` rounds.
#[must_use]
pub fn pipes(rounds: usize) -> PipeProfile {
    let of = |measure: &dyn Fn() -> f64| median((0..rounds).map(|_| measure()).collect());
    PipeProfile {
        unlocked: of(&|| put_and_get(false)),
        locked: of(&|| put_and_get(true)),
        same: of(&|| (chain(18) - chain(2)) / 16.0),
        other: of(&|| threads::stream(2, 200_000).0 as f64 / 200_000.0),
    }
}

fn put_and_get(locked: bool) -> f64 {
    const COUNT: u64 = 100_000;
    let pipe: Pipe<u64, ()> = Pipe::new(64);
    let (mut writing, mut reading) = (WriterEnd::default(), ReaderEnd::default());
    let (me, other) = (PipeUser::new(0), PipeUser::new(1));
    let (mut others_writing, mut others_reading) = (WriterEnd::default(), ReaderEnd::default());
    if locked {
        // The other user uses the pipe too, and shares the half that it owns.
        let _ = pipe.enqueue(other, &mut others_writing, 0);
        let _ = pipe.enqueue(me, &mut writing, 0);
        pipe.share_writer_end(other, &mut others_writing);
        if let Some(taken) = pipe.dequeue(other, &mut others_reading) {
            pipe.complete(taken.ticket, (), false, |()| None);
        }
        assert!(pipe.dequeue(me, &mut reading).is_none(), "the other has the half");
        pipe.share_reader_end(other, &mut others_reading);
    }
    let mut through = 0;
    let clock = Clock::new();
    for n in 0..COUNT {
        let _ = black_box(pipe.enqueue(me, &mut writing, n));
        if let Some(taken) = pipe.dequeue(me, &mut reading) {
            pipe.complete(taken.ticket, (), !taken.locked, |()| None);
            assert_eq!(taken.locked, locked, "as it is to be measured");
            through += black_box(1);
        }
    }
    let took = clock.now().0 as f64 / COUNT as f64;
    assert_eq!(through, COUNT, "all came through");
    took
}

/// Nanoseconds of a message through this number of modules on one element.
fn chain(module_count: usize) -> f64 {
    const COUNT: u64 = 50_000;
    let pipeline = Arc::new(Pipeline::new(Null::new(module_count), 64));
    (0..module_count).for_each(|place| pipeline.assign_both(place, ElementSet::first(1)));
    let mut port = EntryPort::new(Arc::clone(&pipeline), External::Application);
    let mut element = ProcessingElement::new(ElementId(0));
    element.add(Arc::clone(&pipeline));
    let clock = Clock::new();
    for n in 0..COUNT {
        let _ = port.enqueue(n);
        if let Some(job) = element.process_next(Instant::ZERO) {
            element.forward_result(job, Instant::ZERO);
        }
    }
    let took = clock.now().0 as f64 / COUNT as f64;
    assert_eq!(pipeline.work().left(), COUNT, "all came out");
    debug_assert_eq!(pipeline.work().module_count(), module_count);
    took
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_has_its_costs() {
        let modules = modules(3);
        assert_eq!(modules.len(), LINES.len());
        let cost = |name: &str| {
            let found = modules.iter().find(|profile| profile.module == name);
            found.expect(name).cost(Direction::Down)
        };
        let critical = |name: &str| {
            let found = modules.iter().find(|profile| profile.module == name);
            found.expect(name).critical
        };
        assert_eq!(critical("ui"), [0.0; 2]);
        assert!(critical("reliable").iter().all(|&part| part > 0.0));
        assert!(critical("encrypt(aes256)")[0] == 0.0 && critical("encrypt(aes256)")[1] > 0.0);
        for module in &modules {
            for (part, whole) in module.critical.into_iter().zip([module.down[0], module.up[0]]) {
                assert!((0.0..=whole).contains(&part), "{module:?}");
            }
        }
        // This holds in every build: a cipher does more with each kilobyte than a header does.
        assert!(cost("encrypt(chacha20)").kilobyte > cost("unreliable").kilobyte);
    }

    #[test]
    fn hand_overs_are_measured() {
        let pipes = pipes(1);
        assert!(pipes.unlocked > 0.0 && pipes.locked > 0.0 && pipes.other > 0.0);
    }
}
