//! VP8 (RFC 6386): which frames a frame needs, from the first partition's header (sections 9.1 to 9.11).
//!
//! Units come from the framing in decoding order, one frame each, hidden ones too. Which of the three
//! buffers a frame predicts from is stated only per macroblock: all three count as referenced. Other
//! state that the decoder carries from frame to frame (probabilities, segments, filter deltas) counts
//! as well.

use selvedge_data_stream::Kind;

use super::slots::Slots;
use super::{Picture, PictureReader};

const LAST: usize = 0;
const GOLDEN: usize = 1;
const ALTERNATE: usize = 2;

/// Follows the frames of one stream.
#[derive(Debug, Default)]
pub struct Vp8Reader {
    /// The three buffers; then probabilities, segments, filter deltas.
    slots: Slots<6>,
    /// Number of the next unit.
    next: u64,
}

/// The fields of a frame's header that matter to other frames.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    is_key: bool,
    /// Slots that it reads and that it writes.
    reads: [bool; 6],
    writes: u32,
    /// 1 for the last frame, 2 for the other one of the two.
    copy_to_golden: u32,
    copy_to_alternate: u32,
}

impl PictureReader for Vp8Reader {
    fn push(&mut self, unit: &[u8]) -> Option<Picture> {
        let number = self.next;
        self.next += 1;
        let header = header(unit)?;
        let reads = (0..6).filter(|&slot| header.reads[slot]);
        let refs = self.slots.references(reads, number);
        let before = self.slots;
        for (copied, to, other) in [
            (header.copy_to_golden, GOLDEN, ALTERNATE),
            (header.copy_to_alternate, ALTERNATE, GOLDEN),
        ] {
            match copied {
                1 => self.slots.copy(&before, LAST, to),
                2 => self.slots.copy(&before, other, to),
                _ => {}
            }
        }
        self.slots.write(header.writes, number);
        let kind = if header.is_key { Kind::Intra } else { Kind::Predicted };
        let copies = header.copy_to_golden | header.copy_to_alternate != 0;
        let referenced = copies || header.writes != 0;
        Some(Picture { kind, referenced, closes: header.is_key, refs: Some(refs) })
    }

    fn restart(&mut self) {
        self.slots = Slots::default();
    }
}

fn header(unit: &[u8]) -> Option<Header> {
    let (tag, rest) = unit.split_first_chunk::<3>()?;
    let is_key = tag[0] & 1 == 0;
    let partition = match (is_key, rest) {
        (true, [0x9d, 0x01, 0x2a, _, _, _, _, partition @ ..]) => partition,
        (true, _) => return None,
        (false, partition) => partition,
    };
    let mut bits = BoolDecoder::new(partition);
    if is_key {
        // Colour space, clamping.
        bits.number(2);
    }
    let (segments, updates_segments) = segmentation(&mut bits);
    // Filter type, level, sharpness.
    bits.number(1 + 6 + 3);
    let filter_deltas = bits.flag();
    let updates_deltas = filter_deltas && bits.flag();
    if updates_deltas {
        (0..8).for_each(|_| bits.skip_optional(6 + 1));
    }
    // Partitions; the quantizer's index and five differences to it.
    bits.number(2 + 7);
    (0..5).for_each(|_| bits.skip_optional(4 + 1));
    let mut header = Header { is_key, ..Header::default() };
    if is_key {
        // All state restarts; afterwards the decoder's state is this frame's.
        header.writes = 0b11_1111;
        return Some(header);
    }
    header.reads = [true, true, true, true, segments, filter_deltas];
    let (golden, alternate) = (bits.flag(), bits.flag());
    if !golden {
        header.copy_to_golden = bits.number(2);
    }
    if !alternate {
        header.copy_to_alternate = bits.number(2);
    }
    // Sign biases.
    bits.number(2);
    let (probabilities, last) = (bits.flag(), bits.flag());
    let written = [last, golden, alternate, probabilities, updates_segments, updates_deltas];
    header.writes = (0..).zip(written).map(|(slot, written)| u32::from(written) << slot).sum();
    Some(header)
}

/// Whether segments are used, and whether they change.
fn segmentation(bits: &mut BoolDecoder<'_>) -> (bool, bool) {
    if !bits.flag() {
        return (false, false);
    }
    let (map, data) = (bits.flag(), bits.flag());
    if data {
        bits.flag();
        (0..4).for_each(|_| bits.skip_optional(7 + 1));
        (0..4).for_each(|_| bits.skip_optional(6 + 1));
    }
    if map {
        (0..3).for_each(|_| bits.skip_optional(8));
    }
    (true, map || data)
}

/// Reads flags of even probability (section 7). Past the end it reads zeros, as the format requires.
struct BoolDecoder<'a> {
    rest: core::slice::Iter<'a, u8>,
    value: u32,
    range: u32,
    /// Bits of `value` that are left of its lower byte.
    left: u32,
}

impl<'a> BoolDecoder<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut rest = bytes.iter();
        let mut byte = || u32::from(rest.next().copied().unwrap_or(0));
        let value = byte() << 8 | byte();
        Self { rest, value, range: 255, left: 8 }
    }

    fn flag(&mut self) -> bool {
        let split = 1 + ((self.range - 1) >> 1);
        let set = self.value >= split << 8;
        if set {
            self.range -= split;
            self.value -= split << 8;
        } else {
            self.range = split;
        }
        while self.range < 128 {
            self.value <<= 1;
            self.range <<= 1;
            self.left -= 1;
            if self.left == 0 {
                self.value |= u32::from(self.rest.next().copied().unwrap_or(0));
                self.left = 8;
            }
        }
        set
    }

    fn number(&mut self, width: u32) -> u32 {
        (0..width).fold(0, |value, _| value << 1 | u32::from(self.flag()))
    }

    /// Skips a value of `width` bits after a flag that states whether it is there.
    fn skip_optional(&mut self, width: u32) {
        if self.flag() {
            self.number(width);
        }
    }
}
