//! The engine's thread: takes what arrived, asks the link what to send, hands it to the kernel when
//! it may leave, and reports what became of each frame.
//!
//! Scheduling and dispatch are this one thread (NI coprocessors, section 2.2.3), so that a frame
//! waits in no second queue between the decision and the wire.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge_node::link::{Link, Transmit};
use selvedge_stream::{DropReason, Fate, Frame};
use selvedge_units::{Bytes, Instant, Span};

use super::attached::{Attached, Located};
use super::extension::{Extensions, Point};
use super::outlet::{Outlet, Port};
use super::{Control, FateTap, NewStream};
use crate::clock::Clock;
use crate::huge;
use crate::report::{LinkReport, StreamReport};
use crate::transmit::{Fate as Handed, Outgoing, Transmitter};

/// Packets handed to the kernel at once, where the link's burst allows.
pub(super) const BATCH: usize = 64;
/// How often reports are made.
const REPORT_EVERY: Span = Span::from_millis(250);
/// Frames of one stream that are taken before the others are looked at again.
const TURN: usize = 64;

/// How a stream's ring was left.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    Empty,
    /// The link holds as many as it may.
    Full,
    /// It was the others' turn.
    More,
}

/// What goes in one run.
#[derive(Clone, Copy)]
struct Chosen {
    /// Frames of one stream, all whole if there are several.
    frames: usize,
    /// Packets of the first of them.
    packets: u16,
    /// What all take on the wire.
    size: Bytes,
    /// If there are no packets: when the first may leave.
    departure: Instant,
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
}

impl<P: Port> Worker<P> {
    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        huge::gather(self.link.memory());
        let mut report_at = Instant::ZERO;
        while !self.stop.load(Ordering::Acquire) {
            let now = self.clock.now();
            self.obey(now);
            self.take_arrivals(now);
            let next = self.transmit();
            let now = self.clock.now();
            self.settle(now);
            if now >= report_at {
                self.publish(now);
                report_at = now + REPORT_EVERY;
            }
            let next = if self.leaving > 0 { self.see_off(now).min(next) } else { next };
            if next > now && !self.more {
                self.port.wait_until(next.min(report_at));
            }
        }
        let now = self.clock.now();
        for stream in self.streams.iter().flatten() {
            self.link.clear_stream(now, stream.index);
        }
        self.settle(now);
        self.publish(now);
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
                    // Whoever asked may have gone; its stream is removed like any other's.
                    let _ = tell.send(number);
                    self.publish(now);
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
                    let _ = tell.send(self.extensions.load(name, point, step));
                    self.publish(now);
                }
                Control::Unload(name, tell) => {
                    let _ = tell.send(self.extensions.unload(&name));
                    self.publish(now);
                }
            }
        }
    }

    /// Gives a new stream its number.
    pub(super) fn attach(&mut self, new: NewStream<P::Outlet>) -> usize {
        let index = self.link.add_stream(new.contract);
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
            let mut turn = room.min(TURN);
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

    /// Sends all that may be sent now; returns when there is something to do again.
    fn transmit(&mut self) -> Instant {
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
            if self.batch.len() == BATCH {
                self.flush();
                self.settle(now);
                self.take_arrivals(now);
                if self.stop.load(Ordering::Relaxed) {
                    return now;
                }
            }
        }
    }

    /// Tells the link what has left, and the extensions of each frame of it.
    fn dispatched(&mut self, now: Instant, next: &Transmit, run: &Chosen) {
        if !self.extensions.stand_at(Point::Dispatch) {
            self.link.sent_frames(now, run.frames, run.packets, run.size);
            return;
        }
        let others = (1..run.frames).map_while(|n| self.link.frame_of_run(n));
        let frames: Vec<Frame> =
            std::iter::once(next.frame).chain(others.map(|(frame, _)| frame)).collect();
        self.link.sent_frames(now, run.frames, run.packets, run.size);
        for frame in &frames {
            let frame = Some((next.stream, frame));
            self.extensions.run(self.clock, &mut self.link, Point::Dispatch, frame);
        }
    }

    /// Puts into the batch the packets that go next: of the frame that was polled as many as the
    /// link has a burst to grant, and if that is all of it, the frames behind it that may go with
    /// it.
    fn choose_run(&mut self, next: &Transmit, now: Instant) -> Result<Chosen, DropReason> {
        let room = BATCH - self.batch.len();
        let mut run = self.choose_packets(next, Bytes(0), now)?;
        if self.one_by_one || run.packets < next.frame.packets {
            return Ok(run);
        }
        for n in 1..self.link.run(now, room).frames {
            let Some((frame, deadline)) = self.link.frame_of_run(n) else { break };
            let begun = self.batch.len();
            let wanted = Transmit { stream: next.stream, frame, packet: 0, deadline };
            match self.choose_packets(&wanted, run.size, now) {
                Ok(more) if more.packets == frame.packets => {
                    run = Chosen { frames: run.frames + 1, size: more.size, ..run };
                }
                // The others go; it is for the next decision.
                _ => {
                    self.batch.truncate(begun);
                    break;
                }
            }
        }
        Ok(run)
    }

    /// Puts the next packets of one frame into the batch, behind others that go with it and take
    /// so much on the wire.
    fn choose_packets(
        &mut self,
        next: &Transmit,
        before: Bytes,
        now: Instant,
    ) -> Result<Chosen, DropReason> {
        let n = next.stream.0 as usize;
        let Some(stream) = &mut self.streams[n] else { return Err(DropReason::Removed) };
        let mut run = Chosen { frames: 1, packets: 0, size: before, departure: now };
        for packet in next.packet..next.frame.packets {
            let wanted = Transmit { packet, ..*next };
            let located = match stream.locate(n, &wanted) {
                Some(located) => located,
                // Those before it go; it is the first of the next run then, and fails.
                None if run.packets > 0 => break,
                None => return Err(DropReason::Unusable),
            };
            let with = run.size + Bytes(located.len as u64 + stream.overhead);
            let departure = self.link.departure(with);
            let first = run.size == Bytes(0);
            if departure > now || !(first || with <= self.link.params().burst) {
                run.departure = departure;
                break;
            }
            stream.stamp(&located, next.deadline, now);
            self.batch.push(located);
            run.packets += 1;
            run.size = with;
            if self.one_by_one || self.batch.len() == BATCH {
                break;
            }
        }
        Ok(run)
    }

    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if self.carries {
            self.carry();
        }
        let unset = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut packets = [Outgoing { to: unset, bytes: &[] }; BATCH];
        for (packet, chosen) in packets.iter_mut().zip(&self.batch) {
            let Some(stream) = &self.streams[chosen.stream] else { continue };
            let bytes = stream.outlet.bytes(chosen.payload, (chosen.at, chosen.len));
            *packet = Outgoing { to: stream.to, bytes };
        }
        let handed = self.transmitter.send_batch(&packets[..self.batch.len()]);
        let failed: u64 = handed.iter().map(|fate| u64::from(*fate != Handed::Sent)).sum();
        if failed > 0 {
            for (chosen, fate) in self.batch.iter().zip(handed) {
                if let Some(stream) = &mut self.streams[chosen.stream] {
                    stream.send_errors += u64::from(*fate != Handed::Sent);
                }
            }
        }
        self.batch.clear();
    }

    /// Hands those packets of the batch over that something else than the sockets carries.
    fn carry(&mut self) {
        let streams = &mut self.streams;
        self.batch.retain(|chosen| {
            let Some(stream) = &mut streams[chosen.stream] else { return true };
            let Some(carried) = &stream.carried else { return true };
            let bytes = stream.outlet.bytes(chosen.payload, (chosen.at, chosen.len));
            stream.send_errors += u64::from(!carried.by.carry(bytes));
            false
        });
    }

    fn settle(&mut self, now: Instant) {
        while let Some(settled) = self.link.poll_settled() {
            let n = settled.stream.0 as usize;
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
