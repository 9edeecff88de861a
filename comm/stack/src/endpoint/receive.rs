//! Reading the socket: datagrams to their connections, answers to who wants to connect.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;

use selvedge_comm_local::PeerId;
use selvedge_data_stack::compose::{Composition, Medium};
use selvedge_data_stack::module::{Net, Reason};
use selvedge_units::Duration;

use super::error::RefusedHere;
use super::shared::{ConnectionParts, Shared};
use super::socket_reader::{SocketReader, Source};
use crate::element::Pipeline;
use crate::sync::lock;
use crate::wire::{self, Proposal, RingAddress};
use crate::work::{ConnectionChain, Datagram};

/// How long a reader waits at once; then it looks what else there is.
const WAIT: Duration = Duration::from_millis(5);
/// How long the endpoint's thread leaves the socket to a thread that waits in `recv`.
const LEAVE: Duration = Duration::from_millis(1);
/// Looks at most, meanwhile, and pauses between two: each look holds up who puts something in.
const POLLS_MAX: u32 = 200;
const PAUSES: u32 = 16;
/// Reads at once, before it is looked what else there is.
const READS: usize = 16;

/// Reads what is there and lets elements work on it; whether there was anything.
fn process_input(socket_reader: &mut SocketReader, shared: &Arc<Shared>) -> bool {
    let some = socket_reader.read(&shared.rings, |fed_pipelines, datagram, source| match source {
        Source::Ring(id) if Net::connection(datagram.bytes()) == Some(id) => {
            arrived(shared, fed_pipelines, id, datagram, None);
        }
        Source::Ring(_) => _ = shared.counters.strangers.fetch_add(1, Ordering::Relaxed),
        Source::Socket(from) => take(shared, fed_pipelines, datagram, from),
    });
    if some {
        let fed_pipelines = socket_reader.fed_pipelines(shared.clock.now());
        fed_pipelines.for_each(|pipeline| shared.elements.notify_or_run(&pipeline, true));
    }
    some
}

/// As [`pump`], without sleeping: looks for as long as more is likely to come soon, for a thread
/// that has nothing else to do.
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

/// Reads what is there, after at most this wait for it, and lets elements work on it. Returns
/// whether there was anything.
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

/// The endpoint's thread. One thread that waits in `recv` had better read itself than be woken for
/// each message; while it does, this one only looks at the connections now and then.
pub(super) fn read(shared: &Arc<Shared>) {
    let mut last_input = 0;
    while !(shared.stop.load(Ordering::Acquire) && shared.is_idle()) {
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
            // A thread that waits for room reads. To queue for the lock may take for ever.
            thread::park_timeout(LEAVE.into());
        }
        let now = shared.clock.now();
        shared.calls.retransmit(now, |bytes, to| shared.send(bytes, to));
        shared.sample(now);
        shared.poll_rings(now);
        shared.run_negotiations(now);
        shared.send_keepalives(now);
    }
}

fn free(socket_reader: &Mutex<SocketReader>) -> Option<MutexGuard<'_, SocketReader>> {
    match socket_reader.try_lock() {
        Ok(socket_reader) => Some(socket_reader),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn take(
    shared: &Arc<Shared>,
    fed_pipelines: &mut Vec<Arc<Pipeline<ConnectionChain>>>,
    datagram: Datagram<'_>,
    from: SocketAddr,
) {
    // What is not of a connection is not as large as that.
    let bytes = datagram.bytes();
    let stranger = || _ = shared.counters.strangers.fetch_add(1, Ordering::Relaxed);
    match Net::connection(bytes) {
        None => stranger(),
        Some(0) => match wire::split(bytes) {
            // 0 is no connection.
            Some((wire::HELLO, id @ 1.., payload)) if payload.len() >= wire::HELLO_MIN => {
                hello(shared, id, payload, from);
            }
            Some((kind @ (wire::WELCOME | wire::REFUSAL), id, payload)) => {
                shared.calls.handle_answer(id, kind, payload);
            }
            Some((wire::PROBE, id, payload)) if payload.len() == 8 => {
                shared.send(&wire::datagram(wire::ECHO, id, payload), from);
            }
            Some((wire::ECHO, id, payload)) => {
                let send = |bytes: &[u8], to| shared.send(bytes, to);
                shared.calls.handle_echo(id, payload, shared.clock.now(), send);
            }
            Some((wire::ALIVE, id, _)) => match lock(&shared.open).get_mut(&id) {
                Some(open) if open.pipeline.work().peer == from => {
                    open.last_heard = shared.clock.now()
                }
                _ => stranger(),
            },
            _ => stranger(),
        },
        Some(id) => arrived(shared, fed_pipelines, id, datagram, Some(from)),
    }
}

/// A datagram of a connection came, from this address or by a ring.
fn arrived(
    shared: &Shared,
    fed_pipelines: &mut Vec<Arc<Pipeline<ConnectionChain>>>,
    id: u32,
    datagram: Datagram<'_>,
    from: Option<SocketAddr>,
) {
    let mut open = lock(&shared.open);
    let found = open.get_mut(&id).filter(|open| open.pipeline.work().is_from(from));
    let Some(connection) = found else {
        shared.counters.strangers.fetch_add(1, Ordering::Relaxed);
        return;
    };
    connection.last_heard = shared.clock.now();
    let work = connection.pipeline.work();
    if let Some(message) = work.datagram(datagram, connection.last_heard)
        && let Err((message, _)) = connection.port.enqueue(message)
    {
        work.line.call(connection.last_heard).drop(message, Reason::NoRoom);
    }
    if !fed_pipelines.last().is_some_and(|last| Arc::ptr_eq(last, &connection.pipeline)) {
        fed_pipelines.push(Arc::clone(&connection.pipeline));
    }
}

/// Another host wants to connect.
fn hello(shared: &Arc<Shared>, id: u32, payload: &[u8], from: SocketAddr) {
    if let Some(connection) = lock(&shared.open).get(&id) {
        // Said again: our answer was lost.
        if connection.pipeline.work().peer == from {
            shared.send(&connection.welcome, from);
        }
        return;
    }
    if shared.stop.load(Ordering::Acquire) {
        return;
    }
    let refuse = |why: RefusedHere| {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        let why = why.to_string();
        let why = &why.as_bytes()[..why.len().min(wire::HELLO_MIN - 16)];
        shared.send(&wire::datagram(wire::REFUSAL, id, why), from);
    };
    // Before any work for it: who floods gets only this far.
    if shared.backlog.is_full() {
        return refuse(RefusedHere::Unaccepted);
    }
    let secret = shared.options.secret.as_ref();
    let Some(mut state) = wire::noise(secret, false) else { return };
    let mut text = vec![0; wire::LONGEST];
    let Ok(len) = state.read_message(payload, &mut text) else {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let Some(proposal) = Proposal::parse(&text[..len]) else {
        return refuse(RefusedHere::Proposal);
    };
    let composition: Composition = match proposal.line.parse() {
        Ok(composition) => composition,
        Err(error) => return refuse(error.into()),
    };
    let Proposal { out, back, there, network, ring_address, .. } = proposal;
    let [first, second] = there.map(|there| there + network);
    let streams = match shared.grant(&composition, [back, out], [second, first]) {
        Ok(streams) => streams,
        Err(why) => return refuse(why),
    };
    let (ring, ring_address) = match rings(shared, id, &composition, ring_address) {
        Ok(rings) => rings,
        Err(why) => {
            shared.release(streams);
            shared.rings.close(id);
            return refuse(why);
        }
    };
    let mut answer = vec![0; wire::HELLO_MIN];
    let [sent, received] = shared.latencies(streams);
    let text = wire::answer([received, sent], ring_address);
    let Ok(len) = state.write_message(text.as_bytes(), &mut answer) else {
        shared.rings.close(id);
        return shared.release(streams);
    };
    let welcome = wire::datagram(wire::WELCOME, id, &answer[..len]);
    let keys = wire::keys(&mut state, false);
    let (composition, keys, peer) = (&composition, &keys, from);
    let copy = welcome.clone();
    let opening =
        ConnectionParts { id, peer, composition, keys, streams, ring, network, welcome: copy };
    let opened = shared.open(opening);
    let Some(connection) = opened else {
        shared.rings.close(id);
        return refuse(RefusedHere::TooMany);
    };
    match shared.backlog.push(connection) {
        Ok(()) => shared.send(&welcome, from),
        Err(opened) => {
            refuse(RefusedHere::Unaccepted);
            shared.remove_connection(opened.id);
        }
    }
}

/// For a stack over shared memory: the ring to who connects, and where the ring from there is made.
fn rings(
    shared: &Shared,
    id: u32,
    composition: &Composition,
    ring_address: Option<RingAddress>,
) -> Result<(Option<PeerId>, Option<RingAddress>), RefusedHere> {
    if composition.medium() == Medium::Udp {
        return Ok((None, None));
    }
    let ring_address = ring_address.ok_or(RefusedHere::NoDoorInHello)?;
    let ring = shared.rings.call(id, ring_address)?;
    let own = shared.rings.ring_address(id)?;
    Ok((Some(ring), Some(own)))
}
