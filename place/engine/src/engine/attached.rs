//! A stream at the engine: its ring and pool, the destination of its packets, and the progress of the frame
//! being sent.
//!
//! A frame's packets lie one behind the other in one span of the pool. A cursor remembers where the next
//! begins, so that a frame of many packets is walked once.

use std::net::SocketAddr;

use selvedge_data_link::{RateMeter, Transmit, WAITING_MAX};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{DropReason, Fate, Frame, Numbering, PacketCursor, Spec};
use selvedge_os::route::Holding;
use selvedge_units::{Bytes, Instant};

use super::NewStream;
use super::carrier::{StreamCarrier, overhead};
use super::frame_consumer::{FrameConsumer, PacketHead, Stamp};
use crate::slot::Slot;

/// Frames that are moved to a slot's queues at once.
const SORTED_MAX: usize = 256;

/// The engine's state of a stream.
pub(super) struct AttachedStream<O> {
    pub(super) index: StreamIndex,
    pub(super) frame_consumer: O,
    /// Its streamlets, if it is a slot. Their frames come by the frame consumer, and wait here.
    slot: Option<Box<Slot>>,
    pub(super) to: SocketAddr,
    /// Bytes of headers below RTP that each packet takes on the wire.
    pub(super) overhead: Bytes,
    /// The carrier of its packets in place of the engine's sockets.
    pub(super) carried: Option<StreamCarrier>,
    /// Bytes that its carrier sent beside packets, and that the link has not paid for yet.
    pub(super) extra: Bytes,
    /// A packet for the carrier, where its head and its rest lie apart.
    joined: Vec<u8>,
    /// Bytes of payloads that were copied for the carrier.
    pub(super) copied: Bytes,
    /// The qdisc that holds its packets until their departure times.
    pub(super) held_by: Option<Holding>,
    /// Frames that may wait at the link.
    pub(super) room: usize,
    cursor: Cursor,
    numbering: Numbering,
    pub(super) send_errors: u64,
    pub(super) sent: RateMeter,
    pub(super) sent_bytes: Bytes,
    /// When the stream is removed, if at all: at the latest then, or as soon as no frame waits any more.
    pub(super) removal_deadline: Option<Instant>,
}

/// Where the next packet of the frame being sent begins.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    payload: PayloadSpan,
    packet: u16,
    next: PacketCursor,
}

/// A packet that was found, and not yet handed to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocatedPacket {
    pub(super) stream: usize,
    pub(super) payload: PayloadSpan,
    pub(super) at: usize,
    pub(super) len: usize,
    /// What replaces its beginning, if anything.
    pub(super) head: PacketHead,
    /// When it must leave the device, if not at once.
    pub(super) leaves: Option<Instant>,
}

impl<O: FrameConsumer> AttachedStream<O> {
    /// A stream of which nothing was sent yet, and of which `room` frames may wait.
    pub(super) fn new(index: StreamIndex, new: NewStream<O>) -> Self {
        let NewStream { spec, frame_consumer, carried } = new;
        let Spec { to, ring, .. } = spec;
        Self {
            index,
            frame_consumer,
            slot: None,
            to,
            overhead: overhead(to, carried.as_ref()),
            carried,
            extra: Bytes(0),
            joined: Vec::new(),
            copied: Bytes(0),
            held_by: None,
            room: (ring as usize).min(WAITING_MAX),
            cursor: Cursor::default(),
            numbering: Numbering::default(),
            send_errors: 0,
            sent: RateMeter::default(),
            sent_bytes: Bytes(0),
            removal_deadline: None,
        }
    }

    /// Makes it a slot, of which one frame waits at the link.
    pub(super) fn aggregate(&mut self, slot: Box<Slot>) {
        (self.room, self.held_by) = (1, None);
        self.slot = Some(slot);
    }

    /// Its streamlets, if it is a slot.
    pub(super) fn slot(&self) -> Option<&Slot> {
        self.slot.as_deref()
    }

    /// The next frame for the link, if there is one.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Frame> {
        let Some(slot) = &mut self.slot else { return self.frame_consumer.pop(now) };
        let mut take = |frame: &Frame, payload: &[u8]| slot.take(frame, payload);
        let _taken =
            (0..SORTED_MAX).take_while(|_| self.frame_consumer.take(now, &mut take)).count();
        slot.promote(now)
    }

    /// Whether no frame waits that the link has not seen.
    pub(super) fn is_empty(&mut self) -> bool {
        self.frame_consumer.is_empty() && self.slot.as_ref().is_none_or(|slot| slot.is_empty())
    }

    /// Releases a frame that was dequeued, and had this fate.
    pub(super) fn settled(&mut self, frame: &Frame, fate: Fate) {
        match &mut self.slot {
            Some(slot) => slot.settled(fate),
            None => self.frame_consumer.settled(frame, fate),
        }
    }

    /// The receiver of the packets that are found now.
    pub(super) fn receiver(&self) -> SocketAddr {
        self.slot().and_then(Slot::to).unwrap_or(self.to)
    }

    /// Finds the packet to send in the pool.
    pub(super) fn locate(&mut self, stream: usize, next: &Transmit) -> Option<LocatedPacket> {
        let payload = next.frame.payload;
        if self.cursor.payload != payload || self.cursor.packet > next.packet {
            self.cursor = Cursor { payload, ..Cursor::default() };
        }
        loop {
            let Cursor { packet, next: mut walk, .. } = self.cursor;
            let (at, len) = match &self.slot {
                Some(slot) => slot.packet(&mut walk)?,
                None => self.frame_consumer.packet(payload, &mut walk)?,
            };
            if packet == next.packet {
                let head = PacketHead::NONE;
                return Some(LocatedPacket { stream, payload, at, len, head, leaves: None });
            }
            self.cursor.packet += 1;
            self.cursor.next = walk;
        }
    }

    /// The bytes that a packet of this length takes from the link: its headers as well, and all that its
    /// carrier sent since the last one.
    pub(super) fn cost(&mut self, len: usize) -> Bytes {
        if let Some(carried) = &self.carried {
            self.extra += carried.by.take_extra();
        }
        Bytes(len as u64) + self.overhead + self.extra
    }

    /// Hands the packet to the carrier, if there is one.
    pub(super) fn carry(&mut self, packet: &LocatedPacket) -> Result<(), DropReason> {
        let Some(carried) = &self.carried else { return Ok(()) };
        let mut joined = std::mem::take(&mut self.joined);
        let (head, rest) = self.parts(packet);
        let (taken, copied) = if head.is_empty() {
            (carried.by.carry(rest), Bytes(0))
        } else {
            joined.clear();
            joined.extend_from_slice(head);
            joined.extend_from_slice(rest);
            (carried.by.carry(&joined), Bytes(rest.len() as u64))
        };
        (self.joined, self.copied) = (joined, self.copied + copied);
        if taken {
            return Ok(());
        }
        self.send_errors += 1;
        Err(DropReason::SendFailed)
    }

    /// A packet's head, if it has one, and the rest of it.
    pub(super) fn parts<'a>(&'a self, packet: &'a LocatedPacket) -> (&'a [u8], &'a [u8]) {
        let head = packet.head.bytes();
        let bytes = match &self.slot {
            Some(slot) => slot.bytes((packet.at, packet.len)),
            None => self.frame_consumer.bytes(packet.payload, (packet.at, packet.len)),
        };
        (head, bytes.get(head.len()..).unwrap_or_default())
    }

    /// Writes into the packet its number, its frame's deadline, and how long before the deadline it leaves.
    pub(super) fn stamp(&mut self, packet: &mut LocatedPacket, next: &Transmit, now: Instant) {
        let own = self.slot.as_deref_mut().and_then(Slot::numbering);
        let sequence = own.unwrap_or(&mut self.numbering).number(&next.frame, next.packet);
        let (at, deadline) = ((packet.at, packet.len), next.deadline);
        if let Some(slot) = &mut self.slot {
            return slot.stamp(at, sequence, (deadline, now));
        }
        packet.head =
            self.frame_consumer.stamp(packet.payload, at, Stamp { sequence, deadline, now });
    }
}
