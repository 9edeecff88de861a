//! Processing elements by number, and sets of them.

use core::fmt;

/// A processing element: a processor that serves modules (the paper's p). 0 ..= 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId(pub u8);

impl fmt::Display for ElementId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PE.{}", self.0)
    }
}

/// A set of elements, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ElementSet(pub u64);

impl ElementSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// The largest number of elements.
    pub const MAX: usize = 64;

    /// The set of this element. Numbers above 63 give the empty set.
    #[must_use]
    pub const fn only(element: ElementId) -> Self {
        if (element.0 as usize) < Self::MAX { Self(1 << element.0) } else { Self(0) }
    }

    /// The set of the first `count` elements, at most 64.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count >= Self::MAX { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// The number of elements in the set.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0.count_ones() as u64
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains this element.
    #[must_use]
    pub const fn has(self, element: ElementId) -> bool {
        (element.0 as usize) < Self::MAX && self.0 & (1 << element.0) != 0
    }

    /// The set with this element added.
    #[must_use]
    pub const fn with(self, element: ElementId) -> Self {
        Self(self.0 | Self::only(element).0)
    }

    /// The elements in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The elements in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The elements of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The elements of the set, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = ElementId> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let next = (rest != 0).then(|| ElementId(rest.trailing_zeros() as u8));
            rest &= rest.wrapping_sub(1);
            next
        })
    }
}

impl FromIterator<ElementId> for ElementSet {
    fn from_iter<I: IntoIterator<Item = ElementId>>(elements: I) -> Self {
        elements.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Display for ElementSet {
    /// As the paper prints it: `PE.1,2`; `-` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        for (n, element) in self.iter().enumerate() {
            let before = if n == 0 { "PE." } else { "," };
            write!(f, "{before}{}", element.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets() {
        let set: ElementSet = [ElementId(1), ElementId(3), ElementId(63)].into_iter().collect();
        assert_eq!((set.count(), set.has(ElementId(3)), set.has(ElementId(2))), (3, true, false));
        assert_eq!(set.without(ElementSet::only(ElementId(3))).to_string(), "PE.1,63");
        assert_eq!(set.and(ElementSet::first(4)).iter().count(), 2);
        assert_eq!(ElementSet::EMPTY.to_string(), "-");
        assert!(ElementSet::only(ElementId(64)).is_empty() && !set.has(ElementId(200)));
        assert_eq!(ElementSet::first(64).count(), 64);
    }
}
