//! Elements in virtual time, and on threads, while modules are re-assigned under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use selvedge_units::{Duration, Instant};

use super::{EntryPort, External, ModuleChain, Pipeline, ProcessingElement};
use selvedge_data_stack::elements::{ElementId, ElementSet};
use selvedge_data_stack::module::Direction;
use selvedge_tests_wait::until;

const PLACES: usize = 4;

/// Four modules that pass messages on and count them; the second turns each message going down into three.
#[derive(Debug, Default)]
struct Numbers {
    left: [Mutex<Vec<u64>>; 2],
    runs: AtomicU64,
}

impl ModuleChain for Numbers {
    type Message = u64;

    fn module_count(&self) -> usize {
        PLACES
    }

    fn run(
        &self,
        place: usize,
        direction: Direction,
        message: u64,
        _: Instant,
        out: &mut Vec<(Direction, u64)>,
    ) -> Duration {
        self.runs.fetch_add(1, Ordering::Relaxed);
        if direction == Direction::Down && place == 1 {
            out.extend((0..3).map(|n| (direction, message * 3 + n)));
        } else {
            out.push((direction, message));
        }
        Duration(100 * (1 + place as u64))
    }

    fn emit(&self, direction: Direction, message: u64, _: Instant) {
        self.left[usize::from(direction == Direction::Up)].lock().unwrap().push(message);
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Checks that all messages left in order, each three times going down.
fn check(pipeline: &Pipeline<Numbers>, count: u64) {
    let left = |n: usize| pipeline.work().left[n].lock().unwrap().clone();
    let (down, up) = (left(0), left(1));
    assert_eq!((down.len() as u64, up.len() as u64), (count * 3, count));
    assert!(down.into_iter().eq(0..count * 3), "down in order");
    assert!(up.into_iter().eq(0..count), "up in order");
}

/// Spreads the modules over `elements` elements, in one of many ways.
fn spread(pipeline: &Pipeline<Numbers>, elements: u64, state: &mut u64) {
    let all = ElementSet::first(elements as usize).0;
    let way = random(state) % 4;
    let one = ElementSet::only(ElementId((random(state) % elements) as u8));
    for place in 0..PLACES {
        let some = ElementSet(random(state) & all);
        let set = match way {
            0 => one,
            1 => ElementSet(all),
            2 => ElementSet::only(ElementId((random(state) % elements) as u8)),
            _ if some.is_empty() => one,
            _ => some,
        };
        pipeline.assign(place, Direction::Down, set);
        let other = if random(state).is_multiple_of(3) { one } else { set };
        pipeline.assign(place, Direction::Up, other);
    }
}

#[test]
fn ten_thousand_reassignments_in_virtual_time() {
    for (elements, seed) in [(2, 1), (3, 2), (5, 3)] {
        let pipeline = Arc::new(Pipeline::new(Numbers::default(), 16));
        let mut ports = [External::Application, External::Network]
            .map(|outside| EntryPort::new(Arc::clone(&pipeline), outside));
        let mut state = seed;
        spread(&pipeline, elements, &mut state);
        let mut workers: Vec<_> =
            (0..elements as u8).map(|n| ProcessingElement::new(ElementId(n))).collect();
        workers.iter_mut().for_each(|worker| worker.add(Arc::clone(&pipeline)));
        let mut jobs: Vec<Option<(u64, super::Job<u64>)>> = (0..elements).map(|_| None).collect();
        let (mut put, mut reassigned) = ([0_u64; 2], 0);
        let count = 20_000;
        for now in 0_u64.. {
            assert!(now < 10_000_000, "it comes to an end");
            for (port, put) in ports.iter_mut().zip(&mut put) {
                if *put < count && port.enqueue(*put).is_ok() {
                    *put += 1;
                }
            }
            if reassigned < 10_000 && random(&mut state).is_multiple_of(4) {
                spread(&pipeline, elements, &mut state);
                reassigned += 1;
            }
            for (worker, job) in workers.iter_mut().zip(&mut jobs) {
                match job.take() {
                    Some((until, done)) if until <= now => {
                        worker.forward_result(done, Instant(now))
                    }
                    Some(busy) => *job = Some(busy),
                    None => {
                        let next = worker.process_next(Instant(now));
                        *job = next.map(|next| (now + next.cost.0 / 100, next));
                    }
                }
            }
            let idle = jobs.iter().all(Option::is_none)
                && workers.iter().all(ProcessingElement::is_settled);
            if put == [count; 2] && reassigned == 10_000 && idle && pipeline.is_drained() {
                break;
            }
        }
        check(&pipeline, count);
    }
}

/// Stops the elements' threads however the test ends: their scope waits for them.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until the condition holds, or the test has failed elsewhere.
fn until_or_stopped(what: &str, stop: &AtomicBool, mut done: impl FnMut() -> bool) {
    until(what, || {
        assert!(!stop.load(Ordering::Relaxed), "{what}: another thread failed before");
        done()
    });
}

#[test]
fn ten_thousand_reassignments_on_threads() {
    const ELEMENTS: u64 = 3;
    let count = if cfg!(miri) { 20 } else { 20_000 };
    let pipeline = Arc::new(Pipeline::new(Numbers::default(), 64));
    let mut state = 5;
    spread(&pipeline, ELEMENTS, &mut state);
    let stop = AtomicBool::new(false);
    let reassignments = if cfg!(miri) { 10 } else { 10_000 };
    std::thread::scope(|scope| {
        let stopping = Stop(&stop);
        let stop = &stop;
        for n in 0..ELEMENTS {
            let pipeline = Arc::clone(&pipeline);
            scope.spawn(move || {
                let mut element = ProcessingElement::new(ElementId(n as u8));
                element.add(pipeline);
                while !stop.load(Ordering::Relaxed) {
                    match element.process_next(Instant::ZERO) {
                        Some(job) => element.forward_result(job, Instant::ZERO),
                        None => std::thread::yield_now(),
                    }
                }
            });
        }
        let ports = [External::Application, External::Network].map(|outside| {
            let mut port = EntryPort::new(Arc::clone(&pipeline), outside);
            scope.spawn(move || {
                for n in 0..count {
                    until_or_stopped("a message gets in", stop, || port.enqueue(n).is_ok());
                }
            })
        });
        // The modules are re-assigned in the middle of the traffic, once for every few messages that left.
        for n in 0..reassignments {
            spread(&pipeline, ELEMENTS, &mut state);
            let goal = count * 10 * n / reassignments;
            until_or_stopped("work goes on", stop, || {
                pipeline.work().runs.load(Ordering::Relaxed) >= goal
            });
        }
        for port in ports {
            port.join().expect("everything got in");
        }
        let done = || {
            pipeline.is_drained()
                && pipeline
                    .work()
                    .left
                    .iter()
                    .zip([count * 3, count])
                    .all(|(left, all)| left.lock().unwrap().len() as u64 == all)
        };
        until_or_stopped("everything comes out", stop, done);
        drop(stopping);
    });
    check(&pipeline, count);
}

#[test]
fn an_element_names_those_that_it_hands_messages_on_to() {
    let pipeline = Arc::new(Pipeline::new(Numbers::default(), 16));
    let mut port = EntryPort::new(Arc::clone(&pipeline), External::Application);
    let mut element = ProcessingElement::new(ElementId(0));
    element.add(Arc::clone(&pipeline));
    for (place, set) in [1, 1, 6, 1].into_iter().enumerate() {
        pipeline.assign_both(place, ElementSet(set));
    }
    port.enqueue(0).unwrap();
    assert_eq!(element.take_handed(), ElementSet::EMPTY);
    let job = element.process_next(Instant::ZERO).expect("a message waits");
    assert_eq!(element.take_handed(), ElementSet::EMPTY, "it is not passed on yet");
    element.forward_result(job, Instant::ZERO);
    assert_eq!(element.take_handed(), ElementSet(6), "those that serve the third module");
    assert_eq!(element.take_handed(), ElementSet::EMPTY, "once");
    // By itself it hands on to nobody.
    (0..PLACES).for_each(|place| pipeline.assign_both(place, ElementSet(1)));
    while let Some(job) = element.process_next(Instant::ZERO) {
        element.forward_result(job, Instant::ZERO);
    }
    assert_eq!(element.take_handed(), ElementSet::EMPTY);
}

#[test]
fn locks_follow_the_number_of_users() {
    let pipeline = Arc::new(Pipeline::new(Numbers::default(), 16));
    let mut port = EntryPort::new(Arc::clone(&pipeline), External::Application);
    let mut elements = [0, 1].map(|n| ProcessingElement::new(ElementId(n)));
    elements.iter_mut().for_each(|element| element.add(Arc::clone(&pipeline)));
    let mut turn = |elements: &mut [ProcessingElement<Numbers>; 2]| {
        port.enqueue(0).unwrap();
        for element in elements.iter_mut() {
            while let Some(job) = element.process_next(Instant::ZERO) {
                element.forward_result(job, Instant::ZERO);
            }
        }
    };
    (0..PLACES).for_each(|place| pipeline.assign_both(place, ElementSet(1)));
    turn(&mut elements);
    assert_eq!(pipeline.users().next(), Some(((1, 1), (0, 1))), "one reader each");
    (0..PLACES).for_each(|place| pipeline.assign_both(place, ElementSet(3)));
    turn(&mut elements);
    assert_eq!(pipeline.users().next(), Some(((1, 2), (0, 2))), "two readers");
    (0..PLACES).for_each(|place| pipeline.assign_both(place, ElementSet(2)));
    turn(&mut elements);
    turn(&mut elements);
    assert_eq!(pipeline.users().next(), Some(((1, 1), (0, 1))), "one again");
    assert_eq!(pipeline.work().left[0].lock().unwrap().len(), 12);
}
