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
use selvedge_stream::DropReason;
use selvedge_units::{Bytes, Instant, Span};

use super::attached::{Attached, Chosen};
use super::{Control, FateTap};
use crate::clock::Clock;
use crate::inlet::Ready;
use crate::prompt;
use crate::report::{LinkReport, StreamReport};
use crate::transmit::{Fate as Handed, Outgoing, Transmitter};
use crate::wake::Sleeper;

/// Packets handed to the kernel at once, where the link's burst allows.
pub(super) const BATCH: usize = 64;
/// How often reports are made.
const REPORT_EVERY: Span = Span::from_millis(250);

/// All that the engine's thread owns.
pub(super) struct Worker {
    pub(super) clock: Clock,
    pub(super) link: Link,
    pub(super) transmitter: Transmitter,
    /// The link grants no burst, so that each packet waits for its own time.
    pub(super) one_by_one: bool,
    pub(super) streams: Vec<Attached>,
    pub(super) ready: Arc<Ready>,
    pub(super) orders: Receiver<Control>,
    pub(super) sleeper: Sleeper,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) report: Arc<Mutex<LinkReport>>,
    pub(super) tap: Option<Box<dyn FateTap>>,
    pub(super) batch: Vec<Chosen>,
    /// Streams whose rings still hold frames because the link holds as many as it may.
    pub(super) backpressure: Vec<usize>,
    pub(super) name: String,
}

impl Worker {
    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        let promptness = prompt::ask();
        tracing::debug!(link = self.name, ?promptness, "engine runs");
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
            if next > now {
                self.sleeper.wait_until(next.min(report_at));
            }
        }
        let now = self.clock.now();
        for stream in 0..self.streams.len() {
            self.link.clear_stream(now, self.streams[stream].index);
        }
        self.settle(now);
        self.publish(now);
    }

    fn obey(&mut self, now: Instant) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Control::Windows(n, windows) => {
                    self.link.set_windows(self.streams[n].index, windows);
                }
                Control::Priority(n, priority) => {
                    self.link.set_priority(self.streams[n].index, priority);
                }
                Control::Rate(rate) => self.link.set_rate(now, rate),
            }
        }
    }

    fn take_arrivals(&mut self, now: Instant) {
        let (link, streams, full) = (&mut self.link, &mut self.streams, &mut self.backpressure);
        let mut look = |n: usize| {
            let stream = &mut streams[n];
            while link.queued(stream.index) < stream.room {
                let Some(frame) = stream.outlet.ring.pop() else { return false };
                link.handle_frame(now, stream.index, frame);
            }
            !stream.outlet.ring.is_empty()
        };
        full.retain(|&n| look(n));
        self.ready.take(|n| {
            if look(n) && !full.contains(&n) {
                full.push(n);
            }
        });
    }

    /// Sends all that may be sent now; returns when there is something to do again.
    fn transmit(&mut self) -> Instant {
        loop {
            let now = self.clock.now();
            let Some(next) = self.link.poll_transmit(now) else {
                self.flush();
                return self.link.next_event(now).unwrap_or(Instant::MAX);
            };
            let (packets, size, departure) = match self.choose_run(&next, now) {
                Ok(run) => run,
                Err(reason) => {
                    self.link.failed(now, reason);
                    continue;
                }
            };
            if packets == 0 {
                self.flush();
                return departure;
            }
            // One by one, a packet counts as sent when the kernel has it: were this thread held up
            // in between, the next packet would otherwise follow too closely.
            let now = if self.one_by_one {
                self.flush();
                self.clock.now()
            } else {
                now
            };
            let stream = &mut self.streams[next.stream.0 as usize];
            stream.sent.add(now, size);
            stream.sent_bytes += size;
            self.link.sent_run(now, packets, size);
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

    /// Puts into the batch the packet that goes next, and those of the same frame behind it for
    /// which the link has a burst to grant. Returns how many, their size on the wire, and, if
    /// there are none, when the first may leave.
    fn choose_run(
        &mut self,
        next: &Transmit,
        now: Instant,
    ) -> Result<(u16, Bytes, Instant), DropReason> {
        let n = next.stream.0 as usize;
        let stream = &mut self.streams[n];
        let mut size = Bytes(0);
        let mut packets = 0;
        for packet in next.packet..next.frame.packets {
            let wanted = Transmit { packet, ..*next };
            let chosen = match stream.locate(n, &wanted) {
                Some(chosen) => chosen,
                // Those before it go; it is the first of the next run then, and fails.
                None if packets > 0 => break,
                None => return Err(DropReason::Unusable),
            };
            let with = size + Bytes(chosen.len as u64 + stream.overhead);
            let departure = self.link.departure(with);
            let fits = departure <= now && (packets == 0 || with <= self.link.params().burst);
            if !fits {
                return Ok((packets, size, departure));
            }
            stream.stamp(&chosen, next.deadline, now);
            self.batch.push(chosen);
            packets += 1;
            size = with;
            if self.one_by_one || self.batch.len() == BATCH {
                break;
            }
        }
        Ok((packets, size, now))
    }

    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let unset = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut packets = [Outgoing { to: unset, bytes: &[] }; BATCH];
        for (packet, chosen) in packets.iter_mut().zip(&self.batch) {
            let stream = &self.streams[chosen.stream];
            let bytes = stream.outlet.pool.bytes(chosen.payload).unwrap_or_default();
            let bytes = bytes.get(chosen.at..chosen.at + chosen.len).unwrap_or_default();
            *packet = Outgoing { to: stream.to, bytes };
        }
        let handed = self.transmitter.send_batch(&packets[..self.batch.len()]);
        let failed: u64 = handed.iter().map(|fate| u64::from(*fate != Handed::Sent)).sum();
        if failed > 0 {
            for (chosen, fate) in self.batch.iter().zip(handed) {
                self.streams[chosen.stream].send_errors += u64::from(*fate != Handed::Sent);
            }
        }
        self.batch.clear();
    }

    fn settle(&mut self, now: Instant) {
        while let Some(settled) = self.link.poll_settled() {
            let n = settled.stream.0 as usize;
            if settled.frame.payload.len > 0 {
                // Refused only for a span that was released before, which settling once rules out.
                let _ = self.streams[n].outlet.pool.release(settled.frame.payload);
            }
            if let Some(tap) = &mut self.tap {
                tap.settled(n, &settled.frame, settled.fate, now);
            }
        }
    }

    /// Makes a new report.
    pub(super) fn publish(&mut self, now: Instant) {
        let streams = self.streams.iter().map(|stream| {
            let sent = (stream.sent_bytes, stream.sent.last_second(now));
            StreamReport::of(&self.link, stream.index, now, sent, stream.send_errors)
        });
        let report = LinkReport::of(&self.name, &self.link, streams.collect(), now);
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}
