//! The dependency descriptor, a header extension of RTP packets (RTP Payload Format For AV1, appendix
//! A): which frames a frame refers to, whatever its encoding, without parsing its payload.
//!
//! Descriptors come from the packets of an RTP input; references go with the units that the packets
//! make. A structure of templates, which a key frame brings, defines the meaning of the short ones in
//! other packets. Pure; memory is bounded by the 255 bytes that an extension has at most.

use std::collections::VecDeque;

use selvedge_data_stream::References;

use crate::picture::bits::Bits;

/// Its name in SDP: `a=extmap:ID` and this.
pub const DEPENDENCY_URI: &str =
    "https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension";

/// A descriptor of this many bytes has only the mandatory fields.
const MANDATORY_LEN: usize = 3;
/// Templates, as their numbers have six bits.
const TEMPLATES_MAX: usize = 64;
/// No frame of a codec refers to more; a descriptor with more is not read.
const DIFFERENCES_MAX: usize = 32;
/// Frames that are remembered; one farther back counts as lost.
const FRAMES_MAX: usize = 512;

/// A packet's description of its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The frame's number, modulo 2^16; each layer of a picture is a frame.
    pub frame_number: u16,
    /// The distances of the frames that it refers to, by frame numbers.
    pub differences: Vec<u16>,
}

/// Reads the descriptors of one stream.
#[derive(Debug, Default)]
pub struct DescriptorReader {
    structure: Option<Structure>,
}

/// The templates.
#[derive(Clone, Debug)]
struct Structure {
    /// The number of the first one.
    offset: u32,
    targets: u16,
    /// The differences of each.
    templates: Vec<Vec<u16>>,
}

impl DescriptorReader {
    /// Reads the descriptor of the next packet; `None` for an invalid one, or one whose structure has
    /// not arrived.
    pub fn read(&mut self, descriptor: &[u8]) -> Option<Descriptor> {
        let mut bits = Bits::new(descriptor);
        let bits = &mut bits;
        // Whether the packet is the frame's first one, and its last.
        bits.skip(2)?;
        let (template, frame_number) = (bits.number(6)?, bits.number(16)? as u16);
        let mut own = [false; 2];
        if descriptor.len() > MANDATORY_LEN {
            let (has_structure, has_active_targets) = (bits.flag()?, bits.flag()?);
            own = [bits.flag()?, bits.flag()?];
            // Custom chains come last, and are not read.
            bits.skip(1)?;
            if has_structure {
                self.structure = Some(Structure::read(bits)?);
            }
            if has_active_targets {
                bits.skip(usize::from(self.structure.as_ref()?.targets))?;
            }
        }
        let structure = self.structure.as_ref()?;
        let place = (template + TEMPLATES_MAX as u32 - structure.offset) % TEMPLATES_MAX as u32;
        let template = structure.templates.get(place as usize)?;
        let [has_own_targets, has_own_differences] = own;
        if has_own_targets {
            bits.skip(2 * usize::from(structure.targets))?;
        }
        let differences = match has_own_differences {
            true => own_differences(bits)?,
            false => template.clone(),
        };
        Some(Descriptor { frame_number, differences })
    }
}

/// `frame_fdiffs()`: each after its length in groups of four bits, up to a length of zero.
fn own_differences(bits: &mut Bits<'_>) -> Option<Vec<u16>> {
    let mut differences = Vec::new();
    loop {
        let width = 4 * bits.number(2)?;
        if width == 0 {
            return Some(differences);
        }
        push(&mut differences, bits.number(width)?)?;
    }
}

/// A difference, which is written less one.
fn push(differences: &mut Vec<u16>, less_one: u32) -> Option<()> {
    differences.push(u16::try_from(less_one).ok()? + 1);
    (differences.len() <= DIFFERENCES_MAX).then_some(())
}

impl Structure {
    /// `template_dependency_structure()`.
    fn read(bits: &mut Bits<'_>) -> Option<Self> {
        let (offset, targets) = (bits.number(6)?, bits.number(5)? as u16 + 1);
        let (count, highest_layer) = layers(bits)?;
        bits.skip(2 * count * usize::from(targets))?;
        let mut templates = vec![Vec::new(); count];
        for differences in &mut templates {
            while bits.flag()? {
                push(differences, bits.number(4)?)?;
            }
        }
        let chains = bits.below(targets + 1)? as u16;
        if chains > 0 {
            for _ in 0..targets {
                bits.below(chains)?;
            }
            bits.skip(4 * count * usize::from(chains))?;
        }
        let has_sizes = bits.flag()?;
        if has_sizes {
            bits.skip(32 * (highest_layer + 1))?;
        }
        Some(Self { offset, targets, templates })
    }
}

/// `template_layers()`: how many templates there are, and the highest spatial layer.
fn layers(bits: &mut Bits<'_>) -> Option<(usize, usize)> {
    let mut highest = 0;
    for count in 1..=TEMPLATES_MAX {
        match bits.number(2)? {
            // The same layer, or the next temporal one.
            0 | 1 => {}
            2 => highest += 1,
            _ => return Some((count, highest)),
        }
    }
    None
}

/// Tracks which frames arrived in which unit of one stream.
#[derive(Debug, Default)]
pub struct DependencyTracker {
    /// Numbers of frames and of their units, the oldest first.
    frames: VecDeque<(u16, u64)>,
    /// Number of the next unit.
    next: u64,
}

impl DependencyTracker {
    /// The references of the next unit, which these frames make, counted in units; `None` without
    /// frames. A reference to a frame that never arrived makes them [`References::UNKNOWN`]. Must be
    /// called for every unit.
    pub fn push(&mut self, frames: &[Descriptor]) -> Option<References> {
        let number = self.next;
        self.next += 1;
        let unit_of = |frame_number: u16| {
            let known = self.frames.iter().rev().find(|(frame, _)| *frame == frame_number);
            known.map(|(_, unit)| *unit)
        };
        let is_own = |frame_number| frames.iter().any(|own| own.frame_number == frame_number);
        let mut refs = References::NONE;
        let mut is_known = true;
        for frame in frames {
            let named = frame.differences.iter();
            let named = named.map(|difference| frame.frame_number.wrapping_sub(*difference));
            for other in named.filter(|other| !is_own(*other)) {
                let back = unit_of(other).and_then(|unit| u32::try_from(number - unit).ok());
                is_known &= back.is_some();
                refs = refs.with(back.unwrap_or(u32::MAX));
            }
        }
        self.frames.extend(frames.iter().map(|frame| (frame.frame_number, number)));
        let surplus = self.frames.len().saturating_sub(FRAMES_MAX);
        self.frames.drain(..surplus);
        let refs = if is_known { refs } else { References::UNKNOWN };
        (!frames.is_empty()).then_some(refs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fields of these widths, one after the other.
    fn written(fields: &[(u32, u32)]) -> Vec<u8> {
        let bits = fields
            .iter()
            .flat_map(|(width, value)| (0..*width).rev().map(move |bit| value >> bit & 1 == 1));
        let bits = bits.collect::<Vec<_>>();
        let byte = |bits: &[bool]| {
            let value = bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
            value << (8 - bits.len())
        };
        bits.chunks(8).map(byte).collect()
    }

    /// Mandatory fields: a whole frame in a packet.
    fn head(template: u32, frame: u32) -> [(u32, u32); 3] {
        [(2, 0b11), (6, template), (16, frame)]
    }

    /// A key frame's descriptor with a structure of three templates from number 62 on, so that the last
    /// is 0: a key frame, a frame of layer 0 that refers 2 back, and one of layer 1 that refers 1 back.
    fn key(frame: u32, own: &[(u32, u32)]) -> Vec<u8> {
        let flags = if own.is_empty() { 0b10000 } else { 0b10010 };
        // Offset, two targets, layers, a target's indication for each template and target.
        let structure = [(6, 62), (5, 1), (2, 0), (2, 1), (2, 3), (12, 0xfff)];
        let differences = [(1, 0), (1, 1), (4, 1), (1, 0), (1, 1), (4, 0), (1, 0)];
        // One chain of ns(3), both targets protected by ns(1), 4 bits each; one size.
        let rest = [(2, 0b10), (12, 0), (1, 1), (16, 639), (16, 359)];
        let fields = [&head(62, frame)[..], &[(5, flags)], &structure, &differences, &rest, own];
        written(&fields.concat())
    }

    #[test]
    fn templates_and_own_differences_are_read() {
        let mut reader = DescriptorReader::default();
        assert_eq!(reader.read(&written(&head(0, 9))), None);
        let read = reader.read(&key(9, &[])).unwrap();
        assert_eq!((read.frame_number, read.differences.len()), (9, 0));
        let read = reader.read(&written(&head(0, 10))).unwrap();
        assert_eq!(read.differences, [1]);
        let read = reader.read(&written(&head(63, 11))).unwrap();
        assert_eq!(read.differences, [2]);
        // Custom: 1 back in four bits, 300 back in twelve.
        let own = [(2, 1), (4, 0), (2, 3), (12, 299), (2, 0)];
        let read = reader.read(&key(12, &own)).unwrap();
        assert_eq!(read.differences, [1, 300]);
        let active = [&head(63, 13)[..], &[(5, 0b01010), (2, 3)], &own].concat();
        assert_eq!(reader.read(&written(&active)).unwrap().differences, [1, 300]);
        // A template that the structure does not have.
        assert_eq!(reader.read(&written(&head(1, 14))), None);
        assert_eq!(reader.read(&[0xff; 255]), None);
    }

    fn frame(frame_number: u16, differences: &[u16]) -> Descriptor {
        Descriptor { frame_number, differences: differences.to_vec() }
    }

    #[test]
    fn references_are_counted_in_units() {
        let mut tracker = DependencyTracker::default();
        // Two layers in a unit; the numbers begin again.
        assert_eq!(
            tracker.push(&[frame(65_534, &[]), frame(65_535, &[1])]),
            Some(References::NONE)
        );
        let second = [frame(0, &[2]), frame(1, &[1, 2])];
        assert_eq!(tracker.push(&second), Some(References::to([1])));
        assert_eq!(tracker.push(&[]), None);
        assert_eq!(tracker.push(&[frame(2, &[1, 4])]), Some(References::to([2, 3])));
        // Frame 3 was lost.
        assert_eq!(tracker.push(&[frame(4, &[1, 2])]), Some(References::UNKNOWN));
        assert_eq!(tracker.push(&[frame(5, &[3])]), Some(References::to([2])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            cut in 0..200_usize,
        ) {
            let mut reader = DescriptorReader::default();
            let mut tracker = DependencyTracker::default();
            let whole = key(9, &[]);
            let _ = reader.read(&whole[..cut.min(whole.len())]);
            let _ = reader.read(&whole);
            for (number, packet) in packets.iter().enumerate() {
                let frames = reader.read(packet);
                let refs = tracker.push(frames.as_slice()).unwrap_or_default();
                let came = |back: u16| usize::from(back) <= number;
                prop_assert!(!refs.is_known() || refs.distances().all(came));
            }
            prop_assert!(tracker.frames.len() <= FRAMES_MAX);
        }
    }
}
