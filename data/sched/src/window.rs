//! The current window `x'/y'` of a stream: rules a and b, and its fraction as one integer.
//!
//! Driven by the scheduler when a frame is served or missed; read by the disciplines. The rules
//! are those of section 2.4.1 of the Q-Fabric paper. `y'` saturates at 65535, the width of
//! [`Window::of`]; a violation at that point is still counted.

use selvedge_stream::{Kind, Window, Windows};

/// A window as declared, and where the stream stands in it.
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
        if self.current == Window::NONE {
            self.current = self.declared;
        }
    }

    /// Rule a: a frame was served.
    pub(crate) fn serve(&mut self) {
        let Window { lose, of } = &mut self.current;
        if *of > *lose {
            *of -= 1;
        } else if *lose > 0 {
            *of -= 1;
            *lose -= 1;
        }
        self.restore_if_spent();
    }

    /// Rule b: a frame missed its deadline. True if that is a violation.
    pub(crate) fn miss(&mut self) -> bool {
        if !self.declared.is_some() {
            return true;
        }
        let Window { lose, of } = &mut self.current;
        let violation = *lose == 0;
        if violation {
            *of = of.saturating_add(1);
        } else {
            *lose -= 1;
            *of -= 1;
            self.restore_if_spent();
        }
        violation
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

    /// As many of these misses as the current window can lose; how many they were.
    fn spend(&mut self, misses: u64) -> u64 {
        let lost = u16::try_from(misses).unwrap_or(u16::MAX).min(self.current.lose);
        self.current.lose -= lost;
        self.current.of -= lost;
        self.restore_if_spent();
        u64::from(lost)
    }
}

/// The windows of one stream, and where it stands in them: one for all kinds, or one for each.
/// A copy can be run ahead, to see where the frames that still wait will find the windows.
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

    /// The current window `x'/y'` that a frame of this kind is counted in.
    #[must_use]
    pub const fn current(&self, kind: Kind) -> Window {
        self.of(kind).current()
    }

    /// Rule a for a frame of this kind.
    pub fn serve(&mut self, kind: Kind) {
        self.of_mut(kind).serve();
    }

    /// Rule b for a frame of this kind; true if its loss is a violation.
    pub fn miss(&mut self, kind: Kind) -> bool {
        self.of_mut(kind).miss()
    }

    /// Where the stream stands in the window of this kind; it has one window for all kinds if
    /// `per_kind` is false.
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

    /// Takes over new windows; those that differ from before start anew, the others go on.
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
#[inline]
pub(crate) const fn tightness(window: Window) -> u64 {
    // Of those with x' = 0 the fraction's place holds at most 65535, which is below the others.
    let fraction = if window.lose == 0 { (u16::MAX - window.of) as u32 } else { fraction(window) };
    (fraction as u64) << 16 | window.lose as u64
}

/// `x'/y'` as an integer in the same order: fractions compare as these do, equal ones equal.
///
/// It is `x' (2^32 - 1) / y'`, rounded down. Two different fractions with terms of 16 bits lie at
/// least `1 / (65535 * 65534)` apart, which is more than `1 / (2^32 - 1)`: so their scaled values
/// lie more than 1 apart, and rounding cannot make them equal. `x' = 0` is 0, and only that: the
/// least of the others, `1/65535`, is 65537.
#[inline]
const fn fraction(window: Window) -> u32 {
    if window.lose == 0 {
        return 0;
    }
    let scaled = window.lose as u64 * u32::MAX as u64;
    if let Some(&reciprocal) = RECIPROCALS.get_at(window.of) {
        // Exact: the reciprocal is too large by less than y'/2^64 of itself, and the product of
        // less than 2^48, so the quotient's excess is below 2^-16 < 1/y'.
        return ((scaled as u128 * reciprocal as u128) >> 64) as u32;
    }
    // At most 2^32 - 1, because x' <= y'.
    (scaled / window.of as u64) as u32
}

/// `2^64 / y'`, rounded up, for the windows in common use: a division costs several
/// multiplications.
static RECIPROCALS: Reciprocals = Reciprocals::new();

struct Reciprocals([u64; 256]);

impl Reciprocals {
    const fn new() -> Self {
        let mut table = [0; 256];
        // 2^64 / 1 has no room: windows of one frame take the division.
        let mut of = 2;
        while of < table.len() {
            table[of] = u64::MAX / of as u64 + 1;
            of += 1;
        }
        Self(table)
    }

    const fn get_at(&self, of: u16) -> Option<&u64> {
        if of >= 2 && (of as usize) < self.0.len() { Some(&self.0[of as usize]) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cmp::Ordering;
    use proptest::prelude::*;

    fn after(declared: (u16, u16), story: &str) -> (u16, u16) {
        let mut progress = Progress::new(Window::new(declared.0, declared.1).unwrap());
        for step in story.chars() {
            match step {
                's' => progress.serve(),
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
        // The closest pairs that there are: x/65535 and its neighbours over 65534.
        for x in 1..u16::MAX {
            let near = fraction(Window { lose: x, of: 65535 });
            assert!(near < fraction(Window { lose: x, of: 65534 }));
            assert!(near > fraction(Window { lose: x - 1, of: 65534 }));
        }
        assert_eq!(fraction(Window { lose: 65535, of: 65535 }), u32::MAX);
    }

    fn window() -> impl Strategy<Value = Window> {
        let of = prop_oneof![1..=4_u16, 1..=u16::MAX, 65000..=u16::MAX];
        of.prop_flat_map(|of| (prop_oneof![0..=of.min(3), 0..=of], Just(of)))
            .prop_map(|(lose, of)| Window { lose, of })
    }

    proptest! {
        #[test]
        fn fractions_order_as_cross_multiplication(a in window(), b in window()) {
            let left = u32::from(a.lose) * u32::from(b.of);
            let right = u32::from(b.lose) * u32::from(a.of);
            let exact: Ordering = left.cmp(&right);
            prop_assert_eq!(fraction(a).cmp(&fraction(b)), exact);
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
            (0..served).for_each(|_| step.serve());
            let mut leap = step;
            let violations = (0..misses).filter(|_| step.miss()).count() as u64;
            prop_assert_eq!(leap.miss_times(misses), violations);
            prop_assert_eq!(leap, step);
        }
    }
}
