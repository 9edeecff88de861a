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
pub(crate) const SEQUENCE_HEADER: u8 = 1;
pub(crate) const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const FRAME: u8 = 6;
/// Bits of a unit's header: it has an extension, it has a size.
pub(crate) const HAS_EXTENSION: u8 = 0x04;
pub(crate) const HAS_SIZE: u8 = 0x02;

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
pub(crate) struct Obu<'a> {
    pub(crate) head: u8,
    /// The byte with its layer, if there is one.
    pub(crate) extension: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// The layer that a frame is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    pub(super) temporal: u32,
    pub(super) spatial: u32,
}

impl PictureReader for Av1Reader {
    fn push(&mut self, unit: &[u8]) -> Option<Picture> {
        let number = self.next;
        self.next += 1;
        let mut whole: Option<Picture> = None;
        for obu in obus(unit) {
            match obu_type(obu.head) {
                SEQUENCE_HEADER => self.sequence = Sequence::read(&mut Bits::new(obu.body)),
                FRAME_HEADER | FRAME => {
                    let sequence = self.sequence.as_ref()?;
                    let header = frame::header(obu.body, sequence, obu.layer(), &self.orders)?;
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

impl Obu<'_> {
    fn layer(&self) -> Layer {
        let byte = self.extension.first().map_or(0, |&byte| u32::from(byte));
        Layer { temporal: byte >> 5, spatial: byte >> 3 & 3 }
    }
}

/// The type of a unit, from its first byte.
pub(crate) const fn obu_type(head: u8) -> u8 {
    head >> 3 & 0x0f
}

/// The units of these bytes, up to the first invalid one.
pub(crate) fn obus(bytes: &[u8]) -> impl Iterator<Item = Obu<'_>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (&head, behind) = rest.split_first()?;
        let extension_len = usize::from(head & HAS_EXTENSION != 0);
        let (extension, behind) = behind.split_at_checked(extension_len)?;
        let has_size = head & HAS_SIZE != 0;
        let (size, behind) = if has_size { leb128(behind)? } else { (behind.len(), behind) };
        let (body, behind) = behind.split_at_checked(size)?;
        rest = behind;
        Some(Obu { head, extension, body })
    })
}

/// Appends a number in groups of seven bits, the lowest first.
pub(crate) fn push_leb128(mut value: usize, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A number in groups of seven bits, the lowest first, of eight bytes at most.
pub(crate) fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let len = bytes.iter().take(8).position(|byte| byte & 0x80 == 0)? + 1;
    let (number, rest) = bytes.split_at(len);
    let value = number.iter().rev().fold(0_u64, |value, &byte| value << 7 | u64::from(byte & 0x7f));
    Some((usize::try_from(value).ok()?, rest))
}
