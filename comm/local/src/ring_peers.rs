//! Rings between processes that know of each other by other means: a transport between hosts, whose
//! messages go through memory where both ends are on one. Each has a socket by an abstract name, that is,
//! within its network namespace; a source [connects](Links::connect) with a word that the sink has
//! [given](Links::welcome) to it alone, so that both know whom they have.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use selvedge_control_event::Overflow;
use selvedge_os::clock::Clock;
use selvedge_os::eventfd::EventFd;
use selvedge_units::{Bytes, Duration, Instant};

use crate::JoinError;
use crate::member::{Change, Member};
use crate::message::WakeMethod;
use crate::ring::{PeerId, SinkOptions};
use crate::ring_writer::RingWriter;
use crate::sink::{Sink, SinkCounts};
use crate::waker_thread::WakerThread;

/// Memory for each source's messages: several of the longest.
const ROOM: Bytes = Bytes(256 << 10);
/// The most messages in it.
const BOUND: usize = 8192;
/// How long all together a source waits for a sink that is full, until it has caught up half-way.
const TIMEOUT: Duration = Duration::from_millis(1);
/// How often a sink that is behind is looked at, in messages.
const POLLS_PER_CLOCK_READ: u32 = 64;
/// So many sinks are called by who sends, more by a thread.
const AT_ONCE: usize = 2;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is in the ring.
    Done,
    /// The ring is full; its reader will know that it missed one.
    Dropped,
    /// There is no such ring.
    Gone,
}

/// What happened to the rings to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEvent {
    /// A sink can be reached.
    Ready(PeerId),
    /// It can't, or no more.
    Gone(PeerId),
}

/// A ring to a sink.
#[derive(Debug)]
struct PeerRing {
    writer: RingWriter,
    /// How long it is still waited for.
    wait_left: Duration,
    last_poll: u32,
}

/// One process's rings to and from others.
#[derive(Debug)]
pub struct RingPeers {
    member: Arc<Member>,
    /// By number.
    lines: Vec<PeerRing>,
    seen: u32,
    sink: Sink,
    waker_thread: WakerThread,
    /// Who is to be called.
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
    /// Listens by a name of this network namespace's, without rings yet.
    pub fn listen(name: &str) -> Result<Self, JoinError> {
        let failed = |why: std::io::Error| JoinError::Socket { path: format!("@{name}"), why };
        let (socket, at) = address(name).map_err(failed)?;
        bind(&socket, &at).map_err(|why| failed(why.into()))?;
        listen(&socket, 128).map_err(|why| failed(why.into()))?;
        // Newer messages are dropped when nobody reads: what a sink has begun to read stays.
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

    /// Lets a source in that says this word, once.
    pub fn admit_token(&self, token: &str) {
        self.member.shared.admit_token(token);
    }

    /// Begins a ring to who listens by a name and has given this word; [`RingEvent`] tells how it goes.
    ///
    /// # Errors
    /// If nobody listens there, or another user's.
    pub fn connect(&self, name: &str, token: &str) -> std::io::Result<PeerId> {
        let (socket, to) = address(name)?;
        connect(&socket, &to)?;
        self.member.shared.call(socket.into(), token)
    }

    /// Ends what is shared with a peer, either way.
    pub fn close(&mut self, peer: PeerId) {
        self.lines.retain(|line| line.writer.peer != peer);
        self.sink.forget(peer);
    }

    /// What happened to rings to others since; costs one look if nothing did.
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
        // One that wants to be called otherwise is none of ours.
        if !writer.has_event() || writer.blocks() {
            self.member.shared.close(peer);
            return None;
        }
        let at = self.lines.partition_point(|line| line.writer.peer < peer);
        self.lines.insert(at, PeerRing { writer, wait_left: TIMEOUT, last_poll: 0 });
        Some(RingEvent::Ready(peer))
    }

    /// Puts a message into a ring; its sink sees it after [`flush`](Self::flush). A sink that is full is waited
    /// for, in all 1 ms until it has caught up half-way: so one that is busy loses nothing, and one
    /// that is stopped or slow holds nobody up.
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

    /// Waits until a ring has room, as long as there is patience.
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

    /// Shows the sinks what was put, and calls those that sleep.
    pub fn flush(&mut self) {
        for line in &mut self.lines {
            self.due.extend(line.writer.publish_silently().cloned());
        }
        if self.due.len() <= AT_ONCE || !self.waker_thread.ring(&mut self.due) {
            self.due.drain(..).for_each(|event| event.ring());
        }
    }

    /// Takes the next message that has come: where it is, for [`mail`](Self::message).
    pub fn take(&mut self) -> Option<usize> {
        self.sink.find()
    }

    /// A message that was taken last at a place, and whose it is.
    #[must_use]
    pub fn message(&self, at: usize) -> (PeerId, &[u8]) {
        let event = self.sink.event(at);
        (event.from, event.bytes)
    }

    /// The word by which a source was let in.
    #[must_use]
    pub fn token(&self, source: PeerId) -> Option<&str> {
        self.sink.token(source)
    }

    /// Whether something of a source's is to be taken.
    pub fn has_unread_of(&mut self, source: PeerId) -> bool {
        self.sink.has_of(source)
    }

    /// Whether something is to be taken of who was let in by a word.
    pub fn has_by(&mut self, token: &str) -> bool {
        self.sink.has_by(token)
    }

    /// Readable when this process is called.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.sink.fd().unwrap_or_else(|| self.member.shared.event.as_fd())
    }

    /// About to wait to be called; false if there is something to take first.
    #[must_use]
    pub fn prepare_wait(&mut self) -> bool {
        self.sink.prepare_wait()
    }

    /// How many rings there are to others, and from others.
    pub fn count(&mut self) -> (usize, usize) {
        (self.lines.len(), self.sink.sources())
    }

    /// How many messages were put into rings, and dropped for want of room; and what came.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64, SinkCounts) {
        (self.put, self.dropped, self.sink.counts())
    }

    /// The time, as rings have it.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }
}
