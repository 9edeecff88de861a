//! The frame header of AV1 (sections 5.9.2 and 7.8), up to the references.

use super::super::bits::Bits;
use super::Layer;
use super::sequence::Sequence;

/// The fields of a frame header that matter to other frames.
#[derive(Clone, Copy, Debug)]
pub(super) enum Header {
    /// The frame of a slot is shown.
    Existing(usize),
    Coded(Frame),
}

/// A frame that is coded here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) frame_type: FrameType,
    pub(super) is_shown: bool,
    /// Its order hint.
    pub(super) order: u32,
    /// Slots that it writes.
    pub(super) refreshed: u32,
    /// The frame that the encoder expects in each slot, where it states one.
    pub(super) orders: [Option<u32>; 8],
    /// Slots that it predicts from; `None` for an intra frame.
    pub(super) from: Option<[usize; 7]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameType {
    Key,
    Inter,
    IntraOnly,
    Switch,
}

impl FrameType {
    const fn is_intra(self) -> bool {
        matches!(self, Self::Key | Self::IntraOnly)
    }
}

/// Reads a header; `orders` are the order hints in the slots.
pub(super) fn header(
    body: &[u8],
    sequence: &Sequence,
    layer: Layer,
    orders: &[u32; 8],
) -> Option<Header> {
    let mut bits = Bits::new(body);
    let bits = &mut bits;
    let (mut frame_type, mut is_shown, mut is_resilient) = (FrameType::Key, true, true);
    if !sequence.is_reduced_still {
        if bits.flag()? {
            return Some(Header::Existing(bits.number(3)? as usize));
        }
        frame_type = match bits.number(2)? {
            0 => FrameType::Key,
            1 => FrameType::Inter,
            2 => FrameType::IntraOnly,
            _ => FrameType::Switch,
        };
        is_shown = bits.flag()?;
        match sequence.decoder_model {
            Some(model) if is_shown && !sequence.is_equal_interval => {
                bits.skip(model.presentation_time as usize)?;
            }
            _ => {}
        }
        // Whether a hidden frame can be shown later.
        bits.skip(usize::from(!is_shown))?;
        let begins = frame_type == FrameType::Key && is_shown;
        is_resilient = frame_type == FrameType::Switch || begins || bits.flag()?;
    }
    let is_intra = frame_type.is_intra();
    let all = frame_type == FrameType::Switch || frame_type == FrameType::Key && is_shown;
    // Whether probabilities are adapted.
    bits.skip(1)?;
    if sequence.screen_content_tools.of_frame(bits)? {
        sequence.integer_vectors.of_frame(bits)?;
    }
    bits.skip(sequence.frame_id_width as usize)?;
    // Whether it has a size of its own.
    bits.skip(usize::from(frame_type != FrameType::Switch && !sequence.is_reduced_still))?;
    let order = bits.number(sequence.order_hint_width)?;
    if !is_intra && !is_resilient {
        // The primary reference frame: one of the seven.
        bits.skip(3)?;
    }
    removal_times(bits, sequence, layer)?;
    let refreshed = if all { 0xff } else { bits.number(8)? };
    let mut expected = [None; 8];
    if (!is_intra || refreshed != 0xff) && is_resilient && sequence.order_hint_width > 0 {
        for order in &mut expected {
            *order = Some(bits.number(sequence.order_hint_width)?);
        }
    }
    let mut held = *orders;
    held.iter_mut().zip(expected).for_each(|(held, said)| *held = said.unwrap_or(*held));
    let from = if is_intra { None } else { Some(references(bits, sequence, order, &held)?) };
    let frame = Frame { frame_type, is_shown, order, refreshed, orders: expected, from };
    Some(Header::Coded(frame))
}

/// Skips `buffer_removal_time` of the operating points that the frame is in.
fn removal_times(bits: &mut Bits<'_>, sequence: &Sequence, layer: Layer) -> Option<()> {
    let Some(model) = sequence.decoder_model else { return Some(()) };
    if !bits.flag()? {
        return Some(());
    }
    for point in sequence.operating_points.iter().filter(|point| point.has_decoder_model) {
        let temporal = point.layers >> layer.temporal & 1 == 1;
        let spatial = point.layers >> (layer.spatial + 8) & 1 == 1;
        if point.layers == 0 || temporal && spatial {
            bits.skip(model.removal_time as usize)?;
        }
    }
    Some(())
}

/// The slots of the seven references: each named, or two of them and the others by order hints.
fn references(
    bits: &mut Bits<'_>,
    sequence: &Sequence,
    order: u32,
    held: &[u32; 8],
) -> Option<[usize; 7]> {
    let is_short = sequence.order_hint_width > 0 && bits.flag()?;
    let mut from = [0; 7];
    if is_short {
        let (last, golden) = (bits.number(3)? as usize, bits.number(3)? as usize);
        from = implied(
            last,
            golden,
            held.map(|held| distance(held, order, sequence.order_hint_width)),
        );
    }
    for slot in &mut from {
        if !is_short {
            *slot = bits.number(3)? as usize;
        }
        bits.skip(sequence.delta_frame_id_width as usize)?;
    }
    Some(from)
}

/// How far one order hint lies behind another, in a range that begins again after `width` bits.
fn distance(of: u32, from: u32, width: u32) -> i32 {
    let (difference, half) = (of.wrapping_sub(from), 1 << (width - 1));
    (difference & (half - 1)) as i32 - (difference & half) as i32
}

/// The set of references where only the last and the golden frame are named (section 7.8); each slot's
/// distance in display order is given.
fn implied(last: usize, golden: usize, distances: [i32; 8]) -> [usize; 7] {
    let mut used = [false; 8];
    (used[last], used[golden]) = (true, true);
    let mut free = |choose: &dyn Fn(&[usize]) -> Option<usize>, ahead: bool| {
        let fits = |slot: &usize| !used[*slot] && (distances[*slot] >= 0) == ahead;
        let slot = choose(&(0..8).filter(fits).collect::<Vec<_>>())?;
        used[slot] = true;
        Some(slot)
    };
    // Of several equal ones the last is the latest and the first the earliest.
    let latest = |slots: &[usize]| slots.iter().copied().max_by_key(|&slot| distances[slot]);
    let earliest = |slots: &[usize]| slots.iter().copied().min_by_key(|&slot| distances[slot]);
    let mut found = [Some(last), None, None, Some(golden), None, None, None];
    found[6] = free(&latest, true);
    found[4] = free(&earliest, true);
    found[5] = free(&earliest, true);
    for at in [1, 2, 4, 5, 6] {
        if found[at].is_none() {
            found[at] = free(&latest, false);
        }
    }
    let fallback = earliest(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap_or(0);
    found.map(|slot| slot.unwrap_or(fallback))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_follow_from_their_places_in_display_order() {
        // The latest ahead, the two earliest ahead, and the others behind from the latest on.
        let around = [-1, -2, -3, -4, 0, 3, 8, 5];
        assert_eq!(implied(0, 3, around), [0, 1, 2, 3, 4, 5, 6]);
        let behind = [-1, -2, -3, -4, -5, -6, -7, -8];
        assert_eq!(implied(0, 3, behind), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(implied(5, 5, behind), [5, 0, 1, 5, 2, 3, 4]);
        // Where none is left, the earliest of all is used.
        assert_eq!(implied(0, 1, [9, -9, 9, 8, 7, 6, 5, 4]), [0, 1, 1, 1, 7, 6, 2]);
        assert_eq!([distance(1, 15, 4), distance(15, 1, 4), distance(8, 0, 4)], [2, -2, -8]);
    }
}
