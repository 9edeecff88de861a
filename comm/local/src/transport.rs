//! A transport for `selvedge-control-event` over shared memory: an `Exchange` in each process of a host, and
//! its channels reach all of them. Members are "hosts" to it.

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

/// One process's side.
#[derive(Debug)]
pub struct LocalTransport {
    source: Source,
    sink: Sink,
}

impl LocalTransport {
    /// Joins the exchange of this name, called as said when something comes; those who are there already are
    /// reached when this returns.
    pub fn join(
        directory: &Path,
        name: &str,
        wake_method: WakeMethod,
        spin: Duration,
    ) -> Result<Self, JoinError> {
        // Newer messages are dropped when a member does not read: what it has begun to read stays.
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

    /// Waits until something has come, or until an instant of the shared clock: then, or when the exchange
    /// has something to do ([`Exchange::poll_timeout`]), [`run`](Self::run) is called.
    pub fn wait(&mut self, until: Instant) -> WaitOutcome {
        self.sink.wait(until)
    }

    /// The sink's side, to be called by a loop of the program's own.
    pub fn sink_mut(&mut self) -> &mut Sink {
        &mut self.sink
    }

    /// What became of the messages sent, and of those received.
    #[must_use]
    pub const fn counts(&self) -> (SourceCounts, SinkCounts) {
        (self.source.counts(), self.sink.counts())
    }

    /// Gives the exchange what has come, has it do what is due, and sends what it sends.
    pub fn run(&mut self, now: Instant, exchange: &mut Exchange) {
        while let Some(event) = self.sink.take() {
            exchange.handle_frame(now, HostId(event.from.0), event.bytes);
            self.transmit(now, exchange);
        }
        exchange.handle_timeout(now);
        self.transmit(now, exchange);
    }

    /// Sends what the exchange has to send; to be called after each call of the exchange.
    pub fn transmit(&mut self, now: Instant, exchange: &mut Exchange) {
        // Every member has a ring to each other, so that nothing is to be declared.
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
