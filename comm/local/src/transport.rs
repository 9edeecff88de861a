//! A transport for `selvedge-control-event` over shared memory: with an `Exchange` in each process
//! of a host, channels reach all processes. The exchange sees members as "hosts".

use std::path::Path;
use std::sync::Arc;

use selvedge_control_event::{Destination, Exchange, HostId, MESSAGE_MAX, Overflow, Wake};
use selvedge_units::{Bytes, Duration, Instant};

use crate::JoinError;
use crate::member::Member;
use crate::message::WakeMethod;
use crate::ring::{PeerId, SinkOptions};
use crate::sink::{Sink, SinkCounts, WaitOutcome};
use crate::source::{Source, SourceCounts, SourceOptions};

/// Memory for each member's messages: more than one of the longest.
const ROOM: Bytes = Bytes(128 * 1024);
const _: () = assert!(ROOM.0 as usize > MESSAGE_MAX + 1024);

/// One process's side of the transport.
#[derive(Debug)]
pub struct LocalTransport {
    source: Source,
    sink: Sink,
}

impl LocalTransport {
    /// Joins the exchange of this name, with this wake-up method; present members are reachable
    /// when this returns.
    pub fn join(
        directory: &Path,
        name: &str,
        wake_method: WakeMethod,
        spin: Duration,
    ) -> Result<Self, JoinError> {
        // Newer messages are dropped while a member is behind, so that messages being read stay.
        let full = Overflow::DropNewest;
        let options = SinkOptions { bound: 4096, full, room: ROOM, wake_method, spin };
        Sink::check(&options)?;
        let member = Arc::new(Member::join(directory, name, true, Some(options))?);
        let source = SourceOptions { wake: Wake::All, patience: Duration::ZERO };
        Ok(Self {
            source: Source::of(Arc::clone(&member), source),
            sink: Sink::of(member, options)?,
        })
    }

    /// Waits until a message has arrived, or until an instant of the shared clock. Then, or when the
    /// exchange has something to do ([`Exchange::poll_timeout`]), the caller calls [`run`](Self::run).
    pub fn wait(&mut self, until: Instant) -> WaitOutcome {
        self.sink.wait(until)
    }

    /// The sink's side, for a loop of the program's own.
    pub fn sink_mut(&mut self) -> &mut Sink {
        &mut self.sink
    }

    /// The fates of the sent and of the received messages.
    #[must_use]
    pub const fn counts(&self) -> (SourceCounts, SinkCounts) {
        (self.source.counts(), self.sink.counts())
    }

    /// Passes received messages to the exchange, runs its timeouts, and sends its messages.
    pub fn run(&mut self, now: Instant, exchange: &mut Exchange) {
        while let Some(event) = self.sink.take() {
            exchange.handle_frame(now, HostId(event.from.0), event.bytes);
            self.transmit(now, exchange);
        }
        exchange.handle_timeout(now);
        self.transmit(now, exchange);
    }

    /// Sends the messages of the exchange; called after each call of the exchange.
    pub fn transmit(&mut self, now: Instant, exchange: &mut Exchange) {
        // Every member has a ring to each other one, so that no interest must be declared.
        while exchange.poll_interest().is_some() {}
        while let Some(transmit) = exchange.poll_transmit(now) {
            match transmit.to {
                // No sink of an exchange blocks its sources.
                Destination::All => drop(self.source.publish(transmit.bytes, None)),
                Destination::Hosts(hosts) | Destination::Subscribers { hosts, .. } => {
                    for host in hosts {
                        self.source.send_to(PeerId(host.0), transmit.bytes, None);
                    }
                }
            }
        }
    }
}
