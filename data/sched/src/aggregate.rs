//! Aggregation: many streamlets in one scheduler stream, in sets that share it by weight.
//!
//! An [`Aggregate`] stands between the caller's queues and one stream of a [`Scheduler`](crate::Scheduler):
//! it chooses the streamlet whose frame becomes that stream's next head, and counts the fates of frames. The
//! contract belongs to the stream, which keeps its deadlines and windows; streamlets have shares only
//! (ShareStreams, section 5.1 "Stream aggregation" and Fig. 10).
//!
//! Sets share the bytes that are sent by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) in
//! whole numbers. Take any time in which sets `i` and `j` always have frames: the bytes they sent by weight,
//! `b_i / w_i` and `b_j / w_j`, differ by at most `l_i / w_i + l_j / w_j`. Here `l` is the largest frame.
//! Within a set, streamlets that have frames take turns, frame by frame; idle streamlets are not visited.
//! Every call takes constant time (at most [`SETS_MAX`] sets are compared).
//!
//! Memory: 64 bytes a streamlet, kept for the largest number that there were at once. Frames take none: they
//! are counted here and wait with the caller.
//!
//! ```
//! use selvedge_data_sched::aggregate::Aggregate;
//! use selvedge_units::Bytes;
//!
//! let mut slot = Aggregate::new();
//! let gold = slot.add_set(2)?;
//! let plain = slot.add_set(1)?;
//! let (a, b, c) = (slot.add(gold), slot.add(gold), slot.add(plain));
//! for streamlet in [a, b, c] {
//!     (0..4).for_each(|_| slot.arrive(streamlet));
//! }
//! let mut order = Vec::new();
//! for _ in 0..6 {
//!     order.extend(slot.promote_head()); // the caller pushes this streamlet's frame as head ...
//!     slot.sent(Bytes(1000)); // ... and reports the frame's fate
//! }
//! assert_eq!(order, [a, c, b, a, c, b]);
//! # Ok::<(), selvedge_data_sched::aggregate::SetError>(())
//! ```

mod bound;
mod ring;
mod set;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use selvedge_units::Bytes;

pub use bound::{SetLoad, turns};
use ring::{Entry, Ring, Rings};
pub use set::{MEASURE_MAX, SETS_MAX, SetError, SetIndex};
use set::{Set, set_of};

/// Tags beyond this are moved back; a frame of 2^64 bytes can't overflow from there.
const TAG_MAX: u128 = 1 << 112;

/// A streamlet's index in an aggregate; free for another streamlet after its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamletIndex(pub u32);

/// The fates of frames. Each counter saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamletCounts {
    /// Frames sent.
    pub sent: u64,
    /// The bytes of those frames.
    pub bytes: Bytes,
    /// Frames dropped by the scheduler or by the caller.
    pub dropped: u64,
}

impl StreamletCounts {
    fn count_sent(&mut self, size: Bytes) {
        self.sent = self.sent.saturating_add(1);
        self.bytes += size;
    }

    fn count_dropped(&mut self, frames: u64) {
        self.dropped = self.dropped.saturating_add(frames);
    }
}

/// What remains of a removed streamlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its counters; frames that still waited, its head included, count as dropped.
    pub tally: StreamletCounts,
    /// Whether its frame is the stream's head: the caller must then take it back from the scheduler
    /// ([`Scheduler::drop_head`](crate::Scheduler::drop_head)). The aggregate no longer has a head.
    pub was_head: bool,
}

/// The streamlets of one scheduler stream.
///
/// # Panics
/// Methods that take a set or a streamlet panic if there is none at that index: using an index
/// after its removal is a bug of the caller.
#[derive(Clone, Debug)]
pub struct Aggregate {
    sets: [Option<Set>; SETS_MAX],
    streamlets: Rings,
    free: Vec<u32>,
    /// The streamlet whose frame is the stream's head.
    head: Option<u32>,
    /// The start tag of the last frame that became the head.
    now: u128,
    /// A common multiple of the weights.
    measure: u64,
    tally: StreamletCounts,
}

impl Default for Aggregate {
    fn default() -> Self {
        Self::new()
    }
}

impl Aggregate {
    /// An aggregate without sets.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sets: [const { None }; SETS_MAX],
            streamlets: Rings::default(),
            free: Vec::new(),
            head: None,
            now: 0,
            measure: 1,
            tally: StreamletCounts::default(),
        }
    }

    /// Adds a set that gets a share of the stream by its weight, 1 to 65535.
    pub fn add_set(&mut self, weight: u16) -> Result<SetIndex, SetError> {
        if weight == 0 {
            return Err(SetError::Weightless);
        }
        let vacant = self.sets.iter().position(Option::is_none).ok_or(SetError::TooMany)?;
        // Weights of removed sets no longer need a measure.
        let weights = self.sets.iter().flatten().map(|set| set.weight).chain([weight]);
        let mut measure = 1_u64;
        for weight in weights {
            let weight = u64::from(weight);
            measure = measure / gcd(measure, weight) * weight;
            if measure > MEASURE_MAX {
                return Err(SetError::Measure(weight as u16));
            }
        }
        self.rescale(measure);
        let ring = Ring::default();
        let (tag, tally) = (self.now, StreamletCounts::default());
        self.sets[vacant] = Some(Set { weight, ring, tag, streamlets: 0, tally });
        Ok(SetIndex(vacant as u8))
    }

    /// Removes a set that has no streamlets and returns its counters.
    ///
    /// # Panics
    /// If the set still has streamlets.
    pub fn remove_set(&mut self, set: SetIndex) -> StreamletCounts {
        let Set { streamlets, tally, .. } = *self.set(set);
        assert!(streamlets == 0, "set {} still has {streamlets} streamlets", set.0);
        self.sets[set.0 as usize] = None;
        tally
    }

    /// Adds a streamlet to a set; allocates only if there were never this many. O(1) amortised.
    pub fn add(&mut self, set: SetIndex) -> StreamletIndex {
        self.set_mut(set).streamlets += 1;
        let entry = Entry::new(set.0);
        StreamletIndex(match self.free.pop() {
            Some(index) => {
                self.streamlets.put(index, entry);
                index
            }
            None => {
                let index = self.streamlets.push(entry);
                // Reserved here, so that `remove` never allocates.
                self.free.reserve(index as usize + 1);
                index
            }
        })
    }

    /// Removes a streamlet, even while it has frames, and even while one of them is the head.
    pub fn remove(&mut self, streamlet: StreamletIndex) -> Removed {
        let was_head = self.head == Some(streamlet.0);
        let entry = self.entry(streamlet).clone();
        let lost = entry.waiting.saturating_add(u64::from(was_head));
        let set = set_of(&mut self.sets, entry.set);
        if entry.waiting > 0 && !was_head {
            self.streamlets.unlink(&mut set.ring, streamlet.0);
        }
        set.streamlets -= 1;
        set.tally.count_dropped(lost);
        self.tally.count_dropped(lost);
        if was_head {
            self.head = None;
        }
        self.streamlets.clear(streamlet.0);
        self.free.push(streamlet.0);
        let mut tally = entry.tally;
        tally.count_dropped(lost);
        Removed { tally, was_head }
    }

    /// Counts a frame that was enqueued for this streamlet.
    pub fn arrive(&mut self, streamlet: StreamletIndex) {
        let is_head = self.head == Some(streamlet.0);
        let entry = self.streamlets.get_mut(streamlet.0);
        entry.waiting += 1;
        if entry.waiting == 1 && !is_head {
            let set = entry.set;
            self.enqueue_in_set(set, streamlet.0);
        }
    }

    /// Chooses the streamlet whose frame, the first of its queue, is the stream's next head; `None` if no
    /// frame waits. Among the sets that have frames, the one with the lowest start tag is chosen, ties by
    /// index.
    ///
    /// # Panics
    /// If the last chosen frame has neither been [`sent`](Self::sent) nor [`dropped`](Self::dropped).
    pub fn promote_head(&mut self) -> Option<StreamletIndex> {
        assert!(self.head.is_none(), "streamlet {:?} is the head already", self.head);
        let active = self.sets.iter_mut().flatten().filter(|set| !set.ring.is_empty());
        let set = active.min_by_key(|set| set.tag)?;
        self.now = set.tag;
        let index = self.streamlets.pop(&mut set.ring)?;
        self.streamlets.get_mut(index).waiting -= 1;
        self.head = Some(index);
        Some(StreamletIndex(index))
    }

    /// The streamlet whose frame is the head now.
    #[must_use]
    pub fn head(&self) -> Option<StreamletIndex> {
        self.head.map(StreamletIndex)
    }

    /// Counts the head as served. Its size counts against its set.
    ///
    /// # Panics
    /// If there is no head.
    pub fn sent(&mut self, size: Bytes) {
        let index = self.head.take().expect("a head to be sent");
        self.streamlets.get_mut(index).tally.count_sent(size);
        self.tally.count_sent(size);
        let measure = u128::from(self.measure);
        let set = set_of(&mut self.sets, self.streamlets.get(index).set);
        set.tally.count_sent(size);
        set.tag += u128::from(size.0) * (measure / u128::from(set.weight));
        if set.tag > TAG_MAX {
            self.reset_origin();
        }
        self.requeue_head(index);
    }

    /// Counts the head as dropped: it missed its deadline, or was forfeited. The turn is over; nothing counts
    /// against the set.
    ///
    /// # Panics
    /// If there is no head.
    pub fn dropped(&mut self) {
        let index = self.head.take().expect("a head to be dropped");
        self.count_dropped(index, 1);
        self.requeue_head(index);
    }

    /// Counts a waiting frame, not the head, that the caller dropped because its queue had no room.
    ///
    /// # Panics
    /// If none waits.
    pub fn drop_waiting(&mut self, streamlet: StreamletIndex) {
        let is_head = self.head == Some(streamlet.0);
        let entry = self.streamlets.get_mut(streamlet.0);
        assert!(entry.waiting > 0, "streamlet {} has no frame to give up", streamlet.0);
        entry.waiting -= 1;
        if entry.waiting == 0 && !is_head {
            let set = set_of(&mut self.sets, entry.set);
            self.streamlets.unlink(&mut set.ring, streamlet.0);
        }
        self.count_dropped(streamlet.0, 1);
    }

    /// Whether there is a set at this index.
    #[must_use]
    pub fn has_set(&self, set: SetIndex) -> bool {
        self.sets.get(set.0 as usize).is_some_and(Option::is_some)
    }

    /// Whether there is a streamlet at this index.
    #[must_use]
    pub fn has_streamlet(&self, streamlet: StreamletIndex) -> bool {
        self.streamlets.has(streamlet.0)
    }

    /// How many streamlets a set has.
    #[must_use]
    pub fn set_streamlets(&self, set: SetIndex) -> u32 {
        self.set(set).streamlets
    }

    /// The most [`turns`] from a frame's arrival until it was sent, for a streamlet of this set none of whose
    /// frames waits; `None` while the set has no streamlets.
    #[must_use]
    pub fn turns(&self, set: SetIndex) -> Option<u64> {
        let load = |set: &Option<Set>| match set {
            Some(Set { weight, streamlets, .. }) => {
                SetLoad { weight: *weight, streamlets: *streamlets }
            }
            None => SetLoad { weight: 1, streamlets: 0 },
        };
        turns(&self.sets.each_ref().map(load), set.0 as usize)
    }

    /// The number of a streamlet's frames that wait, without the head. O(1).
    #[must_use]
    pub fn waiting(&self, streamlet: StreamletIndex) -> u64 {
        self.entry(streamlet).waiting
    }

    /// The fates of all frames of the stream.
    #[must_use]
    pub const fn tally(&self) -> StreamletCounts {
        self.tally
    }

    /// The fates of a set's frames, those of removed streamlets included.
    #[must_use]
    pub fn set_tally(&self, set: SetIndex) -> StreamletCounts {
        self.set(set).tally
    }

    /// The fates of a streamlet's frames.
    #[must_use]
    pub fn streamlet_tally(&self, streamlet: StreamletIndex) -> StreamletCounts {
        self.entry(streamlet).tally
    }

    fn set(&self, set: SetIndex) -> &Set {
        let found = self.sets.get(set.0 as usize).and_then(Option::as_ref);
        found.unwrap_or_else(|| panic!("there is no set {}", set.0))
    }

    fn set_mut(&mut self, set: SetIndex) -> &mut Set {
        let found = self.sets.get_mut(set.0 as usize).and_then(Option::as_mut);
        found.unwrap_or_else(|| panic!("there is no set {}", set.0))
    }

    fn entry(&self, streamlet: StreamletIndex) -> &Entry {
        self.streamlets.get(streamlet.0)
    }

    fn count_dropped(&mut self, index: u32, frames: u64) {
        let entry = self.streamlets.get_mut(index);
        entry.tally.count_dropped(frames);
        let set = set_of(&mut self.sets, entry.set);
        set.tally.count_dropped(frames);
        self.tally.count_dropped(frames);
    }

    /// After the head has left: its streamlet goes behind the others of its set, if it has more frames.
    fn requeue_head(&mut self, index: u32) {
        let Entry { waiting, set, .. } = *self.streamlets.get(index);
        if waiting > 0 {
            self.enqueue_in_set(set, index);
        }
        let idle = self.sets.iter().flatten().all(|set| set.ring.is_empty());
        if idle {
            // No set is ahead of another when the stream begins anew.
            let latest = self.sets.iter().flatten().map(|set| set.tag).max();
            self.now = self.now.max(latest.unwrap_or(0));
        }
    }

    /// Puts a streamlet behind those of its set that have frames. A set that had none starts now: it gains no
    /// credit while idle, and keeps what it was ahead.
    fn enqueue_in_set(&mut self, set: u8, index: u32) {
        let set = set_of(&mut self.sets, set);
        if set.ring.is_empty() {
            set.tag = set.tag.max(self.now);
        }
        self.streamlets.append(&mut set.ring, index);
    }

    /// Moves virtual time back to its origin; only differences count.
    fn reset_origin(&mut self) {
        let now = core::mem::take(&mut self.now);
        for set in self.sets.iter_mut().flatten() {
            set.tag = set.tag.saturating_sub(now);
        }
    }

    /// Changes to another common multiple of the weights: tags in its units, rounded up where it shrinks.
    fn rescale(&mut self, measure: u64) {
        if measure != self.measure {
            self.reset_origin();
            let (from, to) = (u128::from(self.measure), u128::from(measure));
            for set in self.sets.iter_mut().flatten() {
                // A tag is at most one frame ahead of the origin.
                let (whole, part) = (set.tag / from, set.tag % from);
                set.tag = (whole * to).saturating_add((part * to).div_ceil(from));
            }
            self.measure = measure;
        }
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
