//! The engine's thread: takes what arrived, asks the link what to send, hands it to the kernel when
//! it may leave, and reports what became of each frame.
//!
//! Scheduling and dispatch are this one thread (NI coprocessors, section 2.2.3), so that a frame
//! waits in no second queue between the decision and the wire.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge_data_link::Link;
use selvedge_data_stream::{Counts, DropReason, Fate};
use selvedge_units::{Duration, Instant};

use super::attached::{Attached, Located};
use super::outlet::{Outlet, Port};
use super::{Control, FateTap, NewStream};
use crate::extension::{Extensions, Point};
use crate::report::{LinkReport, StreamReport};
use selvedge_os::clock::Clock;
use selvedge_os::huge;
use selvedge_os::transmit::Transmitter;

/// Packets handed to the kernel at once, where the link's burst allows.
pub(super) const BATCH: usize = 64;
/// How often reports are made.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// Frames of one stream that are taken before the others are looked at again.
const TURN_MAX: usize = 64;
/// Packets that go one by one before the engine looks again at what came and what was ordered: where
/// the kernel takes longer for a packet than the rate does, there is never nothing to send. A quarter
/// of it cost a third of the packets a second where source and engine share two processors.
const STRIDE: usize = BATCH;

/// How a stream's ring was left.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    Empty,
    /// The link holds as many as it may.
    Full,
    /// It was the others' turn.
    More,
}

/// All that the engine's thread owns.
pub(super) struct Worker<P: Port> {
    pub(super) clock: Clock,
    pub(super) link: Link,
    pub(super) transmitter: Transmitter,
    /// The link grants no burst, so that each packet waits for its own time.
    pub(super) one_by_one: bool,
    /// By number; a number that was given back is none.
    pub(super) streams: Vec<Option<Attached<P::Outlet>>>,
    pub(super) port: P,
    pub(super) orders: Receiver<Control<P::Outlet>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) report: Arc<Mutex<LinkReport>>,
    pub(super) tap: Option<Box<dyn FateTap>>,
    pub(super) batch: Vec<Located>,
    /// Streams whose rings still hold frames because the link holds as many as it may.
    pub(super) backpressure: Vec<usize>,
    /// A ring still holds frames that the link could take.
    pub(super) more: bool,
    /// Whether any stream ever had a carrier.
    pub(super) carries: bool,
    /// How many streams are to leave.
    pub(super) leaving: usize,
    pub(super) extensions: Extensions,
    pub(super) name: String,
    /// When the next report is made.
    pub(super) report_at: Instant,
}

impl<P: Port> Worker<P> {
    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        huge::gather(self.link.memory());
        while !self.stop.load(Ordering::Acquire) {
            if let Some(next) = self.turn() {
                self.port.wait_until(next);
            }
        }
        let now = self.clock.now();
        for stream in self.streams.iter().flatten() {
            self.link.clear_stream(now, stream.index);
        }
        self.settle(now);
        self.publish(now);
    }

    /// Does all that is to be done now; until when there is nothing more, unless somebody calls.
    pub(super) fn turn(&mut self) -> Option<Instant> {
        let now = self.clock.now();
        self.obey(now);
        self.take_arrivals(now);
        let next = self.transmit();
        let now = self.clock.now();
        self.settle(now);
        if now >= self.report_at {
            self.publish(now);
            self.report_at = now + REPORT_EVERY;
        }
        let next = if self.leaving > 0 { self.see_off(now).min(next) } else { next };
        (next > now && !self.more).then(|| next.min(self.report_at))
    }

    fn obey(&mut self, now: Instant) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Control::Windows(n, windows) => {
                    let index = self.streams.get(n).and_then(Option::as_ref).map(|s| s.index);
                    index.inspect(|&index| self.link.set_windows(index, windows));
                }
                Control::Priority(n, priority) => {
                    let index = self.streams.get(n).and_then(Option::as_ref).map(|s| s.index);
                    index.inspect(|&index| self.link.set_priority(index, priority));
                }
                Control::Rate(rate) => self.link.set_rate(now, rate),
                Control::Attach(stream, tell) => {
                    let number = self.attach(*stream);
                    // The report first: who knows the number looks for it there at once.
                    self.publish(now);
                    // Whoever asked may have gone; its stream is removed like any other's.
                    let _ = tell.send(number);
                }
                Control::Detach(n, patience) => {
                    if let Some(stream) = self.streams.get_mut(n).and_then(Option::as_mut) {
                        self.leaving += usize::from(stream.leaving.is_none());
                        stream.leaving = Some(now + patience);
                        // Its source may have died between pushing and calling.
                        self.backpressure.push(n);
                        self.more = true;
                    }
                }
                Control::Load(name, point, step, tell) => {
                    let loaded = self.extensions.load(name, point, step);
                    self.publish(now);
                    let _ = tell.send(loaded);
                }
                Control::Unload(name, tell) => {
                    let unloaded = self.extensions.unload(&name);
                    self.publish(now);
                    let _ = tell.send(unloaded);
                }
            }
        }
    }

    /// Gives a new stream its number.
    pub(super) fn attach(&mut self, new: NewStream<P::Outlet>) -> usize {
        let index = self.link.add_stream(new.spec.contract);
        self.carries |= new.carried.is_some();
        let number = index.0 as usize;
        let mut attached = Attached::new(index, new);
        self.port.attached(number, &mut attached.outlet);
        if self.streams.len() <= number {
            self.streams.resize_with(number + 1, || None);
        }
        self.streams[number] = Some(attached);
        // It may bring frames with it.
        self.backpressure.push(number);
        self.more = true;
        number
    }

    /// Removes those that are to leave and have nothing more to send, or took too long; returns
    /// when to look again.
    fn see_off(&mut self, now: Instant) -> Instant {
        let mut again = Instant::MAX;
        for n in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[n] else { continue };
            let Some(until) = stream.leaving else { continue };
            let idle = stream.outlet.is_empty() && self.link.queued(stream.index) == 0;
            if !idle && now < until {
                again = again.min(until);
                continue;
            }
            let index = stream.index;
            self.link.remove_stream(now, index);
            self.settle(now);
            self.streams[n] = None;
            self.backpressure.retain(|&full| full != n);
            self.port.detached(n);
            self.leaving -= 1;
            again = now;
        }
        again
    }

    fn take_arrivals(&mut self, now: Instant) {
        let (link, streams, full) = (&mut self.link, &mut self.streams, &mut self.backpressure);
        let (extensions, clock) = (&mut self.extensions, self.clock);
        let mut look = |n: usize| {
            let Some(stream) = streams.get_mut(n).and_then(Option::as_mut) else {
                return Left::Empty;
            };
            let room = stream.room.saturating_sub(link.queued(stream.index));
            let mut turn = room.min(TURN_MAX);
            let (index, outlet) = (stream.index, &mut stream.outlet);
            if extensions.stand_at(Point::Arrival) {
                while turn > 0
                    && let Some(frame) = outlet.pop(now)
                {
                    turn -= 1;
                    let seen = Some((index, &frame));
                    if extensions.run(clock, link, Point::Arrival, seen) {
                        outlet.settled(&frame);
                    } else {
                        link.handle_frame(now, index, frame);
                    }
                }
            } else {
                link.handle_frames(now, index, || {
                    turn = turn.checked_sub(1)?;
                    outlet.pop(now)
                });
            }
            match (outlet.is_empty(), link.queued(index) < stream.room) {
                (true, _) => Left::Empty,
                (false, true) => Left::More,
                (false, false) => Left::Full,
            }
        };
        let mut more = false;
        full.retain(|&n| {
            let left = look(n);
            more |= left == Left::More;
            left != Left::Empty
        });
        self.port.ready(&mut |n| {
            let left = look(n);
            more |= left == Left::More;
            if left != Left::Empty && !full.contains(&n) {
                full.push(n);
            }
        });
        self.more = more;
    }

    /// Sends what may be sent now, so much at most that whoever else wants something waits no longer
    /// than a batch takes; returns when there is something to do again.
    fn transmit(&mut self) -> Instant {
        let mut alone = 0;
        loop {
            let now = self.clock.now();
            if self.extensions.stand_at(Point::Choice) {
                self.extensions.run(self.clock, &mut self.link, Point::Choice, None);
            }
            let Some(next) = self.link.poll_transmit(now) else {
                self.flush();
                return self.link.next_event(now).unwrap_or(Instant::MAX);
            };
            let run = match self.choose_run(&next, now) {
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
            // One by one, a packet counts as sent when the kernel has it: were this thread held up
            // in between, the next packet would otherwise follow too closely.
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
            if P::Outlet::COUNTS
                && let Some(other) = last.replace(n).filter(|&last| last != n)
            {
                self.tell_counts(other);
            }
            if let Some(stream) = self.streams.get_mut(n).and_then(Option::as_mut) {
                stream.outlet.settled(&settled.frame);
            }
            if self.extensions.stand_at(Point::Miss) && missed(settled.fate) {
                let frame = Some((settled.stream, &settled.frame));
                self.extensions.run(self.clock, &mut self.link, Point::Miss, frame);
            }
            if let Some(tap) = &mut self.tap {
                tap.settled(n, &settled.frame, settled.fate, now);
            }
        }
        if P::Outlet::COUNTS
            && let Some(last) = last
        {
            self.tell_counts(last);
        }
    }

    /// Tells a stream's end what is counted of it.
    fn tell_counts(&mut self, n: usize) {
        let Some(stream) = self.streams.get_mut(n).and_then(Option::as_mut) else { return };
        let Some(ledger) = self.link.ledger(stream.index) else { return };
        // A stream that is being removed has left the scheduler already.
        if self.link.contract(stream.index).is_none() {
            return;
        }
        stream.outlet.counted(&Counts {
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
            StreamReport::of(&self.link, stream.index, now, sent, stream.send_errors)
        });
        let report = LinkReport {
            extensions: self.extensions.reports(),
            ..LinkReport::of(&self.name, &self.link, streams.collect(), now)
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// Whether a frame was lost to its deadline, or was sent after it.
const fn missed(fate: Fate) -> bool {
    matches!(
        fate,
        Fate::Dropped(DropReason::Expired | DropReason::TooLate)
            | Fate::Sent { on_time: false, .. }
    )
}
