//! The coprocessor's end of a stream in shared memory. Each value that the producer writes is read once and
//! checked, whenever it was written. Invalid values are refused and counted; none of them reaches another
//! stream.
//!
//! A frame's slot and payload are freed when its fate is settled, not before: if this coprocessor dies, the
//! next one finds the waiting frames. Frames of streamlets are copied into the queues of these, and freed at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_data_memory::{PayloadSpan, RegionError, UntrustedConsumer, UntrustedPoolReader};
use selvedge_data_stream::rtp::{STAMPED_LEN, stamp_deadline, stamp_sequence};
use selvedge_data_stream::{
    Counts, Descriptor, Fate, Frame, PACKET_HEADER_LEN, PacketCursor, Refusal, Refusals,
};
use selvedge_place_engine::engine::{FrameConsumer, PacketHead, Stamp};
use selvedge_units::{Bytes, Instant};

use crate::segment::{CountsBoard, Doorbell, StreamSegment};

/// Refused descriptors that are processed before the other streams have their turn.
const TURN_MAX: u32 = 64;
/// Packets that are checked before the other streams have their turn; a frame of more takes several turns.
const CHECK_MAX: usize = 1024;

/// How many descriptors of a stream were refused, by reason; any thread may read it.
#[derive(Debug, Default)]
pub struct RefusalCounters([AtomicU64; Refusal::COUNT]);

impl RefusalCounters {
    fn count(&self, why: Refusal) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts now.
    #[must_use]
    pub fn read(&self) -> Refusals {
        Refusals(std::array::from_fn(|n| self.0[n].load(Ordering::Relaxed)))
    }
}

/// A frame, or a refused descriptor, whose slot is not free yet.
#[derive(Debug)]
struct HeldFrame {
    /// `None`: no payload was claimed.
    span: Option<PayloadSpan>,
    stamped: bool,
    done: bool,
    /// One more than the number of its last chosen packet.
    next_packet: Option<u16>,
    /// Its chosen packets, copied to where its producer can't change them, each at its offset in the payload.
    chosen: Vec<u8>,
}

/// The link's limits on a stream's packets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest packet, headers of IP and UDP not included.
    pub packet: u16,
    /// Bytes of those headers.
    pub overhead: Bytes,
}

impl Limits {
    /// Whether a packet of this length may be sent; one that is stamped has room for the stamp.
    fn allow(&self, len: usize, is_stamped: bool) -> bool {
        let least = if is_stamped { STAMPED_LEN } else { 1 };
        (least..=usize::from(self.packet)).contains(&len)
    }
}

/// A frame whose packets are being checked.
#[derive(Debug)]
struct PacketCheck {
    frame: Frame,
    stamped: bool,
    /// The packets left, behind the cursor.
    left: u16,
    cursor: PacketCursor,
    /// The bytes of the earlier packets on the wire.
    size: Bytes,
}

/// The coprocessor's end of a stream.
#[derive(Debug)]
pub struct SharedConsumer {
    ring: UntrustedConsumer<Descriptor>,
    pool: UntrustedPoolReader,
    held: VecDeque<HeldFrame>,
    /// The memory of settled frames, for the next ones.
    spare: Vec<Vec<u8>>,
    limits: Limits,
    refused: Arc<RefusalCounters>,
    counts: CountsBoard,
    /// The number of the first packet: the engine counts from 0, but another coprocessor may have sent
    /// packets before.
    numbered_from: u16,
    /// The frame that is being checked, where one turn was not enough.
    check: Option<PacketCheck>,
    /// Packets that were checked in this turn.
    checked: usize,
    /// The ring's counter was invalid when it was last read.
    broken: bool,
    /// The number of the first frame that was taken. The link counts from there: frames that another
    /// coprocessor sent do not count as missing, and references to them count as sent.
    first: Option<u32>,
    pub(crate) bell: Arc<Doorbell>,
    /// Its bit in the doorbell.
    pub(crate) bit: usize,
}

impl SharedConsumer {
    /// The consumer of a new segment, or of one that another coprocessor had.
    ///
    /// # Errors
    /// [`RegionError`] if the counters of a segment that is not new are invalid.
    pub fn new(
        segment: &StreamSegment,
        fresh: bool,
        limits: Limits,
        (bell, bit): (Arc<Doorbell>, usize),
    ) -> Result<Self, RegionError> {
        let region = &segment.region;
        let (ring_at, pool_at) = (segment.ring_at(), segment.pool_at());
        let (ring, pool) = if fresh {
            let ring = UntrustedConsumer::create(region, ring_at, segment.ring())?;
            (ring, UntrustedPoolReader::create(region, pool_at, segment.pool())?)
        } else {
            let ring = UntrustedConsumer::resume(region, ring_at, segment.ring())?;
            (ring, UntrustedPoolReader::resume(region, pool_at, segment.pool())?)
        };
        let held = VecDeque::with_capacity(segment.ring() as usize);
        let (refused, counts) = (Arc::default(), segment.counts());
        let (check, checked, broken, first, spare) = (None, 0, false, None, Vec::new());
        let numbered_from = counts.next_packet();
        Ok(Self {
            ring,
            pool,
            held,
            spare,
            limits,
            refused,
            counts,
            numbered_from,
            check,
            checked,
            broken,
            first,
            bell,
            bit,
        })
    }

    /// The counts of refused descriptors.
    #[must_use]
    pub fn refused(&self) -> Arc<RefusalCounters> {
        Arc::clone(&self.refused)
    }

    /// Begins to check the frame of a descriptor that is our own copy.
    fn begin(&mut self, descriptor: &Descriptor, now: Instant) -> Result<PacketCheck, Refusal> {
        let checked = descriptor.frame(now);
        let span = descriptor.span();
        // Claimed even if the rest is invalid, so that its room is released.
        let claimed = self.pool.claim(span);
        let stamped = descriptor.flags & Descriptor::STAMPED != 0;
        let (span_held, chosen) = (claimed.then_some(span), self.spare.pop().unwrap_or_default());
        self.held.push_back(HeldFrame {
            span: span_held,
            stamped,
            done: false,
            next_packet: None,
            chosen,
        });
        let frame = checked?;
        if !claimed {
            return Err(Refusal::Duration);
        }
        let (left, cursor) = (frame.packets, PacketCursor::default());
        Ok(PacketCheck { frame, stamped, left, cursor, size: Bytes(0) })
    }

    /// Checks its packets, as far as this turn allows. Returns the frame, with its size computed from its
    /// packets, once all are valid.
    fn continue_check(&mut self, check: &mut PacketCheck) -> Result<Option<Frame>, Refusal> {
        let span = check.frame.payload;
        while check.left > 0 {
            if self.checked == CHECK_MAX {
                return Ok(None);
            }
            self.checked += 1;
            check.left -= 1;
            let (_, len) = self.next_packet(span, &mut check.cursor).ok_or(Refusal::Packets)?;
            if !self.limits.allow(len, check.stamped) {
                return Err(Refusal::PacketSize);
            }
            check.size += Bytes(len as u64) + self.limits.overhead;
        }
        if check.cursor.offset() != span.len as usize {
            return Err(Refusal::Packets);
        }
        let seq = check.frame.seq.wrapping_sub(*self.first.get_or_insert(check.frame.seq));
        Ok(Some(Frame { seq, size: check.size, ..check.frame }))
    }

    /// The packet behind the cursor: its position and length, which lie in the payload.
    fn next_packet(&self, span: PayloadSpan, cursor: &mut PacketCursor) -> Option<(usize, usize)> {
        let mut header = [0; PACKET_HEADER_LEN];
        if !self.pool.read(span, cursor.offset(), &mut header) {
            return None;
        }
        let len = u16::from_le_bytes(header);
        let at = cursor.offset() + PACKET_HEADER_LEN;
        if at + usize::from(len) > span.len as usize {
            return None;
        }
        cursor.pass(len);
        Some((at, usize::from(len)))
    }

    /// The next valid frame; `None` if there is none, or this stream's turn is over.
    fn next_frame(&mut self, now: Instant) -> Option<Frame> {
        for _ in 0..TURN_MAX {
            let check = match self.check.take() {
                Some(check) => Ok(check),
                None => match self.ring.pop_copy() {
                    Ok(descriptor) => {
                        self.broken = false;
                        self.begin(&descriptor?, now)
                    }
                    Err(_) => {
                        self.broken = true;
                        self.refused.count(Refusal::Ring);
                        return None;
                    }
                },
            };
            let looked = check.and_then(|mut check| Ok((self.continue_check(&mut check)?, check)));
            match looked {
                Ok((Some(frame), _)) => return Some(frame),
                Ok((None, check)) => {
                    self.check = Some(check);
                    return None;
                }
                Err(why) => {
                    self.refused.count(why);
                    if let Some(last) = self.held.back_mut() {
                        last.done = true;
                    }
                    self.free();
                }
            }
        }
        None
    }

    /// Whether these bytes are packets of a stream that stamps them, and that the link allows.
    fn are_packets(&self, payload: &[u8]) -> bool {
        let mut cursor = PacketCursor::default();
        while cursor.offset() < payload.len() {
            if !cursor.next(payload).is_some_and(|packet| self.limits.allow(packet.len(), true)) {
                return false;
            }
        }
        true
    }

    /// Frees the slots and the payloads of the oldest settled frames.
    fn free(&mut self) {
        let mut count = 0;
        while let Some(HeldFrame { span, done: true, .. }) = self.held.front() {
            if let Some(span) = span {
                self.pool.free(*span);
            }
            if let Some(HeldFrame { mut chosen, .. }) = self.held.pop_front() {
                chosen.clear();
                self.spare.push(chosen);
            }
            count += 1;
        }
        if count > 0 {
            self.ring.free(count);
        }
    }
}

impl FrameConsumer for SharedConsumer {
    fn pop(&mut self, now: Instant) -> Option<Frame> {
        let frame = self.next_frame(now);
        if frame.is_none() {
            self.checked = 0;
        }
        frame
    }

    /// The packets are a copy, which the producer can't change. It may have changed them since they were checked.
    fn take(&mut self, now: Instant, read: &mut dyn FnMut(&Frame, &[u8])) -> bool {
        let Some(frame) = self.pop(now) else { return false };
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.resize(frame.payload.len as usize, 0);
        match self.pool.read(frame.payload, 0, &mut copy) && self.are_packets(&copy) {
            true => read(&frame, &copy),
            false => self.refused.count(Refusal::Packets),
        }
        self.spare.push(copy);
        if let Some(last) = self.held.back_mut() {
            last.done = true;
        }
        self.free();
        true
    }

    fn is_empty(&mut self) -> bool {
        // An invalid counter is read again when its producer rings.
        self.check.is_none() && (self.broken || self.ring.is_empty())
    }

    fn packet(&self, payload: PayloadSpan, cursor: &mut PacketCursor) -> Option<(usize, usize)> {
        // The length is read again, and may have changed by now: then another packet is sent, of this stream,
        // no longer than the link allows.
        let (at, len) = self.next_packet(payload, cursor)?;
        self.limits.allow(len, false).then_some((at, len))
    }

    fn stamp(
        &mut self,
        payload: PayloadSpan,
        (at, len): (usize, usize),
        stamp: Stamp,
    ) -> PacketHead {
        let of = |held: &&mut HeldFrame| held.span == Some(payload);
        let held = self.held.iter_mut().find(of).filter(|_| at + len <= payload.len as usize);
        let Some(held) = held else { return PacketHead::NONE };
        held.chosen.resize(payload.len as usize, 0);
        let packet = &mut held.chosen[at..at + len];
        if self.pool.read(payload, at, packet) && held.stamped {
            let number = stamp.sequence.wrapping_add(self.numbered_from);
            held.next_packet = Some(number.wrapping_add(1));
            stamp_sequence(packet, number);
            stamp_deadline(packet, stamp.deadline, stamp.now);
        }
        PacketHead::NONE
    }

    fn bytes(&self, payload: PayloadSpan, (at, len): (usize, usize)) -> &[u8] {
        let held = self.held.iter().find(|held| held.span == Some(payload));
        held.and_then(|held| held.chosen.get(at..at + len)).unwrap_or_default()
    }

    fn settled(&mut self, frame: &Frame, _fate: Fate) {
        if frame.payload.len == 0 {
            return;
        }
        let of = |held: &&mut HeldFrame| held.span == Some(frame.payload) && !held.done;
        if let Some(held) = self.held.iter_mut().find(of) {
            held.done = true;
            // Done before the frame's slot is free: a successor sends unsettled frames again, with the same
            // numbers.
            if let Some(number) = held.next_packet {
                self.counts.set_next_packet(number);
            }
            self.free();
        }
    }

    const REPORTS_COUNTS: bool = true;

    fn report_counts(&mut self, counts: &Counts) {
        self.counts.write(counts);
    }
}

#[cfg(test)]
mod tests;
