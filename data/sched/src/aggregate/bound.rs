//! How long a streamlet's frame waits at most, counted in the turns of its stream: frames that the scheduler
//! sends of the stream, one after the other.
//!
//! ShareStreams promises a delay bound for the slot, and none for a streamlet by itself (section 6). With the
//! slot's period this is the streamlet's: turns times period, as long as the link sends one frame of the slot
//! in each period.

/// A set of streamlets as the bound needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLoad {
    /// Its share beside the others, at least 1.
    pub weight: u16,
    /// Its streamlets.
    pub streamlets: u32,
}

/// The most turns from a frame's arrival until it was sent, for a streamlet of set `of` none of whose frames
/// waits, where all frames have one size. `None` for a set without streamlets, or none there.
///
/// One turn is under way when the frame comes. The set needs at most `n` turns until the frame was sent, `n`
/// its streamlets: each other has one frame before it. Each set beside it has at most
/// `floor(n * w_j / w) + 1` turns meanwhile: by start-time fair queueing its start tag is at least that of
/// the turn under way, and the frame's own at most `n / w` later. A turn whose frame is dropped counts for
/// none. Where sizes differ, `n * w_j / w` grows by the largest size over the smallest.
#[must_use]
pub fn turns(sets: &[SetLoad], of: usize) -> Option<u64> {
    let SetLoad { weight, streamlets } = *sets.get(of)?;
    let own = u64::from(streamlets);
    let beside = sets.iter().enumerate().filter(|(n, set)| *n != of && set.streamlets > 0);
    let others: u64 =
        beside.map(|(_, set)| own * u64::from(set.weight) / u64::from(weight.max(1)) + 1).sum();
    (streamlets > 0).then_some(1 + own + others)
}
