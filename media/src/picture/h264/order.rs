//! The picture order count of an H.264 frame (ITU-T Rec. H.264, section 8.2.1): which pictures lie
//! before it and which after it when they are shown.
//!
//! Slice headers come from the reference reader, in decoding order. Pure.

use h264_reader::nal::slice::{FieldPic, PicOrderCountLsb, SliceHeader};
use h264_reader::nal::sps::{PicOrderCntType, SeqParameterSet};

/// The state from earlier pictures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PictureOrder {
    /// The higher part and the lower part of the last reference picture's count.
    msb: i64,
    lsb: i64,
    frame_num: i64,
    frame_num_offset: i64,
}

impl PictureOrder {
    /// The count of the next picture.
    pub(super) fn of(
        &mut self,
        sps: &SeqParameterSet,
        header: &SliceHeader,
        is_reference: bool,
    ) -> i64 {
        let is_idr = header.idr_pic_id.is_some();
        if is_idr {
            *self = Self::default();
        }
        let frame_num = i64::from(header.frame_num);
        let most = 1_i64 << sps.log2_max_frame_num();
        if frame_num < self.frame_num {
            self.frame_num_offset += most;
        }
        self.frame_num = frame_num;
        match &sps.pic_order_cnt {
            PicOrderCntType::TypeZero { log2_max_pic_order_cnt_lsb_minus4 } => {
                let range = 1_i64 << (u32::from(*log2_max_pic_order_cnt_lsb_minus4) + 4);
                self.by_lsb(header, range, is_reference)
            }
            PicOrderCntType::TypeOne {
                offset_for_non_ref_pic,
                offset_for_top_to_bottom_field,
                offsets_for_ref_frame,
                ..
            } => {
                let turn = [*offset_for_non_ref_pic, *offset_for_top_to_bottom_field];
                self.by_cycle(header, turn.map(i64::from), offsets_for_ref_frame, is_reference)
            }
            PicOrderCntType::TypeTwo => {
                2 * (self.frame_num_offset + frame_num) - i64::from(!is_reference)
            }
        }
    }

    /// All counts restart after this picture.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Section 8.2.1.1.
    fn by_lsb(&mut self, header: &SliceHeader, range: i64, is_reference: bool) -> i64 {
        let (lsb, bottom) = match header.pic_order_cnt_lsb {
            Some(PicOrderCountLsb::Frame(lsb)) => (i64::from(lsb), 0),
            Some(PicOrderCountLsb::FieldsAbsolute {
                pic_order_cnt_lsb,
                delta_pic_order_cnt_bottom,
            }) => (i64::from(pic_order_cnt_lsb), i64::from(delta_pic_order_cnt_bottom)),
            _ => (0, 0),
        };
        let msb = if lsb < self.lsb && self.lsb - lsb >= range / 2 {
            self.msb + range
        } else if lsb > self.lsb && lsb - self.lsb > range / 2 {
            self.msb - range
        } else {
            self.msb
        };
        if is_reference {
            (self.msb, self.lsb) = (msb, lsb);
        }
        let frame = header.field_pic == FieldPic::Frame;
        msb + lsb + if frame { bottom.min(0) } else { 0 }
    }

    /// Section 8.2.1.2.
    fn by_cycle(
        &self,
        header: &SliceHeader,
        [of_others, to_bottom]: [i64; 2],
        cycle: &[i32],
        is_reference: bool,
    ) -> i64 {
        let length = cycle.len() as i64;
        let mut number = if length > 0 { self.frame_num_offset + self.frame_num } else { 0 };
        if !is_reference && number > 0 {
            number -= 1;
        }
        let mut expected = 0;
        if number > 0 {
            let whole: i64 = cycle.iter().map(|&offset| i64::from(offset)).sum();
            let begun = (number - 1) % length;
            expected = (number - 1) / length * whole;
            expected += cycle.iter().take(begun as usize + 1).map(|&o| i64::from(o)).sum::<i64>();
        }
        if !is_reference {
            expected += of_others;
        }
        let [top, bottom] = match header.pic_order_cnt_lsb {
            Some(PicOrderCountLsb::FieldsDelta(deltas)) => deltas.map(i64::from),
            _ => [0, 0],
        };
        expected + top + (to_bottom + bottom).min(0)
    }
}
