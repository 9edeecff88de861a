//! One stream's waiting frames, which of them are lost to later frames, and the forecast from its
//! groups of pictures so far.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;

use selvedge_data_memory::fetch::prefetch_lines;
use selvedge_data_sched::Head;
use selvedge_data_stream::{Contract, DropReason, Frame, Kind, Late};
use selvedge_units::{Bytes, Duration, Instant};

/// A frame that waits, or is being sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) frame: Frame,
    /// When it has to have left.
    pub(super) deadline: Instant,
    /// How much later it is due at the far end.
    pub(super) reserve: Duration,
    /// Bytes and packets still to send.
    pub(super) left: Bytes,
    pub(super) packets_sent: u16,
    /// The group of pictures that it belongs to.
    pub(super) group: u32,
    /// Set once it is not to be sent; it is dropped when it comes to the head.
    pub(super) dropped: Option<DropReason>,
}

/// The frames of one stream that the link has taken over, oldest first, numbers without a gap. The
/// fields that every frame touches lie in the first two cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct StreamQueue {
    pub(super) frames: VecDeque<Pending>,
    last_deadline: Option<Instant>,
    /// The number that the next frame should have; streams begin at 0.
    pub(super) next_seq: u32,
    /// The part of the frames that was lost, in units of 1/65,536; the weight of a frame fades by a
    /// 256th with each that follows.
    lost_part: u16,
    /// Whether there ever was one in `lost`.
    any_lost: bool,
    pub(super) group: GroupForecast,
    pub(super) contract: Contract,
    lost: LostFrames,
}

/// The lines that every frame touches.
const HOT: Range<usize> = 0..2;
const _: () = {
    assert!(offset_of!(StreamQueue, contract.windows) <= HOT.end * 64);
    assert!(size_of::<Option<StreamQueue>>() == size_of::<StreamQueue>());
};

impl StreamQueue {
    pub(super) fn new(contract: Contract) -> Self {
        Self {
            contract,
            frames: VecDeque::new(),
            lost: LostFrames::default(),
            group: GroupForecast::default(),
            next_seq: 0,
            lost_part: 0,
            any_lost: false,
            last_deadline: None,
        }
    }

    /// Prefetches the lines that every frame touches of the queue that may lie here: testing
    /// whether there is one would wait for the memory.
    #[inline(always)]
    pub(super) fn fetch(queue: *const Option<Self>) {
        prefetch_lines(queue, HOT);
    }

    /// Takes the first frame out. A queue that runs empty begins again at the start of its memory,
    /// which is likely to be in a near cache.
    #[inline]
    pub(super) fn take_first(&mut self) -> Option<Pending> {
        let first = self.frames.pop_front();
        if let Some(taken) = first.filter(|taken| taken.frame.referenced) {
            self.group.broken = taken.dropped.is_some();
        }
        if self.frames.is_empty() {
            self.frames.clear();
        }
        first
    }

    /// The newest frame is not lost, as far as is known. Must be called for every frame, in order.
    #[inline]
    pub(super) fn keep(&mut self, seq: u32) {
        self.lost_part -= self.lost_part >> 8;
        if self.any_lost {
            self.lost.remove(seq);
        }
    }

    /// A frame is lost.
    pub(super) fn mark_lost(&mut self, seq: u32) {
        self.lost.insert(seq);
        self.any_lost = true;
        self.lost_part = self.lost_part.saturating_add(1 << 8);
    }

    /// All earlier frames are lost to those that follow.
    pub(super) fn mark_all_lost(&mut self) {
        self.lost.fill();
        self.any_lost = true;
    }

    /// The worth of frames for a comparison with other streams' frames: raised by up to a quarter
    /// with recent losses, so that equal streams share the losses.
    pub(super) fn compared(&self, worth: u64) -> u128 {
        u128::from(worth) * u128::from(1024 + (self.lost_part >> 8))
    }

    /// Whether its frames are sent late where they miss the deadlines of their period: then these order it beside
    /// other streams, and nothing is given up to meet them.
    #[inline]
    pub(super) const fn only_orders(&self) -> bool {
        matches!(self.contract.late, Late::Send) && self.contract.delay.is_none()
    }

    /// The deadline by the contract: the frame's own, or its arrival plus the stream's delay, or
    /// `max(previous deadline, arrival) + period`. One that is stated is earlier by the reserve, which is returned too.
    pub(super) fn deadline_of(&mut self, frame: &Frame, reserve: Duration) -> (Instant, Duration) {
        let own = frame.deadline.or_else(|| self.contract.delay.map(|d| frame.arrival + d));
        let reserve = own.map_or(Duration::ZERO, |own| reserve.min(own.since(frame.arrival)));
        let deadline = own.map(|own| own - reserve).unwrap_or_else(|| {
            let after = self.last_deadline.unwrap_or_default().max(frame.arrival);
            after + self.contract.period
        });
        self.last_deadline = Some(deadline);
        (deadline, reserve)
    }

    /// The first waiting frame, in the scheduler's form.
    pub(super) fn head(&self) -> Option<Head> {
        self.nth_head(0)
    }

    /// The frame behind this number of others, in the scheduler's form.
    #[inline]
    pub(super) fn nth_head(&self, at: usize) -> Option<Head> {
        let Pending { frame, deadline, .. } = self.frames.get(at)?;
        Some(self.seen(frame, *deadline))
    }

    /// A frame and its deadline, in the scheduler's form.
    #[inline(always)]
    pub(super) fn seen(&self, frame: &Frame, deadline: Instant) -> Head {
        let stated = frame.deadline.is_some() || self.contract.delay.is_some();
        let deadline = stated.then_some(deadline);
        Head { arrival: frame.arrival, kind: frame.kind, deadline, size: frame.size }
    }

    /// Whether a frame that the newest one refers to is lost, or can never be known.
    pub(super) fn lacks_reference(&self, newest: &Frame) -> bool {
        !newest.refs.is_known()
            || newest.refs.of(newest.seq).any(|seq| self.lost.contains(newest.seq, seq))
    }

    /// Whether a waiting frame refers to `root`, which is lost now, or to a waiting one that is
    /// given up. Frames lost before it arrived were considered then.
    pub(super) fn depends(&self, at: usize, root: u32) -> bool {
        let frame = &self.frames[at].frame;
        frame.refs.of(frame.seq).any(|seq| {
            let waits = || self.place_of(at, seq).map(|place| &self.frames[place]);
            seq == root || waits().is_some_and(|f| f.dropped.is_some())
        })
    }

    /// The place of the waiting frame with this number, before the one at `before`. Numbers grow
    /// with places, one by one except where frames were refused.
    pub(super) fn place_of(&self, before: usize, seq: u32) -> Option<usize> {
        let back = self.frames[before].frame.seq.wrapping_sub(seq) as usize;
        let guess = before.checked_sub(back);
        if let Some(found) = guess.filter(|&at| self.frames[at].frame.seq == seq) {
            return Some(found);
        }
        let first = self.frames.front()?.frame.seq;
        let wanted = seq.wrapping_sub(first);
        let at = self.frames.partition_point(|f| f.frame.seq.wrapping_sub(first) < wanted);
        (at < before && self.frames[at].frame.seq == seq).then_some(at)
    }
}

/// Which of the last 1024 frames are lost, for references of the newest. Frames further back count
/// as lost: they are not worth keeping state for.
#[derive(Clone, Debug, Default)]
struct LostFrames {
    bits: [u64; Self::WINDOW as usize / 64],
}

impl LostFrames {
    const WINDOW: u32 = 1024;

    fn place(seq: u32) -> (usize, u64) {
        let bit = seq % Self::WINDOW;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn remove(&mut self, seq: u32) {
        let (word, bit) = Self::place(seq);
        self.bits[word] &= !bit;
    }

    fn fill(&mut self) {
        self.bits.fill(u64::MAX);
    }

    fn insert(&mut self, seq: u32) {
        let (word, bit) = Self::place(seq);
        self.bits[word] |= bit;
    }

    fn contains(&self, from: u32, seq: u32) -> bool {
        let (word, bit) = Self::place(seq);
        from.wrapping_sub(seq) >= Self::WINDOW || self.bits[word] & bit != 0
    }
}

/// A forecast of the rest of the open group of pictures, learnt from the groups before: their
/// lengths, and the mean size of a frame after the intra picture.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupForecast {
    pub(super) id: u32,
    frames: u32,
    /// Lengths of the last groups, the newest first; 0 for none.
    lengths: Box<[u32; Self::LEARNT]>,
    /// Bytes and frames after intra pictures, the older ones fading.
    tail_bytes: u64,
    tail_frames: u32,
    /// Bytes of the last intra picture.
    intra_bytes: u32,
    /// Whether the newest referenced picture was lost, when it was taken out.
    pub(super) broken: bool,
}

impl GroupForecast {
    const LEARNT: usize = 8;
    /// The length before any group was longer: twelve frames, the usual length.
    const SHORTEST: u32 = 12;
    /// Groups of more than two seconds are mostly of the default length of x264 and x265.
    const LONG: u32 = 61;
    const DEFAULT: u32 = 250;

    /// Records the next frame; returns the group that it belongs to.
    pub(super) fn push(&mut self, kind: Kind, size: Bytes) -> u32 {
        if kind == Kind::Intra {
            if self.frames > 0 {
                self.lengths.rotate_right(1);
                self.lengths[0] = self.frames;
            }
            self.frames = 0;
            self.intra_bytes = u32::try_from(size.0).unwrap_or(u32::MAX);
            self.id = self.id.wrapping_add(1);
        } else {
            self.tail_bytes += size.0;
            self.tail_frames += 1;
            if self.tail_frames >= 512 {
                self.tail_bytes /= 2;
                self.tail_frames /= 2;
            }
        }
        self.frames += 1;
        self.id
    }

    /// Frames and bytes of the open group that are still to come; `None` unless a group went on from
    /// here before.
    pub(super) fn rest(&self) -> Option<(u64, u64)> {
        self.lengths.iter().any(|&length| length >= self.frames.max(1)).then(|| self.remaining())
    }

    /// Frames of a group, by earlier groups.
    pub(super) fn length(&self) -> u64 {
        let known = self.lengths.iter().filter(|&&length| length > 0);
        let sum = known.clone().map(|&length| u64::from(length)).sum::<u64>();
        sum / (known.count() as u64).max(1)
    }

    /// Mean bytes of a frame, intra pictures included.
    pub(super) fn mean_size(&self) -> u64 {
        let tail = self.tail_bytes / u64::from(self.tail_frames.max(1));
        match self.length() {
            0 => tail,
            length => (u64::from(self.intra_bytes) + tail * (length - 1)) / length,
        }
    }

    /// Bytes of the next frames, with each intra picture where the lengths of groups put it.
    pub(super) fn coming(&self, frames: u64) -> u64 {
        let tail = self.tail_bytes / u64::from(self.tail_frames.max(1));
        let beyond = frames.saturating_sub(self.remaining().0);
        let intra =
            beyond.div_ceil(self.length().max(1)).min(frames) * u64::from(self.length() > 0);
        let (intra_bytes, rest) = (u64::from(self.intra_bytes), frames - intra);
        intra.saturating_mul(intra_bytes).saturating_add(rest.saturating_mul(tail))
    }

    /// Frames and bytes of the open group that are still to come: as many as in the groups that
    /// continued from here. A group longer than all before it continues for as long again, or,
    /// where an encoder's default is likely, to that length.
    pub(super) fn remaining(&self) -> (u64, u64) {
        let longer = self.lengths.iter().filter(|&&length| length >= self.frames);
        let rest = longer.clone().map(|&length| u64::from(length - self.frames));
        let frames = match longer.clone().count() {
            0 if (Self::LONG..Self::DEFAULT).contains(&self.frames) => {
                u64::from(Self::DEFAULT - self.frames)
            }
            0 => u64::from(self.frames.max(Self::SHORTEST.saturating_sub(self.frames))),
            groups => rest.sum::<u64>() / groups as u64,
        };
        (frames, self.tail_bytes * frames / u64::from(self.tail_frames.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_learns_from_the_groups_before() {
        let mut group = GroupForecast::default();
        for _ in 0..3 {
            group.push(Kind::Intra, Bytes(10_000));
            for _ in 0..9 {
                group.push(Kind::Predicted, Bytes(1_000));
            }
        }
        assert_eq!(group.push(Kind::Intra, Bytes(10_000)), 4);
        assert_eq!(group.remaining(), (9, 9_000));
        group.push(Kind::Predicted, Bytes(1_000));
        assert_eq!((group.remaining(), group.rest()), ((8, 8_000), Some((8, 8_000))));
        assert_eq!((group.length(), group.mean_size()), (10, 1_900));
        assert_eq!((group.coming(8), group.coming(9), group.coming(18)), (8_000, 18_000, 27_000));
        assert_eq!(group.coming(19), 37_000, "one intra picture in each ten frames");
    }

    #[test]
    fn a_group_longer_than_all_before_goes_on_as_long_again_or_to_the_default() {
        let mut group = GroupForecast::default();
        group.push(Kind::Intra, Bytes(10_000));
        assert_eq!((group.remaining(), group.rest()), ((11, 0), None));
        for (more, rest) in [(49, 50), (50, 150), (150, 250)] {
            for _ in 0..more {
                group.push(Kind::Predicted, Bytes(1_000));
            }
            assert_eq!((group.remaining(), group.rest()), ((rest, rest * 1_000), None));
        }
    }

    #[test]
    fn lost_frames_are_remembered_as_far_back_as_they_matter() {
        let mut lost = LostFrames::default();
        for seq in 0..3000 {
            lost.remove(seq);
            if seq % 7 == 0 {
                lost.insert(seq);
            }
        }
        assert!(lost.contains(2999, 2996));
        assert!(!lost.contains(2999, 2995));
        assert!(lost.contains(2999, 1975), "beyond the window");
    }
}
