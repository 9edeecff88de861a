//! VP9 (bitstream specification, sections 6.2 and 7.2, Annex B): which pictures a unit needs, from the
//! uncompressed headers of its frames.
//!
//! Units come from the framing in decoding order. One unit is one picture: a superframe has the outside
//! references of all its frames and layers, including hidden ones. Beside the three frames that its
//! header names, a frame needs the frame that left the probabilities that it loads. Unless it is
//! resilient to errors, it also needs the frame just before it, whose motion vectors and segments it
//! continues.

use selvedge_data_stream::Kind;

use super::bits::Bits;
use super::slots::Slots;
use super::{Picture, PictureReader};

const SYNC_CODE: u32 = 0x49_8342;
/// `color_space` of RGB.
const RGB: u32 = 7;
/// Slots of the frame buffers.
const ALL: u32 = 0xff;
/// Slots of probability contexts.
const CONTEXTS: u32 = 0x0f;

/// Follows the frames of one stream.
#[derive(Debug, Default)]
pub struct Vp9Reader {
    frames: Slots<8>,
    contexts: Slots<4>,
    /// The frame before, in its only slot.
    previous: Slots<1>,
    /// Number of the next unit.
    next: u64,
}

/// The fields of a frame's header that matter to other frames.
#[derive(Clone, Copy, Debug)]
enum Header {
    /// A frame of a slot is shown once more.
    Existing(usize),
    Coded(CodedFrame),
}

#[derive(Clone, Copy, Debug)]
struct CodedFrame {
    kind: Kind,
    is_key: bool,
    is_resilient: bool,
    /// Which contexts are set to their defaults: `reset_frame_context`.
    reset: u32,
    context: usize,
    saves_context: bool,
    refreshed: u32,
    /// Slots of the frames that it predicts from.
    from: Option<[usize; 3]>,
}

impl PictureReader for Vp9Reader {
    fn push(&mut self, unit: &[u8]) -> Option<Picture> {
        let number = self.next;
        self.next += 1;
        let mut whole: Option<Picture> = None;
        for frame in frames(unit) {
            let part = self.frame(header(frame)?, number);
            whole = Some(whole.map_or(part, |first| first.joined(part)));
        }
        whole
    }

    fn restart(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }
}

impl Vp9Reader {
    fn frame(&mut self, header: Header, number: u64) -> Picture {
        let frame = match header {
            Header::Coded(frame) => frame,
            Header::Existing(slot) => {
                let refs = Some(self.frames.references([slot], number));
                // Whether the frame before was hidden decides whether its vectors are used.
                self.previous.write(1, number);
                return Picture { kind: Kind::Predicted, referenced: true, closes: false, refs };
            }
        };
        if frame.from.is_none() || frame.is_resilient {
            let defaults = match frame.reset {
                _ if frame.is_key || frame.is_resilient => CONTEXTS,
                2 => 1 << frame.context,
                3 => CONTEXTS,
                _ => 0,
            };
            self.contexts.write(defaults, number);
        }
        // Where all other state restarts, the first context is used.
        let context = if frame.from.is_none() || frame.is_resilient { 0 } else { frame.context };
        let mut refs = self.contexts.references([context], number);
        if let Some(from) = frame.from {
            refs =
                from.iter().fold(refs, |refs, &slot| refs.with(self.frames.distance(slot, number)));
            if !frame.is_resilient {
                refs = refs.with(self.previous.distance(0, number));
            }
        }
        self.contexts.write(u32::from(frame.saves_context) << context, number);
        self.frames.write(frame.refreshed, number);
        self.previous.write(1, number);
        // A frame that continues the one before is likely to be continued itself.
        let referenced = frame.refreshed != 0 || frame.saves_context || !frame.is_resilient;
        Picture { kind: frame.kind, referenced, closes: frame.is_key, refs: Some(refs) }
    }
}

/// The frames of a unit, which is a superframe if an index stands at its end (Annex B).
fn frames(unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    let index = superframe_index(unit);
    let (mut sizes, width) = index.unwrap_or_default();
    let mut rest = unit;
    let mut whole = index.is_none().then_some(unit);
    core::iter::from_fn(move || {
        if let Some(unit) = whole.take() {
            return Some(unit);
        }
        let (size, behind) = sizes.split_at_checked(width).filter(|_| width > 0)?;
        sizes = behind;
        let size = size.iter().rev().fold(0, |value: usize, &byte| value << 8 | usize::from(byte));
        let (frame, behind) = rest.split_at_checked(size)?;
        rest = behind;
        Some(frame)
    })
    .filter(|frame| !frame.is_empty())
}

/// The sizes of a superframe's frames, and of how many bytes each is.
fn superframe_index(unit: &[u8]) -> Option<(&[u8], usize)> {
    let (&marker, body) = unit.split_last()?;
    if marker & 0xe0 != 0xc0 {
        return None;
    }
    let (count, width) = (usize::from(marker & 7) + 1, usize::from(marker >> 3 & 3) + 1);
    let index = body.get(body.len().checked_sub(count * width + 1)?..)?;
    let (first, sizes) = index.split_first()?;
    (*first == marker).then_some((sizes, width))
}

fn header(frame: &[u8]) -> Option<Header> {
    let mut bits = Bits::new(frame);
    if bits.number(2)? != 2 {
        return None;
    }
    let profile = u32::from(bits.flag()?) | u32::from(bits.flag()?) << 1;
    if profile == 3 {
        bits.skip(1)?;
    }
    if bits.flag()? {
        return Some(Header::Existing(bits.number(3)? as usize));
    }
    let is_key = !bits.flag()?;
    let (is_shown, is_resilient) = (bits.flag()?, bits.flag()?);
    let is_intra = is_key || !is_shown && bits.flag()?;
    let reset = if is_key || is_resilient { 0 } else { bits.number(2)? };
    if is_intra && bits.number(24)? != SYNC_CODE {
        return None;
    }
    if is_key || is_intra && profile > 0 {
        color_config(&mut bits, profile)?;
    }
    let refreshed = if is_key { ALL } else { bits.number(8)? };
    let mut from = None;
    if is_intra {
        bits.skip(32)?;
        render_size(&mut bits)?;
    } else {
        from = Some(inter_references(&mut bits)?);
    }
    let (saves_context, _parallel) =
        if is_resilient { (false, true) } else { (bits.flag()?, bits.flag()?) };
    let context = bits.number(2)? as usize;
    let kind = if is_intra { Kind::Intra } else { Kind::Predicted };
    let frame =
        CodedFrame { kind, is_key, is_resilient, reset, context, saves_context, refreshed, from };
    Some(Header::Coded(frame))
}

fn color_config(bits: &mut Bits<'_>, profile: u32) -> Option<()> {
    if profile >= 2 {
        bits.skip(1)?;
    }
    let is_rgb = bits.number(3)? == RGB;
    let has_subsampling = profile & 1 == 1;
    // Range, two kinds of subsampling, a reserved bit; RGB has only the last.
    bits.skip(usize::from(!is_rgb) + if has_subsampling { if is_rgb { 1 } else { 3 } } else { 0 })
}

fn render_size(bits: &mut Bits<'_>) -> Option<()> {
    if bits.flag()? { bits.skip(32) } else { Some(()) }
}

/// The slots of the three references; skips to the fields after sizes and filter.
fn inter_references(bits: &mut Bits<'_>) -> Option<[usize; 3]> {
    let mut from = [0; 3];
    for slot in &mut from {
        *slot = bits.number(3)? as usize;
        bits.skip(1)?;
    }
    let mut has_size = false;
    for _ in from {
        has_size = bits.flag()?;
        if has_size {
            break;
        }
    }
    if !has_size {
        bits.skip(32)?;
    }
    render_size(bits)?;
    // Precision of vectors.
    bits.skip(1)?;
    let is_switchable = bits.flag()?;
    bits.skip(if is_switchable { 0 } else { 2 })?;
    Some(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superframe_is_cut_by_its_index() {
        let index = [0xc1, 2, 1, 0xc1];
        let unit = [&[7, 8, 9][..], &index].concat();
        assert_eq!(frames(&unit).collect::<Vec<_>>(), [&[7, 8][..], &[9]]);
        // Sizes of two bytes, the second one of nothing; and more than there is.
        let unit = [5, 0xc9, 1, 0, 0, 0, 0xc9];
        assert_eq!(frames(&unit).collect::<Vec<_>>(), [&[5]]);
        assert_eq!(frames(&[5, 0xc1, 1, 9, 0xc1]).collect::<Vec<_>>(), [&[5]]);
        // No index in front of its marker.
        assert_eq!(frames(&[1, 2, 0xc1]).collect::<Vec<_>>(), [&[1, 2, 0xc1]]);
    }
}
