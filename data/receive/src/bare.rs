//! Frames of streams that carry no tags: packets of one RTP timestamp are one frame.
//!
//! Such a frame is complete if no number is missing among its packets, nor between it and its neighbours (a
//! missing packet there may have been its own). Frames of which nothing arrived leave no trace, and the
//! references of frames are unknown, so neither is counted.

/// The frames that are followed at once.
const SLOTS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Slot {
    timestamp: u32,
    first: u64,
    last: u64,
    packets: u64,
    /// Number of the packet with the marker bit, which ends a picture.
    marker: Option<u64>,
}

/// Follows the frames of one stream. Constant memory.
#[derive(Clone, Debug, Default)]
pub(super) struct BareFrames {
    slots: [Option<Slot>; SLOTS],
    /// The last packet of the frame settled last.
    settled: Option<u64>,
    /// Settled frames that were complete, and that were not.
    pub(super) whole: u64,
    pub(super) incomplete: u64,
}

impl BareFrames {
    /// Takes a packet, each only once. O(1).
    pub(super) fn handle(&mut self, number: u64, timestamp: u32, marker: bool) {
        if self.settled.is_some_and(|settled| number <= settled) {
            return;
        }
        let own = self.slots.iter().position(|s| s.is_some_and(|s| s.timestamp == timestamp));
        let index = own.unwrap_or_else(|| self.free_slot());
        let slot = self.slots[index].get_or_insert(Slot {
            timestamp,
            first: number,
            last: number,
            packets: 0,
            marker: None,
        });
        slot.first = slot.first.min(number);
        slot.last = slot.last.max(number);
        slot.packets += 1;
        slot.marker = slot.marker.or_else(|| marker.then_some(number));
    }

    /// Settles every frame that has begun: no more packets are expected.
    pub(super) fn settle_all(&mut self) {
        while self.pending() > 0 {
            self.settle_first();
        }
    }

    /// Makes the next frame independent of those before.
    pub(super) fn restart(&mut self) {
        self.settle_all();
        self.settled = None;
    }

    /// Frames that have begun and are not settled.
    pub(super) fn pending(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    fn free_slot(&mut self) -> usize {
        match self.slots.iter().position(Option::is_none) {
            Some(free) => free,
            None => self.settle_first(),
        }
    }

    /// Settles the frame that begins first; returns its slot, which is free then.
    fn settle_first(&mut self) -> usize {
        let oldest = (0..SLOTS).min_by_key(|&i| self.slots[i].map_or(u64::MAX, |s| s.first));
        let index = oldest.unwrap_or(0);
        let Some(slot) = self.slots[index].take() else { return index };
        let gapless = slot.last - slot.first + 1 == slot.packets;
        let joins_before = self.settled.is_none_or(|settled| settled + 1 == slot.first);
        let next = self.slots.iter().flatten().map(|s| s.first).min();
        let ends = slot.marker == Some(slot.last) || next == Some(slot.last + 1);
        if gapless && joins_before && ends {
            self.whole += 1;
        } else {
            self.incomplete += 1;
        }
        self.settled = self.settled.max(Some(slot.last));
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Frames of three packets, the third with the marker, without the packets named.
    fn run(missing: &[u64], markers: bool) -> (u64, u64) {
        let mut frames = BareFrames::default();
        for number in (0..60).filter(|number| !missing.contains(number)) {
            frames.handle(number, (number / 3) as u32 * 3600, markers && number % 3 == 2);
        }
        frames.settle_all();
        (frames.whole, frames.incomplete)
    }

    #[test]
    fn a_gap_breaks_the_frames_that_it_may_belong_to() {
        assert_eq!(run(&[], true), (20, 0));
        assert_eq!(run(&[4], true), (19, 1), "within a frame");
        assert_eq!(run(&[5], true), (18, 2), "at the end of one: it might begin the next");
        assert_eq!(run(&[6], true), (19, 1), "at the beginning: the marker ended the one before");
    }

    #[test]
    fn without_markers_the_next_frame_ends_one() {
        // No packet ends the very last one.
        assert_eq!(run(&[], false), (19, 1));
        assert_eq!(run(&[7], false), (18, 2));
    }

    #[test]
    fn reordered_packets_find_their_frames() {
        let mut frames = BareFrames::default();
        for number in [1, 0, 2, 4, 3, 6, 5, 7] {
            frames.handle(number, (number / 2) as u32, number % 2 == 1);
        }
        frames.settle_all();
        assert_eq!((frames.whole, frames.incomplete), (4, 0));
        frames.handle(3, 9, true);
        assert_eq!(frames.pending(), 0, "what is settled stays so");
    }

    proptest! {
        #[test]
        fn survives_anything(packets in proptest::collection::vec(
            (0..1_u64 << 60, any::<u32>(), any::<bool>()), 0..200,
        )) {
            let mut frames = BareFrames::default();
            for (number, timestamp, marker) in packets {
                frames.handle(number, timestamp, marker);
                frames.handle(number % 50, timestamp % 9, marker);
            }
            frames.settle_all();
            prop_assert_eq!(frames.pending(), 0);
        }
    }
}
