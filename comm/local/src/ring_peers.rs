//! Rings between processes that find each other by other means: a transport between hosts uses them
//! for peers on the same host. Each process has a socket with an abstract name, that is, within its
//! network namespace. A source [connects](RingPeers::connect) with a token that the sink has
//! [admitted](RingPeers::admit_token) for it alone, so that both know their peer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use selvedge_control_event::Overflow;
use selvedge_os::clock::Clock;
use selvedge_os::eventfd::EventFd;
use selvedge_units::{Bytes, Duration};

use crate::JoinError;
use crate::member::{Change, Member};
use crate::message::WakeMethod;
use crate::ring::{PeerId, SinkOptions};
use crate::ring_writer::RingWriter;
use crate::sink::{Sink, SinkCounts};
use crate::waker_thread::WakerThread;

/// Memory for each source's messages: several of the longest.
const ROOM: Bytes = Bytes(256 << 10);
/// The largest number of messages in it.
const BOUND: usize = 8192;
/// The total time that a source waits for a full sink, until it has caught up half-way.
const TIMEOUT: Duration = Duration::from_millis(1);
/// How often a sink that is behind is checked, in messages.
const POLLS_PER_CLOCK_READ: u32 = 64;
/// The sender itself wakes at most this number of sinks; a thread wakes more.
const AT_ONCE: usize = 2;

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The message is in the ring.
    Done,
    /// The ring is full; its reader will notice that it missed a message.
    Dropped,
    /// The ring does not exist any more.
    Gone,
}

/// A change of the rings to other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEvent {
    /// A sink can be reached.
    Ready(PeerId),
    /// The sink can't be reached, or no longer.
    Gone(PeerId),
}

/// A ring to a sink.
#[derive(Debug)]
struct PeerRing {
    writer: RingWriter,
    /// The rest of the time to wait for the sink.
    wait_left: Duration,
    last_poll: u32,
}

/// One process's rings to and from others.
#[derive(Debug)]
pub struct RingPeers {
    member: Arc<Member>,
    /// The rings to sinks, by number.
    lines: Vec<PeerRing>,
    seen: u32,
    sink: Sink,
    waker_thread: WakerThread,
    /// The eventfds of the sinks to be woken.
    due: Vec<Arc<EventFd>>,
    clock: Clock,
    put: u64,
    dropped: u64,
}

fn address(name: &str) -> std::io::Result<(OwnedFd, SocketAddrUnix)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((socket, SocketAddrUnix::new_abstract_name(name.as_bytes())?))
}

impl RingPeers {
    /// Listens at a name in this network namespace, without rings yet.
    pub fn listen(name: &str) -> Result<Self, JoinError> {
        let failed = |why: std::io::Error| JoinError::Socket { path: format!("@{name}"), why };
        let (socket, at) = address(name).map_err(failed)?;
        bind(&socket, &at).map_err(|why| failed(why.into()))?;
        listen(&socket, 128).map_err(|why| failed(why.into()))?;
        // Newer messages are dropped while the reader is behind, so that messages being read stay.
        let options = SinkOptions {
            bound: BOUND,
            full: Overflow::DropNewest,
            room: ROOM,
            wake_method: WakeMethod::Event,
            spin: Duration::ZERO,
        };
        Sink::check(&options)?;
        let member = Arc::new(Member::standalone(socket, options)?);
        Ok(Self {
            sink: Sink::of(Arc::clone(&member), options)?,
            member,
            lines: Vec::new(),
            seen: 0,
            waker_thread: WakerThread::default(),
            due: Vec::new(),
            clock: Clock::shared(),
            put: 0,
            dropped: 0,
        })
    }

    /// Admits one source that presents this token.
    pub fn admit_token(&self, token: &str) {
        self.member.shared.admit_token(token);
    }

    /// Starts a ring to the process that listens at a name and has admitted this token;
    /// [`RingEvent`] reports the outcome.
    ///
    /// # Errors
    /// If no process listens there, or it belongs to another user.
    pub fn connect(&self, name: &str, token: &str) -> std::io::Result<PeerId> {
        let (socket, to) = address(name)?;
        connect(&socket, &to)?;
        self.member.shared.call(socket.into(), token)
    }

    /// Ends the rings to and from a peer.
    pub fn close(&mut self, peer: PeerId) {
        self.lines.retain(|line| line.writer.peer != peer);
        self.sink.forget(peer);
    }

    /// Changes of the rings to other processes since the last call; one atomic load if there are none.
    pub fn news(&mut self) -> Vec<RingEvent> {
        let now = self.member.shared.for_source.load(Ordering::Acquire);
        if now == self.seen {
            return Vec::new();
        }
        self.seen = now;
        let mut news = Vec::new();
        for change in self.member.shared.take_for_source() {
            match change {
                Change::Added(writer) => news.extend(self.add_ring(writer)),
                Change::Removed(peer) => {
                    self.lines.retain(|line| line.writer.peer != peer);
                    news.push(RingEvent::Gone(peer));
                }
            }
        }
        news
    }

    fn add_ring(&mut self, writer: RingWriter) -> Option<RingEvent> {
        let peer = writer.peer;
        // A sink with another wake-up method is not a peer of this kind.
        if !writer.has_event() || writer.blocks() {
            self.member.shared.close(peer);
            return None;
        }
        let at = self.lines.partition_point(|line| line.writer.peer < peer);
        self.lines.insert(at, PeerRing { writer, wait_left: TIMEOUT, last_poll: 0 });
        Some(RingEvent::Ready(peer))
    }

    /// Puts a message into a ring; its sink sees it after [`flush`](Self::flush). The source waits
    /// for a full sink, for 1 ms in total until the sink has caught up half-way. So a busy sink
    /// loses nothing, and a stopped or slow one delays no other.
    pub fn put(&mut self, to: PeerId, bytes: &[u8]) -> PutOutcome {
        let Ok(at) = self.lines.binary_search_by_key(&to, |line| line.writer.peer) else {
            return PutOutcome::Gone;
        };
        let line = &mut self.lines[at];
        if line.wait_left < TIMEOUT {
            line.last_poll += 1;
            if line.last_poll >= POLLS_PER_CLOCK_READ {
                line.last_poll = 0;
                if line.writer.is_half_empty(bytes.len()) {
                    line.wait_left = TIMEOUT;
                }
            }
        }
        if !line.writer.has_room(bytes.len()) && line.wait_left > Duration::ZERO {
            self.wait(at, bytes.len());
        }
        match self.lines[at].writer.put(u64::MAX, bytes) {
            Ok(true) => {
                self.put += 1;
                PutOutcome::Done
            }
            Ok(false) => {
                self.dropped += 1;
                PutOutcome::Dropped
            }
            Err(error) => {
                tracing::warn!(%error, "a sink broke its ring; it is not used any more");
                self.lines.remove(at);
                self.member.shared.close(to);
                PutOutcome::Gone
            }
        }
    }

    /// Waits until a ring has room, within the time that is left for it.
    #[cold]
    fn wait(&mut self, at: usize, len: usize) {
        self.flush();
        let line = &mut self.lines[at];
        let begin = self.clock.now();
        let until = begin + line.wait_left;
        while !line.writer.has_room(len) && self.clock.now() < until {
            self.clock.sleep_until(until.min(self.clock.now() + Duration::from_micros(20)));
        }
        let waited = self.clock.now().since(begin);
        line.wait_left = Duration(line.wait_left.0.saturating_sub(waited.0));
    }

    /// Publishes the messages to the sinks, and wakes those that sleep.
    pub fn flush(&mut self) {
        for line in &mut self.lines {
            self.due.extend(line.writer.publish_silently().cloned());
        }
        if self.due.len() <= AT_ONCE || !self.waker_thread.ring(&mut self.due) {
            self.due.drain(..).for_each(|event| event.ring());
        }
    }

    /// Takes the next received message; returns its place, for [`message`](Self::message).
    pub fn take(&mut self) -> Option<usize> {
        self.sink.find()
    }

    /// The message that was last taken at a place, and its source.
    #[must_use]
    pub fn message(&self, at: usize) -> (PeerId, &[u8]) {
        let event = self.sink.event(at);
        (event.from, event.bytes)
    }

    /// The token with which a source was admitted.
    #[must_use]
    pub fn token(&self, source: PeerId) -> Option<&str> {
        self.sink.token(source)
    }

    /// Whether a message of a source waits.
    pub fn has_unread_of(&mut self, source: PeerId) -> bool {
        self.sink.has_of(source)
    }

    /// Whether a message of the source with this token waits.
    pub fn has_by(&mut self, token: &str) -> bool {
        self.sink.has_by(token)
    }

    /// Readable when another process wakes this one.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.sink.fd().unwrap_or_else(|| self.member.shared.event.as_fd())
    }

    /// Prepares to wait for a wake-up; false if there is a message to take first.
    #[must_use]
    pub fn prepare_wait(&mut self) -> bool {
        self.sink.prepare_wait()
    }

    /// The number of rings to other processes, and from them.
    pub fn count(&mut self) -> (usize, usize) {
        (self.lines.len(), self.sink.sources())
    }

    /// The number of messages put into rings, and of those dropped for lack of room; and the counts
    /// of received ones.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64, SinkCounts) {
        (self.put, self.dropped, self.sink.counts())
    }
}
