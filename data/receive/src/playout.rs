//! A frame's deadline, by the receiver's clock.
//!
//! Each packet states, by its sender's clock and in whole milliseconds modulo 2^16, when it was sent and when
//! its frame is due. The difference between its sending by that clock and its arrival by ours is the distance
//! of the clocks plus its delay on the path. One end can't separate the two, and need not: a player that
//! shows each frame at its deadline plus the distance plus the *shortest* delay is right. That sum is the
//! least difference ever seen, as in RFC 6817 (LEDBAT, section 3.4.2); here it is called the *floor*. A frame
//! is on time if its last packet arrived by its deadline plus the floor, that is, if queues on the path took
//! no more than the time left.
//!
//! Exactness: both of the sender's times are truncated to the millisecond, so once a packet has arrived by
//! the shortest path a frame is judged within 1 ms of the truth. A queue that existed from the first packet
//! on can't be seen; until it is gone, frames are judged leniently. Clocks drift apart by up to 100
//! millionths, so the floor rises by that; a queue that never empties is forgotten at the same pace (0.1 ms a
//! second).
//!
//! The sender's milliseconds are compared by serial number (RFC 1982): they mean the nearest instant within
//! 32.768 s. Packets sent longer than that before their deadline do not show when they were sent; a frame of
//! such packets alone counts as on time.

use selvedge_data_stream::rtp::FrameTag;
use selvedge_units::Instant;

/// Clocks may drift apart by one part in this many.
const DRIFT: u64 = 10_000;
const MS: i64 = 1_000_000;
/// After this many nanoseconds the sender's milliseconds begin again.
const CYCLE: i64 = (1 << 16) * MS;

/// The combined times of a complete frame's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlayoutSample {
    /// The frame's deadline by the sender's clock, milliseconds modulo 2^16.
    pub(super) deadline_ms: u16,
    /// The least time left, over its packets; milliseconds.
    pub(super) left_ms: i16,
    /// When the last of its packets arrived.
    pub(super) whole: Instant,
}

/// Estimates deadlines of one stream's frames. Constant memory.
#[derive(Clone, Debug, Default)]
pub struct Playout {
    /// Distance of the clocks and shortest delay, nanoseconds modulo [`CYCLE`]; none before the
    /// first packet.
    floor: Option<i64>,
    /// The instant up to which it has risen.
    raised: Instant,
    excess: i64,
}

impl Playout {
    /// Forgets the floor: the next packet's sender has another clock.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// The delay that queues on the path added to the last packet, above the shortest delay; nanoseconds.
    #[must_use]
    pub const fn excess(&self) -> i64 {
        self.excess
    }

    /// Takes a packet's times. O(1).
    pub fn observe(&mut self, now: Instant, tag: &FrameTag) {
        let Some(sent) = tag.sent_ms() else { return };
        let Some(floor) = self.floor else {
            self.floor = Some(apart(now, sent, 0));
            self.raised = now;
            return;
        };
        let rise = now.since(self.raised).0 / DRIFT;
        // A receiver's clock that was set back continues from there.
        self.raised = now.min(Instant(self.raised.0 + rise * DRIFT));
        let floor = (floor + (rise % CYCLE as u64).cast_signed()) % CYCLE;
        let above = apart(now, sent, floor);
        self.floor = Some(floor + above.min(0));
        self.excess = above.max(0);
    }

    /// Whether a complete frame arrived by its deadline; its packets were observed before.
    pub(super) fn is_on_time(&self, frame: PlayoutSample) -> bool {
        match (frame.left_ms, self.floor) {
            (i16::MIN, _) => false,
            (i16::MAX, _) => true,
            (left, None) => left >= 0,
            (_, Some(floor)) => apart(frame.whole, frame.deadline_ms, floor) <= 0,
        }
    }
}

/// Nanoseconds from an instant of the sender's clock, plus the floor, to an instant of ours: of all
/// candidates the one nearest to zero, -[`CYCLE`] / 2 .. [`CYCLE`] / 2.
fn apart(at: Instant, sender_ms: u16, floor: i64) -> i64 {
    let at = (at.0 % CYCLE.cast_unsigned()).cast_signed();
    let difference = at - i64::from(sender_ms) * MS - floor;
    (difference + CYCLE / 2).rem_euclid(CYCLE) - CYCLE / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use selvedge_data_stream::rtp::{Header, Packet, packet_len, stamp_deadline, write_packet};
    use selvedge_data_stream::{Kind, References};

    /// A tag as a sender stamps it: due and sent at these nanoseconds of its clock.
    fn tag(deadline: u64, sent: u64) -> FrameTag {
        let tag = FrameTag {
            seq: 0,
            kind: Kind::Still,
            referenced: false,
            first: true,
            last: true,
            refs: References::NONE,
            left_ms: 0,
            deadline_ms: 0,
        };
        let header = Header { marker: true, payload_type: 96, sequence: 0, timestamp: 0, ssrc: 0 };
        let mut bytes = vec![0; packet_len(0)];
        write_packet(&mut bytes, header, tag, &[]);
        stamp_deadline(&mut bytes, Instant(deadline), Instant(sent));
        Packet::parse(&bytes).unwrap().tag.unwrap()
    }

    /// Whether a frame of one packet is on time.
    fn judge(playout: &mut Playout, deadline: u64, sent: u64, came: u64) -> bool {
        let FrameTag { deadline_ms, left_ms, .. } = tag(deadline, sent);
        playout.observe(Instant(came), &tag(deadline, sent));
        playout.is_on_time(PlayoutSample { deadline_ms, left_ms, whole: Instant(came) })
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn far_deadlines_are_not_mistaken_for_near_ones() {
        let mut playout = Playout::default();
        assert!(judge(&mut playout, 100 * SECOND, 0, SECOND));
        assert!(!judge(&mut playout, 0, 100 * SECOND, 101 * SECOND));
        assert!(playout.floor.is_none());
        assert!(judge(&mut playout, 132 * SECOND, 100 * SECOND, 101 * SECOND));
        assert!(!judge(&mut playout, 100 * SECOND, 132 * SECOND, 133 * SECOND));
        assert!(judge(&mut playout, 200 * SECOND, 133 * SECOND, 134 * SECOND));
    }

    proptest! {
        /// Any clocks, any delay in common, any queue up to 10 s: within 1 ms of the truth.
        #[test]
        fn within_a_millisecond_of_a_shared_clock(
            sender in 0..u64::MAX / 4,
            receiver in 0..u64::MAX / 4,
            base in 0..2_000_000_000_u64,
            frames in proptest::collection::vec(
                (0..40_000_000_u64, 0..3_000_000_000_u64, prop_oneof![
                    Just(0), 0..4_000_000_u64, 0..10_000_000_000_u64
                ]),
                1..200,
            ),
        ) {
            let mut playout = Playout::default();
            // One packet by the shortest path, on a millisecond of the sender's clock.
            let mut at = sender.next_multiple_of(1_000_000) - sender;
            judge(&mut playout, sender + at, sender + at, receiver + at + base);
            let began = at;
            // Packets arrive in another order than they were sent, and the receiver's clock never goes back.
            let mut packets: Vec<_> = frames
                .into_iter()
                .map(|(gap, left, queue)| {
                    at += gap;
                    (at + queue, at, at + left)
                })
                .collect();
            packets.sort_unstable();
            for (came, sent, deadline) in packets {
                let seen =
                    judge(&mut playout, sender + deadline, sender + sent, receiver + came + base);
                // The allowance for drift is added.
                let slack = 1_000_000 + (came - began) / DRIFT;
                if came > deadline + slack {
                    prop_assert!(!seen, "{came} is after {deadline}");
                }
                if came + 1_000_000 <= deadline {
                    prop_assert!(seen, "{came} is before {deadline}");
                }
            }
        }
    }
}
