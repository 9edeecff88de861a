//! How much is sent beforehand of what may be lost, by what depends on it.
//!
//! The packets of a frame come from the link, each with its frame's tag. A block ends with its frame. Where a lost packet
//! could not be sent again in time, parities follow the block: as many as save more frames than their bytes would
//! carry.

use std::sync::Arc;

use reed_solomon_simd::encode;
use selvedge_data_stream::Kind;
use selvedge_data_stream::rtp::FrameTag;

use crate::datagram::{COVERED_MAX, Code, PARITIES_MAX};

/// A chance that is certain, in units of which chances are.
pub(crate) const CERTAIN: u64 = 1 << 30;
/// A lost packet is sent again so often at once, at most.
pub(crate) const REPAIRS_MAX: u32 = 3;
/// A group of pictures before one was seen whole.
const GROUP: u32 = 12;
/// What a referenced picture between others is worth: itself and those beside it.
const BETWEEN: u64 = 3;
/// Means fade by a sixteenth with each frame.
const FADES: u64 = 16;

/// Both happen.
pub(crate) const fn both(one: u64, other: u64) -> u64 {
    (one * other) / CERTAIN
}

/// What a packet's loss costs, and the frames that its bytes could carry instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worth {
    /// Frames that can't be decoded without it; 0: nothing is known of it.
    pub(crate) frames: u64,
    /// Packets of a mean frame of its stream, in units of a 256th.
    pub(crate) packets: u64,
}

impl Worth {
    /// Whether this chance to save it is worth a packet more.
    pub(crate) const fn pays(self, saved: u64) -> bool {
        self.frames > 0 && (saved * self.frames).saturating_mul(self.packets) >= CERTAIN * 256
    }
}

/// Packets that parities cover together.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The sequence of the first in the stream.
    pub(crate) first: u32,
    pub(crate) worth: Worth,
    packets: Vec<Arc<[u8]>>,
}

/// What is known of a stream's frames, and the packets of the frame that leaves now.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    /// The latest intra picture, and the frames of the group before it.
    intra: u32,
    group: Option<u32>,
    /// Packets of a mean frame, in units of a 256th.
    mean: u64,
    /// Of the frame that leaves now.
    count: u64,
    open: Block,
}

impl Protection {
    /// Takes the next packet; returns what its loss costs, and the block that ends with it, if one does.
    pub(crate) fn handle_packet(
        &mut self,
        sequence: u32,
        tag: &FrameTag,
        packet: &Arc<[u8]>,
    ) -> (Worth, Option<Block>) {
        if tag.first {
            (self.open, self.count) = (Block::default(), 0);
        }
        self.count += 1;
        if tag.last {
            let this = self.count * 256;
            let faded = self.mean - self.mean / FADES + this / FADES;
            self.mean = if self.mean == 0 { this } else { faded };
        }
        let worth = Worth { frames: self.dependents(tag), packets: self.mean };
        if self.open.packets.is_empty() {
            self.open.first = sequence;
        }
        self.open.worth = worth;
        self.open.packets.push(Arc::clone(packet));
        let ends = tag.last || self.open.packets.len() == COVERED_MAX;
        (worth, ends.then(|| std::mem::take(&mut self.open)))
    }

    /// Frames that can't be decoded without this one, itself included, if this group is as long as the one before.
    fn dependents(&mut self, tag: &FrameTag) -> u64 {
        if tag.kind == Kind::Intra && tag.first {
            self.group = Some(tag.seq.wrapping_sub(self.intra)).filter(|_| self.group.is_some());
            self.group.get_or_insert(GROUP);
            self.intra = tag.seq;
        }
        if !tag.referenced {
            return 1;
        }
        if tag.kind == Kind::Bidirectional {
            return BETWEEN;
        }
        let since = tag.seq.wrapping_sub(self.intra);
        let rest = self.group.unwrap_or(GROUP).checked_sub(since);
        // A longer group goes on for as long again.
        u64::from(rest.unwrap_or(since).clamp(1, 1 << 10))
    }
}

impl Block {
    /// The parities that pay if each packet is lost with this chance, each with its place in the code; none where the code
    /// can't be made.
    pub(crate) fn parities(&self, lost: u64) -> Vec<(Code, Vec<u8>)> {
        let (count, parities) = (self.packets.len(), self.count_of_parities(lost));
        let longest = self.packets.iter().map(|packet| packet.len()).max().unwrap_or(0);
        let shard = |packet: &Arc<[u8]>| shard(packet, (longest + 2).next_multiple_of(2));
        let coded = match parities {
            0 => Ok(Vec::new()),
            _ => encode(count, parities, self.packets.iter().map(shard)),
        };
        let code = |index: u8| Code { covered: count as u8, parities: parities as u8, index };
        (0..).zip(coded.unwrap_or_default()).map(|(index, bytes)| (code(index), bytes)).collect()
    }

    /// So many parities save the most frames, beside those that their bytes would carry.
    fn count_of_parities(&self, lost: u64) -> usize {
        let (Worth { frames, packets }, count) = (self.worth, self.packets.len());
        if lost == 0 || frames == 0 || packets == 0 {
            return 0;
        }
        let mut chances = Chances::new();
        (0..count).for_each(|_| chances.handle_packet(lost));
        let (whole, price) = (chances.at_most(0), CERTAIN * 256 / packets);
        let (mut best, mut most) = (0, 0);
        for parities in 1..=PARITIES_MAX.min(count + 1) {
            chances.handle_packet(lost);
            let saved = chances.at_most(parities).saturating_sub(whole) * frames;
            let gain = saved.saturating_sub(price * parities as u64);
            if gain > most {
                (best, most) = (parities, gain);
            }
        }
        best
    }
}

/// A packet as the code covers it: its length, its bytes, and zeros.
pub(crate) fn shard(packet: &[u8], size: usize) -> Vec<u8> {
    let mut shard = Vec::with_capacity(size);
    shard.extend((packet.len() as u16).to_be_bytes());
    shard.extend(packet);
    shard.resize(size, 0);
    shard
}

/// The chances that exactly so many of the packets so far are lost.
struct Chances([u64; PARITIES_MAX + 1]);

impl Chances {
    const fn new() -> Self {
        let mut exactly = [0; PARITIES_MAX + 1];
        exactly[0] = CERTAIN;
        Self(exactly)
    }

    /// One packet more, which is lost with this chance.
    fn handle_packet(&mut self, lost: u64) {
        let mut fewer = 0;
        for exactly in &mut self.0 {
            let before = *exactly;
            *exactly = both(before, CERTAIN - lost) + both(fewer, lost);
            fewer = before;
        }
    }

    fn at_most(&self, lost: usize) -> u64 {
        self.0.iter().take(lost + 1).sum::<u64>().min(CERTAIN)
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_stream::References;

    use super::*;

    fn tags(
        seq: u32,
        kind: Kind,
        referenced: bool,
        packets: u16,
    ) -> impl Iterator<Item = FrameTag> {
        let tag = move |packet| FrameTag {
            seq,
            kind,
            referenced,
            first: packet == 0,
            last: packet + 1 == packets,
            refs: References::NONE,
            left_ms: 0,
            deadline_ms: 0,
        };
        (0..packets).map(tag)
    }

    /// Groups of ten frames of four packets, of which every other is no reference.
    fn worths(groups: u32) -> Vec<u64> {
        let (mut protection, mut sequence, mut worths) = (Protection::default(), 0, Vec::new());
        for seq in 0..groups * 10 {
            let kind = if seq % 10 == 0 { Kind::Intra } else { Kind::Predicted };
            for tag in tags(seq, kind, seq % 2 == 0, 4) {
                let (worth, block) = protection.handle_packet(sequence, &tag, &[0; 100].into());
                assert_eq!(block.is_some(), tag.last);
                assert!(
                    block.is_none_or(|block| block.first == sequence - 3 && block.worth == worth)
                );
                sequence += 1;
                if tag.last {
                    assert_eq!(worth.packets, 4 * 256);
                    worths.push(worth.frames);
                }
            }
        }
        worths
    }

    #[test]
    fn a_frame_is_worth_the_rest_of_its_group() {
        let worths = worths(3);
        assert_eq!(worths[..4], [12, 1, 10, 1]);
        assert_eq!(worths[20..], [10, 1, 8, 1, 6, 1, 4, 1, 2, 1]);
    }

    #[test]
    fn a_large_frame_has_several_blocks_and_one_cut_off_has_none() {
        let mut protection = Protection::default();
        let mut blocks = Vec::new();
        let cut_off = tags(0, Kind::Intra, true, 20).take(15);
        for (sequence, tag) in cut_off.chain(tags(1, Kind::Intra, true, 100)).enumerate() {
            let (_, block) = protection.handle_packet(sequence as u32, &tag, &[0; 10].into());
            blocks.extend(block.map(|block| (block.first, block.packets.len())));
        }
        assert_eq!(blocks, [(15, 48), (63, 48), (111, 4)]);
    }

    #[test]
    fn parities_are_as_many_as_pay() {
        let block = |frames, packets: usize| Block {
            first: 0,
            worth: Worth { frames, packets: 10 * 256 },
            packets: vec![[0; 100].into(); packets],
        };
        let percent = |n: u64| CERTAIN / 100 * n;
        let count = |frames, packets, lost| block(frames, packets).count_of_parities(lost);
        assert_eq!(count(50, 20, 0), 0, "nothing is lost");
        assert_eq!(count(0, 20, percent(10)), 0, "nothing is known of it");
        // One packet of ten is a tenth of a frame: it does not pay for a frame of a percent's loss.
        assert_eq!(count(1, 1, percent(1)), 0);
        assert_eq!(count(1, 10, percent(5)), 1);
        assert_eq!([1, 3, 10, 33].map(|lost| count(50, 20, percent(lost))), [2, 4, 8, 21]);
        assert_eq!([1, 3, 10, 33].map(|lost| count(2, 20, percent(lost))), [1, 2, 5, 13]);
        assert!(count(u64::from(u32::MAX), 48, CERTAIN / 2) <= PARITIES_MAX);
    }
}
