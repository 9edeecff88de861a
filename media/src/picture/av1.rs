//! AV1 (bitstream specification, sections 5.3 to 5.9 and 7.8): which pictures a temporal unit needs, from
//! its sequence and frame headers.
//!
//! Units come from the framing in decoding order, as open bitstream units in the low-overhead format. A
//! temporal unit is one picture: it has the outside references of all its frames and layers, including
//! hidden ones. A frame needs all seven that its header names; the one whose probabilities it loads
//! (`primary_ref_frame`) is one of them.

mod frame;
mod sequence;

use selvedge_data_stream::Kind;

use self::frame::{Frame, FrameType, Header};
use self::sequence::Sequence;
use super::bits::Bits;
use super::slots::Slots;
use super::{Picture, PictureReader};

/// Types of open bitstream units.
const SEQUENCE_HEADER: u32 = 1;
const FRAME_HEADER: u32 = 3;
const FRAME: u32 = 6;

/// Follows the frames of one stream.
#[derive(Debug, Default)]
pub struct Av1Reader {
    sequence: Option<Sequence>,
    slots: Slots<8>,
    /// For each slot whether its frame is a key frame, and its place in display order.
    is_key: [bool; 8],
    orders: [u32; 8],
    /// Number of the next unit.
    next: u64,
}

/// One open bitstream unit.
#[derive(Clone, Copy, Debug)]
struct Obu<'a> {
    obu_type: u32,
    layer: Layer,
    body: &'a [u8],
}

/// The layer that a frame is of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layer {
    pub(super) temporal: u32,
    pub(super) spatial: u32,
}

impl PictureReader for Av1Reader {
    fn push(&mut self, unit: &[u8]) -> Option<Picture> {
        let number = self.next;
        self.next += 1;
        let mut whole: Option<Picture> = None;
        let mut rest = unit;
        while let Some((obu, behind)) = obu(rest) {
            rest = behind;
            match obu.obu_type {
                SEQUENCE_HEADER => self.sequence = Sequence::read(&mut Bits::new(obu.body)),
                FRAME_HEADER | FRAME => {
                    let sequence = self.sequence.as_ref()?;
                    let header = frame::header(obu.body, sequence, obu.layer, &self.orders)?;
                    let part = self.frame(header, number);
                    whole = Some(whole.map_or(part, |first| first.joined(part)));
                }
                _ => {}
            }
        }
        whole
    }

    fn restart(&mut self) {
        let (sequence, next) = (self.sequence.take(), self.next);
        *self = Self { sequence, next, ..Self::default() };
    }
}

impl Av1Reader {
    fn frame(&mut self, header: Header, number: u64) -> Picture {
        let frame = match header {
            Header::Coded(frame) => frame,
            Header::Existing(slot) => return self.existing(slot, number),
        };
        for (slot, order) in (0..).zip(frame.orders) {
            // The encoder announces that it continues without the old frame.
            if order.is_some_and(|order| order != self.orders[slot]) {
                self.slots.clear(slot);
                self.orders[slot] = order.unwrap_or_default();
            }
        }
        let refs = self.slots.references(frame.from.into_iter().flatten(), number);
        let is_key = frame.frame_type == FrameType::Key;
        self.write(&frame, is_key, number);
        Picture {
            kind: if frame.from.is_some() { Kind::Predicted } else { Kind::Intra },
            referenced: frame.refreshed != 0,
            closes: is_key && frame.is_shown,
            refs: Some(refs),
        }
    }

    fn write(&mut self, frame: &Frame, is_key: bool, number: u64) {
        self.slots.write(frame.refreshed, number);
        for slot in (0..8).filter(|slot| frame.refreshed >> slot & 1 == 1) {
            (self.orders[slot], self.is_key[slot]) = (frame.order, is_key);
        }
    }

    /// A frame of a slot is shown; a key frame then takes all other slots (section 7.21).
    fn existing(&mut self, slot: usize, number: u64) -> Picture {
        let refs = Some(self.slots.references([slot], number));
        let referenced = self.is_key[slot];
        if referenced {
            self.slots.write(u32::MAX, number);
            (self.is_key, self.orders) = ([true; 8], [self.orders[slot]; 8]);
        }
        Picture { kind: Kind::Predicted, referenced, closes: false, refs }
    }
}

/// The first unit of these bytes, and the rest.
fn obu(bytes: &[u8]) -> Option<(Obu<'_>, &[u8])> {
    let (&head, mut rest) = bytes.split_first()?;
    let mut layer = Layer::default();
    if head & 0x04 != 0 {
        let (&extension, behind) = rest.split_first()?;
        layer =
            Layer { temporal: u32::from(extension >> 5), spatial: u32::from(extension >> 3 & 3) };
        rest = behind;
    }
    let mut size = rest.len();
    if head & 0x02 != 0 {
        (size, rest) = leb128(rest)?;
    }
    let (body, behind) = rest.split_at_checked(size)?;
    Some((Obu { obu_type: u32::from(head >> 3 & 0x0f), layer, body }, behind))
}

/// A number in groups of seven bits, the lowest first, of eight bytes at most.
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let len = bytes.iter().take(8).position(|byte| byte & 0x80 == 0)? + 1;
    let (number, rest) = bytes.split_at(len);
    let value = number.iter().rev().fold(0_u64, |value, &byte| value << 7 | u64::from(byte & 0x7f));
    Some((usize::try_from(value).ok()?, rest))
}
