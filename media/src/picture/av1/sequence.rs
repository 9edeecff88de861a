//! The sequence header of AV1 (sections 5.5 and 5.6), as far as frame headers depend on it.

use super::super::bits::Bits;

/// The parameters that frame headers depend on. Widths are of fields, in bits; 0 where a field is
/// absent.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub(super) is_reduced_still: bool,
    pub(super) is_equal_interval: bool,
    pub(super) decoder_model: Option<DecoderModel>,
    pub(super) operating_points: Vec<OperatingPoint>,
    pub(super) frame_id_width: u32,
    pub(super) delta_frame_id_width: u32,
    pub(super) screen_content_tools: Choice,
    pub(super) integer_vectors: Choice,
    pub(super) order_hint_width: u32,
}

/// Whether a tool is used in all frames or in none, or each frame states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Choice {
    Always(bool),
    #[default]
    ByFrame,
}

impl Choice {
    /// The choice for a frame, from its own header if the header states it.
    pub(super) fn of_frame(self, bits: &mut Bits<'_>) -> Option<bool> {
        match self {
            Self::Always(used) => Some(used),
            Self::ByFrame => bits.flag(),
        }
    }

    fn read(bits: &mut Bits<'_>) -> Option<Self> {
        if bits.flag()? { Some(Self::ByFrame) } else { Some(Self::Always(bits.flag()?)) }
    }
}

/// Widths of the decoder model's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecoderModel {
    pub(super) delay: u32,
    pub(super) removal_time: u32,
    pub(super) presentation_time: u32,
}

/// Layers that are decoded together.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperatingPoint {
    /// `operating_point_idc`.
    pub(super) layers: u32,
    pub(super) has_decoder_model: bool,
}

impl Sequence {
    pub(super) fn read(bits: &mut Bits<'_>) -> Option<Self> {
        let mut sequence = Self::default();
        // Profile, still picture.
        bits.skip(3 + 1)?;
        sequence.is_reduced_still = bits.flag()?;
        if sequence.is_reduced_still {
            bits.skip(5)?;
        } else {
            sequence.timing(bits)?;
            sequence.read_operating_points(bits)?;
        }
        let (width, height) = (bits.number(4)? + 1, bits.number(4)? + 1);
        bits.skip((width + height) as usize)?;
        if !sequence.is_reduced_still && bits.flag()? {
            sequence.delta_frame_id_width = bits.number(4)? + 2;
            sequence.frame_id_width = bits.number(3)? + sequence.delta_frame_id_width + 1;
        }
        // Superblock size, filter intra, intra edge filter.
        bits.skip(3)?;
        if !sequence.is_reduced_still {
            sequence.tools(bits)?;
        }
        Some(sequence)
    }

    fn timing(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        if !bits.flag()? {
            return Some(());
        }
        bits.skip(32 + 32)?;
        self.is_equal_interval = bits.flag()?;
        if self.is_equal_interval {
            bits.golomb()?;
        }
        if bits.flag()? {
            let delay = bits.number(5)? + 1;
            bits.skip(32)?;
            let (removal_time, presentation_time) = (bits.number(5)? + 1, bits.number(5)? + 1);
            self.decoder_model = Some(DecoderModel { delay, removal_time, presentation_time });
        }
        Some(())
    }

    fn read_operating_points(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        let has_display_delay = bits.flag()?;
        // 32 at most.
        for _ in 0..=bits.number(5)? {
            let layers = bits.number(12)?;
            // The tier follows levels above 7.
            if bits.number(5)? > 7 {
                bits.skip(1)?;
            }
            let has_decoder_model = match self.decoder_model {
                Some(model) if bits.flag()? => {
                    bits.skip(2 * model.delay as usize + 1)?;
                    true
                }
                _ => false,
            };
            if has_display_delay && bits.flag()? {
                bits.skip(4)?;
            }
            self.operating_points.push(OperatingPoint { layers, has_decoder_model });
        }
        Some(())
    }

    fn tools(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        // Compound prediction between and within, warped motion, dual filter.
        bits.skip(4)?;
        let has_order_hint = bits.flag()?;
        if has_order_hint {
            bits.skip(2)?;
        }
        self.screen_content_tools = Choice::read(bits)?;
        if self.screen_content_tools != Choice::Always(false) {
            self.integer_vectors = Choice::read(bits)?;
        }
        if has_order_hint {
            self.order_hint_width = bits.number(3)? + 1;
        }
        Some(())
    }
}
