//! The endpoint's reading thread: packets to their connections, answers to who wants to connect.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};

use selvedge_stack::compose::Composition;
use selvedge_stack::module::Net;

use crate::wire::{self, Proposal};

use super::{Connection, Shared, lock};

/// The reader's thread.
pub(super) fn read(shared: &Arc<Shared>, accepted: &SyncSender<Connection>) {
    let mut buffer = vec![0; 65_536];
    while !shared.stop.load(Ordering::Acquire) {
        // For the sake of looks, not more than some at once.
        for _ in 0..64 {
            let Ok((len, from)) = shared.socket.recv_from(&mut buffer) else { break };
            take(shared, accepted, &buffer[..len], from);
        }
        shared.look(shared.clock.now());
    }
}

fn take(shared: &Arc<Shared>, accepted: &SyncSender<Connection>, bytes: &[u8], from: SocketAddr) {
    let stranger = || _ = shared.counters.strangers.fetch_add(1, Ordering::Relaxed);
    match Net::connection(bytes) {
        None => stranger(),
        Some(0) => match wire::split(bytes) {
            Some((wire::HELLO, id, payload)) if payload.len() >= wire::HELLO_MIN => {
                hello(shared, accepted, id, payload, from);
            }
            Some((kind @ (wire::WELCOME | wire::REFUSAL), id, payload)) => {
                if let Some(caller) = lock(&shared.calling).get(&id) {
                    // More answers than questions are not kept.
                    let _ = caller.try_send((kind, payload.to_vec()));
                }
            }
            _ => stranger(),
        },
        Some(id) => {
            let mut open = lock(&shared.open);
            match open.get_mut(&id).filter(|connection| connection.plant.work().peer == from) {
                None => stranger(),
                Some(connection) => {
                    connection.heard = shared.clock.now();
                    if let Some(message) = connection.plant.work().datagram(bytes)
                        && let Err((message, _)) = connection.port.put(message)
                    {
                        let line = &connection.plant.work().line;
                        line.call(connection.heard)
                            .drop(message, selvedge_stack::module::Reason::NoRoom);
                    }
                    drop(open);
                    shared.elements.wake();
                }
            }
        }
    }
}

/// Another host wants to connect.
fn hello(
    shared: &Arc<Shared>,
    accepted: &SyncSender<Connection>,
    id: u32,
    payload: &[u8],
    from: SocketAddr,
) {
    if let Some(connection) = lock(&shared.open).get(&id) {
        // Said again: our answer was lost.
        if connection.plant.work().peer == from {
            let _ = shared.socket.send_to(&connection.welcome, from);
        }
        return;
    }
    let refuse = |why: &str| {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        let why = &why.as_bytes()[..why.len().min(wire::HELLO_MIN - 16)];
        let _ = shared.socket.send_to(&wire::datagram(wire::REFUSAL, id, why), from);
    };
    let secret = shared.options.secret.as_ref();
    let Some(mut state) = wire::noise(secret, false) else { return };
    let mut text = vec![0; wire::LONGEST];
    let Ok(len) = state.read_message(payload, &mut text) else {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let Some(proposal) = Proposal::parse(&text[..len]) else {
        return refuse("the contract makes no sense");
    };
    let composition: Composition = match proposal.line.parse() {
        Ok(composition) => composition,
        Err(error) => return refuse(&format!("{error}")),
    };
    let streams = match shared.grant(&composition, proposal.back, proposal.out) {
        Ok(streams) => streams,
        Err(why) => return refuse(&why),
    };
    let mut answer = vec![0; wire::HELLO_MIN];
    let Ok(len) = state.write_message(b"", &mut answer) else {
        return shared.release(streams);
    };
    let welcome = wire::datagram(wire::WELCOME, id, &answer[..len]);
    let keys = wire::keys(&mut state, false);
    let Some(connection) = shared.open(id, from, &composition, &keys, streams, welcome.clone())
    else {
        return refuse("too many connections");
    };
    match accepted.try_send(connection) {
        Ok(()) => _ = shared.socket.send_to(&welcome, from),
        Err(TrySendError::Full(connection) | TrySendError::Disconnected(connection)) => {
            refuse("too many connections wait to be accepted");
            connection.closed.store(true, Ordering::Release);
        }
    }
}
