//! The other process of a measurement: takes what comes, and notes how long it took.

use std::path::Path;

use selvedge_comm_local::{Event, Sink};
use selvedge_os::clock::{Clock, pin_to_core};
use selvedge_os::seqpacket;
use selvedge_os::signal;
use selvedge_units::{Duration, Instant};

use super::arena::Arena;
use super::{BATCH, BenchError, BenchPath, TIMEOUT, signal as number};

/// Runs the other side until a command ends it, or nothing was asked for a while.
pub fn peer(spec: &str) -> Result<(), BenchError> {
    if let Some(directory) = spec.strip_prefix("channel:") {
        return super::channel::peer(Path::new(directory));
    }
    let directory = Path::new(spec);
    let _ = pin_to_core(1);
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    signal::block(number()).map_err(system)?;
    let socket = seqpacket::connect_to(&directory.join("peer")).map_err(system)?;
    if !seqpacket::wait_readable(&socket, TIMEOUT) {
        return Err(BenchError::Gone);
    }
    let arena = Arena::receive(&socket).ok_or(BenchError::Gone)?;
    let clock = Clock::shared();
    let mut done = 0;
    loop {
        let end = clock.now() + TIMEOUT;
        let (phase, turn, count) = loop {
            let (phase, turn, count) = arena.next_phase();
            if phase == u32::MAX {
                return Ok(());
            }
            if phase != done {
                break (phase, turn, count);
            }
            if clock.now() > end {
                return Err(BenchError::Gone);
            }
            arena.wait_phase(phase);
        };
        done = phase;
        let mut sink = None;
        if let Some(options) = turn.iter().find_map(|way| way.sink()) {
            let mut joined = Sink::join(directory, "bench", options)?;
            let end = clock.now() + TIMEOUT;
            while joined.sources() == 0 {
                if clock.now() > end {
                    return Err(BenchError::Gone);
                }
                std::thread::yield_now();
            }
            sink = Some(joined);
        }
        arena.ready(phase);
        match sink {
            Some(sink) if turn[0].is_flood() => take_flood(sink, count, &arena, clock)?,
            sink => take(sink, &turn, count, &arena, clock)?,
        }
    }
}

/// What an event begins with.
fn first(event: Event<'_>) -> u64 {
    u64::from_ne_bytes(event.bytes.first_chunk().copied().unwrap_or_default())
}

fn take(
    mut sink: Option<Sink>,
    turn: &[BenchPath],
    count: usize,
    arena: &Arena,
    clock: Clock,
) -> Result<(), BenchError> {
    for n in 0..count * turn.len() {
        let way = turn[n % turn.len()];
        let took = match &mut sink {
            Some(sink) if way.sink().is_some() => {
                let mut stamp = 0;
                for _ in 0..if way.is_batch() { BATCH } else { 1 } {
                    stamp = first(sink.receive(Instant::MAX).ok_or(BenchError::Gone)?);
                }
                let took = clock.now().since(Instant(stamp));
                u32::try_from(took.0).unwrap_or(u32::MAX)
            }
            _ => arena.answer(way, clock),
        };
        arena.record_delay(n, took);
    }
    Ok(())
}

fn take_flood(mut sink: Sink, count: usize, arena: &Arena, clock: Clock) -> Result<(), BenchError> {
    let mut began = None;
    for n in 0..count as u64 {
        let number = first(sink.receive(Instant::MAX).ok_or(BenchError::Gone)?);
        if number != n {
            return Err(BenchError::System(format!("event {number} came for {n}")));
        }
        began.get_or_insert_with(|| clock.now());
    }
    let took = began.map_or(Duration::ZERO, |began| clock.now().since(began));
    // In microseconds: a flood may take longer than a word of nanoseconds holds.
    arena.record_total(count, u32::try_from(took.0 / 1000).unwrap_or(u32::MAX));
    Ok(())
}
