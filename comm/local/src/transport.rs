//! The transport of `selvedge-control-event` over shared memory: an `Exchange` in each process of a host, and
//! its channels reach all of them. Members are "hosts" to it.

use std::path::Path;
use std::sync::Arc;

use selvedge_control_event::{HostId, MESSAGE_MAX, Overflow, Transport, Wake};
use selvedge_units::{Bytes, Instant, Span};

use crate::JoinError;
use crate::member::{Member, PeerId};
use crate::say::Waking;
use crate::sink::{Ready, Sink, SinkCounts, SinkOptions};
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
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(
        directory: &Path,
        name: &str,
        waking: Waking,
        spin: Span,
    ) -> Result<Self, JoinError> {
        // Newer messages are dropped when a member does not read: what it has begun to read stays.
        let full = Overflow::DropNewest;
        let options = SinkOptions { bound: 4096, full, room: ROOM, waking, spin };
        Sink::check(&options)?;
        let member = Arc::new(Member::join(directory, name, true, Some(options))?);
        let source = SourceOptions { wake: Wake::All, patience: Span::ZERO };
        Ok(Self {
            source: Source::of(Arc::clone(&member), source),
            sink: Sink::of(member, options)?,
        })
    }

    /// Waits until something has come, or until an instant of the shared clock: then, or when the exchange
    /// wants it (`Exchange::poll_at`), `Exchange::handle` is called.
    pub fn wait(&mut self, until: Instant) -> Ready {
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
}

impl Transport for LocalTransport {
    fn send(&mut self, _: Instant, to: HostId, bytes: &[u8]) {
        self.source.send_to(PeerId(to.0), bytes, None);
    }

    fn announce(&mut self, _: Instant, bytes: &[u8]) {
        // No sink of an exchange blocks its sources.
        let _ = self.source.publish(bytes, None);
    }

    fn poll(&mut self, _: Instant) -> Option<(HostId, &[u8])> {
        let event = self.sink.take()?;
        Some((HostId(event.from.0), event.bytes))
    }
}
