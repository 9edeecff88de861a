//! The engine's thread: it takes arrived frames, queries the link for what to send, hands packets to the
//! kernel when they may leave, and reports the fate of each frame.
//!
//! Scheduling and dispatch are this one thread (NI coprocessors, section 2.2.3), so that a frame
//! waits in no second queue between the decision and the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;
use selvedge_data_link::Link;
use selvedge_data_stream::{Counts, DropReason, Fate};
use selvedge_units::{Duration, Instant};

use super::attached::{AttachedStream, LocatedPacket};
use super::departures::Departures;
use super::frame_consumer::{FrameConsumer, Poller};
use super::{Command, FateTap, NewStream};
use crate::extension::{Extensions, Stage};
use crate::lateness::{Pacing, Use};
use crate::link_steps::LinkSteps;
use crate::report::{LinkReport, SendCost, StreamReport};
use crate::slot::Slot;
use selvedge_os::clock::Clock;
use selvedge_os::huge_pages;
use selvedge_os::route::Holding;
use selvedge_os::transmit::{Method, Transmitter};

/// The most packets that are handed to the kernel at once, where the link's burst allows.
pub(super) const BATCH: usize = 64;
/// The interval of reports.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// The frames of one stream that are taken before the others are looked at again.
const TURN_MAX: usize = 64;
/// Packets that go one by one before the engine looks again for arrivals and commands. Where the kernel takes
/// longer for a packet than the rate does, there is always something to send. A quarter of this cost a third
/// of the packets a second where source and engine share two processors.
const STRIDE: usize = BATCH;

/// The state in which a stream's ring was left.
#[derive(Clone, Copy, PartialEq)]
enum RingState {
    Empty,
    /// The link holds as many as it may.
    Full,
    /// Frames are left for the next round.
    More,
}

/// All that the engine's thread owns.
pub(super) struct Worker<P: Poller> {
    pub(super) clock: Clock,
    pub(super) link: Link,
    pub(super) transmitter: Transmitter,
    /// The link grants no burst, so that each packet waits for its own time.
    pub(super) one_by_one: bool,
    pub(super) departures: Departures,
    /// By number; a number that was given back is `None`.
    pub(super) streams: Vec<Option<AttachedStream<P::FrameConsumer>>>,
    pub(super) port: P,
    pub(super) commands: Receiver<Command<P::FrameConsumer>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) report: Arc<Mutex<LinkReport>>,
    pub(super) tap: Option<Box<dyn FateTap>>,
    pub(super) batch: Vec<LocatedPacket>,
    /// Streams whose rings still hold frames because the link holds as many as it may.
    pub(super) backpressure: Vec<usize>,
    /// A ring still holds frames that the link could take.
    pub(super) more: bool,
    /// Whether any stream ever had a carrier.
    pub(super) carries: bool,
    /// The number of streams that are to be removed.
    pub(super) removals_pending: usize,
    pub(super) extensions: Extensions,
    /// The steps that the producers run.
    pub(super) steps: Arc<LinkSteps>,
    pub(super) pacing: Pacing,
    pub(super) send_cost: SendCost,
    /// Batches handed to the kernel.
    pub(super) flushes: u32,
    pub(super) name: String,
    /// When the next report is made.
    pub(super) report_at: Instant,
}

impl<P: Poller> Worker<P> {
    /// Runs until it is stopped.
    pub(super) fn run(mut self) {
        huge_pages::gather(self.link.memory());
        while !self.stop.load(Ordering::Acquire) {
            if let Some(next) = self.turn() {
                let woken = self.port.wait_until(next);
                self.pacing.woke(woken, next, self.clock.now());
            }
        }
        let now = self.clock.now();
        for stream in self.streams.iter().flatten() {
            self.link.clear_stream(now, stream.index);
        }
        self.settle(now);
        self.publish(now);
    }

    /// Does all that is due now; returns until when there is nothing more without a wake-up.
    pub(super) fn turn(&mut self) -> Option<Instant> {
        let now = self.clock.now();
        self.handle_commands(now);
        self.take_arrivals(now);
        let next = self.transmit();
        let now = self.clock.now();
        self.settle(now);
        // A slot's next frame can go to the link once the last is settled.
        let can_take = |&n: &usize| {
            let stream = self.streams.get(n).and_then(Option::as_ref);
            stream.is_some_and(|stream| self.link.queued(stream.index) < stream.room)
        };
        self.more |= self.backpressure.iter().any(can_take);
        if now >= self.report_at {
            self.publish(now);
            self.report_at = now + REPORT_EVERY;
        }
        let next = if self.removals_pending > 0 { self.reap_leaving(now).min(next) } else { next };
        if self.steps.is_used() {
            let streams = self.streams.iter().flatten().map(|stream| stream.index);
            self.steps.publish(&mut self.link, streams);
        }
        (next > now && !self.more).then(|| next.min(self.report_at))
    }

    fn handle_commands(&mut self, now: Instant) {
        while let Ok(order) = self.commands.try_recv() {
            match order {
                Command::Windows(n, windows) => {
                    let index = self.streams.get(n).and_then(Option::as_ref).map(|s| s.index);
                    index.inspect(|&index| self.link.set_windows(index, windows));
                }
                Command::Priority(n, priority) => {
                    let index = self.streams.get(n).and_then(Option::as_ref).map(|s| s.index);
                    index.inspect(|&index| self.link.set_priority(index, priority));
                }
                Command::Rate(rate) => self.link.set_rate(now, rate),
                Command::Path(path) => self.link.set_path(now, path),
                Command::Terms(n, terms) => {
                    let index = self.streams.get(n).and_then(Option::as_ref).map(|s| s.index);
                    index.inspect(|&index| self.link.set_terms(index, &terms));
                }
                Command::Bounds(queue, catch_up) => self.link.set_bounds(queue, catch_up),
                Command::Attach(stream, reply_sender) => {
                    let number = self.attach(*stream);
                    // The report comes first: a caller that knows the number looks for it there at once.
                    self.publish(now);
                    // The caller may be gone; its stream is removed like any other.
                    let _ = reply_sender.send(number);
                }
                Command::Aggregate(n, slot) => {
                    if let Some(stream) = self.streams.get_mut(n).and_then(Option::as_mut) {
                        stream.aggregate(slot);
                    }
                }
                Command::Streamlet(n, streamlet, reply_sender) => {
                    let stream = self.streams.get(n).and_then(Option::as_ref);
                    let slot = stream.and_then(|stream| stream.slot());
                    let _ = reply_sender.send(slot.and_then(|slot| slot.streamlet(streamlet)));
                }
                Command::Detach(n, _, Some(reply_sender)) => {
                    self.remove(now, n);
                    self.publish(now);
                    let _ = reply_sender.send(());
                }
                Command::Detach(n, patience, None) => {
                    if let Some(stream) = self.streams.get_mut(n).and_then(Option::as_mut) {
                        self.removals_pending += usize::from(stream.removal_deadline.is_none());
                        stream.removal_deadline = Some(now + patience);
                        // Its source may have died between enqueuing a frame and waking the engine.
                        self.backpressure.push(n);
                        self.more = true;
                    }
                }
                Command::Load(name, point, step, reply_sender) => {
                    let loaded = self.extensions.load(name, point, step);
                    self.publish(now);
                    let _ = reply_sender.send(loaded);
                }
                Command::Unload(name, reply_sender) => {
                    let unloaded = self.extensions.unload(&name);
                    self.publish(now);
                    let _ = reply_sender.send(unloaded);
                }
            }
        }
    }

    /// Gives a new stream its number.
    pub(super) fn attach(&mut self, new: NewStream<P::FrameConsumer>) -> usize {
        let index = self.link.add_stream(new.spec.contract);
        self.carries |= new.carried.is_some();
        let number = index.0 as usize;
        let mut attached = AttachedStream::new(index, new);
        // Where each packet waits for its own time, it leaves at that time; AF_XDP bypasses the qdisc.
        let plain = attached.carried.is_none() && self.transmitter.method() != Method::Xdp;
        if plain && self.clock.is_real() {
            let holding = self.departures.reach(attached.to.ip(), &mut self.transmitter);
            attached.held_by = holding.filter(|by| !self.one_by_one || *by != Holding::Fq);
        }
        self.port.attached(number, &mut attached.frame_consumer);
        if self.streams.len() <= number {
            self.streams.resize_with(number + 1, || None);
        }
        self.streams[number] = Some(attached);
        // The ring may hold frames already.
        self.backpressure.push(number);
        self.more = true;
        number
    }

    /// Removes the streams whose removal was requested, once they have nothing more to send or took too long.
    /// Returns when to look again.
    fn reap_leaving(&mut self, now: Instant) -> Instant {
        let mut again = Instant::MAX;
        for n in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[n] else { continue };
            let Some(until) = stream.removal_deadline else { continue };
            let idle = stream.is_empty() && self.link.queued(stream.index) == 0;
            if !idle && now < until {
                again = again.min(until);
                continue;
            }
            self.remove(now, n);
            again = now;
        }
        again
    }

    /// Removes a stream now; its number is free.
    pub(super) fn remove(&mut self, now: Instant, n: usize) {
        let Some(stream) = self.streams.get(n).and_then(Option::as_ref) else { return };
        let (index, awaited) = (stream.index, stream.removal_deadline.is_some());
        self.link.remove_stream(now, index);
        self.settle(now);
        self.streams[n] = None;
        self.backpressure.retain(|&full| full != n);
        self.port.detached(n);
        self.removals_pending -= usize::from(awaited);
    }

    fn take_arrivals(&mut self, now: Instant) {
        let (link, streams, full) = (&mut self.link, &mut self.streams, &mut self.backpressure);
        let (extensions, clock) = (&mut self.extensions, self.clock);
        let mut look = |n: usize| {
            let Some(stream) = streams.get_mut(n).and_then(Option::as_mut) else {
                return RingState::Empty;
            };
            let room = stream.room.saturating_sub(link.queued(stream.index));
            let mut turn = room.min(TURN_MAX);
            let index = stream.index;
            if extensions.has_step_at(Stage::Arrival) {
                while turn > 0
                    && let Some(frame) = stream.pop(now)
                {
                    turn -= 1;
                    let seen = Some((index, &frame));
                    if extensions.run(clock, link, Stage::Arrival, seen) {
                        stream.settled(&frame, Fate::Dropped(DropReason::Removed));
                        link.handle_discarded(now, index, &frame);
                    } else {
                        link.handle_frame(now, index, frame);
                    }
                }
            } else {
                link.handle_frames(now, index, || {
                    turn = turn.checked_sub(1)?;
                    stream.pop(now)
                });
            }
            match (stream.is_empty(), link.queued(index) < stream.room) {
                (true, _) => RingState::Empty,
                (false, true) => RingState::More,
                (false, false) => RingState::Full,
            }
        };
        let mut more = false;
        full.retain(|&n| {
            let left = look(n);
            more |= left == RingState::More;
            left != RingState::Empty
        });
        self.port.ready(&mut |n| {
            let left = look(n);
            more |= left == RingState::More;
            if left != RingState::Empty && !full.contains(&n) {
                full.push(n);
            }
        });
        self.more = more;
    }

    /// Sends packets that may be sent now, but so few that other work waits no longer than one batch takes.
    /// Returns when there is something to do again.
    fn transmit(&mut self) -> Instant {
        let mut alone = 0;
        loop {
            let now = self.clock.now();
            if self.extensions.has_step_at(Stage::Choice) {
                self.extensions.run(self.clock, &mut self.link, Stage::Choice, None);
            }
            let Some(next) = self.link.poll_transmit(now) else {
                self.flush();
                return self.link.next_event(now).unwrap_or(Instant::MAX);
            };
            let run = match self.plan_run(&next, now) {
                Ok(run) => run,
                Err(reason) => {
                    self.link.failed(now, reason);
                    continue;
                }
            };
            if run.packets == 0 {
                self.flush();
                return run.departure;
            }
            // One by one, a packet counts as sent when the kernel has it. If this thread were delayed in
            // between, the next packet would otherwise follow too closely.
            let now = if self.one_by_one {
                self.flush();
                self.clock.now()
            } else {
                now
            };
            if let Some(stream) = &mut self.streams[next.stream.0 as usize] {
                stream.sent.add(now, run.size);
                stream.sent_bytes += run.size;
            }
            self.dispatched(now, &next, &run);
            alone += usize::from(self.one_by_one);
            if alone == STRIDE || self.batch.len() == BATCH {
                self.flush();
                return now;
            }
        }
    }

    fn settle(&mut self, now: Instant) {
        let mut last = None;
        while let Some(settled) = self.link.poll_settled() {
            let n = settled.stream.0 as usize;
            if P::FrameConsumer::REPORTS_COUNTS
                && let Some(other) = last.replace(n).filter(|&last| last != n)
            {
                self.report_counts(other);
            }
            if let Some(stream) = self.streams.get_mut(n).and_then(Option::as_mut) {
                stream.settled(&settled.frame, settled.fate);
            }
            if self.extensions.has_step_at(Stage::Miss) && settled.fate.is_miss() {
                let frame = Some((settled.stream, &settled.frame));
                self.extensions.run(self.clock, &mut self.link, Stage::Miss, frame);
            }
            if let Some(tap) = &mut self.tap {
                tap.settled(n, &settled.frame, settled.fate, now);
            }
        }
        if P::FrameConsumer::REPORTS_COUNTS
            && let Some(last) = last
        {
            self.report_counts(last);
        }
    }

    /// Reports to a stream's frame consumer its counts.
    fn report_counts(&mut self, n: usize) {
        let Some(stream) = self.streams.get_mut(n).and_then(Option::as_mut) else { return };
        let Some(ledger) = self.link.ledger(stream.index) else { return };
        // A stream that is being removed has left the scheduler already.
        if self.link.contract(stream.index).is_none() {
            return;
        }
        stream.frame_consumer.report_counts(&Counts {
            totals: ledger.totals().clone(),
            counters: self.link.scheduler().counters(stream.index),
            sent_bytes: stream.sent_bytes,
            send_errors: stream.send_errors,
        });
    }

    /// Makes a new report.
    pub(super) fn publish(&mut self, now: Instant) {
        let streams = self.streams.iter().flatten().map(|stream| {
            let sent = (stream.sent_bytes, stream.sent.last_second(now));
            let sets = stream.slot().map(Slot::sets).unwrap_or_default();
            let report = StreamReport::of(&self.link, stream.index, now, sent, stream.send_errors);
            let queued = sets.iter().map(|set| set.waiting as usize).sum::<usize>() + report.queued;
            StreamReport { sets, queued, ..report }
        });
        let used = Use { sent: self.link.sent_bytes(), could_send: self.link.could_send() };
        let report = LinkReport {
            extensions: self.extensions.reports(),
            recent: self.pacing.recent(now, used),
            missed_departures: self.transmitter.missed(),
            send_cost: self.send_cost,
            copied: self.streams.iter().flatten().map(|stream| stream.copied).sum(),
            ..LinkReport::of(&self.name, &self.link, streams.collect(), now)
        };
        *self.report.lock() = report;
    }
}
