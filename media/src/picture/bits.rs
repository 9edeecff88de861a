//! Reads the fields of headers, the highest bit first, for the readers of H.265, VP9, AV1, of the payload
//! descriptors of VP8 and VP9, and of the RTP dependency descriptor. Every call returns `None` past the end.

/// Bytes, and how many of their bits have been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    /// A number of `width` bits, 32 at most.
    pub(crate) fn number(&mut self, width: u32) -> Option<u32> {
        debug_assert!(width <= u32::BITS);
        (0..width).try_fold(0, |value: u32, _| Some(value << 1 | u32::from(self.flag()?)))
    }

    pub(crate) fn skip(&mut self, bits: usize) -> Option<()> {
        let at = self.at.checked_add(bits)?;
        (at <= self.bytes.len() * 8).then(|| self.at = at)
    }

    /// The bytes of which no bit has been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at.div_ceil(8)..]
    }

    /// An Exp-Golomb number without sign, `ue(v)` in H.265 and `uvlc()` in AV1.
    pub(crate) fn golomb(&mut self) -> Option<u32> {
        let mut width = 0;
        while !self.flag()? {
            width += 1;
            if width == u32::BITS {
                return None;
            }
        }
        Some((1 << width) - 1 + self.number(width)?)
    }

    /// Skips this number of Exp-Golomb numbers; signed ones have the same form.
    pub(crate) fn skip_golomb(&mut self, count: u32) -> Option<()> {
        (0..count).try_for_each(|_| self.golomb().map(drop))
    }

    /// A number below `range`, which is more than 0: `ns(n)` in AV1.
    pub(crate) fn below(&mut self, range: u16) -> Option<u32> {
        let range = u32::from(range);
        let width = u32::BITS - range.leading_zeros();
        let short = (1 << width) - range;
        let value = self.number(width.checked_sub(1)?)?;
        if value < short {
            return Some(value);
        }
        Some((value << 1) - short + u32::from(self.flag()?))
    }
}

/// Bits that distinguish `count` values: `Ceil(Log2(count))`.
pub(crate) const fn width_of(count: u32) -> u32 {
    match count {
        0 | 1 => 0,
        _ => u32::BITS - (count - 1).leading_zeros(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_form_is_read() {
        // 1, 010, 011, 00100, then four bits of 9.
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_1001]);
        assert_eq!([(); 4].map(|()| bits.golomb()), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!((bits.number(4), bits.flag()), (Some(9), None));
        // Of five values 0 to 2 take two bits, 3 and 4 take three.
        let mut bits = Bits::new(&[0b0001_1011, 0b1000_0000]);
        assert_eq!([(); 4].map(|()| bits.below(5)), [Some(0), Some(1), Some(2), Some(4)]);
        assert_eq!([0, 1, 2, 3, 4, 5, 64].map(width_of), [0, 0, 1, 2, 2, 3, 6]);
    }

    #[test]
    fn nothing_stands_behind_the_end() {
        let mut bits = Bits::new(&[0; 3]);
        assert_eq!((bits.golomb(), bits.skip(1)), (None, None));
        assert_eq!(Bits::new(&[0; 3]).skip(usize::MAX), None);
        assert_eq!(Bits::new(&[0; 3]).skip(24), Some(()));
        assert_eq!(Bits::new(&[0; 8]).golomb(), None);
    }

    proptest! {
        #[test]
        fn a_number_below_a_range_is_below_it(bytes: [u8; 5], range in 1..=u16::MAX) {
            prop_assert!(Bits::new(&bytes).below(range).is_some_and(|value| value < u32::from(range)));
        }
    }
}
