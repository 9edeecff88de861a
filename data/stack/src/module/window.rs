//! Which of the latest numbers have been seen.

/// The latest 1024 numbers, a bit each.
#[derive(Debug)]
pub(super) struct Window {
    seen: [u64; WORDS],
    /// One above the highest seen.
    next: u64,
}

const WORDS: usize = 16;
const BITS: u64 = WORDS as u64 * 64;

/// What a number is to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Above all seen.
    Newest,
    /// Below the highest, not seen.
    Late,
    Seen,
    /// Too old to tell.
    Beyond,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { seen: [0; WORDS], next: 0 }
    }

    pub(super) fn standing(&self, number: u64) -> Standing {
        if number >= self.next {
            Standing::Newest
        } else if self.next - number > BITS {
            Standing::Beyond
        } else if self.seen[word(number)] & bit(number) != 0 {
            Standing::Seen
        } else {
            Standing::Late
        }
    }

    /// Marks a number; says what it was before. At most 1024 bits of work.
    pub(super) fn mark(&mut self, number: u64) -> Standing {
        let standing = self.standing(number);
        if matches!(standing, Standing::Seen | Standing::Beyond) || number == u64::MAX {
            return if number == u64::MAX { Standing::Beyond } else { standing };
        }
        if standing == Standing::Newest {
            if number - self.next >= BITS {
                self.seen = [0; WORDS];
            } else {
                (self.next..number).for_each(|number| self.seen[word(number)] &= !bit(number));
            }
            self.next = number + 1;
        }
        self.seen[word(number)] |= bit(number);
        standing
    }
}

const fn word(number: u64) -> usize {
    (number / 64) as usize % WORDS
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_counts_once() {
        let mut window = Window::new();
        assert_eq!([5, 3, 5, 3].map(|n| window.mark(n)), {
            use Standing::{Late, Newest, Seen};
            [Newest, Late, Seen, Seen]
        });
        assert_eq!(window.mark(5000), Standing::Newest);
        assert_eq!((window.mark(3978), window.mark(3977)), (Standing::Late, Standing::Late));
        assert_eq!((window.mark(3976), window.mark(3977)), (Standing::Beyond, Standing::Seen));
        assert_eq!(window.mark(u64::MAX), Standing::Beyond);
        assert_eq!(window.mark(5001), Standing::Newest);
    }

    #[test]
    fn it_agrees_with_a_set() {
        let (mut window, mut seen, mut state) =
            (Window::new(), std::collections::BTreeSet::new(), 7_u64);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let highest = seen.last().copied().unwrap_or(0_u64);
            let number = highest.saturating_sub(600) + (state >> 33) % 700;
            let fresh = matches!(window.mark(number), Standing::Newest | Standing::Late);
            assert_eq!(fresh, seen.insert(number), "{number} after {highest}");
        }
    }
}
