//! The other process of a measurement: takes what comes, and notes how long it took.

use std::path::Path;

use selvedge_host::clock::{Clock, pin_to_core};
use selvedge_host::seqpacket;
use selvedge_units::Instant;

use super::arena::Arena;
use super::{BATCH, BenchError, PATIENCE, Way, signal as number};
use crate::signal;
use crate::sink::{Event, Sink};

/// Runs the other side until it is told to end, or nothing was asked for a while.
///
/// # Errors
/// [`BenchError`].
pub fn peer(spec: &str) -> Result<(), BenchError> {
    if let Some(directory) = spec.strip_prefix("channel:") {
        return super::channel::peer(Path::new(directory));
    }
    let directory = Path::new(spec);
    let _ = pin_to_core(1);
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    signal::block(number()).map_err(system)?;
    let socket = seqpacket::connect_to(&directory.join("peer")).map_err(system)?;
    if !seqpacket::wait_readable(&socket, PATIENCE) {
        return Err(BenchError::Gone);
    }
    let arena = Arena::receive(&socket).ok_or(BenchError::Gone)?;
    let clock = Clock::shared();
    let mut done = 0;
    loop {
        let end = clock.now() + PATIENCE;
        let (phase, way, count) = loop {
            let (phase, way, count) = arena.next_phase();
            if phase == u32::MAX {
                return Ok(());
            }
            if phase != done {
                break (phase, way, count);
            }
            if clock.now() > end {
                return Err(BenchError::Gone);
            }
            arena.wait_phase(phase);
        };
        done = phase;
        match way.sink() {
            None => {
                arena.ready(phase);
                for n in 0..count {
                    let took = arena.answer(way, clock);
                    arena.note(n, took);
                }
            }
            Some(options) => {
                let sink = Sink::join(directory, "bench", options)?;
                take(sink, way, count, phase, &arena, clock)?;
            }
        }
    }
}

fn take(
    mut sink: Sink,
    way: Way,
    count: usize,
    phase: u32,
    arena: &Arena,
    clock: Clock,
) -> Result<(), BenchError> {
    let end = clock.now() + PATIENCE;
    while sink.sources() == 0 {
        if clock.now() > end {
            return Err(BenchError::Gone);
        }
        std::thread::yield_now();
    }
    arena.ready(phase);
    let stamp = |event: Event<'_>| {
        let first = event.bytes.first_chunk().copied().unwrap_or_default();
        u64::from_ne_bytes(first)
    };
    let most = if way.is_batch() { BATCH } else { 1 };
    let mut began = None;
    for n in 0..count {
        let mut first = 0;
        for _ in 0..most {
            let event = sink.receive(Instant::MAX).ok_or(BenchError::Gone)?;
            first = stamp(event);
        }
        if way.is_flood() {
            if first != n as u64 {
                return Err(BenchError::System(format!("event {first} came for {n}")));
            }
            began.get_or_insert_with(|| clock.now());
            continue;
        }
        let took = clock.now().since(Instant(first));
        arena.note(n, u32::try_from(took.0).unwrap_or(u32::MAX));
    }
    if let Some(began) = began {
        // In microseconds: a flood may take longer than a word of nanoseconds holds.
        arena.all_seen(count, u32::try_from(clock.now().since(began).0 / 1000).unwrap_or(u32::MAX));
    }
    Ok(())
}
