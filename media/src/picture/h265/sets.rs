//! Parameter sets of H.265 (ITU-T Rec. H.265, sections 7.3.2.2, 7.3.2.3 and 7.3.7), as far as slice
//! headers depend on them.

use super::super::bits::Bits;
use super::KEPT_MAX;

/// `num_short_term_ref_pic_sets` and `num_long_term_ref_pics_sps` at most.
const SHORT_TERM_MAX: u32 = 64;
const LONG_TERM_MAX: u32 = 32;

/// A sequence parameter set.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub(super) id: u32,
    pub(super) highest_layer: u32,
    pub(super) has_separate_planes: bool,
    pub(super) has_chroma: bool,
    /// Coding tree blocks of a picture.
    pub(super) blocks: u32,
    /// Bits of the lower part of the picture order count.
    pub(super) order_width: u32,
    pub(super) short_term: Vec<ShortTerm>,
    /// Lower parts of counts, and whether the current picture may refer to that picture.
    pub(super) long_term: Option<Vec<(u32, bool)>>,
    pub(super) has_temporal_vectors: bool,
    pub(super) has_adaptive_offset: bool,
}

/// A picture parameter set.
#[derive(Clone, Debug)]
pub(super) struct Pictures {
    pub(super) id: u32,
    pub(super) sequence: u32,
    pub(super) has_dependent_slices: bool,
    pub(super) has_output_flag: bool,
    pub(super) extra_bits: u32,
    /// Lengths of both lists where the slice states none.
    pub(super) active: [u32; 2],
    pub(super) modifies_lists: bool,
}

/// Which pictures are kept beside the current one: differences of their counts to its own, and whether
/// it may refer to them; those before it from the nearest on, then those after it.
#[derive(Clone, Debug, Default)]
pub(super) struct ShortTerm {
    pub(super) before: Vec<(i32, bool)>,
    pub(super) behind: Vec<(i32, bool)>,
}

impl Sequence {
    pub(super) fn read(bits: &mut Bits<'_>) -> Option<Self> {
        bits.skip(4)?;
        let highest_layer = bits.number(3)?;
        bits.skip(1)?;
        profile(bits, highest_layer)?;
        let id = bits.golomb().filter(|id| *id < 16)?;
        let chroma = bits.golomb()?;
        let has_separate_planes = chroma == 3 && bits.flag()?;
        let (width, height) = (bits.golomb()?, bits.golomb()?);
        if bits.flag()? {
            bits.skip_golomb(4)?;
        }
        // Bit depths.
        bits.skip_golomb(2)?;
        let order_width = bits.golomb().filter(|width| *width <= 12)? + 4;
        let layers = if bits.flag()? { highest_layer + 1 } else { 1 };
        bits.skip_golomb(3 * layers)?;
        let smallest = bits.golomb().filter(|width| *width < 8)? + 3;
        let block = smallest + bits.golomb().filter(|width| *width < 8)?;
        // Sizes and depths of transform blocks.
        bits.skip_golomb(4)?;
        if bits.flag()? && bits.flag()? {
            scaling_lists(bits)?;
        }
        bits.skip(1)?;
        let has_adaptive_offset = bits.flag()?;
        if bits.flag()? {
            bits.skip(8)?;
            bits.skip_golomb(2)?;
            bits.skip(1)?;
        }
        let mut short_term = Vec::new();
        let count = bits.golomb().filter(|count| *count <= SHORT_TERM_MAX)?;
        for _ in 0..count {
            short_term.push(ShortTerm::read(bits, &short_term, false)?);
        }
        let long_term = if bits.flag()? { Some(long_term(bits, order_width)?) } else { None };
        let has_temporal_vectors = bits.flag()?;
        let across = |side: u32| side.div_ceil(1 << block);
        Some(Self {
            id,
            highest_layer,
            has_separate_planes,
            has_chroma: chroma != 0 && !has_separate_planes,
            blocks: across(width).checked_mul(across(height))?,
            order_width,
            short_term,
            long_term,
            has_temporal_vectors,
            has_adaptive_offset,
        })
    }
}

/// `profile_tier_level()`.
fn profile(bits: &mut Bits<'_>, highest_layer: u32) -> Option<()> {
    const PROFILE: usize = 88;
    const LEVEL: usize = 8;
    bits.skip(PROFILE + LEVEL)?;
    let mut rest = 0;
    for _ in 0..highest_layer {
        rest += if bits.flag()? { PROFILE } else { 0 };
        rest += if bits.flag()? { LEVEL } else { 0 };
    }
    // Flags of eight layers in all, if there is more than one.
    let padding = if highest_layer > 0 { 2 * (8 - highest_layer as usize) } else { 0 };
    bits.skip(padding + rest)
}

/// `scaling_list_data()`.
fn scaling_lists(bits: &mut Bits<'_>) -> Option<()> {
    for size in 0..4_u32 {
        let lists = if size == 3 { 2 } else { 6 };
        for _ in 0..lists {
            let is_coded = bits.flag()?;
            let coefficients = 64.min(1 << (4 + 2 * size));
            bits.skip_golomb(match is_coded {
                false => 1,
                true => coefficients + u32::from(size > 1),
            })?;
        }
    }
    Some(())
}

fn long_term(bits: &mut Bits<'_>, order_width: u32) -> Option<Vec<(u32, bool)>> {
    let count = bits.golomb().filter(|count| *count <= LONG_TERM_MAX)?;
    (0..count).map(|_| Some((bits.number(order_width)?, bits.flag()?))).collect()
}

impl Pictures {
    pub(super) fn read(bits: &mut Bits<'_>) -> Option<Self> {
        let id = bits.golomb().filter(|id| *id < 64)?;
        let sequence = bits.golomb().filter(|id| *id < 16)?;
        let (has_dependent_slices, has_output_flag) = (bits.flag()?, bits.flag()?);
        let extra_bits = bits.number(3)?;
        bits.skip(2)?;
        let active = [bits.golomb()?, bits.golomb()?].map(|last| last.saturating_add(1));
        // Quantizer; constrained prediction, skipped transforms.
        bits.skip_golomb(1)?;
        bits.skip(2)?;
        if bits.flag()? {
            bits.skip_golomb(1)?;
        }
        bits.skip_golomb(2)?;
        // Chroma offsets, both weights, bypass.
        bits.skip(4)?;
        let (has_tiles, _) = (bits.flag()?, bits.skip(1)?);
        if has_tiles {
            let (columns, rows) = (bits.golomb()?, bits.golomb()?);
            if !bits.flag()? {
                bits.skip_golomb(columns)?;
                bits.skip_golomb(rows)?;
            }
            bits.skip(1)?;
        }
        bits.skip(1)?;
        if bits.flag()? {
            bits.skip(1)?;
            if !bits.flag()? {
                bits.skip_golomb(2)?;
            }
        }
        if bits.flag()? {
            scaling_lists(bits)?;
        }
        let modifies_lists = bits.flag()?;
        Some(Self {
            id,
            sequence,
            has_dependent_slices,
            has_output_flag,
            extra_bits,
            active,
            modifies_lists,
        })
    }
}

impl ShortTerm {
    /// Reads the set that follows `others`; the set of a slice may be predicted from any of them.
    pub(super) fn read(bits: &mut Bits<'_>, others: &[Self], of_slice: bool) -> Option<Self> {
        let set = if !others.is_empty() && bits.flag()? {
            let back = if of_slice { bits.golomb()? as usize } else { 0 };
            let other = others.get(others.len().checked_sub(back)?.checked_sub(1)?)?;
            Self::predicted(bits, other)?
        } else {
            let count = [bits.golomb()? as usize, bits.golomb()? as usize];
            if count.iter().any(|&count| count > KEPT_MAX) {
                return None;
            }
            Self {
                before: differences(bits, count[0], -1)?,
                behind: differences(bits, count[1], 1)?,
            }
        };
        (set.before.len() + set.behind.len() <= KEPT_MAX).then_some(set)
    }

    /// A set predicted from another, shifted to the position of this picture (section 7.4.8).
    fn predicted(bits: &mut Bits<'_>, other: &Self) -> Option<Self> {
        let is_negative = bits.flag()?;
        let by = i32::try_from(bits.golomb().filter(|by| *by < 1 << 15)?).ok()? + 1;
        let by = if is_negative { -by } else { by };
        let mut moved = Vec::new();
        let of_other = other.before.iter().chain(&other.behind).map(|(difference, _)| *difference);
        // The last one is the picture that the other set was for.
        for difference in of_other.chain([0]) {
            let is_used = bits.flag()?;
            if is_used || bits.flag()? {
                moved.push((difference.checked_add(by)?, is_used));
            }
        }
        moved.sort_by_key(|(difference, _)| *difference);
        let (mut before, behind): (Vec<_>, Vec<_>) =
            moved.into_iter().filter(|(difference, _)| *difference != 0).partition(|(d, _)| *d < 0);
        before.reverse();
        Some(Self { before, behind })
    }
}

fn differences(bits: &mut Bits<'_>, count: usize, sign: i32) -> Option<Vec<(i32, bool)>> {
    let mut at = 0;
    (0..count)
        .map(|_| {
            at += sign * (i32::try_from(bits.golomb().filter(|by| *by < 1 << 15)?).ok()? + 1);
            Some((at, bits.flag()?))
        })
        .collect()
}
