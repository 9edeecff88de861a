//! A source: puts its events into the ring of each sink of a channel on this host.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use selvedge_control_event::Wake;
use selvedge_data_memory::MailboxError;
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

use crate::JoinError;
use crate::member::{Change, Member};
use crate::ring::PeerId;
use crate::ring_writer::RingWriter;

/// How a source distributes its events.
#[derive(Clone, Copy, Debug)]
pub struct SourceOptions {
    /// To every sink, or to one in turn.
    pub wake: Wake,
    /// How long blocking sinks may delay an event.
    pub patience: Duration,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self { wake: Wake::All, patience: Duration::from_millis(10) }
    }
}

/// Why an event was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A blocking sink had no room for as long as the source's patience: no sink got the event.
    #[error("a sink that blocks its sources has no room; wait, or give it another rule")]
    Blocked(PeerId),
}

/// The fates of a source's events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Events that were sent.
    pub sent: u64,
    /// Events put into rings: one for each sink.
    pub put: u64,
    /// Events dropped for lack of room in a ring, by its sink's rule.
    pub dropped: u64,
    /// Events that were not accepted, since a sink blocked.
    pub blocked: u64,
    /// Sinks that corrupted their ring and were cut off.
    pub broken: u64,
}

/// The fates of the events for one sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkReport {
    /// The sink.
    pub sink: PeerId,
    /// Events that wait in its ring.
    pub waiting: usize,
    /// Events that this source dropped for lack of room.
    pub dropped: u64,
    /// Events that the sink lost, as it reports: the dropped and the overwritten ones.
    pub missed: u64,
}

/// A source of a channel.
#[derive(Debug)]
pub struct Source {
    member: Arc<Member>,
    writers: Vec<RingWriter>,
    seen: u32,
    options: SourceOptions,
    turn: usize,
    blocking: usize,
    counts: SourceCounts,
    clock: Clock,
}

impl Source {
    /// Joins a channel as a source; it reaches the present sinks when this returns.
    pub fn join(directory: &Path, name: &str, options: SourceOptions) -> Result<Self, JoinError> {
        Ok(Self::of(Arc::new(Member::join(directory, name, true, None)?), options))
    }

    pub(crate) fn of(member: Arc<Member>, options: SourceOptions) -> Self {
        let mut source = Self {
            member,
            writers: Vec::new(),
            seen: 0,
            options,
            turn: 0,
            blocking: 0,
            counts: SourceCounts::default(),
            clock: Clock::shared(),
        };
        source.refresh();
        source
    }

    /// Sends an event and wakes the sinks that sleep; returns the number of sinks that got it.
    ///
    /// # Errors
    /// [`PublishError::Blocked`].
    pub fn publish(
        &mut self,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<usize, PublishError> {
        let got = self.enqueue(bytes, deadline)?;
        self.flush();
        Ok(got)
    }

    /// As [`publish`](Self::publish), but sinks may see the event only after
    /// [`flush`](Self::flush): a batch costs each of them one wake-up.
    ///
    /// # Errors
    /// [`PublishError::Blocked`].
    #[inline]
    pub fn enqueue(
        &mut self,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<usize, PublishError> {
        self.look();
        let tag = deadline.map_or(u64::MAX, |deadline| deadline.0);
        if self.blocking > 0 {
            self.wait_for_room(bytes)?;
        }
        self.counts.sent += 1;
        if self.options.wake == Wake::One {
            return Ok(self.put_one(tag, bytes));
        }
        let mut got = 0;
        let mut at = 0;
        while at < self.writers.len() {
            match self.writers[at].put(tag, bytes) {
                Ok(true) => got += 1,
                Ok(false) => self.counts.dropped += 1,
                Err(_) => {
                    self.disconnect(at);
                    continue;
                }
            }
            at += 1;
        }
        self.counts.put += got as u64;
        Ok(got)
    }

    /// Puts the event into one sink's ring, in turn; into the next if it has no room.
    fn put_one(&mut self, tag: u64, bytes: &[u8]) -> usize {
        let count = self.writers.len();
        let mut step = 0;
        while step < self.writers.len() {
            let at = (self.turn + step) % self.writers.len();
            match self.writers[at].put(tag, bytes) {
                Ok(true) => {
                    self.turn = at + 1;
                    self.counts.put += 1;
                    return 1;
                }
                Ok(false) => step += 1,
                Err(_) => self.disconnect(at),
            }
        }
        self.counts.dropped += u64::from(count > 0);
        0
    }

    /// Sends an event to one member; returns whether its ring had room. It is published at once.
    pub fn send_to(&mut self, sink: PeerId, bytes: &[u8], deadline: Option<Instant>) -> bool {
        self.look();
        let tag = deadline.map_or(u64::MAX, |deadline| deadline.0);
        let Some(at) = self.writers.iter().position(|writer| writer.peer == sink) else {
            return false;
        };
        self.counts.sent += 1;
        match self.writers[at].put(tag, bytes) {
            Ok(true) => {
                self.writers[at].flush();
                self.counts.put += 1;
                return true;
            }
            Ok(false) => self.counts.dropped += 1,
            // The sink blocks, and this function never waits.
            Err(MailboxError::Full) => {
                self.writers[at].count_skipped();
                self.counts.dropped += 1;
            }
            Err(_) => self.disconnect(at),
        }
        false
    }

    /// Publishes the enqueued events, and wakes the sinks that sleep.
    #[inline]
    pub fn flush(&mut self) {
        for writer in &mut self.writers {
            writer.flush();
        }
    }

    /// The sinks that are reachable now.
    pub fn sinks(&mut self) -> impl Iterator<Item = PeerId> {
        self.look();
        self.writers.iter().map(|writer| writer.peer)
    }

    /// The fates of the events for each sink.
    pub fn reports(&mut self) -> Vec<SinkReport> {
        self.look();
        let reports = self.writers.iter_mut().map(|writer| SinkReport {
            sink: writer.peer,
            waiting: writer.waiting().unwrap_or(0),
            dropped: writer.dropped,
            missed: writer.missed(),
        });
        reports.collect()
    }

    /// The fates of the source's events.
    #[must_use]
    pub const fn counts(&self) -> SourceCounts {
        self.counts
    }

    /// Waits until no blocking sink is full; bounded by the patience.
    fn wait_for_room(&mut self, bytes: &[u8]) -> Result<(), PublishError> {
        let mut until = None;
        let mut looks = 0_u32;
        loop {
            self.look();
            let full = |writer: &mut RingWriter| writer.blocks() && !writer.has_room(bytes.len());
            let Some(at) = self.writers.iter_mut().position(full) else { return Ok(()) };
            if looks == 0 {
                // The sinks must see the enqueued events to make room.
                self.flush();
            }
            looks += 1;
            if !looks.is_multiple_of(64) {
                std::hint::spin_loop();
                continue;
            }
            let now = self.clock.now();
            let until = *until.get_or_insert(now + self.options.patience);
            if now >= until {
                self.counts.blocked += 1;
                return Err(PublishError::Blocked(self.writers[at].peer));
            }
            if looks > 1024 {
                self.clock.sleep_until(until.min(now + Duration::from_micros(50)));
            }
        }
    }

    #[inline]
    fn look(&mut self) {
        if self.member.shared.for_source.load(Ordering::Relaxed) != self.seen {
            self.refresh();
        }
    }

    #[cold]
    fn refresh(&mut self) {
        self.seen = self.member.shared.for_source.load(Ordering::Acquire);
        for change in self.member.shared.take_for_source() {
            match change {
                Change::Added(writer) => self.writers.push(writer),
                Change::Removed(peer) => self.writers.retain(|writer| writer.peer != peer),
            }
        }
        self.blocking = self.writers.iter().filter(|writer| writer.blocks()).count();
    }

    /// Cuts off a sink that corrupted its ring.
    #[cold]
    fn disconnect(&mut self, at: usize) {
        let writer = self.writers.remove(at);
        self.member.shared.close(writer.peer);
        self.counts.broken += 1;
        self.blocking = self.writers.iter().filter(|writer| writer.blocks()).count();
    }
}
