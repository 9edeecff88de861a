//! The thread that serves a member's connections: it accepts them, exchanges hellos, passes on the
//! ends of rings, and reports departures.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::control::{self, Connection, ControlError};
use selvedge_units::{Duration, Instant};

use super::{Change, Shared};
use crate::message::Message;
use crate::ring::{PeerId, SinkOptions};
use crate::ring_reader::RingReader;
use crate::ring_writer::RingWriter;

/// How long a member may take to send its hello.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to another member.
#[derive(Debug)]
pub(super) struct Peer {
    id: PeerId,
    connection: Connection,
    pid: Option<rustix::process::Pid>,
    /// The token that the peer must present; `None` if any admitted token is valid.
    token: Option<Box<str>>,
    since: Instant,
    /// Whether the peer is an earlier member whose hello has not arrived.
    hello_pending: bool,
    /// Whether its number was already given out.
    pub(super) is_known: bool,
    hello_received_from: bool,
    is_sink: bool,
    attached: bool,
}

impl Peer {
    pub(super) fn new(
        id: PeerId,
        connection: Connection,
        pid: rustix::process::Pid,
        token: Option<Box<str>>,
        since: Instant,
    ) -> Self {
        Self {
            id,
            connection,
            pid: Some(pid),
            token,
            since,
            hello_pending: false,
            is_known: false,
            hello_received_from: false,
            is_sink: false,
            attached: false,
        }
    }
}

pub(super) struct MemberThread {
    pub(super) shared: Arc<Shared>,
    /// The channel's name; `None` for a standalone member.
    pub(super) name: Option<Box<str>>,
    pub(super) source: bool,
    pub(super) sink: Option<SinkOptions>,
    /// The first message of a member of a channel.
    pub(super) hello: Option<Message>,
    pub(super) listener: OwnedFd,
    pub(super) peers: Vec<Peer>,
    pub(super) most: usize,
    pub(super) clock: Clock,
}

impl MemberThread {
    /// Accepts a connection, if it belongs to this user, and sends a hello.
    pub(super) fn add_connection(&mut self, connection: Connection, hello_pending: bool) {
        let Ok(who) = connection.peer() else { return };
        if !control::is_ours(&who) || self.peers.len() >= self.most {
            tracing::warn!(
                uid = who.uid.as_raw(),
                peers = self.peers.len(),
                "turned a member away"
            );
            return;
        }
        // A standalone member waits for the token first.
        if self.hello.as_ref().is_some_and(|hello| connection.send(hello, &[], &[]).is_err()) {
            return;
        }
        let id = self.shared.next();
        let peer = Peer::new(id, connection, who.pid, self.name.clone(), self.clock.now());
        self.peers.push(Peer { hello_pending, ..peer });
    }

    pub(super) fn run(mut self) {
        loop {
            let silent = self.peers.iter().any(|peer| !peer.hello_received_from);
            let mut fds: Vec<PollFd<'_>> = [self.shared.wake_event.as_fd(), self.listener.as_fd()]
                .into_iter()
                .chain(self.peers.iter().map(|peer| peer.connection.as_fd()))
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let limit = timespec(TIMEOUT.0);
            if poll(&mut fds, silent.then_some(&limit)).is_err() {
                // Out of kernel memory, or a signal: try again, but without a busy loop.
                self.clock.sleep_until(self.clock.now() + Duration::from_millis(1));
                continue;
            }
            let mut called = Vec::new();
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                self.shared.wake_event.clear();
                let (stop, close, calls) = {
                    let lists = &mut *self.shared.lists.lock();
                    let close = std::mem::take(&mut lists.close);
                    (lists.stop, close, std::mem::take(&mut lists.new_connections))
                };
                if stop {
                    return;
                }
                called = calls;
                // Found by number, since the positions must stay as they were polled.
                for peer in &self.peers {
                    if close.contains(&peer.id) {
                        peer.connection.end();
                    }
                }
            }
            let now = self.clock.now();
            let mut gone = Vec::new();
            for at in 0..self.peers.len() {
                let keeps = !ready[at + 2] || self.handle_message(at);
                let peer = &self.peers[at];
                if !keeps || (!peer.hello_received_from && now.since(peer.since) > TIMEOUT) {
                    gone.push(at);
                }
            }
            for at in gone.into_iter().rev() {
                let peer = self.peers.remove(at);
                self.note_hello(&peer);
                if peer.hello_received_from || peer.is_known {
                    self.shared.notify_source(Change::Removed(peer.id));
                    self.shared.notify_sink(Change::Removed(peer.id));
                }
            }
            self.take_calls(called);
            if ready[1] {
                match Connection::accept(&self.listener) {
                    Ok(Some(connection)) => self.add_connection(connection, false),
                    Ok(None) => {}
                    // Most likely there are no descriptors left.
                    Err(error) => {
                        tracing::warn!(%error, "can't take a member on");
                        self.clock.sleep_until(now + Duration::from_millis(10));
                    }
                }
            }
        }
    }

    /// Adds the connections that this member has made; if there are too many, they are dropped.
    fn take_calls(&mut self, called: Vec<Peer>) {
        for peer in called {
            if self.peers.len() < self.most {
                self.peers.push(peer);
            } else {
                self.shared.notify_source(Change::Removed(peer.id));
            }
        }
    }

    /// Notes that an earlier member has sent its hello, or is gone.
    fn note_hello(&self, peer: &Peer) {
        if peer.hello_pending {
            let mut lists = self.shared.lists.lock();
            lists.hello_pending = lists.hello_pending.saturating_sub(1);
            self.shared.hello_received.notify_all();
        }
    }

    /// Handles a message; returns false if the connection must end.
    fn handle_message(&mut self, at: usize) -> bool {
        let (hello, mut fds) = match self.peers[at].connection.receive() {
            Ok(Some(message)) => (message.body, message.fds),
            Ok(None) => return true,
            Err(ControlError::Closed) => return false,
            Err(error) => {
                tracing::warn!(%error, "a member is turned away");
                return false;
            }
        };
        let peer = &mut self.peers[at];
        match hello {
            Message::Hello { channel, source, sink } if !peer.hello_received_from => {
                match &peer.token {
                    Some(token) if **token == *channel => {}
                    None if self.shared.is_admitted(&channel) => {
                        peer.token = Some(channel.as_str().into());
                        let channel = channel.clone();
                        let hello = Message::Hello { channel, source: false, sink: true };
                        if peer.connection.send(&hello, &[], &[]).is_err() {
                            return false;
                        }
                    }
                    _ => return false,
                }
                peer.hello_received_from = true;
                peer.is_sink = sink;
                if source && let Some(options) = &self.sink {
                    let made = RingReader::create(peer.id, &channel, options);
                    let Ok((reader, attach)) = made.inspect_err(|error| {
                        tracing::warn!(%error, "no memory for a source's events");
                    }) else {
                        return false;
                    };
                    // The sink gets its end first, so that it is ready before the source.
                    self.shared.notify_sink(Change::Added(reader));
                    if peer.connection.send(&attach.0, &[], &attach.1.each_fd()).is_err() {
                        return false;
                    }
                }
            }
            Message::Attach { wake_method, full }
                if self.source && peer.hello_received_from && peer.is_sink && !peer.attached =>
            {
                let event = (fds.len() > 1).then(|| fds.pop()).flatten();
                let Some(memory) = fds.pop() else { return false };
                match RingWriter::open(peer.id, peer.pid, memory, event, wake_method, full) {
                    Ok(writer) => self.shared.notify_source(Change::Added(writer)),
                    Err(error) => {
                        tracing::warn!(%error, "a sink's memory is none");
                        return false;
                    }
                }
                peer.attached = true;
            }
            _ => return false,
        }
        let peer = &self.peers[at];
        if peer.hello_received_from && (!self.source || !peer.is_sink || peer.attached) {
            self.note_hello(peer);
            self.peers[at].hello_pending = false;
        }
        true
    }
}
