//! The consequences of the endpoint's events: datagrams, woken tasks, and answers to hellos of other hosts.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use selvedge_comm_local::PeerId;
use selvedge_data_net_secure::{Confirmed, Event, Hello, Identity, PublicKey};
use selvedge_data_stack::compose::{Composition, Medium};
use selvedge_data_stack::endpoint::Endpoint;

use super::connection::Connection;
use super::error::RefusedHere;
use super::open::{ConnectionState, Opened};
use super::shared::{ConnectionParts, Shared};
use super::state::{CallNews, HalfOpen, State};
use crate::wire::{self, Proposal, RingAddress};

impl Shared {
    /// Changes the connections, and carries out the consequences: sends datagrams, wakes callers,
    /// answers hellos.
    pub(super) fn update<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Endpoint<ConnectionState, HalfOpen, Opened>) -> R,
    ) -> R {
        let mut state = self.connections.lock();
        let result = change(&mut state.endpoint);
        self.follow(state);
        result
    }

    /// Carries out what the endpoint decided.
    pub(super) fn follow(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let State { endpoint, calls, .. } = &mut *state;
        let (mut wakers, mut hellos, mut expired) = (Vec::new(), Vec::new(), Vec::new());
        let mut unknown = Vec::new();
        while let Some(event) = endpoint.poll_event() {
            let (connection, news) = match event {
                Event::Reached { connection, there_and_back } => {
                    (connection, CallNews::Reached(there_and_back))
                }
                Event::Welcomed { connection, payload, session } => {
                    (connection, CallNews::Welcomed(payload, session))
                }
                Event::Refused { connection, why } => (connection, CallNews::Refused(why)),
                Event::Silent { connection } => (connection, CallNews::Silent),
                Event::Hello(hello) => {
                    hellos.push(hello);
                    continue;
                }
                Event::Unknown { connection, from } => {
                    unknown.push((connection, from));
                    continue;
                }
                Event::Expired { connection, kept } => {
                    expired.push((connection, kept));
                    continue;
                }
            };
            if let Some(caller) = calls.get_mut(&connection) {
                caller.news.push(news);
                wakers.extend(caller.waker.take());
            }
        }
        let transmits: Vec<_> = std::iter::from_fn(|| endpoint.poll_transmit()).collect();
        drop(state);
        transmits.iter().for_each(|transmit| self.send(&transmit.bytes, transmit.to));
        wakers.into_iter().for_each(Waker::wake);
        expired.into_iter().for_each(|(id, half)| {
            self.rings.close(id);
            self.release(half.streams);
        });
        for (id, from) in unknown {
            if let Some(connection) = self.connections.lock().endpoint.get_mut(id)
                && connection.pipeline.work().peer == from
            {
                connection.is_unknown.store(true, Ordering::Relaxed);
            }
        }
        hellos.into_iter().for_each(|hello| self.handle_hello(*hello));
    }

    /// Answers another host that wants to connect.
    fn handle_hello(self: &Arc<Self>, hello: Hello) {
        if self.stop.load(Ordering::Acquire) {
            return;
        }
        let now = self.clock.now();
        let (id, from) = (hello.connection, hello.from);
        match self.half_open(id, &hello.payload) {
            Ok((half, text)) => {
                let answered = self.update(|endpoint| {
                    endpoint.handshakes().answer(hello, text.as_bytes(), half, now)
                });
                if let Err((why, half)) = answered {
                    tracing::warn!(%from, %why, "stack hello not answered");
                    self.rings.close(id);
                    self.release(half.streams);
                }
            }
            Err(why) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                self.update(|endpoint| endpoint.handshakes().refuse(hello, &why.to_string(), now));
            }
        }
    }

    /// Acquires the resources of a proposed connection, and returns the answer to the proposal.
    fn half_open(&self, id: u32, proposal: &[u8]) -> Result<(HalfOpen, String), RefusedHere> {
        self.connections.lock().endpoint.check_room(id)?;
        let proposal = Proposal::parse(proposal).ok_or(RefusedHere::Proposal)?;
        let composition: Composition = proposal.line.parse()?;
        let Proposal { out, back, there, network, ring_address, .. } = proposal;
        let [first, second] = there.map(|there| there + network);
        let streams = self.grant(&composition, [back, out], [second, first])?;
        let rings = self.peer_rings(id, &composition, ring_address);
        let (ring, ring_address) = rings.inspect_err(|_| {
            self.rings.close(id);
            self.release(streams);
        })?;
        let [sent, received] = self.latencies(streams);
        let text = wire::answer([received, sent], ring_address);
        Ok((HalfOpen { composition, streams, ring, network }, text))
    }

    /// For a stack over shared memory: the ring to the connecting host, and the address for its
    /// ring to this host.
    fn peer_rings(
        &self,
        id: u32,
        composition: &Composition,
        ring_address: Option<RingAddress>,
    ) -> Result<(Option<PeerId>, Option<RingAddress>), RefusedHere> {
        if composition.medium() != Medium::Memory {
            return Ok((None, None));
        }
        let ring_address = ring_address.ok_or(RefusedHere::NoDoorInHello)?;
        let ring = self.rings.call(id, ring_address)?;
        let own = self.rings.ring_address(id)?;
        Ok((Some(ring), Some(own)))
    }

    /// Opens a half-open connection that its peer has confirmed.
    pub(super) fn confirmed(self: &Arc<Self>, id: u32, confirmed: Confirmed<HalfOpen>) {
        let Confirmed { from: peer, session, kept } = confirmed;
        let HalfOpen { composition, streams, ring, network } = kept;
        let composition = &composition;
        let parts = ConnectionParts { id, peer, composition, session, streams, ring, network };
        let Some(opened) = self.open(parts) else {
            return self.rings.close(id);
        };
        // The other end was welcomed, so this end must announce that no application accepts it.
        if let Err(opened) = self.connections.enqueue_unaccepted(opened) {
            let connection = Connection::new(self, *opened);
            // Closing waits for answers that this thread reads.
            let closing = std::thread::Builder::new().name("stack close".to_owned());
            let _ = closing.spawn(move || drop(connection));
        }
    }

    /// Sets the static keys that may connect from now on; connections of other keys end.
    pub(super) fn allow(self: &Arc<Self>, peers: &[PublicKey]) {
        if !matches!(self.options.identity, Identity::Static(_)) {
            return;
        }
        let revoked: Vec<u32> = self.update(|endpoint| {
            endpoint.handshakes().allow(peers.to_vec());
            let open = endpoint.connections();
            open.filter(|(_, open)| open.identity.is_some_and(|key| !peers.contains(&key)))
                .map(|(id, _)| id)
                .collect()
        });
        revoked.into_iter().for_each(|id| self.remove_connection(id));
    }
}
