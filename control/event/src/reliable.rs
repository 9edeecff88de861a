//! Reliable events between two hosts. The source keeps them until each member has taken them, and
//! sends no more than a member has room for. The member takes them in order, once. A slow member
//! delays no other, and the number kept for it is bounded: beyond that the oldest are dropped for
//! it alone, and both ends are notified.
//!
//! An event names its predecessor for the member, so a gap is noticed at once and filters may leave
//! members out. Lost events are retransmitted from the first missing one on.

use std::collections::VecDeque;

use selvedge_units::{Duration, Instant};

use crate::attribute::Attributes;
use crate::event::Event;

/// The largest number of reliable events of a channel that are kept for members that have not taken them.
pub const HELD_MAX: usize = 4096;
/// The largest number of their bytes.
pub const HELD_BYTES_MAX: usize = 8 << 20;
/// How long owed events are kept for a departed member, in case it comes back.
pub const RESUME: Duration = Duration::from_secs(60);
/// The largest number of events in flight to a member.
pub(crate) const WINDOW: u64 = 256;
/// When unacknowledged events are retransmitted: at first, and at most.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// The number of events that are retransmitted at once if no answer comes.
const RETRY_BURST: usize = 16;
/// How long an acknowledgement may wait for more events, and for how many.
const ACK_DELAY: Duration = Duration::from_millis(10);
const ACK_EVERY: u64 = 64;

#[derive(Debug, Default)]
struct Entry {
    deadline: Option<Instant>,
    attributes: Vec<u8>,
    record: Vec<u8>,
    /// The number of members that have not taken it.
    owed: usize,
}

/// The reliable events of a channel that at least one member has not taken.
#[derive(Debug)]
pub(crate) struct ReliableLog {
    first: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
    spare: Vec<Entry>,
}

impl ReliableLog {
    /// Numbers start at the current time, so that a channel that is reopened does not reuse one.
    pub(crate) fn new(now: Instant) -> Self {
        Self { first: now.0.max(1), entries: VecDeque::new(), bytes: 0, spare: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps an event that is owed to `owed` members; returns its number.
    pub(crate) fn push(&mut self, event: Event<'_>, owed: usize) -> u64 {
        let mut entry = self.spare.pop().unwrap_or_default();
        (entry.deadline, entry.owed) = (event.deadline, owed);
        entry.attributes.clear();
        entry.attributes.extend_from_slice(event.attributes.bytes());
        entry.record.clear();
        entry.record.extend_from_slice(event.record);
        self.bytes += entry.attributes.len() + entry.record.len();
        self.entries.push_back(entry);
        self.first + self.entries.len() as u64 - 1
    }

    pub(crate) fn get(&self, number: u64) -> Option<Event<'_>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get(at)?;
        let attributes = Attributes::parse(&entry.attributes).unwrap_or_default();
        Some(Event { deadline: entry.deadline, attributes, record: &entry.record })
    }

    /// Whether the log holds much memory, and a member's oldest event is in its older half.
    pub(crate) fn presses_log(&self, oldest: Option<u64>) -> bool {
        let middle = self.first + self.entries.len() as u64 / 2;
        self.bytes > HELD_BYTES_MAX / 2 && oldest.is_some_and(|oldest| oldest <= middle)
    }

    /// Notes that one member less is owed an event.
    pub(crate) fn settle(&mut self, number: u64) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
            entry.owed = entry.owed.saturating_sub(1);
        }
        while self.entries.front().is_some_and(|entry| entry.owed == 0) {
            self.pop();
        }
    }

    /// If there are too many events, removes the oldest; returns its number.
    pub(crate) fn overflow(&mut self) -> Option<u64> {
        let is_full = self.entries.len() > HELD_MAX || self.bytes > HELD_BYTES_MAX;
        let oldest = (is_full && !self.entries.is_empty()).then_some(self.first)?;
        self.pop();
        Some(oldest)
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.first += 1;
            self.bytes -= entry.attributes.len() + entry.record.len();
            if self.spare.len() < 64 {
                self.spare.push(entry);
            }
        }
    }
}

/// The events that a source owes to one member.
#[derive(Debug)]
pub(crate) struct SendWindow {
    /// Numbers of events, ascending.
    events: VecDeque<u64>,
    /// The number of these that are in flight.
    sent: usize,
    /// The last event that the member has taken or that was dropped for it; 0 before the first.
    settled: u64,
    room: u64,
    retry: Duration,
    retry_at: Option<Instant>,
    /// The number of events dropped for it in total.
    dropped: u64,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            sent: 0,
            settled: 0,
            room: WINDOW,
            retry: RETRY,
            retry_at: None,
            dropped: 0,
        }
    }
}

impl SendWindow {
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The oldest event that is owed.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.events.front().copied()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Adds an event. If it may be sent now, it counts as sent, and its predecessor is returned.
    pub(crate) fn push(&mut self, now: Instant, number: u64) -> Option<u64> {
        let before = self.events.back().copied().unwrap_or(self.settled);
        let is_next = self.sent == self.events.len() && (self.sent as u64) < self.room;
        self.events.push_back(number);
        self.retry_at.get_or_insert(now + self.retry);
        if !is_next {
            return None;
        }
        self.sent += 1;
        Some(before)
    }

    /// The predecessor of the last event that is owed.
    pub(crate) fn previous_number(&self) -> u64 {
        let at = self.events.len().checked_sub(2);
        at.map_or(self.settled, |at| self.events[at])
    }

    /// The next event that may be sent, with its predecessor; it counts as sent.
    pub(crate) fn next(&mut self) -> Option<(u64, u64)> {
        if self.sent as u64 >= self.room {
            return None;
        }
        self.step()
    }

    fn step(&mut self) -> Option<(u64, u64)> {
        let number = *self.events.get(self.sent)?;
        let before = self.sent.checked_sub(1).map_or(self.settled, |at| self.events[at]);
        self.sent += 1;
        Some((number, before))
    }

    /// Handles a credit: the member has taken all events up to a number, has room for `room` more, and may
    /// have missed the ones sent since. `settle` is called for each event that is no longer owed. Returns
    /// true if the member is behind the dropped events, and must be notified to continue.
    pub(crate) fn credit(
        &mut self,
        now: Instant,
        (through, room, again): (u64, u64, bool),
        mut settle: impl FnMut(u64),
    ) -> bool {
        while self.events.front().is_some_and(|first| *first <= through) {
            let Some(first) = self.events.pop_front() else { break };
            settle(first);
            self.settled = first;
            self.sent = self.sent.saturating_sub(1);
            self.retry = RETRY;
        }
        self.room = room.min(WINDOW);
        if again {
            self.sent = 0;
        }
        self.retry_at = (!self.events.is_empty()).then_some(now + self.retry);
        through < self.settled
    }

    /// Handles a missing answer; returns how many events to retransmit, at least one, whatever the room is.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        if self.retry_at.is_none_or(|at| at > now) || self.events.is_empty() {
            return 0;
        }
        self.retry = Duration(self.retry.0 * 2).min(RETRY_MAX);
        self.retry_at = Some(now + self.retry);
        let burst = (self.room.max(1) as usize).min(RETRY_BURST);
        self.sent = 0;
        burst.min(self.events.len())
    }

    /// As [`next`](Self::next), after [`expire`](Self::expire).
    pub(crate) fn next_retransmission(&mut self) -> Option<(u64, u64)> {
        self.step()
    }

    /// Drops an event that is no longer kept; returns true if it was owed to this member.
    pub(crate) fn drop_oldest(&mut self, number: u64) -> bool {
        if self.events.front() != Some(&number) {
            return false;
        }
        self.events.pop_front();
        self.settled = number;
        self.sent = self.sent.saturating_sub(1);
        self.dropped += 1;
        true
    }

    /// The number after which the member must continue, and the total of events dropped for it.
    pub(crate) fn skip(&self) -> (u64, u64) {
        (self.settled, self.dropped)
    }

    /// Schedules the retransmission of all events at once, since the member is new or back.
    pub(crate) fn retransmit_all(&mut self, now: Instant) {
        (self.sent, self.room, self.retry) = (0, WINDOW, RETRY);
        self.retry_at = (!self.events.is_empty()).then_some(now);
    }

    /// Takes all events that are owed.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u64> {
        self.sent = 0;
        self.events.drain(..)
    }
}

/// The events received from one source, in order.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWindow {
    /// The last number that was taken; 0 before the first.
    through: u64,
    /// The number of events taken since the last acknowledgement.
    unacknowledged: u64,
    /// The room that was last granted to the source.
    granted: u64,
    ack_at: Option<Instant>,
    /// Whether an event was refused since then for lack of room.
    lacks_credit: bool,
    /// The last gap that was reported, and when.
    requested: Option<(u64, Instant)>,
    /// The total of dropped events that the source has reported.
    missed: u64,
}

/// The place of an event in the receiver's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next event.
    Next,
    /// The event was taken before.
    Repeat,
    /// Earlier events are missing.
    Early,
}

impl ReceiveWindow {
    pub(crate) fn classify(&self, number: u64, before: u64) -> Arrival {
        if number <= self.through {
            Arrival::Repeat
        } else if before <= self.through {
            Arrival::Next
        } else {
            Arrival::Early
        }
    }

    pub(crate) fn ack_at(&self) -> Option<Instant> {
        self.ack_at
    }

    pub(crate) fn lacks_credit(&self) -> bool {
        self.lacks_credit
    }

    /// Notes that the next event was taken; `room` is the room for further ones.
    pub(crate) fn take(&mut self, now: Instant, number: u64, room: u64) {
        (self.through, self.lacks_credit, self.requested) = (number, false, None);
        self.unacknowledged += 1;
        let is_batch_full = self.unacknowledged >= ACK_EVERY.min(room.max(self.granted) / 2).max(1);
        let wait = if is_batch_full { Duration(0) } else { ACK_DELAY };
        self.schedule_ack(now, wait);
    }

    /// Notes that there was no room for the event.
    pub(crate) fn refuse_for_credit(&mut self, now: Instant) {
        self.lacks_credit = true;
        self.schedule_ack(now, ACK_DELAY);
    }

    /// Whether to request the missing events again; once for each gap and retry interval.
    pub(crate) fn ask(&mut self, now: Instant) -> bool {
        let known =
            self.requested.is_some_and(|(at, when)| at == self.through && now < when + RETRY);
        if known || self.lacks_credit {
            return false;
        }
        self.requested = Some((self.through, now));
        true
    }

    /// Schedules a report of the room that sinks have made, if the source should know of it.
    pub(crate) fn freed(&mut self, now: Instant, room: u64) {
        let left = self.granted.saturating_sub(self.unacknowledged);
        if room > left && left * 2 <= room && left < WINDOW / 4 && self.through > 0 {
            self.schedule_ack(now, Duration::from_millis(1));
        }
    }

    /// Notes that an acknowledgement is sent now; returns the last number that was taken.
    pub(crate) fn acknowledge(&mut self, room: u64) -> u64 {
        (self.unacknowledged, self.granted, self.ack_at) = (0, room, None);
        self.lacks_credit = room == 0;
        self.through
    }

    /// Skips to a number, since the source has dropped events; returns how many of the total
    /// `dropped` are new.
    pub(crate) fn skip(&mut self, now: Instant, to: u64, dropped: u64) -> u64 {
        self.through = self.through.max(to);
        self.requested = None;
        self.schedule_ack(now, Duration(0));
        let news = dropped.saturating_sub(self.missed);
        self.missed = self.missed.max(dropped);
        news
    }

    fn schedule_ack(&mut self, now: Instant, wait: Duration) {
        let at = now + wait;
        self.ack_at = Some(self.ack_at.map_or(at, |stated| stated.min(at)));
    }
}
