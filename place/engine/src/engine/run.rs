//! The packets that the engine hands to the kernel at once: those of the chosen frame that the link's burst
//! allows, and those of the frames behind it that may go with it (`data/link/src/burst.rs`).

use std::net::SocketAddr;

use selvedge_data_link::Transmit;
use selvedge_data_stream::{DropReason, Frame};
use selvedge_units::{Bytes, Instant};

use super::attached::AttachedStream;
use super::frame_consumer::Poller;
use super::worker::{BATCH, Worker};
use crate::extension::Stage;
use selvedge_os::transmit::{Fate as Handed, Outgoing};

/// Of this number of batches one is measured for the cost of sending.
const MEASURE_EVERY: u32 = 16;

/// The packets of one run.
#[derive(Clone, Copy)]
pub(super) struct RunPlan {
    /// Frames of one stream, all whole if there are several.
    pub(super) frames: usize,
    /// Packets of the first frame.
    pub(super) packets: u16,
    /// The bytes of all packets on the wire.
    pub(super) size: Bytes,
    /// If there are no packets: when the first may leave.
    pub(super) departure: Instant,
}

impl<P: Poller> Worker<P> {
    /// Reports the sent packets to the link, and each of their frames to the extensions.
    pub(super) fn dispatched(&mut self, now: Instant, next: &Transmit, run: &RunPlan) {
        if !self.extensions.has_step_at(Stage::Dispatch) {
            self.link.sent_frames(now, run.frames, run.packets, run.size);
            return;
        }
        let others = (1..run.frames).map_while(|n| self.link.frame_of_run(n));
        let frames: Vec<Frame> =
            std::iter::once(next.frame).chain(others.map(|(frame, _)| frame)).collect();
        self.link.sent_frames(now, run.frames, run.packets, run.size);
        for frame in &frames {
            let frame = Some((next.stream, frame));
            self.extensions.run(self.clock, &mut self.link, Stage::Dispatch, frame);
        }
    }

    /// Puts the next packets into the batch: as many of the polled frame as the link's burst grants. If that
    /// completes the frame, the frames behind it that may go with it follow.
    pub(super) fn plan_run(
        &mut self,
        next: &Transmit,
        now: Instant,
    ) -> Result<RunPlan, DropReason> {
        let room = BATCH - self.batch.len();
        let mut run = self.plan_packets(next, Bytes(0), now)?;
        if self.one_by_one || run.packets < next.frame.packets {
            return Ok(run);
        }
        // A carrier already has its packets, so none can be left for the next decision.
        let carried = |stream: &AttachedStream<P::FrameConsumer>| stream.carried.is_some();
        if self.streams[next.stream.0 as usize].as_ref().is_some_and(carried) {
            return Ok(run);
        }
        for n in 1..self.link.run(now, room).frames {
            let Some((frame, deadline)) = self.link.frame_of_run(n) else { break };
            let begun = self.batch.len();
            let wanted = Transmit { stream: next.stream, frame, packet: 0, deadline };
            match self.plan_packets(&wanted, run.size, now) {
                Ok(more) if more.packets == frame.packets => {
                    run = RunPlan { frames: run.frames + 1, size: more.size, ..run };
                }
                // The others go; this packet waits for the next decision.
                _ => {
                    self.batch.truncate(begun);
                    break;
                }
            }
        }
        Ok(run)
    }

    /// Puts the next packets of one frame into the batch, behind `run`, which already takes bytes on the
    /// wire.
    fn plan_packets(
        &mut self,
        next: &Transmit,
        before: Bytes,
        now: Instant,
    ) -> Result<RunPlan, DropReason> {
        let n = next.stream.0 as usize;
        let Some(stream) = &mut self.streams[n] else { return Err(DropReason::Removed) };
        let mut run = RunPlan { frames: 1, packets: 0, size: before, departure: now };
        for packet in next.packet..next.frame.packets {
            let wanted = Transmit { packet, ..*next };
            let mut located = match stream.locate(n, &wanted) {
                Some(located) => located,
                // The earlier packets go; this one is the first of the next run, and fails there.
                None if run.packets > 0 => break,
                None => return Err(DropReason::Unusable),
            };
            let with = run.size + stream.cost(located.len);
            let departure = self.link.departure(with);
            let first = run.size == Bytes(0);
            if departure > now || !(first || with <= self.link.params().burst) {
                run.departure = departure;
                break;
            }
            if stream.held_by.is_some() {
                if let Some(room) = self.departures.full_until(now) {
                    run.departure = room;
                    break;
                }
                let leaves = self.link.spaced(now, run.size);
                located.leaves = Some(leaves).filter(|leaves| *leaves > now);
            }
            let leaves = located.leaves.unwrap_or(now);
            stream.stamp(&mut located, &wanted, leaves);
            match stream.carry(&located) {
                Ok(()) => {}
                // As above: it is tried once more, as the first.
                Err(_) if run.packets > 0 => break,
                Err(reason) => return Err(reason),
            }
            if let Some(leaves) = located.leaves {
                self.departures.hold(leaves);
            }
            stream.extra = Bytes(0);
            self.batch.push(located);
            run.packets += 1;
            run.size = with;
            if self.one_by_one || self.batch.len() == BATCH {
                break;
            }
        }
        Ok(run)
    }

    pub(super) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if self.carries {
            // Carried packets have been handed over; they only count for the size of the batch.
            let streams = &self.streams;
            self.batch.retain(|chosen| {
                streams[chosen.stream].as_ref().is_none_or(|stream| stream.carried.is_none())
            });
        }
        let begun = self.flushes.is_multiple_of(MEASURE_EVERY).then(|| self.clock.now());
        self.flushes = self.flushes.wrapping_add(1);
        let mut size = Bytes(0);
        let unset = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut packets = [Outgoing { to: unset, head: &[], bytes: &[] }; BATCH];
        let (mut times, mut timed) = ([0; BATCH], 0);
        for (n, (packet, chosen)) in packets.iter_mut().zip(&self.batch).enumerate() {
            let Some(stream) = &self.streams[chosen.stream] else { continue };
            if let Some(holding) = stream.held_by {
                let leaves = chosen.leaves.unwrap_or_default();
                if let Some(time) = self.departures.stated(holding, self.clock, leaves) {
                    (times[n], timed) = (time, n + 1);
                }
            }
            let (head, bytes) = stream.parts(chosen);
            *packet = Outgoing { to: stream.receiver(), head, bytes };
            size += Bytes(chosen.len as u64) + stream.overhead;
        }
        let packets = &packets[..self.batch.len()];
        let handed = self.transmitter.send_batch_at(packets, &times[..timed]);
        if let Some(begun) = begun {
            self.send_cost.add(size, self.clock.now().since(begun));
        }
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
}
