//! The slice segment header of H.265 (ITU-T Rec. H.265, section 7.3.6), up to the reference lists.

use selvedge_data_stream::Kind;

use super::super::bits::{Bits, width_of};
use super::sets::{Pictures, Sequence, ShortTerm};
use super::{Nal, NalType};

/// A slice's information about references.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) kind: Kind,
    /// The lower part of the picture order count.
    pub(super) order: u32,
    pub(super) short_term: ShortTerm,
    pub(super) long_term: Vec<LongTerm>,
    /// The active entries of each list.
    pub(super) lists: [List; 2],
}

/// A long-term picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongTerm {
    /// The lower part of its count.
    pub(super) order: u32,
    /// How many ranges of lower parts it lies back, where that is stated.
    pub(super) ranges_back: Option<u32>,
    pub(super) is_used: bool,
}

/// The active part of a list: this number of entries from its beginning, or these entries.
#[derive(Clone, Debug)]
pub(super) enum List {
    First(usize),
    Entries(Vec<usize>),
}

/// Entries of a list at most.
const ACTIVE_MAX: u32 = 16;

/// The parameter sets of a stream.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sequences: Vec<Sequence>,
    pictures: Vec<Pictures>,
}

impl Sets {
    /// Keeps a parameter set, if it is one and can be read.
    pub(super) fn keep(&mut self, nal: &Nal<'_>) {
        let bytes = nal.payload();
        match nal.nal_type {
            NalType::SEQUENCE => {
                if let Some(new) = Sequence::read(&mut Bits::new(&bytes)) {
                    self.sequences.retain(|other| other.id != new.id);
                    self.sequences.push(new);
                }
            }
            NalType::PICTURES => {
                if let Some(new) = Pictures::read(&mut Bits::new(&bytes)) {
                    self.pictures.retain(|other| other.id != new.id);
                    self.pictures.push(new);
                }
            }
            _ => {}
        }
    }

    fn of(&self, id: u32) -> Option<(&Pictures, &Sequence)> {
        let pictures = self.pictures.iter().find(|set| set.id == id)?;
        let sequence = self.sequences.iter().find(|set| set.id == pictures.sequence)?;
        Some((pictures, sequence))
    }

    /// Reads a slice; its header and its sequence, or nothing for a dependent slice, which continues
    /// the header before it.
    pub(super) fn slice(&self, nal: &Nal<'_>) -> Option<Option<(Slice, &Sequence)>> {
        let bytes = nal.payload();
        let bits = &mut Bits::new(&bytes);
        let is_first = bits.flag()?;
        if nal.nal_type.is_random_access() {
            bits.skip(1)?;
        }
        let (pictures, sequence) = self.of(bits.golomb()?)?;
        if !is_first {
            let is_dependent = pictures.has_dependent_slices && bits.flag()?;
            if is_dependent {
                return Some(None);
            }
            bits.skip(width_of(sequence.blocks) as usize)?;
        }
        Some(Some((Slice::read(bits, nal.nal_type, pictures, sequence)?, sequence)))
    }
}

impl Slice {
    fn read(
        bits: &mut Bits<'_>,
        nal_type: NalType,
        pictures: &Pictures,
        sequence: &Sequence,
    ) -> Option<Self> {
        bits.skip(pictures.extra_bits as usize)?;
        let kind = match bits.golomb()? {
            0 => Kind::Bidirectional,
            1 => Kind::Predicted,
            2 => Kind::Intra,
            _ => return None,
        };
        bits.skip(usize::from(pictures.has_output_flag))?;
        bits.skip(if sequence.has_separate_planes { 2 } else { 0 })?;
        let (short_term, long_term) = (ShortTerm::default(), Vec::new());
        let lists = [List::First(0), List::First(0)];
        let mut slice = Self { kind, order: 0, short_term, long_term, lists };
        if !nal_type.is_idr() {
            slice.read_kept(bits, sequence)?;
        }
        if kind != Kind::Intra {
            if sequence.has_adaptive_offset {
                bits.skip(if sequence.has_chroma { 2 } else { 1 })?;
            }
            slice.read_lists(bits, pictures)?;
        }
        Some(slice)
    }

    /// The count and the sets of pictures that are kept.
    fn read_kept(&mut self, bits: &mut Bits<'_>, sequence: &Sequence) -> Option<()> {
        self.order = bits.number(sequence.order_width)?;
        let sets = &sequence.short_term;
        self.short_term = if bits.flag()? {
            let at = bits.number(width_of(sets.len() as u32))?;
            sets.get(at as usize)?.clone()
        } else {
            ShortTerm::read(bits, sets, true)?
        };
        if let Some(known) = &sequence.long_term {
            self.long_term = long_term(bits, known, sequence.order_width)?;
        }
        bits.skip(usize::from(sequence.has_temporal_vectors))
    }

    fn read_lists(&mut self, bits: &mut Bits<'_>, pictures: &Pictures) -> Option<()> {
        let has_other = self.kind == Kind::Bidirectional;
        let mut active = pictures.active;
        if bits.flag()? {
            active[0] = bits.golomb()?.saturating_add(1);
            if has_other {
                active[1] = bits.golomb()?.saturating_add(1);
            }
        }
        if !has_other {
            active[1] = 0;
        }
        if active.iter().any(|count| *count > ACTIVE_MAX) {
            return None;
        }
        let used = self.used();
        for (list, count) in self.lists.iter_mut().zip(active).filter(|(_, count)| *count > 0) {
            *list = List::First(count as usize);
            if pictures.modifies_lists && used > 1 && bits.flag()? {
                let mut entry = || Some(bits.number(width_of(used))? as usize);
                *list = List::Entries((0..count).map(|_| entry()).collect::<Option<_>>()?);
            }
        }
        Some(())
    }

    /// `NumPicTotalCurr`.
    fn used(&self) -> u32 {
        let short = self.short_term.before.iter().chain(&self.short_term.behind);
        let short = short.filter(|(_, is_used)| *is_used).count();
        (short + self.long_term.iter().filter(|kept| kept.is_used).count()) as u32
    }
}

fn long_term(
    bits: &mut Bits<'_>,
    known: &[(u32, bool)],
    order_width: u32,
) -> Option<Vec<LongTerm>> {
    let from_set = if known.is_empty() { 0 } else { bits.golomb()? };
    let own = bits.golomb()?;
    if from_set.saturating_add(own) > ACTIVE_MAX {
        return None;
    }
    let mut kept = Vec::<LongTerm>::new();
    let mut ranges = 0_u32;
    for at in 0..from_set + own {
        let (order, is_used) = if at < from_set {
            let index = bits.number(width_of(known.len() as u32))?;
            *known.get(index as usize)?
        } else {
            (bits.number(order_width)?, bits.flag()?)
        };
        // The ranges add up, separately for those of the set and for the others.
        if at == 0 || at == from_set {
            ranges = 0;
        }
        let is_stated = bits.flag()?;
        if is_stated {
            ranges = ranges.checked_add(bits.golomb()?)?;
        }
        kept.push(LongTerm { order, ranges_back: is_stated.then_some(ranges), is_used });
    }
    Some(kept)
}
