//! Making a connection: a future from the first probe to the peer's welcome.
//!
//! Arrived answers lie in [`Connections`](super::state::Connections), through which the
//! endpoint's thread wakes the [`ConnectFuture`].

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use selvedge_comm_local::PeerId;
use selvedge_data_net_secure::Session;
use selvedge_data_stack::auto::RenegotiateError;
use selvedge_data_stack::compose::{Composition, Medium};
use selvedge_data_stack::contract::Contract;
use selvedge_data_stack::model::StreamId;
use selvedge_units::Duration;

use super::connection::Connection;
use super::error::{ConnectError, RefusedHere};
use super::shared::{ConnectionParts, Shared};
use super::state::CallNews;
use crate::sync::lock;
use crate::wire::{self, Proposal, RingAddress};

/// A connection that is being made. Dropping the future ends the attempt.
#[derive(Debug)]
#[must_use = "nothing is said unless it is polled"]
pub struct ConnectFuture {
    shared: Arc<Shared>,
    /// `None` once there is an outcome.
    call: Option<Result<Call, ConnectError>>,
}

struct Call {
    id: u32,
    peer: SocketAddr,
    composition: Composition,
    contracts: [Contract; 2],
    streams: [StreamId; 2],
    /// The network's part of the delay, in each direction.
    network: Duration,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call({:08x} to {})", self.id, self.peer)
    }
}

impl ConnectFuture {
    pub(super) fn new(
        shared: &Arc<Shared>,
        peer: SocketAddr,
        line: &str,
        contracts: [Contract; 2],
    ) -> Self {
        let call = Some(Call::new(shared, peer, line, contracts));
        Self { shared: Arc::clone(shared), call }
    }
}

impl Call {
    fn new(
        shared: &Arc<Shared>,
        peer: SocketAddr,
        line: &str,
        [out, back]: [Contract; 2],
    ) -> Result<Self, ConnectError> {
        let composition: Composition = line
            .parse()
            .map_err(|why| ConnectError::Stack { line: line.chars().take(200).collect(), why })?;
        for contract in [out, back] {
            contract.check().map_err(|error| RefusedHere::from(RenegotiateError::from(error)))?;
        }
        // The other host's latency is not known yet; that host decides with this one's.
        let streams = shared.grant(&composition, [out, back], [Duration::ZERO; 2])?;
        let probed = probe(shared, peer);
        let id = probed.inspect_err(|_| shared.release(streams))?;
        let (contracts, network) = ([out, back], Duration::ZERO);
        Ok(Self { id, peer, composition, contracts, streams, network })
    }

    /// Sends the first hello, now that the round-trip time is known.
    fn send_hello(
        &mut self,
        shared: &Arc<Shared>,
        there_and_back: Duration,
    ) -> Result<(), RefusedHere> {
        self.network = Duration(there_and_back.0 / 2);
        let ring_address = match self.composition.medium() {
            Medium::Udp | Medium::Bond => None,
            Medium::Memory => Some(shared.rings.ring_address(self.id)?),
        };
        let proposal = Proposal {
            line: self.composition.to_string(),
            out: self.contracts[0],
            back: self.contracts[1],
            there: shared.latencies(self.streams),
            network: self.network,
            ring_address,
        };
        let (id, text, now) = (self.id, proposal.text(), shared.clock.now());
        let seed = wire::seed();
        shared.update(|endpoint| endpoint.handshakes().propose(id, text.as_bytes(), &seed, now))?;
        Ok(())
    }

    /// The outcome, as far as the peer has answered; `None` if an answer is still to come.
    fn outcome(
        &mut self,
        shared: &Arc<Shared>,
        waker: &Waker,
    ) -> Option<Result<Connection, ConnectError>> {
        let Some(news) = shared.connections.take_news(self.id, waker) else {
            return Some(Err(ConnectError::Over(self.peer)));
        };
        for news in news {
            match news {
                CallNews::Reached(way) => {
                    if let Err(error) = self.send_hello(shared, way) {
                        return Some(Err(error.into()));
                    }
                }
                CallNews::Welcomed(payload, session) => {
                    let (there, ring_address) = wire::answered(&payload).unwrap_or_default();
                    let opened = self.welcomed(shared, *session, there, ring_address);
                    return Some(opened.map_err(ConnectError::Local));
                }
                CallNews::Refused(why) => {
                    let why = String::from_utf8_lossy(&why).chars().take(300).collect();
                    return Some(Err(ConnectError::Remote { peer: self.peer, why }));
                }
                CallNews::Silent => return Some(Err(ConnectError::Silent(self.peer))),
            }
        }
        None
    }

    /// The other host agrees: it has its part of the delays, and its memory is ready.
    fn welcomed(
        &mut self,
        shared: &Arc<Shared>,
        session: Session,
        there: [Duration; 2],
        ring_address: Option<RingAddress>,
    ) -> Result<Connection, RefusedHere> {
        let ring = self.ring(shared, ring_address)?;
        let mut manager = lock(&shared.manager);
        let remote_delay = there.map(|there| there + self.network);
        let both = self.streams.iter().zip(remote_delay);
        both.for_each(|(&id, remote_delay)| manager.answered(id, remote_delay));
        drop(manager);
        let &mut Self { id, peer, ref composition, streams, network, .. } = self;
        let parts = ConnectionParts { id, peer, composition, session, streams, ring, network };
        let opened = shared.open(parts);
        // The granted streams belong to the connection from now on.
        self.streams = [StreamId(usize::MAX); 2];
        let opened = opened.ok_or(RefusedHere::TooManyOrSameNumber)?;
        // A keepalive shows that this end has the keys; the other end waits for it.
        shared.run_timers(shared.clock.now());
        Ok(Connection::new(shared, opened))
    }

    /// Makes the ring to the other host, for a stack over shared memory.
    fn ring(
        &self,
        shared: &Shared,
        ring_address: Option<RingAddress>,
    ) -> Result<Option<PeerId>, RefusedHere> {
        match self.composition.medium() {
            Medium::Udp | Medium::Bond => Ok(None),
            Medium::Memory => {
                let ring_address = ring_address.ok_or(RefusedHere::NoDoor)?;
                Ok(Some(shared.rings.call(self.id, ring_address)?))
            }
        }
    }

    /// Stops waiting for an answer.
    fn end(&self, shared: &Shared) {
        shared.connections.end_call(self.id);
        if self.streams[0].0 != usize::MAX {
            shared.release(self.streams);
            shared.rings.close(self.id);
        }
    }
}

/// Sends the first probe; returns the number of the connection that is being made.
fn probe(shared: &Arc<Shared>, to: SocketAddr) -> Result<u32, RefusedHere> {
    let id = (wire::random() as u32).max(1);
    let (peer, seed, now) = (shared.options.peer, wire::seed(), shared.clock.now());
    shared.connections.begin_call(id);
    let begun = shared.update(|endpoint| endpoint.handshakes().connect(id, to, peer, &seed, now));
    begun.inspect_err(|_| shared.connections.end_call(id))?;
    Ok(id)
}

impl Future for ConnectFuture {
    type Output = Result<Connection, ConnectError>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, call } = &mut *self;
        let mut open = call.take().expect("it is polled until it is ready")?;
        match open.outcome(shared, context.waker()) {
            Some(outcome) => {
                open.end(shared);
                Poll::Ready(outcome)
            }
            None => {
                *call = Some(Ok(open));
                Poll::Pending
            }
        }
    }
}

impl Drop for ConnectFuture {
    fn drop(&mut self) {
        if let Some(Ok(call)) = self.call.take() {
            call.end(&self.shared);
        }
    }
}
