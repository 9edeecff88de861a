//! Shared code of the fuzz targets: reading choices from the fuzzer's bytes.
//!
//! Choices are plain fixed-width fields in order, so that seeds can be written by hand and the
//! fuzzer's changes stay local.

/// The fuzzer's bytes, taken from the front. Past the end everything is zero.
#[derive(Debug)]
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Choices from these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything has been taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes, little-endian.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next four bytes, little-endian.
    pub fn long(&mut self) -> u32 {
        u32::from(self.word()) | u32::from(self.word()) << 16
    }

    /// The next bytes, `len` of them or all there are.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A number whose size is chosen as well: a byte shifted by 0, 4, 8, ... 60 bits.
    pub fn magnitude(&mut self) -> u64 {
        let shift = u32::from(self.byte() & 0x0f) * 4;
        u64::from(self.byte()) << shift
    }
}
