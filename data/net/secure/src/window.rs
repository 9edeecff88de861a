//! Which of the latest numbers have been seen.

/// The latest 1024 numbers, a bit each.
#[derive(Debug)]
pub struct Window {
    seen: [u64; WORDS],
    /// One above the highest seen.
    next: u64,
}

const WORDS: usize = 16;
const BITS: u64 = WORDS as u64 * 64;

/// The status of a number in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStatus {
    /// Above all seen.
    Newest,
    /// Below the highest, not seen.
    Late,
    /// It was marked.
    Seen,
    /// Too old to decide.
    Beyond,
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

impl Window {
    /// A window with no number seen.
    #[must_use]
    pub const fn new() -> Self {
        Self { seen: [0; WORDS], next: 0 }
    }

    /// The status of a number; nothing is marked.
    #[must_use]
    pub fn standing(&self, number: u64) -> SequenceStatus {
        if number >= self.next {
            SequenceStatus::Newest
        } else if self.next - number > BITS {
            SequenceStatus::Beyond
        } else if self.seen[word(number)] & bit(number) != 0 {
            SequenceStatus::Seen
        } else {
            SequenceStatus::Late
        }
    }

    /// Marks a number; returns its status before. At most 1024 bits of work.
    pub fn mark(&mut self, number: u64) -> SequenceStatus {
        let standing = self.standing(number);
        if matches!(standing, SequenceStatus::Seen | SequenceStatus::Beyond) || number == u64::MAX {
            return if number == u64::MAX { SequenceStatus::Beyond } else { standing };
        }
        if standing == SequenceStatus::Newest {
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
            use SequenceStatus::{Late, Newest, Seen};
            [Newest, Late, Seen, Seen]
        });
        assert_eq!(window.mark(5000), SequenceStatus::Newest);
        assert_eq!(
            (window.mark(3978), window.mark(3977)),
            (SequenceStatus::Late, SequenceStatus::Late)
        );
        assert_eq!(
            (window.mark(3976), window.mark(3977)),
            (SequenceStatus::Beyond, SequenceStatus::Seen)
        );
        assert_eq!(window.mark(u64::MAX), SequenceStatus::Beyond);
        assert_eq!(window.mark(5001), SequenceStatus::Newest);
    }

    #[test]
    fn it_agrees_with_a_set() {
        let (mut window, mut seen, mut state) =
            (Window::new(), std::collections::BTreeSet::new(), 7_u64);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let highest = seen.last().copied().unwrap_or(0_u64);
            let number = highest.saturating_sub(600) + (state >> 33) % 700;
            let fresh =
                matches!(window.mark(number), SequenceStatus::Newest | SequenceStatus::Late);
            assert_eq!(fresh, seen.insert(number), "{number} after {highest}");
        }
    }
}
