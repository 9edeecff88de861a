//! Features that x265 does not write: long-term references and changed lists.

use super::*;

/// Bits, assembled in the order of the format.
#[derive(Default)]
struct Writer(Vec<bool>);

impl Writer {
    fn number(mut self, width: u32, value: u32) -> Self {
        self.0.extend((0..width).rev().map(|bit| value >> bit & 1 == 1));
        self
    }

    fn golomb(self, values: &[u32]) -> Self {
        values.iter().fold(self, |writer, value| {
            let width = (value + 1).ilog2();
            writer.number(width, 0).number(width + 1, value + 1)
        })
    }

    /// As a NAL unit of this type, with a start code and escapes.
    fn nal(mut self, nal_type: u8) -> Vec<u8> {
        self.0.push(true);
        self.0.resize(self.0.len().next_multiple_of(8), false);
        let mut unit = vec![0, 0, 1, nal_type << 1, 1];
        for bits in self.0.chunks(8) {
            let byte = bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
            if byte <= 3 && unit.ends_with(&[0, 0]) {
                unit.push(3);
            }
            unit.push(byte);
        }
        unit
    }
}

/// Two temporal layers, four bits of count, one set of the picture before, long-term references.
fn sequence() -> Vec<u8> {
    let profile = Writer::default().number(4, 0).number(3, 1).number(1, 1);
    let profile = (0..3).fold(profile, |writer, _| writer.number(32, 0)).number(16, 0);
    let sizes = profile.golomb(&[0, 1, 128, 96]).number(1, 0).golomb(&[0, 0, 0]).number(1, 0);
    let tools = sizes.golomb(&[0, 0, 0, 0, 1, 0, 0, 0, 0]).number(4, 0);
    let sets = tools.golomb(&[1, 1, 0, 0]).number(1, 1);
    sets.number(1, 1).golomb(&[0]).number(1, 0).nal(33)
}

/// Lists of one entry, which slices may change.
fn pictures() -> Vec<u8> {
    let lists = Writer::default().golomb(&[0, 0]).number(7, 0).golomb(&[0, 0]);
    let tools = lists.golomb(&[0]).number(3, 0).golomb(&[0, 0]).number(6, 0);
    tools.number(1, 0).number(1, 0).number(1, 0).number(1, 1).nal(34)
}

fn idr() -> Vec<u8> {
    Writer::default().number(2, 0b10).golomb(&[0, 2]).nal(19)
}

/// A P slice that keeps the picture before and the long-term ones with these lower parts of counts.
fn slice(order: u32, long_term: &[u32], lists: impl Fn(Writer) -> Writer) -> Vec<u8> {
    let head = Writer::default().number(1, 1).golomb(&[0, 1]).number(4, order).number(1, 1);
    let head = head.golomb(&[long_term.len() as u32]);
    // Used, and without its ranges.
    let kept = |writer: Writer, order: &u32| writer.number(4, *order).number(2, 0b10);
    lists(long_term.iter().fold(head, kept)).nal(1)
}

#[test]
fn long_term_references_and_changed_lists_are_followed() {
    let mut reader = H265Reader::default();
    let mut refs = |unit: &[u8]| reader.push(unit).and_then(|picture| picture.refs);
    let default = |writer: Writer| writer.number(1, 0);
    let to = |distances: &[u32]| Some(References::to(distances.iter().copied()));
    assert_eq!(refs(&[sequence(), pictures(), idr()].concat()), to(&[]));
    assert_eq!(refs(&slice(1, &[], default)), to(&[1]));
    // Of two that are kept the first is active, then the other, then both.
    assert_eq!(refs(&slice(2, &[0], |writer| writer.number(2, 0))), to(&[1]));
    assert_eq!(refs(&slice(3, &[0], |writer| writer.number(3, 0b011))), to(&[3]));
    let both = |writer: Writer| writer.number(1, 1).golomb(&[1]).number(1, 0);
    assert_eq!(refs(&slice(4, &[0], both)), to(&[1, 4]));
    // A picture that has not been kept is gone.
    assert_eq!(refs(&slice(5, &[], default)), to(&[1]));
    assert_eq!(refs(&slice(6, &[0], both)).map(References::is_known), Some(false));
    assert_eq!(refs(&idr()), to(&[]));
    reader.restart();
    assert_eq!(reader.push(&slice(1, &[], default)).unwrap().refs, Some(References::UNKNOWN));
}
