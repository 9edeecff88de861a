//! Lost packets that parities restore.
//!
//! Packets and parities come from all paths, in any order. What is restored goes on as if it had arrived.

use std::collections::{BTreeMap, VecDeque};

use reed_solomon_simd::decode;
use selvedge_units::{Bytes, Duration, Instant};

use crate::datagram::{Code, StreamId};
use crate::protection::shard;

/// Packets that may be needed are kept up to this size, the latest: half a second of 200 Mbit/s.
const KEPT_MAX: Bytes = Bytes(12 << 20);
/// Blocks that lack packets, at most.
const BLOCKS_MAX: usize = 64;
/// After so long without parities no packets are kept.
const NEEDED: Duration = Duration::from_secs(10);

/// A packet of a stream, by its number in it.
pub(crate) type Place = (StreamId, u64);

/// Packets of late, and blocks that lack some. A packet costs O(log(packets kept) + blocks that lack packets); at most
/// 12 MiB of packets are kept, and 64 blocks.
#[derive(Debug, Default)]
pub(crate) struct Restoration {
    /// Until when packets are kept.
    until: Option<Instant>,
    packets: BTreeMap<Place, Box<[u8]>>,
    /// In the order in which they came.
    order: VecDeque<Place>,
    bytes: Bytes,
    blocks: VecDeque<Block>,
}

/// A block of which packets are missing.
#[derive(Debug)]
struct Block {
    stream: StreamId,
    first: u64,
    code: Code,
    /// By index.
    parities: BTreeMap<u8, Vec<u8>>,
}

impl Block {
    fn covers(&self, (stream, number): Place) -> bool {
        self.stream == stream
            && number.checked_sub(self.first).is_some_and(|at| at < self.code.covered.into())
    }
}

impl Restoration {
    /// Takes a packet; returns what it makes it possible to restore.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        place: Place,
        packet: &[u8],
    ) -> Vec<(u64, Vec<u8>)> {
        if self.until.is_none_or(|until| until < now) {
            (self.packets, self.order) = Default::default();
            (self.bytes, self.blocks) = Default::default();
            return Vec::new();
        }
        self.keep(place, packet);
        let block = self.blocks.iter().position(|block| block.covers(place));
        block.map(|at| self.restore(at)).unwrap_or_default()
    }

    /// Takes a parity of the block that begins at this place; returns what it makes it possible to restore.
    pub(crate) fn handle_parity(
        &mut self,
        now: Instant,
        (stream, first): Place,
        code: Code,
        parity: &[u8],
    ) -> Vec<(u64, Vec<u8>)> {
        self.until = Some(now + NEEDED);
        let is_same = |block: &Block| {
            let Block { code: known, .. } = block;
            let same = (known.covered, known.parities) == (code.covered, code.parities);
            same && (block.stream, block.first) == (stream, first)
        };
        let at = self.blocks.iter().position(is_same).unwrap_or_else(|| {
            if self.blocks.len() == BLOCKS_MAX {
                self.blocks.pop_front();
            }
            self.blocks.push_back(Block { stream, first, code, parities: BTreeMap::new() });
            self.blocks.len() - 1
        });
        self.blocks[at].parities.insert(code.index, parity.to_vec());
        self.restore(at)
    }

    fn keep(&mut self, place: Place, packet: &[u8]) {
        if self.packets.insert(place, packet.into()).is_none() {
            self.order.push_back(place);
            self.bytes += Bytes(packet.len() as u64);
        }
        while self.bytes > KEPT_MAX {
            let oldest = self.order.pop_front().and_then(|oldest| self.packets.remove(&oldest));
            self.bytes = self.bytes - Bytes(oldest.map_or(0, |packet| packet.len()) as u64);
        }
    }

    /// Restores what a block lacks, if there are enough parities. A block that lacks nothing is forgotten.
    fn restore(&mut self, at: usize) -> Vec<(u64, Vec<u8>)> {
        let Block { stream, first, code, parities } = &self.blocks[at];
        let (stream, first, count) = (*stream, *first, usize::from(code.covered));
        let known = |n: &usize| self.packets.get(&(stream, first + *n as u64)).map(|p| (*n, p));
        let present: Vec<_> = (0..count).filter_map(|n| known(&n)).collect();
        if present.len() + parities.len() < count {
            return Vec::new();
        }
        let size = parities.values().next().map_or(0, Vec::len);
        // A packet longer than the parities belongs to another block: the code refuses it.
        let shards =
            present.iter().map(|(n, packet)| (*n, shard(packet, size.max(packet.len() + 2))));
        let codes = parities.iter().map(|(n, parity)| (usize::from(*n), parity));
        let restored = if present.len() == count {
            None
        } else {
            decode(count, code.parities.into(), shards, codes).ok()
        };
        self.blocks.remove(at);
        let packet = |(n, shard): (usize, Vec<u8>)| {
            let (length, bytes) = shard.split_first_chunk::<2>()?;
            let packet = bytes.get(..usize::from(u16::from_be_bytes(*length)))?;
            Some((first + n as u64, packet.to_vec())).filter(|(_, packet)| !packet.is_empty())
        };
        let mut restored: Vec<_> = restored.into_iter().flatten().filter_map(packet).collect();
        restored.sort_unstable();
        for (number, packet) in &restored {
            self.keep((stream, *number), packet);
        }
        restored
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reed_solomon_simd::encode;

    use super::*;

    const STREAM: StreamId = StreamId(3);

    /// Packets of a block, and its parities.
    fn coded(packets: &[Vec<u8>], parities: usize) -> Vec<(Code, Vec<u8>)> {
        let longest = packets.iter().map(Vec::len).max().unwrap_or(0);
        let shards = packets.iter().map(|packet| shard(packet, (longest + 2).next_multiple_of(2)));
        let coded = encode(packets.len(), parities, shards).expect("there is such a code");
        let code = |index| Code { covered: packets.len() as u8, parities: parities as u8, index };
        (0..).zip(coded).map(|(index, bytes)| (code(index), bytes)).collect()
    }

    proptest! {
        /// Of all that is sent any part comes, in any order, some of it twice: what is missing is restored if no more is
        /// missing than parities came.
        #[test]
        fn what_is_missing_is_restored(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..20),
            parities in 1_usize..8,
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
            first in 0_u64..1_000,
        ) {
            let codes = coded(&packets, parities);
            let mut restoration = Restoration::default();
            // Packets are kept once there are parities.
            let other = Code { covered: 1, parities: 1, index: 0 };
            restoration.handle_parity(Instant::ZERO, (StreamId(9), 0), other, &[0; 4]);
            let mut restored = BTreeMap::new();
            let (mut came, mut codes_came) = (BTreeMap::new(), BTreeMap::new());
            for index in order {
                let at = index.index(packets.len() + parities);
                restored.extend(if let Some(packet) = packets.get(at) {
                    came.insert(first + at as u64, packet.clone());
                    restoration.handle_packet(Instant(1), (STREAM, first + at as u64), packet)
                } else {
                    let (code, parity) = &codes[at - packets.len()];
                    codes_came.insert(code.index, ());
                    restoration.handle_parity(Instant(1), (STREAM, first), *code, parity)
                });
            }
            let is_enough = came.len() + codes_came.len() >= packets.len();
            for (number, packet) in &restored {
                prop_assert_eq!(packet, &packets[(number - first) as usize]);
            }
            let known = came.len() + restored.keys().filter(|number| !came.contains_key(number)).count();
            prop_assert_eq!(known, if is_enough { packets.len() } else { came.len() });
        }

        #[test]
        fn any_parities_do_no_harm(
            steps in prop::collection::vec((0_u64..40, 1_u8..=48, 1_u8..=32, any::<u8>(), 1_usize..9), 0..200),
        ) {
            let mut restoration = Restoration::default();
            for (now, (first, covered, parities, index, size)) in (0_u64..).zip(steps) {
                let code = Code { covered, parities, index: index % parities };
                restoration.handle_parity(Instant(now), (STREAM, first), code, &vec![index; size * 2]);
                restoration.handle_packet(Instant(now), (STREAM, first + 3), &vec![index; size * 3]);
                prop_assert!(restoration.blocks.len() <= BLOCKS_MAX);
            }
        }
    }

    #[test]
    fn packets_are_kept_while_parities_come_and_up_to_a_size() {
        let mut restoration = Restoration::default();
        let later = Instant::ZERO + NEEDED + Duration(1);
        restoration.handle_packet(Instant::ZERO, (STREAM, 0), &[0; 1_000]);
        assert_eq!(restoration.bytes, Bytes(0), "no parity came yet");
        let code = Code { covered: 2, parities: 1, index: 0 };
        restoration.handle_parity(Instant::ZERO, (STREAM, 0), code, &[0; 100]);
        for number in 0..20_000 {
            restoration.handle_packet(Instant::ZERO, (STREAM, 100 + number), &[0; 1_000]);
        }
        assert!(restoration.bytes <= KEPT_MAX && restoration.bytes.0 > 12_000_000);
        assert_eq!(restoration.packets.len(), restoration.order.len());
        restoration.handle_packet(later, (STREAM, 0), &[0; 1_000]);
        assert_eq!((restoration.bytes, restoration.blocks.len()), (Bytes(0), 0));
    }
}
