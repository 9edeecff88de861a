//! The reference memory of an H.264 decoder, and the lists that it builds from it (ITU-T Rec. H.264,
//! sections 8.2.4 and 8.2.5), for frames.
//!
//! Slice headers come from the reference reader, which requests lists of held pictures. Pure.

use h264_reader::nal::slice::{
    MemoryManagementControlOperation as Operation, ModificationOfPicNums as Change,
};
use h264_reader::nal::sps::SeqParameterSet;

/// A picture that is kept for reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Number of its access unit.
    pub(super) number: u64,
    /// Place in the order of display.
    pub(super) order: i64,
    pub(super) frame_num: u32,
    /// Its long-term index, if it has one.
    pub(super) long_term: Option<u32>,
    /// Whether it arrived: others only fill the gap where some are missing.
    pub(super) came: bool,
}

impl Held {
    pub(super) const fn new(number: u64, frame_num: u32, order: i64) -> Self {
        Self { number, order, frame_num, long_term: None, came: true }
    }

    /// How far it lies before the picture of this number; beyond all for one that never arrived.
    pub(super) fn distance(&self, number: u64) -> u32 {
        if self.came { u32::try_from(number - self.number).unwrap_or(u32::MAX) } else { u32::MAX }
    }
}

/// The meaning of frame numbers for the current picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// `frame_num`, and the number at which it wraps.
    current: u32,
    range: u32,
    /// Pictures that may be held.
    most: usize,
}

impl Numbers {
    pub(super) fn of(sps: &SeqParameterSet, frame_num: u16) -> Self {
        Self {
            current: frame_num.into(),
            range: 1 << sps.log2_max_frame_num(),
            most: (sps.max_num_ref_frames as usize).clamp(1, MOST),
        }
    }

    /// `PicNum` of a short-term picture.
    fn of_held(self, held: &Held) -> i64 {
        let wraps = held.frame_num > self.current;
        i64::from(held.frame_num) - if wraps { i64::from(self.range) } else { 0 }
    }
}

/// Frames that a decoder keeps at most (section A.3.1), both fields of each counted.
const MOST: usize = 32;

/// All held pictures, in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    held: Vec<Held>,
    last_frame_num: Option<u32>,
}

impl Memory {
    pub(super) fn held(&self) -> &[Held] {
        &self.held
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.last_frame_num = None;
    }

    /// Inserts stand-ins for missing pictures where frame numbers leave a gap (section 8.2.5.2).
    /// Nothing refers to them where gaps are allowed.
    pub(super) fn fill_gap(&mut self, numbers: Numbers, before: u64, allowed: bool) {
        let Some(last) = self.last_frame_num else { return };
        let step = numbers.current.wrapping_sub(last) & (numbers.range - 1);
        // More than can be held push out all held pictures.
        let missing = step.saturating_sub(1).min(numbers.most as u32);
        for back in (1..=missing).rev() {
            let frame_num = numbers.current.wrapping_sub(back) & (numbers.range - 1);
            let at = Numbers { current: frame_num, ..numbers };
            if allowed {
                self.slide(at);
            } else {
                let gap = Held { came: false, ..Held::new(before, frame_num, i64::MIN) };
                self.slide_and_hold(gap, at);
            }
        }
    }

    /// The initial list of a P slice: the latest first, long-term ones last.
    pub(super) fn before(&self, numbers: Numbers) -> Vec<Held> {
        let mut short = self.short().collect::<Vec<_>>();
        short.sort_by_key(|held| -numbers.of_held(held));
        short.extend(self.long());
        short
    }

    /// Both initial lists of a B slice, by display order: first those before it from the nearest on,
    /// then those after it; and the other way round.
    pub(super) fn around(&self, order: i64) -> [Vec<Held>; 2] {
        let (mut before, mut behind): (Vec<_>, Vec<_>) =
            self.short().partition(|held| held.order <= order);
        before.sort_by_key(|held| -held.order.max(i64::MIN + 1));
        behind.sort_by_key(|held| held.order);
        let first = before.iter().chain(&behind).copied().chain(self.long()).collect::<Vec<_>>();
        let mut other =
            behind.iter().chain(&before).copied().chain(self.long()).collect::<Vec<_>>();
        if other.len() > 1 && other == first {
            other.swap(0, 1);
        }
        [first, other]
    }

    /// A list's active part, after the changes that the slice states (section 8.2.4.3).
    pub(super) fn modified(
        &self,
        mut list: Vec<Held>,
        changes: &[Change],
        active: usize,
        numbers: Numbers,
    ) -> Vec<Held> {
        list.truncate(active);
        let range = i64::from(numbers.range);
        let mut predicted = i64::from(numbers.current);
        for (at, change) in changes.iter().enumerate().take(active) {
            let by = |difference: u32| i64::from(difference) + 1;
            let found = match *change {
                Change::Subtract(difference) => {
                    predicted = (predicted - by(difference)).rem_euclid(range);
                    self.numbered(predicted, numbers)
                }
                Change::Add(difference) => {
                    predicted = (predicted + by(difference)).rem_euclid(range);
                    self.numbered(predicted, numbers)
                }
                Change::LongTermRef(index) => {
                    self.long().find(|held| held.long_term == Some(index))
                }
                Change::SubtractViewIdx(_) | Change::AddViewIdx(_) => None,
            };
            // A missing one was lost before it came here.
            let named = found.unwrap_or(Held { came: false, ..Held::new(0, u32::MAX, i64::MIN) });
            list.insert(at.min(list.len()), named);
            let mut place = 0;
            list.retain(|held| {
                place += 1;
                place <= at + 1 || *held != named
            });
            list.truncate(active);
        }
        list
    }

    /// The short-term picture of this number, which is first wrapped into the range of frame numbers.
    fn numbered(&self, number: i64, numbers: Numbers) -> Option<Held> {
        self.short()
            .find(|held| numbers.of_held(held).rem_euclid(i64::from(numbers.range)) == number)
    }

    fn short(&self) -> impl Iterator<Item = Held> {
        self.held.iter().filter(|held| held.long_term.is_none()).copied()
    }

    /// Long-term pictures, by their indices.
    fn long(&self) -> impl Iterator<Item = Held> {
        let mut long =
            self.held.iter().filter(|held| held.long_term.is_some()).copied().collect::<Vec<_>>();
        long.sort_by_key(|held| held.long_term);
        long.into_iter()
    }

    /// Holds a picture, whatever else is held, up to a bound.
    pub(super) fn hold(&mut self, held: Held) {
        self.last_frame_num = Some(held.frame_num);
        if self.held.len() >= MOST {
            self.held.remove(0);
        }
        self.held.push(held);
    }

    /// Makes room for one more by giving up the oldest short-term picture (section 8.2.5.3).
    fn slide(&mut self, numbers: Numbers) {
        while self.held.len() >= numbers.most {
            let oldest = (0..self.held.len())
                .filter(|&at| self.held[at].long_term.is_none())
                .min_by_key(|&at| numbers.of_held(&self.held[at]));
            self.held.remove(oldest.unwrap_or(0));
        }
        self.last_frame_num = Some(numbers.current);
    }

    pub(super) fn slide_and_hold(&mut self, held: Held, numbers: Numbers) {
        self.slide(numbers);
        self.hold(held);
    }

    /// Executes the commands of a reference picture's header (section 8.2.5.4), and holds the picture.
    /// Returns whether all counting restarts after it.
    pub(super) fn manage(
        &mut self,
        operations: &[Operation],
        mut current: Held,
        numbers: Numbers,
    ) -> bool {
        let mut begins_again = false;
        let number_of = |difference: u32| i64::from(numbers.current) - i64::from(difference) - 1;
        for operation in operations {
            match *operation {
                Operation::ShortTermUnusedForRef { difference_of_pic_nums_minus1: difference } => {
                    let number = number_of(difference);
                    self.held
                        .retain(|held| held.long_term.is_some() || numbers.of_held(held) != number);
                }
                Operation::LongTermUnusedForRef { long_term_pic_num } => {
                    self.held.retain(|held| held.long_term != Some(long_term_pic_num));
                }
                Operation::ShortTermUsedForLongTerm {
                    difference_of_pic_nums_minus1: difference,
                    long_term_frame_idx,
                } => {
                    let number = number_of(difference);
                    self.held.retain(|held| held.long_term != Some(long_term_frame_idx));
                    let found = self
                        .held
                        .iter_mut()
                        .find(|held| held.long_term.is_none() && numbers.of_held(held) == number);
                    if let Some(held) = found {
                        held.long_term = Some(long_term_frame_idx);
                    }
                }
                Operation::MaxUsedLongTermFrameRef { max_long_term_frame_idx_plus1: most } => {
                    self.held.retain(|held| held.long_term.is_none_or(|index| index < most));
                }
                Operation::AllRefPicturesUnused => {
                    self.held.clear();
                    begins_again = true;
                }
                Operation::CurrentUsedForLongTerm { long_term_frame_idx } => {
                    self.held.retain(|held| held.long_term != Some(long_term_frame_idx));
                    current.long_term = Some(long_term_frame_idx);
                }
            }
        }
        if begins_again {
            (current.frame_num, current.order) = (0, 0);
        }
        self.hold(current);
        begins_again
    }
}
