//! A sink: takes the events of all sources of a channel on this host, each from a ring of its own.
//!
//! While the sink is awake, neither side makes a system call. Before it sleeps it may poll the
//! rings for a while; when it sleeps, the first event wakes it.

mod wait;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use selvedge_control_event::{Attributes, HandlerEvent, Handlers, Overflow, SharedBlocks};
use selvedge_os::clock::Clock;
use selvedge_os::signal;
use selvedge_units::Instant;

use self::wait::watch;
use crate::JoinError;
use crate::member::{Change, Member, Shared};
use crate::message::WakeMethod;
use crate::ring::{PeerId, SinkOptions};
use crate::ring_reader::RingReader;

/// After this number of events of one source, the next source has its turn.
const TURN_MAX: u32 = 64;
/// The largest number of late events that one look drops.
const LATE_MAX: u32 = 65_536;

/// An event, as a sink gets it: a copy that no other process can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its source.
    pub from: PeerId,
    /// Its number among that source's, modulo 2^32.
    pub number: u32,
    /// The deadline, by [`Clock::shared`].
    pub deadline: Option<Instant>,
    /// The payload.
    pub bytes: &'a [u8],
}

/// The fates of a sink's events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Events that were taken.
    pub taken: u64,
    /// Events whose deadline had passed.
    pub expired: u64,
    /// Events that were lost for lack of room, by the sink's own rule.
    pub missed: u64,
    /// Sources that corrupted their ring and were cut off.
    pub broken: u64,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// There is an event, or sources have come or gone.
    Available,
    /// The time is over.
    TimedOut,
}

/// A sink of a channel.
#[derive(Debug)]
pub struct Sink {
    member: Arc<Member>,
    readers: Vec<RingReader>,
    /// The last seen count of the member thread's changes.
    seen: u32,
    options: SinkOptions,
    /// The source whose turn it is, and the number of its events in this turn.
    turn: (usize, u32),
    epoll: Option<OwnedFd>,
    counts: SinkCounts,
    clock: Clock,
}

impl Sink {
    /// Joins a channel as a sink; present sources reach it when this returns.
    pub fn join(directory: &Path, name: &str, options: SinkOptions) -> Result<Self, JoinError> {
        Self::check(&options)?;
        let member = Member::join(directory, name, false, Some(options))?;
        Self::of(Arc::new(member), options)
    }

    pub(crate) fn check(options: &SinkOptions) -> Result<(), JoinError> {
        match options.wake_method {
            _ if options.bound == 0 => Err(JoinError::Bound),
            WakeMethod::Signal { number, .. } if !signal::is_real_time(number) => {
                Err(JoinError::Signal(number))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn of(member: Arc<Member>, options: SinkOptions) -> Result<Self, JoinError> {
        let epoll = match options.wake_method {
            WakeMethod::Event => {
                let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                watch(&epoll, member.shared.event.as_fd())?;
                Some(epoll)
            }
            WakeMethod::Futex | WakeMethod::Signal { .. } => None,
        };
        let mut sink = Self {
            member,
            readers: Vec::new(),
            seen: 0,
            options,
            turn: (0, 0),
            epoll,
            counts: SinkCounts::default(),
            clock: Clock::shared(),
        };
        sink.refresh();
        Ok(sink)
    }

    fn shared(&self) -> &Shared {
        &self.member.shared
    }

    /// Takes the next event of the source whose turn it is: the oldest, or the newest if only the
    /// latest are wanted. `None` if there is none now. Makes no system call.
    pub fn take(&mut self) -> Option<Event<'_>> {
        let at = self.find()?;
        Some(self.event(at))
    }

    /// The event that was last taken from a source.
    pub(crate) fn event(&self, at: usize) -> Event<'_> {
        let reader = &self.readers[at];
        let mail = reader.reader.last();
        let deadline = (mail.tag != u64::MAX).then_some(Instant(mail.tag));
        Event { from: reader.peer, number: mail.number, deadline, bytes: mail.bytes }
    }

    /// Takes an event out of a ring; returns the index of its source.
    pub(crate) fn find(&mut self) -> Option<usize> {
        if self.shared().for_sink.load(Ordering::Relaxed) != self.seen {
            self.refresh();
        }
        let count = self.readers.len();
        let (mut empty, mut late) = (0, 0);
        let latest = self.options.full == Overflow::Latest;
        while empty < count {
            let (at, had) = self.turn;
            let Some(reader) = self.readers.get_mut(at) else {
                self.turn = (0, 0);
                continue;
            };
            let taken = if latest { reader.reader.take_latest() } else { reader.reader.take() };
            match taken.map(|mail| mail.map(|mail| (mail.tag, mail.missed))) {
                Ok(Some((tag, missed))) => {
                    self.counts.missed += u64::from(missed);
                    self.turn = if had + 1 < TURN_MAX { (at, had + 1) } else { (at + 1, 0) };
                    if tag != u64::MAX && self.clock.now() > Instant(tag) {
                        self.counts.expired += 1;
                        late += 1;
                        if late == LATE_MAX {
                            return None;
                        }
                        continue;
                    }
                    self.counts.taken += 1;
                    return Some(at);
                }
                Ok(None) => {
                    empty += 1;
                    self.turn = (at + 1, 0);
                }
                Err(_) => {
                    let peer = reader.peer;
                    self.remove(at);
                    self.counts.broken += 1;
                    self.shared().close(peer);
                    return self.find();
                }
            }
        }
        None
    }

    /// Handles sources that came and went.
    #[cold]
    fn refresh(&mut self) {
        self.seen = self.shared().for_sink.load(Ordering::Acquire);
        for change in self.shared().take_for_sink() {
            match change {
                Change::Added(reader) => {
                    if let (Some(epoll), Some(event)) = (&self.epoll, &reader.event)
                        && let Err(error) = watch(epoll, event.as_fd())
                    {
                        tracing::warn!(%error, "a source's event can't be watched");
                    }
                    self.readers.push(reader);
                }
                Change::Removed(peer) => {
                    for reader in &mut self.readers {
                        reader.ended |= reader.peer == peer;
                    }
                }
            }
        }
        // Events of departed sources are still taken.
        while let Some(at) =
            self.readers.iter().position(|reader| reader.ended && !reader.reader.has_message())
        {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let reader = self.readers.remove(at);
        if let (Some(epoll), Some(event)) = (&self.epoll, &reader.event) {
            let _ = epoll::delete(epoll, event.as_fd());
        }
        self.turn = (0, 0);
    }

    /// The token with which a source was admitted.
    pub(crate) fn token(&self, peer: PeerId) -> Option<&str> {
        self.readers.iter().find(|reader| reader.peer == peer).map(|reader| &*reader.token)
    }

    /// Whether an event of a source waits.
    pub(crate) fn has_of(&mut self, peer: PeerId) -> bool {
        self.refresh();
        self.readers.iter().any(|reader| reader.peer == peer && reader.reader.has_message())
    }

    /// The same for the source with this token.
    pub(crate) fn has_by(&mut self, token: &str) -> bool {
        self.refresh();
        self.readers.iter().any(|reader| *reader.token == *token && reader.reader.has_message())
    }

    /// Stops taking events of a source.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.refresh();
        if let Some(at) = self.readers.iter().position(|reader| reader.peer == peer) {
            self.remove(at);
        }
        self.shared().close(peer);
    }

    /// Whether an event waits, by a look at the shared memory.
    #[must_use]
    #[inline]
    pub fn has_events(&self) -> bool {
        self.readers.iter().any(|reader| reader.reader.has_message())
    }

    /// The number of sources.
    #[must_use]
    pub fn sources(&mut self) -> usize {
        self.refresh();
        self.readers.iter().filter(|reader| !reader.ended).count()
    }

    /// The fates of its events.
    #[must_use]
    pub const fn counts(&self) -> SinkCounts {
        self.counts
    }

    /// Waits for an event and takes it; `None` if none came before `until`.
    pub fn receive(&mut self, until: Instant) -> Option<Event<'_>> {
        loop {
            if let Some(at) = self.find() {
                return Some(self.event(at));
            }
            let due = self.wait(until) == WaitOutcome::TimedOut;
            if due || (until != Instant::MAX && self.clock.now() >= until) {
                return self.take();
            }
        }
    }

    /// Passes the waiting events, at most `most`, to handlers in their order; returns their number.
    pub fn handle(
        &mut self,
        most: usize,
        handlers: &mut Handlers<'_>,
        blocks: &mut SharedBlocks,
    ) -> usize {
        let clock = self.clock;
        for done in 0..most {
            let Some(event) = self.take() else { return done };
            let handled = HandlerEvent {
                sequence: event.number.into(),
                deadline: event.deadline,
                attributes: Attributes::default(),
            };
            handlers.run(clock.now(), &handled, event.bytes, blocks);
        }
        most
    }
}
