//! The fate of each frame of a tagged stream, in decoding order, and which frames can be decoded.
//!
//! A cursor walks over the frame numbers. It settles a frame when the frame is complete, or when a frame so
//! far ahead has begun that the rest of it will not arrive. A frame can be decoded if it was complete and on
//! time and all frames that it refers to can be decoded. That is known when the cursor has passed those,
//! which lie before it. The sender's ledger counts by the same rule ([`References::are_met`]).

use selvedge_data_stream::References;
use selvedge_data_stream::rtp::FrameTag;
use selvedge_units::{Duration, Instant};

use super::playout::PlayoutSample;

/// The number of frames that may begin while an earlier one is still incomplete.
const AHEAD_MAX: u64 = 8;
/// The frames that are followed at once.
const SLOTS: u64 = 64;
/// A frame number further ahead than this is not accepted at once.
const JUMP_MAX: i32 = 4096;
/// The frames that are remembered as decodable or not: as far as references reach.
const REMEMBERED: u64 = 1 << 16;

/// Counts of settled frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameCounts {
    /// Complete, and on time.
    pub(super) on_time: u64,
    /// Complete, and late.
    pub(super) late: u64,
    /// Some packets arrived, not all.
    pub(super) incomplete: u64,
    /// No packet arrived.
    pub(super) unseen: u64,
    /// On time, and so was everything that it refers to.
    pub(super) decodable: u64,
    /// Packets that arrived for frames settled before.
    pub(super) after_settled: u64,
    /// How often the numbering began anew.
    pub(super) restarts: u64,
}

/// The state of a frame that has begun.
#[derive(Clone, Copy, Debug)]
struct Slot {
    seq: u64,
    refs: References,
    /// Numbers of its first and last packets, once those arrived.
    first: Option<u64>,
    last: Option<u64>,
    /// Distinct packets that arrived.
    packets: u64,
    evidence: PlayoutSample,
    /// Whether it was on time, once it is complete.
    on_time: Option<bool>,
}

impl Slot {
    fn is_whole(&self) -> bool {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.checked_sub(first) == self.packets.checked_sub(1),
            _ => false,
        }
    }
}

/// A packet of a tagged stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaggedPacket {
    /// Its sequence number, extended; every packet is passed here once.
    pub(super) number: u64,
    /// The description of its frame.
    pub(super) tag: FrameTag,
    /// When it arrived.
    pub(super) now: Instant,
}

/// Follows the frames of one stream. Constant memory (about 16 kB).
#[derive(Clone, Debug)]
pub(super) struct FrameLog {
    begun: bool,
    /// The first frame of this numbering; the next to be settled; the highest begun.
    base: u64,
    next: u64,
    highest: u64,
    /// A frame number that was not accepted.
    doubted: Option<u32>,
    slots: Box<[Option<Slot>; SLOTS as usize]>,
    decodable: Box<[u64; REMEMBERED as usize / 64]>,
    /// Whether the 64 before `next` can be decoded, the last in the lowest bit.
    history: u64,
    counts: FrameCounts,
}

impl Default for FrameLog {
    fn default() -> Self {
        Self {
            begun: false,
            base: 0,
            next: 0,
            highest: 0,
            doubted: None,
            slots: Box::new([None; SLOTS as usize]),
            decodable: Box::new([0; REMEMBERED as usize / 64]),
            history: 0,
            counts: FrameCounts::default(),
        }
    }
}

impl FrameLog {
    /// Takes a packet. `judge` is called once for each frame that is now complete, with its number, and
    /// returns whether it is on time. O(frames passed), at most 4096.
    pub(super) fn handle(
        &mut self,
        packet: TaggedPacket,
        judge: impl FnOnce(u32, PlayoutSample) -> bool,
    ) {
        let Some(seq) = self.whole_number(packet.tag.seq) else { return };
        if seq < self.next {
            self.counts.after_settled += 1;
            return;
        }
        while seq >= self.next + SLOTS {
            self.settle_next();
        }
        self.highest = self.highest.max(seq);
        let slot = Self::slot(self.slots.as_mut_slice(), packet, seq);
        if slot.is_whole() && slot.on_time.is_none() {
            slot.on_time = Some(judge(packet.tag.seq, slot.evidence));
        }
        while self.next <= self.highest
            && (self.is_next_whole() || self.highest - self.next >= AHEAD_MAX)
        {
            self.settle_next();
        }
    }

    /// The next frame number to be settled; increases by one with each, and jumps where numbers begin anew.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether a frame settled lately, by its extended number, can be decoded.
    pub(super) fn was_decodable(&self, seq: u64) -> bool {
        let bit = seq % REMEMBERED;
        self.decodable[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    /// Settles every frame that has begun: no more packets are expected.
    pub(super) fn settle_all(&mut self) {
        while self.begun && self.next <= self.highest {
            self.settle_next();
        }
    }

    /// Settles the frames that have begun, up to the first that may still become whole by its deadline.
    pub(super) fn settle_expired(&mut self, now: Instant) {
        while self.pending() > 0 && !self.may_next_come(now) {
            self.settle_next();
        }
    }

    /// Makes the next frame begin a new numbering.
    pub(super) fn restart(&mut self) {
        self.settle_all();
        self.begun = false;
        self.doubted = None;
    }

    /// Counts of the settled frames.
    pub(super) const fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// Frames that have begun, or that later ones have overtaken, and that are not settled.
    pub(super) const fn pending(&self) -> u64 {
        if self.begun { (self.highest + 1).saturating_sub(self.next) } else { 0 }
    }

    /// The extended frame number; `None` if it is not accepted.
    fn whole_number(&mut self, seq: u32) -> Option<u64> {
        if !self.begun {
            self.begin(seq);
        }
        let step = seq.wrapping_sub(self.highest as u32).cast_signed();
        if (-(SLOTS as i32)..=JUMP_MAX).contains(&step) {
            self.doubted = None;
            return self.highest.checked_add_signed(i64::from(step));
        }
        // A restarted sender continues from here with the same frame or the next.
        let confirmed = self.doubted.is_some_and(|doubted| seq.wrapping_sub(doubted) <= 1);
        if !confirmed {
            self.doubted = Some(seq);
            return None;
        }
        self.restart();
        self.counts.restarts += 1;
        self.begin(seq);
        Some(self.highest)
    }

    fn begin(&mut self, seq: u32) {
        self.begun = true;
        // One cycle up, so that numbers just before the first one have a place too.
        self.base = (1 << 32) + u64::from(seq);
        self.next = self.base;
        self.highest = self.base;
        self.history = 0;
        self.slots.fill(None);
    }

    /// The frame's slot, with the packet entered.
    fn slot(slots: &mut [Option<Slot>], packet: TaggedPacket, seq: u64) -> &mut Slot {
        let TaggedPacket { number, tag, now } = packet;
        let fresh = Slot {
            seq,
            refs: tag.refs,
            first: None,
            last: None,
            packets: 0,
            evidence: PlayoutSample {
                deadline_ms: tag.deadline_ms,
                left_ms: i16::MAX,
                whole: Instant::ZERO,
            },
            on_time: None,
        };
        let entry = &mut slots[(seq % SLOTS) as usize];
        if entry.is_some_and(|slot| slot.seq != seq) {
            *entry = None;
        }
        let slot = entry.get_or_insert(fresh);
        slot.packets += 1;
        slot.first = slot.first.or_else(|| tag.first.then_some(number));
        slot.last = slot.last.or_else(|| tag.last.then_some(number));
        let evidence = &mut slot.evidence;
        evidence.left_ms = evidence.left_ms.min(tag.left_ms);
        evidence.whole = evidence.whole.max(now);
        slot
    }

    fn is_next_whole(&self) -> bool {
        self.slots[(self.next % SLOTS) as usize]
            .is_some_and(|slot| slot.seq == self.next && slot.on_time.is_some())
    }

    /// Whether the rest of the next frame may come by its deadline. Of one that has not begun, nothing is known.
    fn may_next_come(&self, now: Instant) -> bool {
        let slot = self.slots[(self.next % SLOTS) as usize].as_ref();
        slot.filter(|slot| slot.seq == self.next && slot.on_time.is_none()).is_some_and(|slot| {
            let left = Duration::from_millis(slot.evidence.left_ms.max(0).unsigned_abs().into());
            now < slot.evidence.whole + left
        })
    }

    fn settle_next(&mut self) {
        let seq = self.next;
        self.next += 1;
        let entry = self.slots[(seq % SLOTS) as usize].take().filter(|slot| slot.seq == seq);
        let mut decodable = false;
        match entry {
            None => self.counts.unseen += 1,
            Some(Slot { on_time: None, .. }) => self.counts.incomplete += 1,
            Some(Slot { on_time: Some(false), .. }) => self.counts.late += 1,
            Some(Slot { on_time: Some(true), refs, .. }) => {
                self.counts.on_time += 1;
                decodable = refs.are_met(self.history, |back| self.is_ready(seq, back));
                self.counts.decodable += u64::from(decodable);
            }
        }
        self.history = self.history << 1 | u64::from(decodable);
        let bit = seq % REMEMBERED;
        let word = &mut self.decodable[bit as usize / 64];
        *word = *word & !(1 << (bit % 64)) | u64::from(decodable) << (bit % 64);
    }

    /// Whether the frame `back` before `seq` can be decoded.
    fn is_ready(&self, seq: u64, back: u16) -> bool {
        let Some(reference) = seq.checked_sub(u64::from(back)).filter(|&r| r >= self.base) else {
            return false;
        };
        self.was_decodable(reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use selvedge_data_stream::Kind;

    /// One packet of a frame of `of` packets, all frames of equal length.
    fn packet(seq: u32, part: u64, of: u64, refs: References) -> TaggedPacket {
        let tag = FrameTag {
            seq,
            kind: Kind::Predicted,
            referenced: true,
            first: part == 0,
            last: part + 1 == of,
            refs,
            left_ms: 10,
            deadline_ms: 0,
        };
        let number = (1 << 40) + u64::from(seq) * of + part;
        TaggedPacket { number, tag, now: Instant(u64::from(seq)) }
    }

    fn whole(log: &mut FrameLog, seq: u32, near: u16, on_time: bool) {
        log.handle(packet(seq, 0, 1, References::to([near.into()])), |_, _| on_time);
    }

    #[test]
    fn frames_need_all_their_packets_in_any_order() {
        let mut log = FrameLog::default();
        for (seq, parts) in [(0, vec![0, 1, 2]), (1, vec![2, 0, 1]), (2, vec![0, 2]), (3, vec![0])]
        {
            for part in parts {
                log.handle(packet(seq, part, 3, References::NONE), |_, _| true);
            }
        }
        assert_eq!((log.counts().on_time, log.pending()), (2, 2));
        log.settle_all();
        assert_eq!((log.counts().incomplete, log.pending()), (2, 0));
    }

    #[test]
    fn a_receiver_that_stops_leaves_what_may_still_come() {
        let mut log = FrameLog::default();
        whole(&mut log, 0, 0, true);
        log.handle(packet(1, 0, 3, References::NONE), |_, _| true);
        log.handle(packet(2, 0, 3, References::NONE), |_, _| true);
        // The packets have 10 ms left, and came after 1 and 2 ns.
        log.settle_expired(Instant(10_000_000));
        assert_eq!((log.counts().incomplete, log.pending()), (0, 2));
        log.settle_expired(Instant(10_000_001));
        assert_eq!((log.counts().incomplete, log.pending()), (1, 1));
        log.settle_expired(Instant(10_000_002));
        assert_eq!((log.counts().incomplete, log.pending()), (2, 0));
    }

    #[test]
    fn what_a_lost_frame_carried_falls_with_it() {
        let mut log = FrameLog::default();
        // 0 stands alone, 1..=3 form a chain in which 2 is late, 5 skips the gap back to 1.
        whole(&mut log, 0, 0, true);
        whole(&mut log, 1, 1, true);
        whole(&mut log, 2, 1, false);
        whole(&mut log, 3, 1, true);
        whole(&mut log, 5, 4, true);
        log.settle_all();
        let expected =
            FrameCounts { on_time: 4, late: 1, unseen: 1, decodable: 3, ..FrameCounts::default() };
        assert_eq!(log.counts(), expected);
    }

    #[test]
    fn what_refers_to_before_the_beginning_cannot_be_decoded() {
        let mut log = FrameLog::default();
        whole(&mut log, 100, 1, true);
        whole(&mut log, 101, u16::MAX, true);
        whole(&mut log, 102, 0, true);
        whole(&mut log, 103, 1, true);
        assert_eq!(log.counts().decodable, 2);
    }

    #[test]
    fn a_gap_is_given_up_when_enough_frames_have_begun() {
        let mut log = FrameLog::default();
        whole(&mut log, 0, 0, true);
        for seq in 2..9 {
            whole(&mut log, seq, 0, true);
            assert_eq!(log.counts().unseen, 0);
        }
        whole(&mut log, 9, 0, true);
        assert_eq!((log.counts().unseen, log.counts().on_time, log.pending()), (1, 9, 0));
        whole(&mut log, 1, 0, true);
        assert_eq!(log.counts().after_settled, 1);
    }

    #[test]
    fn numbers_wrap_and_wild_ones_are_doubted() {
        let mut log = FrameLog::default();
        for seq in [u32::MAX - 1, u32::MAX, 0, 1] {
            whole(&mut log, seq, u16::from(seq != u32::MAX - 1), true);
        }
        assert_eq!(log.counts().decodable, 4);
        whole(&mut log, 1 << 31, 0, true);
        whole(&mut log, 2, 1, true);
        assert_eq!((log.counts().decodable, log.counts().unseen), (5, 0));
        whole(&mut log, 1 << 30, 0, true);
        whole(&mut log, (1 << 30) + 1, 0, true);
        assert_eq!((log.counts().restarts, log.counts().unseen), (1, 0));
    }

    proptest! {
        /// Against the whole history kept: frames of one packet, some missing, some late.
        #[test]
        fn decodable_is_the_closure(frames in proptest::collection::vec(
            (0..10_u8, 0..12_u16, 0..12_u16), 1..300,
        )) {
            let mut log = FrameLog::default();
            let mut decodable: Vec<bool> = Vec::new();
            let mut last = 0;
            for (seq, &(fate, near, far)) in frames.iter().enumerate() {
                let ready = |back: u16| back == 0
                    || seq.checked_sub(usize::from(back)).is_some_and(|r| decodable[r]);
                // The first frame comes, so that the log begins where the history does.
                let came = fate > 0 || seq == 0;
                decodable.push(came && fate != 1 && ready(near) && ready(far));
                if came {
                    last = seq;
                    let refs = References::to([near.into(), far.into()]);
                    let packet = packet(seq as u32, 0, 1, refs);
                    log.handle(packet, |_, _| fate != 1);
                }
            }
            log.settle_all();
            let expected = decodable[..=last].iter().filter(|&&d| d).count();
            prop_assert_eq!(log.counts().decodable, expected as u64);
        }

        #[test]
        fn survives_any_tags(tags in proptest::collection::vec(
            (any::<u32>(), any::<u64>(), any::<[bool; 2]>(), any::<[u16; 2]>(), any::<i16>()),
            0..200,
        )) {
            let mut log = FrameLog::default();
            for (seq, number, [first, last], [near, far], left_ms) in tags {
                for seq in [seq, seq % 5000] {
                    let refs = References::to([near, far].map(u32::from));
                    let mut packet = packet(seq, 0, 1, refs);
                    packet.number = number;
                    packet.tag = FrameTag { first, last, left_ms, ..packet.tag };
                    log.handle(packet, |_, _| true);
                    prop_assert!(log.pending() <= SLOTS);
                }
            }
            log.settle_all();
            prop_assert_eq!(log.pending(), 0);
        }
    }
}
