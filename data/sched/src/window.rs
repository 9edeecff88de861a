//! The current window `x'/y'` of a stream: rules a and b, and its fraction as one integer.
//!
//! The scheduler updates it when a frame is served or missed; the disciplines read it. The rules are those of
//! section 2.4.1 of the Q-Fabric paper. `y'` saturates at 65535, the width of [`Window::of`]; a violation at
//! that point is still counted.

use core::hint::select_unpredictable;

use selvedge_data_stream::{Kind, Window, Windows};

/// A window as declared, and its current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    declared: Window,
    current: Window,
}

impl Progress {
    pub(crate) const fn new(declared: Window) -> Self {
        Self { declared, current: declared }
    }

    pub(crate) const fn current(&self) -> Window {
        self.current
    }

    fn restore_if_spent(&mut self) {
        // `x'` is at most `y'`: both are 0.
        let spent = self.current.of == 0;
        self.current.lose = select_unpredictable(spent, self.declared.lose, self.current.lose);
        self.current.of = select_unpredictable(spent, self.declared.of, self.current.of);
    }

    /// Rule a: a frame was served. `y'` decreases by 1 if it can, and `x'` with it if they were equal. There
    /// are no branches, since the next case is hard to predict.
    #[inline]
    pub(crate) fn apply_rule_a(&mut self) {
        self.current.of = self.current.of.saturating_sub(1);
        self.current.lose = self.current.lose.min(self.current.of);
        self.restore_if_spent();
    }

    /// Rule a, `frames` times over, in constant time.
    pub(crate) fn serve_times(&mut self, mut frames: u32) {
        let whole = u32::from(self.current.of);
        if frames >= whole {
            // Spent, and restored for each whole window behind it.
            self.current = self.declared;
            frames = (frames - whole) % u32::from(self.declared.of).max(1);
        }
        self.current.of = self.current.of.saturating_sub(frames as u16);
        self.current.lose = self.current.lose.min(self.current.of);
    }

    /// Rule b: a frame missed its deadline. True if that is a violation.
    pub(crate) fn miss(&mut self) -> bool {
        if !self.declared.is_some() {
            return true;
        }
        // Without branches: a miss is as hard to predict as a service.
        let Window { lose, of } = self.current;
        let violation = lose == 0;
        self.current.lose = lose.saturating_sub(1);
        self.current.of = select_unpredictable(violation, of.saturating_add(1), of.wrapping_sub(1));
        self.restore_if_spent();
        violation
    }

    /// Rule b if the frame `missed`, else rule a; true if that is a violation. Without branches, and `missed`
    /// is needed last: both results are computed while it is being determined.
    #[inline(always)]
    pub(crate) fn apply_rules(&mut self, missed: bool) -> bool {
        let Window { lose, of } = self.current;
        let none = lose == 0;
        // Except for a violation `y'` decreases under both rules. Where there is no window it stays 0.
        let down = of.saturating_sub(1);
        let grown = of.saturating_add(u16::from(self.declared.is_some()));
        let spent = down == 0;
        let served_of = select_unpredictable(spent, self.declared.of, down);
        let served_lose = select_unpredictable(spent, self.declared.lose, lose.min(down));
        let missed_of = select_unpredictable(none, grown, served_of);
        let left = lose.saturating_sub(1);
        let missed_lose = select_unpredictable(spent & !none, self.declared.lose, left);
        self.current.lose = select_unpredictable(missed, missed_lose, served_lose);
        self.current.of = select_unpredictable(missed, missed_of, served_of);
        missed & none
    }

    /// Rule b, `misses` times over, in constant time. Returns the number of violations.
    pub(crate) fn miss_times(&mut self, mut misses: u64) -> u64 {
        if !self.declared.is_some() {
            return misses;
        }
        misses -= self.spend(misses);
        if self.current == self.declared {
            // Spent and restored. A window that may lose every frame is restored for ever.
            if self.declared.lose == self.declared.of {
                misses %= u64::from(self.declared.of);
            }
            misses -= self.spend(misses);
        }
        let grown = u64::from(self.current.of).saturating_add(misses);
        self.current.of = u16::try_from(grown).unwrap_or(u16::MAX);
        misses
    }

    /// Spends as many of these misses as the current window can lose; returns their number.
    fn spend(&mut self, misses: u64) -> u64 {
        let lost = u16::try_from(misses).unwrap_or(u16::MAX).min(self.current.lose);
        self.current.lose -= lost;
        self.current.of -= lost;
        self.restore_if_spent();
        u64::from(lost)
    }
}

/// The windows of one stream and their state: one for all kinds, or one for each. A caller can compute ahead
/// with a copy, to find the windows in which waiting frames will be counted.
#[derive(Clone, Debug)]
pub struct WindowSet {
    per_kind: bool,
    /// Indexed by kind; only the first is used if there is one for all kinds.
    windows: [Progress; Kind::COUNT],
}

impl WindowSet {
    pub(crate) fn new(windows: &Windows) -> Self {
        match windows {
            Windows::Whole(window) => {
                Self { per_kind: false, windows: [Progress::new(*window); Kind::COUNT] }
            }
            Windows::PerKind(windows) => {
                Self { per_kind: true, windows: windows.map(Progress::new) }
            }
        }
    }

    /// The current window `x'/y'` in which a frame of this kind is counted.
    #[must_use]
    pub const fn current(&self, kind: Kind) -> Window {
        self.of(kind).current()
    }

    /// Rule a for a frame of this kind.
    pub fn apply_rule_a(&mut self, kind: Kind) {
        self.of_mut(kind).apply_rule_a();
    }

    /// Rule b for a frame of this kind; true if its loss is a violation.
    pub fn miss(&mut self, kind: Kind) -> bool {
        self.of_mut(kind).miss()
    }

    /// Sets the state of the window of this kind; the stream has one window for all kinds if `per_kind` is
    /// false.
    pub(crate) const fn put(&mut self, kind: Kind, progress: Progress) {
        *self.of_mut(kind) = progress;
    }

    pub(crate) const fn per_kind(&self) -> bool {
        self.per_kind
    }

    const fn slot(&self, kind: Kind) -> usize {
        if self.per_kind { kind as usize } else { 0 }
    }

    pub(crate) const fn of(&self, kind: Kind) -> &Progress {
        &self.windows[self.slot(kind)]
    }

    pub(crate) const fn of_mut(&mut self, kind: Kind) -> &mut Progress {
        &mut self.windows[self.slot(kind)]
    }

    /// Takes over new windows; changed ones start anew, the others continue.
    pub(crate) fn change(&mut self, windows: &Windows) {
        let fresh = Self::new(windows);
        if self.per_kind != fresh.per_kind {
            *self = fresh;
            return;
        }
        for (old, new) in self.windows.iter_mut().zip(fresh.windows) {
            if old.declared != new.declared {
                *old = new;
            }
        }
    }
}

/// A window as an integer, 48 bits, the tighter the lower: `x'/y'` as an exact fraction, then
/// "both 0: higher `y'`" or "equal and not 0: lower `x'`".
///
/// The fraction is `x' (2^32 - 1) / y'`, rounded down. Two different fractions with terms of 16 bits lie at
/// least `1 / (65535 * 65534)` apart, which is more than `1 / (2^32 - 1)`. So their scaled values lie more
/// than 1 apart, and rounding cannot make them equal. The least that is not 0, `1/65535`, is 65537; below it
/// there is room to put the higher `y'` first.
pub(crate) const fn tightness(window: Window) -> u64 {
    let fraction = if window.lose == 0 {
        (u16::MAX - window.of) as u64
    } else {
        // At most 2^32 - 1, because x' <= y'.
        window.lose as u64 * u32::MAX as u64 / window.of as u64
    };
    fraction << 16 | window.lose as u64
}

/// The number of bits in [`tightness_class`].
pub(crate) const CLASS_BITS: u32 = 20;

/// Classes below this belong to windows that may lose nothing.
const NONE: u64 = 4096;
const SCALE: u64 = (1 << CLASS_BITS) - 1 - NONE;

/// The tightness as far as 20 bits hold it: never out of order, but different windows may come out equal.
#[inline(always)]
pub(crate) fn tightness_class(window: Window) -> u64 {
    let nothing = window.lose == 0;
    // Streams that may lose nothing are often far behind, others hardly ever, so a branch between the two is
    // predictable.
    let of = select_unpredictable(nothing, 1, usize::from(window.of));
    let some = if of < SCALED_RECIPROCALS.len() {
        // Exact: the reciprocal is too large by less than 1, so the quotient's excess is below
        // 2^8/2^32 < 1/y'.
        (u64::from(window.lose) * SCALED_RECIPROCALS[of]) >> 32
    } else {
        u64::from(window.lose) * SCALE / of as u64
    };
    let none = (NONE - 1).saturating_sub(u64::from(window.of));
    select_unpredictable(nothing, none, NONE + some)
}

/// `2^32 SCALE / y'`, rounded up, for the windows in common use: a division costs several
/// multiplications. The first is not used.
static SCALED_RECIPROCALS: [u64; 256] = {
    let mut table = [0; 256];
    let mut of = 1;
    while of < table.len() {
        table[of] = (SCALE << 32).div_ceil(of as u64);
        of += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use core::cmp::Ordering;
    use proptest::prelude::*;

    fn after(declared: (u16, u16), story: &str) -> (u16, u16) {
        let mut progress = Progress::new(Window::new(declared.0, declared.1).unwrap());
        for step in story.chars() {
            match step {
                's' => progress.apply_rule_a(),
                _ => {
                    progress.miss();
                }
            }
        }
        (progress.current.lose, progress.current.of)
    }

    #[test]
    fn the_rules_on_paper() {
        let table = [
            ((1, 3), "s", (1, 2)),
            ((1, 3), "ss", (1, 1)),
            ((1, 3), "sss", (1, 3)),
            ((1, 3), "m", (0, 2)),
            ((1, 3), "ms", (0, 1)),
            ((1, 3), "mss", (1, 3)),
            ((1, 3), "mm", (0, 3)),
            ((2, 2), "s", (1, 1)),
            ((2, 2), "mm", (2, 2)),
            ((0, 2), "m", (0, 3)),
            ((0, 2), "msss", (0, 2)),
            ((0, 0), "sm", (0, 0)),
        ];
        for (declared, story, expected) in table {
            assert_eq!(after(declared, story), expected, "{declared:?} {story}");
        }
    }

    #[test]
    fn the_denominator_saturates_and_the_violation_counts() {
        let mut progress = Progress::new(Window { lose: 0, of: 65534 });
        assert!(progress.miss() && progress.miss() && progress.miss());
        assert_eq!(progress.current, Window { lose: 0, of: 65535 });
    }

    #[test]
    fn neighbouring_fractions_stay_apart() {
        // The closest pairs: x/65535 and its neighbours over 65534.
        for x in 1..u16::MAX {
            let near = tightness(Window { lose: x, of: 65535 });
            assert!(near < tightness(Window { lose: x, of: 65534 }));
            assert!(near > tightness(Window { lose: x - 1, of: 65534 }));
        }
        assert_eq!(tightness(Window { lose: 65535, of: 65535 }), (1 << 48) - 1);
    }

    fn window() -> impl Strategy<Value = Window> {
        let of = prop_oneof![1..=4_u16, 1..=u16::MAX, 65000..=u16::MAX];
        of.prop_flat_map(|of| (prop_oneof![0..=of.min(3), 0..=of], Just(of)))
            .prop_map(|(lose, of)| Window { lose, of })
    }

    proptest! {
        #[test]
        fn tightness_orders_as_the_rules_do(a in window(), b in window()) {
            let cross = |a: Window, b: Window| u32::from(a.lose) * u32::from(b.of);
            let by_rules = cross(a, b).cmp(&cross(b, a)).then_with(|| {
                if a.lose == 0 { b.of.cmp(&a.of) } else { a.lose.cmp(&b.lose) }
            });
            prop_assert_eq!(tightness(a).cmp(&tightness(b)), by_rules);
            let class = tightness_class(a).cmp(&tightness_class(b));
            prop_assert!(class == Ordering::Equal || class == by_rules);
            prop_assert!(tightness_class(a) < 1 << CLASS_BITS);
        }

        #[test]
        fn many_served_at_once_are_as_many_single_ones(
            declared in prop_oneof![Just(Window::NONE), window()],
            missed in 0..5_u32,
            before in 0..200_u32,
            served in prop_oneof![0..20_u32, 0..200_000_u32],
        ) {
            let mut step = Progress::new(declared);
            (0..before).for_each(|_| step.apply_rule_a());
            for _ in 0..missed {
                step.miss();
            }
            let mut leap = step;
            (0..served).for_each(|_| step.apply_rule_a());
            leap.serve_times(served);
            prop_assert_eq!(leap, step);
        }

        #[test]
        fn either_rule_without_branches_is_that_rule(
            declared in prop_oneof![Just(Window::NONE), window()],
            story in prop::collection::vec(any::<bool>(), 0..60),
        ) {
            let (mut one, mut other) = (Progress::new(declared), Progress::new(declared));
            for missed in story {
                let violation = missed && one.miss();
                if !missed {
                    one.apply_rule_a();
                }
                prop_assert_eq!(other.apply_rules(missed), violation);
                prop_assert_eq!(one, other);
            }
        }

        #[test]
        fn many_misses_at_once_are_as_many_single_ones(
            declared in prop_oneof![Just(Window::NONE), window()],
            served in 0..200_u32,
            before in 0..5_u32,
            misses in prop_oneof![0..20_u64, 0..200_000_u64],
        ) {
            let mut step = Progress::new(declared);
            for _ in 0..before {
                step.miss();
            }
            (0..served).for_each(|_| step.apply_rule_a());
            let mut leap = step;
            let violations = (0..misses).filter(|_| step.miss()).count() as u64;
            prop_assert_eq!(leap.miss_times(misses), violations);
            prop_assert_eq!(leap, step);
        }
    }
}
