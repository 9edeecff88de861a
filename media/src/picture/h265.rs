//! H.265 (ITU-T Rec. H.265, sections 8.1, 8.3.1, 8.3.2 and 8.3.4): the kind of an access unit, and
//! which pictures it may refer to: all in the active parts of its slices' reference lists.
//!
//! Access units come from the framing in decoding order, as a byte stream; their references go with
//! the frame. Each slice header states all pictures that are kept, so the loss of a unit does not
//! affect which others are kept. Layers beyond the first (SHVC, MV-HEVC) are left out. Pure.

mod sets;
mod slice;

use selvedge_data_stream::References;

use self::slice::{List, Sets, Slice};
use super::{Picture, PictureReader, start_code};

/// No parameter set and no header up to the lists is longer.
const HEADER_MAX: usize = 4096;

/// Pictures that a decoder keeps at most (section A.4.2).
const KEPT_MAX: usize = 16;

/// Follows the pictures of one stream.
#[derive(Debug, Default)]
pub struct H265Reader {
    sets: Sets,
    kept: Vec<Kept>,
    /// The count of the last picture of the lowest temporal layer that counts are relative to.
    anchor: i64,
    /// Whether decoding goes on over the next random-access picture; else it begins there.
    goes_on: bool,
    /// Whether leading pictures refer to pictures that never arrived.
    skips_leading: bool,
    /// Number of the next access unit.
    next: u64,
}

/// A picture that is kept for reference.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Its picture order count.
    order: i64,
    /// Number of its access unit.
    number: u64,
}

/// A NAL unit of the base layer.
#[derive(Clone, Copy, Debug)]
struct Nal<'a> {
    nal_type: NalType,
    temporal_layer: u32,
    body: &'a [u8],
}

/// `nal_unit_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NalType(u8);

impl NalType {
    const SEQUENCE: Self = Self(33);
    const PICTURES: Self = Self(34);
    const END_OF_SEQUENCE: Self = Self(36);
    const END_OF_BITSTREAM: Self = Self(37);

    const fn is_slice(self) -> bool {
        matches!(self.0, 0..=9 | 16..=21)
    }

    const fn is_idr(self) -> bool {
        matches!(self.0, 19 | 20)
    }

    const fn is_broken_link(self) -> bool {
        matches!(self.0, 16..=18)
    }

    /// Intra pictures at which a decoder may begin.
    const fn is_random_access(self) -> bool {
        matches!(self.0, 16..=23)
    }

    /// Of a sub-layer within which nothing refers to it.
    const fn is_unreferenced(self) -> bool {
        self.0 <= 14 && self.0 & 1 == 0
    }

    /// Leading pictures that may refer to pictures before their random-access picture.
    const fn is_skipped_leading(self) -> bool {
        matches!(self.0, 8 | 9)
    }

    const fn is_leading(self) -> bool {
        matches!(self.0, 6..=9)
    }
}

impl<'a> Nal<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let (&[high, low], body) = bytes.split_first_chunk::<2>()?;
        let (layer, temporal_layer) = ((high & 1) << 5 | low >> 3, low & 7);
        let temporal_layer = u32::from(temporal_layer).checked_sub(1)?;
        (layer == 0).then_some(Self { nal_type: NalType(high >> 1 & 0x3f), temporal_layer, body })
    }

    fn payload(&self) -> Vec<u8> {
        start_code::unescaped(&self.body[..self.body.len().min(HEADER_MAX)])
    }
}

impl PictureReader for H265Reader {
    fn push(&mut self, unit: &[u8]) -> Option<Picture> {
        let number = self.next;
        self.next += 1;
        let nals = || start_code::units(unit).filter_map(Nal::new);
        nals().for_each(|nal| self.sets.keep(&nal));
        let mut whole: Option<(Picture, i64)> = None;
        for nal in nals().filter(|nal| nal.nal_type.is_slice()) {
            let Some((slice, sequence)) = self.sets.slice(&nal)? else { continue };
            let highest = sequence.highest_layer;
            let width = sequence.order_width;
            let order = match whole {
                Some((_, order)) => order,
                None => self.begin(&nal, &slice, width),
            };
            let unknown = nal.nal_type.is_skipped_leading() && self.skips_leading;
            let refs = match unknown {
                true => References::UNKNOWN,
                false => self.active(&slice, order, width, number),
            };
            let part = Picture {
                kind: slice.kind,
                referenced: !nal.nal_type.is_unreferenced() || nal.temporal_layer < highest,
                closes: nal.nal_type.is_idr() || nal.nal_type.is_broken_link(),
                refs: Some(refs),
            };
            let joined = whole.map_or(part, |(first, _)| first.joined(part));
            whole = Some((joined, order));
        }
        let (picture, order) = whole?;
        // Only counts that occur twice make more.
        if self.kept.len() > KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(Kept { order, number });
        let ends = |nal: Nal<'_>| {
            matches!(nal.nal_type, NalType::END_OF_SEQUENCE | NalType::END_OF_BITSTREAM)
        };
        self.goes_on &= !nals().any(ends);
        Some(picture)
    }

    fn restart(&mut self) {
        self.kept.clear();
        self.goes_on = false;
    }
}

impl H265Reader {
    /// A picture begins with this slice: returns its count, after removing the pictures that it does
    /// not keep.
    fn begin(&mut self, nal: &Nal<'_>, slice: &Slice, width: u32) -> i64 {
        let is_start = nal.nal_type.is_random_access();
        let begins =
            is_start && (nal.nal_type.is_idr() || nal.nal_type.is_broken_link() || !self.goes_on);
        if is_start {
            (self.goes_on, self.skips_leading) = (true, begins);
        }
        let (range, low) = (1_i64 << width, i64::from(slice.order));
        let order = if begins {
            self.kept.clear();
            low
        } else {
            nearest(low, self.anchor, range)
        };
        let is_anchor = !nal.nal_type.is_unreferenced() && !nal.nal_type.is_leading();
        if nal.temporal_layer == 0 && is_anchor {
            self.anchor = order;
        }
        let short = slice.short_term.before.iter().chain(&slice.short_term.behind);
        let orders = short.map(|(difference, _)| order + i64::from(*difference));
        let orders = orders.collect::<Vec<_>>();
        let is_long = |kept: &Kept| slice.long_term.iter().any(|long| long.is(kept, order, range));
        self.kept.retain(|kept| orders.contains(&kept.order) || is_long(kept));
        order
    }

    /// How far back each picture lies that a slice may refer to.
    fn active(&self, slice: &Slice, order: i64, width: u32, number: u64) -> References {
        let distance = |kept: Option<&Kept>| {
            let back = kept.and_then(|kept| u32::try_from(number - kept.number).ok());
            back.unwrap_or(u32::MAX)
        };
        let short = |set: &[(i32, bool)]| {
            let used = set.iter().filter(|(_, is_used)| *is_used);
            let order_of = used.map(|(difference, _)| order + i64::from(*difference));
            let found =
                order_of.map(|order| distance(self.kept.iter().find(|kept| kept.order == order)));
            found.collect::<Vec<_>>()
        };
        let (before, behind) = (short(&slice.short_term.before), short(&slice.short_term.behind));
        let used = slice.long_term.iter().filter(|long| long.is_used);
        let is = |long: &slice::LongTerm| {
            distance(self.kept.iter().find(|kept| long.is(kept, order, 1 << width)))
        };
        let long = used.map(is).collect::<Vec<_>>();
        let lists = [[&before, &behind, &long], [&behind, &before, &long]];
        let mut refs = References::NONE;
        for (candidates, active) in lists.iter().zip(&slice.lists) {
            let candidates = candidates.iter().flat_map(|part| part.iter().copied());
            let candidates = candidates.collect::<Vec<_>>();
            refs = match active {
                List::First(count) => {
                    candidates.iter().take(*count).copied().fold(refs, References::with)
                }
                List::Entries(entries) => entries
                    .iter()
                    .map(|&entry| candidates.get(entry).copied().unwrap_or(u32::MAX))
                    .fold(refs, References::with),
            };
            // A list without candidates can't be decoded.
            if candidates.is_empty() && !matches!(active, List::First(0)) {
                refs = References::UNKNOWN;
            }
        }
        refs
    }
}

impl slice::LongTerm {
    /// Whether it is this picture, seen from a picture of this count.
    fn is(&self, kept: &Kept, order: i64, range: i64) -> bool {
        let low = i64::from(self.order);
        match self.ranges_back {
            Some(ranges) => {
                let base = order - order.rem_euclid(range);
                kept.order == base - i64::from(ranges) * range + low
            }
            None => kept.order.rem_euclid(range) == low,
        }
    }
}

/// The count with this lower part that is nearest to an anchor (section 8.3.1).
fn nearest(low: i64, anchor: i64, range: i64) -> i64 {
    let (anchor_low, high) = (anchor.rem_euclid(range), anchor - anchor.rem_euclid(range));
    let half = range / 2;
    match low - anchor_low {
        back if -back >= half => high + range + low,
        ahead if ahead > half => high - range + low,
        _ => high + low,
    }
}

#[cfg(test)]
mod tests;
