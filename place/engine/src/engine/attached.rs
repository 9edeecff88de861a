//! A stream at the engine's end: its ring and pool, where its packets go, and how far the frame
//! being sent has come.
//!
//! A frame's packets lie one behind the other in one span of the pool; a cursor remembers where the
//! next begins, so that a frame of many packets is walked once.

use std::net::SocketAddr;

use selvedge_data_link::{RateMeter, Transmit, WAITING_MAX};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::Spec;
use selvedge_data_stream::{DropReason, PacketCursor};
use selvedge_units::{Bytes, Instant};

use super::NewStream;
use super::carrier::{StreamCarrier, overhead};
use super::frame_consumer::FrameConsumer;

/// A stream as the engine keeps it.
pub(super) struct AttachedStream<O> {
    pub(super) index: StreamIndex,
    pub(super) frame_consumer: O,
    pub(super) to: SocketAddr,
    /// Bytes of headers below RTP that each packet takes on the wire.
    pub(super) overhead: u64,
    /// What carries its packets in place of the engine's sockets.
    pub(super) carried: Option<StreamCarrier>,
    /// Whether its packets are given departure times.
    pub(super) timed: bool,
    /// Frames that may wait at the link.
    pub(super) room: usize,
    cursor: Cursor,
    pub(super) send_errors: u64,
    pub(super) sent: RateMeter,
    pub(super) sent_bytes: Bytes,
    /// When it goes, if it is to: at the latest then, or as soon as nothing waits any more.
    pub(super) removal_deadline: Option<Instant>,
}

/// Where the next packet of the frame being sent begins.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    payload: PayloadSpan,
    packet: u16,
    next: PacketCursor,
}

/// A packet found, not yet handed to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocatedPacket {
    pub(super) stream: usize,
    pub(super) payload: PayloadSpan,
    pub(super) at: usize,
    pub(super) len: usize,
    /// When it is to leave the device, if not at once.
    pub(super) leaves: Option<Instant>,
}

impl<O: FrameConsumer> AttachedStream<O> {
    /// A stream of which nothing was sent yet, and of which so many frames may wait.
    pub(super) fn new(index: StreamIndex, new: NewStream<O>) -> Self {
        let NewStream { spec, frame_consumer, carried } = new;
        let Spec { to, ring, .. } = spec;
        Self {
            index,
            frame_consumer,
            to,
            overhead: overhead(to, carried.as_ref()),
            carried,
            timed: false,
            room: (ring as usize).min(WAITING_MAX),
            cursor: Cursor::default(),
            send_errors: 0,
            sent: RateMeter::default(),
            sent_bytes: Bytes(0),
            removal_deadline: None,
        }
    }

    /// Finds the packet to send in the pool.
    pub(super) fn locate(&mut self, stream: usize, next: &Transmit) -> Option<LocatedPacket> {
        let payload = next.frame.payload;
        if self.cursor.payload != payload || self.cursor.packet > next.packet {
            self.cursor = Cursor { payload, ..Cursor::default() };
        }
        loop {
            let Cursor { packet, next: mut walk, .. } = self.cursor;
            let (at, len) = self.frame_consumer.packet(payload, &mut walk)?;
            if packet == next.packet {
                return Some(LocatedPacket { stream, payload, at, len, leaves: None });
            }
            self.cursor.packet += 1;
            self.cursor.next = walk;
        }
    }

    /// Hands the packet over, if something else than the sockets carries it.
    pub(super) fn carry(&mut self, packet: &LocatedPacket) -> Result<(), DropReason> {
        let Some(carried) = &self.carried else { return Ok(()) };
        if carried.by.carry(self.frame_consumer.bytes(packet.payload, (packet.at, packet.len))) {
            return Ok(());
        }
        self.send_errors += 1;
        Err(DropReason::SendFailed)
    }

    /// Writes into the packet when its frame is due and how long before that it leaves.
    pub(super) fn stamp(&mut self, packet: &LocatedPacket, deadline: Instant, now: Instant) {
        self.frame_consumer.stamp(packet.payload, (packet.at, packet.len), deadline, now);
    }
}
