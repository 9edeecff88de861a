//! Cuts sound into blocks of even length, each the payload of one packet.

use selvedge_units::Duration;

use crate::timeline::FrameTimes;

/// The longest block: the loss of one packet.
const BLOCK_MAX: Duration = Duration::from_millis(20);
/// Bytes of a sample of one channel (L16).
const SAMPLE_LEN: usize = 2;

/// Collects samples as they arrive and returns them in blocks.
#[derive(Clone, Debug)]
pub(crate) struct SampleBlocks {
    rate: u32,
    /// Bytes of a sample of all channels.
    sample: usize,
    /// Bytes of a block.
    block: usize,
    waiting: Vec<u8>,
    /// Samples returned so far.
    given: u64,
}

impl SampleBlocks {
    /// Blocks of up to 20 ms that fit `payload_max` bytes.
    pub(crate) fn new(rate: u32, channels: u8, payload_max: usize) -> Self {
        let rate = rate.max(1);
        let sample = SAMPLE_LEN * usize::from(channels.max(1));
        let longest = (u64::from(rate) * BLOCK_MAX.0 / 1_000_000_000) as usize;
        let samples = longest.min(payload_max / sample).max(1);
        Self { rate, sample, block: samples * sample, waiting: Vec::new(), given: 0 }
    }

    /// The length of a block.
    pub(crate) fn period(&self) -> Duration {
        self.at((self.block / self.sample) as u64)
    }

    /// When the next block begins.
    pub(crate) fn next(&self) -> Duration {
        self.at(self.given)
    }

    /// Takes samples.
    pub(crate) fn push(&mut self, samples: &[u8]) {
        self.waiting.extend_from_slice(samples);
    }

    /// The blocks that are complete, in order.
    pub(crate) fn blocks(&mut self) -> Vec<(Vec<u8>, FrameTimes)> {
        let whole = self.waiting.len() / self.block * self.block;
        let rest = self.waiting.split_off(whole);
        let full = std::mem::replace(&mut self.waiting, rest);
        full.chunks(self.block).map(|block| (block.to_vec(), self.count(block.len()))).collect()
    }

    /// The rest at the very end, shorter than a block.
    pub(crate) fn drain_rest(&mut self) -> Option<(Vec<u8>, FrameTimes)> {
        let whole = self.waiting.len() / self.sample * self.sample;
        let mut rest = std::mem::take(&mut self.waiting);
        rest.truncate(whole);
        (!rest.is_empty()).then(|| {
            let moments = self.count(rest.len());
            (rest, moments)
        })
    }

    fn count(&mut self, bytes: usize) -> FrameTimes {
        let at = self.at(self.given);
        self.given += (bytes / self.sample) as u64;
        FrameTimes { decode: at, present: at }
    }

    fn at(&self, samples: u64) -> Duration {
        let ns = u128::from(samples) * 1_000_000_000 / u128::from(self.rate);
        Duration(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_is_20_ms_or_what_fits() {
        assert_eq!(SampleBlocks::new(16_000, 1, 1440).period(), Duration::from_millis(20));
        assert_eq!(SampleBlocks::new(48_000, 2, 1440).period(), Duration::from_micros(7500));
        assert_eq!(SampleBlocks::new(48_000, 2, 0).period(), Duration(20_833));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_time_is_the_count_of_samples(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..8),
            payload_max in 0usize..2000,
        ) {
            let mut cutter = SampleBlocks::new(8_000, 2, payload_max);
            let mut out = Vec::new();
            for piece in &pieces {
                cutter.push(piece);
                out.extend(cutter.blocks());
            }
            prop_assert!(out.iter().all(|(block, _)| block.len() == cutter.block));
            out.extend(cutter.drain_rest());
            let mut whole = pieces.concat();
            whole.truncate(whole.len() / 4 * 4);
            let mut samples = 0;
            for (block, at) in &out {
                prop_assert_eq!(at.present, Duration::from_micros(samples * 125));
                samples += block.len() as u64 / 4;
            }
            prop_assert_eq!(out.into_iter().flat_map(|(block, _)| block).collect::<Vec<_>>(), whole);
        }
    }
}
