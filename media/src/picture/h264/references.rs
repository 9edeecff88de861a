//! Which pictures an H.264 picture may refer to (ITU-T Rec. H.264, sections 8.2.1, 8.2.4 and 8.2.5):
//! all in the active parts of its slices' reference lists, with the decoder's memory managed as the
//! earlier slice headers command.
//!
//! Access units come from the framing in decoding order; their references go with the frame. A field
//! counts as referring to everything in memory: its lists are not followed. Pure.

use h264_reader::Context;
use h264_reader::nal::pps::PicParameterSet;
use h264_reader::nal::slice::{
    DecRefPicMarking, FieldPic, NumRefIdxActive, RefPicListModifications, SliceFamily, SliceHeader,
};
use h264_reader::nal::sps::SeqParameterSet;
use h264_reader::nal::{NalHeader, UnitType};
use h264_reader::rbsp::{BitReader, ByteReader};
use selvedge_data_stream::References;

use super::super::{Picture, PictureReader, start_code};
use super::memory::{Held, Memory, Numbers};
use super::order::PictureOrder;

/// No slice header is longer, tables of weights for 32 pictures included.
const HEADER_MAX: usize = 2048;

/// Follows the pictures of one stream.
#[derive(Debug, Default)]
pub struct H264Reader {
    sets: Context,
    order: PictureOrder,
    memory: Memory,
    /// Number of the next access unit.
    next: u64,
}

/// A slice header with the sets that it names.
struct Slice<'a> {
    nal: NalHeader,
    header: SliceHeader,
    sps: &'a SeqParameterSet,
    pps: &'a PicParameterSet,
}

impl H264Reader {
    /// The references of the next access unit, in byte-stream format, by how many units back they are;
    /// `None` if its headers can't be read. Must be called for every unit that becomes a frame.
    fn references(&mut self, unit: &[u8]) -> Option<References> {
        let number = self.next;
        self.next += 1;
        for nal in start_code::units(unit) {
            self.keep_set(nal);
        }
        let Self { sets, order, memory, .. } = self;
        let (mut refs, mut first) = (References::NONE, None);
        for nal in start_code::units(unit).filter(|nal| is_slice(nal)) {
            let slice = read(sets, nal)?;
            if slice.header.redundant_pic_cnt.is_some_and(|count| count > 0) {
                continue;
            }
            let (_, current) = first.get_or_insert_with(|| {
                let current = begin(memory, order, &slice, number);
                (read(sets, nal), current)
            });
            refs = active(memory, &slice, current).into_iter().fold(refs, References::with);
        }
        let (slice, current) = first?;
        if end(memory, &slice?, current) {
            order.reset();
        }
        Some(refs)
    }

    /// Keeps a parameter set, if it is one and can be read.
    fn keep_set(&mut self, nal: &[u8]) {
        let Some(header) = nal.first().and_then(|&byte| NalHeader::new(byte).ok()) else { return };
        let bits = BitReader::new(ByteReader::skipping_h264_header(trimmed(nal)));
        match header.nal_unit_type() {
            UnitType::SeqParameterSet => {
                if let Ok(sps) = SeqParameterSet::from_bits(bits) {
                    self.sets.put_seq_param_set(sps);
                }
            }
            UnitType::PicParameterSet => {
                if let Ok(pps) = PicParameterSet::from_bits(&self.sets, bits) {
                    self.sets.put_pic_param_set(pps);
                }
            }
            _ => {}
        }
    }
}

impl PictureReader for H264Reader {
    fn push(&mut self, unit: &[u8]) -> Option<Picture> {
        let refs = self.references(unit);
        Some(Picture { refs, ..super::picture(unit)? })
    }

    fn restart(&mut self) {
        self.memory = Memory::default();
        self.order = PictureOrder::default();
    }
}

/// A picture begins with this slice: places it in time, and prepares the memory for it.
fn begin(memory: &mut Memory, order: &mut PictureOrder, slice: &Slice<'_>, number: u64) -> Held {
    let Slice { nal, header, sps, .. } = slice;
    if header.idr_pic_id.is_some() {
        memory.clear();
    } else {
        let allowed = sps.gaps_in_frame_num_value_allowed_flag;
        memory.fill_gap(Numbers::of(sps, header.frame_num), number, allowed);
    }
    let place = order.of(sps, header, nal.nal_ref_idc() != 0);
    Held::new(number, u32::from(header.frame_num), place)
}

/// How far back each picture lies that a slice may refer to.
fn active(memory: &Memory, slice: &Slice<'_>, current: &Held) -> Vec<u32> {
    let Slice { header, sps, pps, .. } = slice;
    let numbers = Numbers::of(sps, header.frame_num);
    let distance = |held: &Held| held.distance(current.number);
    if header.field_pic != FieldPic::Frame {
        let intra = matches!(header.slice_type.family, SliceFamily::I | SliceFamily::SI);
        return memory.held().iter().filter(|_| !intra).map(distance).collect();
    }
    let last = match header.num_ref_idx_active {
        Some(NumRefIdxActive::P { num_ref_idx_l0_active_minus1: first }) => [first, 0],
        Some(NumRefIdxActive::B {
            num_ref_idx_l0_active_minus1: first,
            num_ref_idx_l1_active_minus1: second,
        }) => [first, second],
        None => {
            [pps.num_ref_idx_l0_default_active_minus1, pps.num_ref_idx_l1_default_active_minus1]
        }
    };
    let [first, second] = last.map(|last| last as usize + 1);
    let lists = match &header.ref_pic_list_modification {
        Some(RefPicListModifications::P { ref_pic_list_modification_l0: changes }) => {
            vec![memory.modified(memory.before(numbers), changes, first, numbers)]
        }
        Some(RefPicListModifications::B {
            ref_pic_list_modification_l0: changes,
            ref_pic_list_modification_l1: changes_of_other,
        }) => {
            let [before, behind] = memory.around(current.order);
            vec![
                memory.modified(before, changes, first, numbers),
                memory.modified(behind, changes_of_other, second, numbers),
            ]
        }
        _ => return Vec::new(),
    };
    // Nothing to refer to: the receiver joined in the middle of the stream.
    let joined = lists.iter().all(Vec::is_empty).then_some(u32::MAX);
    lists.iter().flatten().map(distance).chain(joined).collect()
}

/// Puts the picture that began with this slice into memory, if it belongs there. Returns whether all
/// counting of pictures restarts after it.
fn end(memory: &mut Memory, slice: &Slice<'_>, current: Held) -> bool {
    let Slice { header, sps, .. } = slice;
    let numbers = Numbers::of(sps, header.frame_num);
    match &header.dec_ref_pic_marking {
        None => {}
        Some(DecRefPicMarking::Idr { long_term_reference_flag: long, .. }) => {
            memory.hold(Held { long_term: long.then_some(0), ..current });
        }
        Some(DecRefPicMarking::Adaptive(operations)) if header.field_pic == FieldPic::Frame => {
            return memory.manage(operations, current, numbers);
        }
        // Which field an operation applies to is not followed.
        Some(_) => memory.slide_and_hold(current, numbers),
    }
    false
}

fn is_slice(nal: &[u8]) -> bool {
    nal.first().and_then(|&byte| NalHeader::new(byte).ok()).is_some_and(|header| {
        matches!(
            header.nal_unit_type(),
            UnitType::SliceLayerWithoutPartitioningIdr
                | UnitType::SliceLayerWithoutPartitioningNonIdr
                | UnitType::SliceDataPartitionALayer
        )
    })
}

fn read<'a>(sets: &'a Context, nal: &[u8]) -> Option<Slice<'a>> {
    let header = NalHeader::new(*nal.first()?).ok()?;
    let prefix = trimmed(&nal[..nal.len().min(HEADER_MAX)]);
    let mut bits = BitReader::new(ByteReader::skipping_h264_header(prefix));
    let (slice, sps, pps) = SliceHeader::from_bits(sets, &mut bits, header, None).ok()?;
    Some(Slice { nal: header, header: slice, sps, pps })
}

/// Without the zeros between a NAL unit and the next start code, which belong to neither.
fn trimmed(nal: &[u8]) -> &[u8] {
    let len = nal.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &nal[..len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parameter sets that x264 wrote: three reference frames, three B frames.
    const SETS: [&[u8]; 2] = [
        &[
            0x00, 0x00, 0x00, 0x01, 0x67, 0x64, 0x00, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9,
            0x66, 0xa0, 0xc0, 0xc0, 0xc8, 0x00, 0x00, 0x03, 0x00, 0x08, 0x00, 0x00, 0x03, 0x01,
            0x90, 0x78, 0xb1, 0x6c, 0xb0,
        ],
        &[0x00, 0x00, 0x00, 0x01, 0x68, 0xeb, 0xef, 0x2c],
    ];

    #[test]
    fn without_its_sets_a_slice_can_not_be_read() {
        let slice = [0, 0, 1, 0x65, 0x88, 0x84, 0x00, 0x33, 0xff];
        assert_eq!(H264Reader::default().references(&slice), None);
        assert_eq!(H264Reader::default().references(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            units in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..40),
            types in prop::collection::vec(0..4_usize, 1..40),
        ) {
            let mut reader = H264Reader::default();
            prop_assert_eq!(reader.references(&SETS.concat()), None);
            prop_assert_eq!(reader.sets.pps().count(), 1);
            for (number, (bytes, kind)) in units.iter().zip(types).enumerate() {
                let header = [0x65, 0x41, 0x01, 0x67][kind];
                let unit = [&[0, 0, 1, header][..], bytes].concat();
                let refs = reader.references(&unit).unwrap_or_default();
                let came = |back: u16| usize::from(back) <= number + 1;
                prop_assert!(!refs.is_known() || refs.distances().all(came));
            }
        }
    }
}
