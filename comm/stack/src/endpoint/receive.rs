//! Reading the socket: passing datagrams to their connections, and answering connection attempts.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;

use selvedge_data_stack::endpoint::Input;
use selvedge_data_stack::module::{Net, Reason};
use selvedge_units::{Duration, Instant};

use super::open::ConnectionState;
use super::shared::Shared;
use super::socket_reader::{SocketReader, Source, Touched};
use crate::wire;
use crate::work::Datagram;

/// The longest wait of a reader before it looks for other work.
const WAIT: Duration = Duration::from_millis(5);
/// How long the endpoint's thread leaves the socket to a thread that waits in `recv`.
const LEAVE: Duration = Duration::from_millis(1);
/// The largest number of looks during that time, and the pauses between two: each look delays a
/// thread that enqueues.
const POLLS_MAX: u32 = 200;
const PAUSES: u32 = 16;
/// Reads in a row before the thread looks for other work.
const READS: usize = 16;

/// Reads what has arrived and lets elements process it; returns whether there was anything.
fn process_input(socket_reader: &mut SocketReader, shared: &Arc<Shared>) -> bool {
    let some = socket_reader.read(&shared.rings, |fed_pipelines, datagram, source| {
        take(shared, fed_pipelines, datagram, source)
    });
    if some {
        let fed_pipelines = socket_reader.fed_pipelines(shared.clock.now());
        fed_pipelines.for_each(|pipeline| shared.elements.run(&pipeline, true));
    }
    some
}

/// As [`process_input_for`], without sleeping: polls for as long as more is likely to arrive soon,
/// for a thread that has nothing else to do.
pub(super) fn watch(socket_reader: &mut SocketReader, shared: &Arc<Shared>) -> bool {
    let Some(until) = socket_reader.watched_until() else { return false };
    for _ in 0..POLLS_MAX {
        if shared.clock.now() >= until {
            break;
        }
        if process_input(socket_reader, shared) {
            return true;
        }
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
    }
    false
}

/// Reads what has arrived, after waiting at most `wait` for it, and lets elements process it.
/// Returns whether there was anything.
pub(super) fn process_input_for(
    socket_reader: &mut SocketReader,
    shared: &Arc<Shared>,
    wait: Duration,
) -> bool {
    process_input(socket_reader, shared)
        || (wait > Duration::ZERO
            && socket_reader.wait(&shared.rings, wait)
            && process_input(socket_reader, shared))
}

/// The endpoint's thread. A sole thread that waits in `recv` reads the socket itself, which is cheaper than
/// a wake-up for each message. Meanwhile this thread only checks the connections now and then.
pub(super) fn read(shared: &Arc<Shared>) {
    // Reserved time is for messages; other work can wait.
    let (mut last_input, mut rest_at) = (0, Instant::ZERO);
    while !(shared.stop.load(Ordering::Acquire) && shared.connections.is_idle()) {
        let now = shared.last_input.load(Ordering::Relaxed);
        let alone = shared.receiving.load(Ordering::Acquire) == 1;
        if alone || now != last_input {
            last_input = now;
            thread::park_timeout(LEAVE.into());
        } else if let Some(mut socket_reader) = free(&shared.socket_reader) {
            let mut wait = WAIT;
            for _ in 0..READS {
                if !process_input_for(&mut socket_reader, shared, wait)
                    || shared.receiving.load(Ordering::Acquire) == 1
                {
                    break;
                }
                wait = Duration::ZERO;
            }
        } else {
            // A thread that waits for room reads the socket. Queueing for the lock could take for ever.
            thread::park_timeout(LEAVE.into());
        }
        let now = shared.clock.now();
        if shared.elements.is_reserved() && now < rest_at {
            continue;
        }
        rest_at = now + LEAVE;
        shared.run_timers(now);
        shared.sample(now);
        shared.poll_rings(now);
        shared.run_negotiations(now);
    }
}

fn free(socket_reader: &Mutex<SocketReader>) -> Option<MutexGuard<'_, SocketReader>> {
    match socket_reader.try_lock() {
        Ok(socket_reader) => Some(socket_reader),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Passes a datagram to the endpoint, and to the pipeline of its connection. It may confirm a connection, which is
/// opened then. While the rings are locked none can be opened, so it breaks off.
fn take(
    shared: &Arc<Shared>,
    fed_pipelines: &mut Touched,
    datagram: Datagram<'_>,
    source: Source,
) -> ControlFlow<()> {
    // Datagrams of no connection are smaller than those that are read apart.
    let (bytes, now) = (datagram.bytes(), shared.clock.now());
    let mut state = shared.connections.lock();
    loop {
        let endpoint = &mut state.endpoint;
        let input = match source {
            Source::Socket(from) => endpoint.handle_datagram(from, bytes, wire::seed, now),
            Source::Ring(id) | Source::UnlockedRing(id) if Net::connection(bytes) != Some(id) => {
                Input::Stranger
            }
            Source::Ring(id) if endpoint.get_mut(id).is_none() => return ControlFlow::Break(()),
            Source::Ring(id) | Source::UnlockedRing(id) => {
                endpoint.handle_packet(id, None, bytes, now)
            }
        };
        match input {
            Input::Packet(connection) => {
                pass_on(connection, fed_pipelines, datagram, now);
                return ControlFlow::Continue(());
            }
            Input::Handled => break,
            Input::Stranger => {
                shared.counters.strangers.fetch_add(1, Ordering::Relaxed);
                break;
            }
            Input::Confirmed(id, confirmed) => {
                drop(state);
                shared.confirmed(id, *confirmed);
                state = shared.connections.lock();
            }
        }
    }
    // Only handshakes have consequences, and they come through the socket. Carrying them out needs the rings.
    if let Source::Socket(_) = source {
        shared.follow(state);
    }
    ControlFlow::Continue(())
}

/// Passes on a datagram to the pipeline of its connection.
fn pass_on(
    connection: &mut ConnectionState,
    fed_pipelines: &mut Touched,
    datagram: Datagram<'_>,
    now: Instant,
) {
    let work = connection.pipeline.work();
    if let Some(message) = work.datagram(datagram, now)
        && let Err((message, _)) = connection.port.enqueue(message)
    {
        work.line.call(now).drop(message, Reason::NoRoom);
    }
    if !fed_pipelines.last().is_some_and(|last| Arc::ptr_eq(last, &connection.pipeline)) {
        fed_pipelines.push(Arc::clone(&connection.pipeline));
    }
}
