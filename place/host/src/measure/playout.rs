//! When a frame's deadline is, by the receiver's clock.
//!
//! Each packet tells how long before its frame's deadline it was sent. So its arrival plus that
//! time is the deadline, by the receiver's clock, plus the packet's own delay on the way; the
//! earliest such sum over a frame's packets is the frame's *evidence*. The two clocks' distance
//! and the shortest delay that the way allows cannot be told apart from one side, and need not
//! be: a player that plays each frame at its deadline plus both is right. A frame is on time if
//! its last packet came by then, that is, if queues on the way took no more than the time left.
//!
//! What must be found is by how much a frame's evidence exceeds that: the delay that all its
//! packets had in common, above the shortest. It needs a common scale for successive frames, and
//! media time is the only one in the packets: evidence minus media time is
//! `clock distance + delay + (deadline - media time)`. The last term varies too: with the
//! reordering of pictures (up to some periods, to and fro within a few frames) and with the
//! jitter of the source. Hence:
//!
//! - A *standing queue* is the least of this sum over the last frames, above the least that this
//!   has ever been (as CoDel finds one, RFC 8289 section 3.2): reordering and jitter cancel, for
//!   every stretch of frames has its least. The second least is taken, so that one outlier from
//!   a source's start does not shift the scale.
//! - A *spike* is what a frame's sum has above the greatest of the frames before: more than
//!   reordering and jitter explain.
//!
//! The larger of both is taken off the evidence. Errors lean to leniency: a queue that stood
//! before the first packet, and the first frames of a growing one, cannot be seen. Clocks drift
//! apart by up to 100 millionths, so the least is let rise by that; a standing queue would be
//! forgotten at the same pace (0.36 s per hour).

use selvedge_units::Instant;

use super::ClockRate;

/// Frames whose least is that of the present.
const STANDING: usize = 16;
/// Frames whose greatest is what reordering and jitter explain.
const HISTORY: usize = 64;
/// Clocks may drift apart by one part in this many.
const DRIFT: i64 = 10_000;
/// Times left are told in whole milliseconds, and sources jitter; a frame this late is on time.
const TOLERANCE_NS: i64 = 2_000_000;
/// Media time that steps by less or more than this, in seconds, has begun anew.
const STEP_BACK_MAX_S: i64 = 2;
const STEP_MAX_S: i64 = 10;

/// What a whole frame's packets told, together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Media time, as in its packets.
    pub(super) timestamp: u32,
    /// The least of arrival plus time left, over its packets; nanoseconds.
    pub(super) deadline: i64,
    /// The least time left, over its packets; milliseconds.
    pub(super) left_ms: i16,
    /// When the last of its packets came.
    pub(super) whole: Instant,
}

/// Estimates deadlines of one stream's frames. Constant memory.
#[derive(Clone, Debug)]
pub(super) struct Playout {
    rate: ClockRate,
    /// The last frame's timestamp, and that made whole, in units of the clock rate.
    timestamp: u32,
    media: i64,
    /// Evidence minus media time of the last frames, nanoseconds, the newest at `count - 1`.
    sums: [i64; HISTORY],
    count: usize,
    /// The least second least so far, and when it was last let rise.
    floor: i64,
    raised: Instant,
    excess: i64,
}

impl Playout {
    pub(super) const fn new(rate: ClockRate) -> Self {
        Self {
            rate,
            timestamp: 0,
            media: 0,
            sums: [0; HISTORY],
            count: 0,
            floor: i64::MAX,
            raised: Instant::ZERO,
            excess: 0,
        }
    }

    /// Forgets the scale: the next frame belongs to another clock.
    pub(super) const fn restart(&mut self) {
        self.count = 0;
        self.floor = i64::MAX;
        self.excess = 0;
    }

    /// What queues on the way add now, above the shortest delay seen; nanoseconds.
    pub(super) const fn excess(&self) -> i64 {
        self.excess
    }

    /// Whether a frame that is whole came by its deadline.
    pub(super) fn is_on_time(&mut self, frame: Evidence) -> bool {
        self.observe(frame);
        // Its sender had missed the deadline already.
        if frame.left_ms < 0 {
            return false;
        }
        let deadline = frame.deadline.saturating_sub(self.excess).saturating_add(TOLERANCE_NS);
        signed(frame.whole) <= deadline
    }

    fn observe(&mut self, frame: Evidence) {
        self.advance_media(frame.timestamp);
        let sum = frame.deadline.saturating_sub(self.rate.nanos(self.media));
        // Only a full history says what is usual.
        let usual = if self.count >= HISTORY {
            self.sums.iter().copied().max().unwrap_or(sum)
        } else {
            sum
        };
        self.sums[self.count % HISTORY] = sum;
        // Counting stays in one cycle above the history's length: it never overflows.
        self.count = if self.count + 1 < 2 * HISTORY { self.count + 1 } else { HISTORY };
        let Some(low) = self.second_least() else { return };
        let passed = signed(frame.whole).saturating_sub(signed(self.raised));
        self.raised = frame.whole;
        self.floor = self.floor.saturating_add(passed.max(0) / DRIFT).min(low);
        let standing = low.saturating_sub(self.floor);
        let spike = sum.saturating_sub(usual);
        self.excess = standing.max(spike).max(0);
    }

    /// Makes the timestamp whole, and begins anew where media time does.
    fn advance_media(&mut self, timestamp: u32) {
        let step = i64::from(timestamp.wrapping_sub(self.timestamp).cast_signed());
        self.timestamp = timestamp;
        if self.count == 0 {
            self.media = 0;
            return;
        }
        let second = i64::from(self.rate.hertz());
        if step < -STEP_BACK_MAX_S * second || step > STEP_MAX_S * second {
            self.restart();
        }
        self.media = self.media.saturating_add(step);
    }

    /// The second least sum of the last frames; `None` while there is only one.
    fn second_least(&self) -> Option<i64> {
        let (mut least, mut second) = (i64::MAX, None);
        for back in 1..=self.count.min(STANDING) {
            let sum = self.sums[(self.count - back) % HISTORY];
            if back > 1 {
                second = Some(second.unwrap_or(i64::MAX).min(sum.max(least)));
            }
            least = least.min(sum);
        }
        second
    }
}

/// An instant on a scale that knows minus.
pub(super) fn signed(at: Instant) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}
