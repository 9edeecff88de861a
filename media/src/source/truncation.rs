//! Whether a file is complete: the length that its container declares beside the bytes that the file
//! holds.
//!
//! MP4 and QuickTime (boxes), AVI and WAV (RIFF), Matroska and WebM (EBML) declare their length; a
//! transport stream does not. The check runs before a pipeline is built, so that an incomplete copy is
//! refused before anything is sent.

use std::io::{self, Read, Seek, SeekFrom};

use selvedge_units::Bytes;

/// Parts at a file's top level that are examined. After that it counts as complete: a fragmented MP4
/// has two a second or so.
const PARTS: usize = 1 << 16;
/// The known error of RIFF writers: padding, and the header itself.
const RIFF_SLACK: u64 = 8;
/// From this length on a RIFF's length counts as unknown: writers into pipes leave such a value.
const RIFF_UNKNOWN: u64 = 0x7fff_ff00;

/// A file that breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TruncatedFile {
    /// The bytes that it should have at least.
    pub(super) declared: Bytes,
    /// The bytes that it has.
    pub(super) found: Bytes,
}

/// Where a file breaks off, if its container declares more. `None` for containers that don't declare a
/// length, and for files without a container: those errors show when the file is played.
///
/// Reads at most 1 MiB in 65,536 places.
///
/// # Errors
/// Those of reading and seeking.
pub(super) fn find_truncation<F: Read + Seek>(file: &mut F) -> io::Result<Option<TruncatedFile>> {
    let found = file.seek(SeekFrom::End(0))?;
    let head = bytes(file, 0)?;
    let declared = match head {
        _ if [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"].contains(&&word(&head, 4)) => {
            boxes(file, found)?
        }
        [b'R', b'I', b'F', b'F', ..] => riff(file, found)?,
        [0x1a, 0x45, 0xdf, 0xa3, ..] => matroska(file)?,
        _ => None,
    };
    let more = declared.filter(|&declared| declared > found).map(Bytes);
    Ok(more.map(|declared| TruncatedFile { declared, found: Bytes(found) }))
}

/// The end of the first box with media or their index that reaches beyond the file.
fn boxes<F: Read + Seek>(file: &mut F, found: u64) -> io::Result<Option<u64>> {
    let mut at = 0;
    for _ in 0..PARTS {
        if at >= found {
            break;
        }
        let head = bytes(file, at)?;
        let size = match u32::from_be_bytes(word(&head, 0)) {
            // To the end of the file, however long it is.
            0 => break,
            1 => u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| head[8 + n])),
            size => size.into(),
        };
        let end = at.saturating_add(size);
        let holds_media = [b"mdat", b"moov", b"moof"].contains(&&word(&head, 4));
        if end > found && holds_media {
            return Ok(Some(end));
        }
        // Not a box at all.
        if size < 8 {
            break;
        }
        at = end;
    }
    Ok(None)
}

/// The end of the last RIFF; an AVI above 1 GB has several.
fn riff<F: Read + Seek>(file: &mut F, found: u64) -> io::Result<Option<u64>> {
    let mut at = 0;
    for _ in 0..PARTS {
        let head = bytes(file, at)?;
        if word(&head, 0) != *b"RIFF" {
            break;
        }
        let size = u64::from(u32::from_le_bytes(word(&head, 4)));
        if size == 0 || size >= RIFF_UNKNOWN {
            break;
        }
        at += 8 + size;
        if at > found {
            return Ok((at > found + RIFF_SLACK).then_some(at));
        }
        at += size % 2;
    }
    Ok(None)
}

/// The end of the segment, if the file states its length.
fn matroska<F: Read + Seek>(file: &mut F) -> io::Result<Option<u64>> {
    let Some((from, size)) = element(&bytes(file, 0)?, 4) else { return Ok(None) };
    let segment = (from as u64).saturating_add(size);
    let head = bytes(file, segment)?;
    if word(&head, 0) != [0x18, 0x53, 0x80, 0x67] {
        return Ok(None);
    }
    Ok(element(&head, 4).map(|(from, size)| segment.saturating_add(from as u64 + size)))
}

/// Where an element's content begins, and its length, which is written at `at`. `None` if the length is
/// left open.
fn element(head: &[u8; 16], at: usize) -> Option<(usize, u64)> {
    let more = head[at].leading_zeros() as usize;
    let digits = head.get(at..=at + more).filter(|_| more < 8)?;
    let written = digits.iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
    let all_ones = (1 << (7 * (more + 1))) - 1;
    let size = written & all_ones;
    (size != all_ones).then_some((at + more + 1, size))
}

/// The 16 bytes from a place on, zeros past the end.
fn bytes<F: Read + Seek>(file: &mut F, at: u64) -> io::Result<[u8; 16]> {
    let mut head = [0; 16];
    file.seek(SeekFrom::Start(at))?;
    let mut filled = 0;
    while filled < head.len() {
        match file.read(&mut head[filled..]) {
            Ok(0) => break,
            Ok(some) => filled += some,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(head)
}

fn word(head: &[u8; 16], at: usize) -> [u8; 4] {
    [head[at], head[at + 1], head[at + 2], head[at + 3]]
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A file, and the length that it declares.
    fn found(file: &[u8]) -> Option<u64> {
        let cut = find_truncation(&mut Cursor::new(file)).unwrap()?;
        assert_eq!(cut.found, Bytes(file.len() as u64));
        Some(cut.declared.0)
    }

    fn mp4_box(kind: &[u8; 4], content: usize) -> Vec<u8> {
        let size = u32::try_from(8 + content).unwrap();
        [size.to_be_bytes().as_slice(), kind, &vec![7; content]].concat()
    }

    #[test]
    fn a_box_that_reaches_beyond_its_file_is_cut_off() {
        let parts = [mp4_box(b"ftyp", 16), mp4_box(b"moov", 40), mp4_box(b"mdat", 100)];
        let file = parts.concat();
        assert_eq!(found(&file), None);
        for kept in 32..file.len() {
            let said = found(&file[..kept]);
            // At the edge of a box nothing shows that another was to follow.
            let edge = [24, 72].contains(&kept);
            let whole = if kept < 72 { 72 } else { 180 };
            // The head of a box is read as far as it is there.
            let headless = kept < 72 + 8 && kept > 72;
            if !headless {
                assert_eq!(said, (!edge && kept >= 32).then_some(whole), "{kept}");
            }
        }
    }

    #[test]
    fn boxes_of_any_length_form_are_understood() {
        let open = [&mp4_box(b"ftyp", 8)[..], &0u32.to_be_bytes(), b"mdat", &[1; 50]].concat();
        assert_eq!(found(&open), None, "to the end of the file");
        let long = |size: u64| {
            let head = [&1u32.to_be_bytes()[..], b"mdat", &size.to_be_bytes()].concat();
            [&mp4_box(b"ftyp", 8)[..], &head, &[1; 50]].concat()
        };
        assert_eq!(found(&long(66)), None);
        assert_eq!(found(&long(67)), Some(16 + 67));
        assert_eq!(found(&long(u64::MAX)), Some(u64::MAX));
        // Bytes after the last box do not matter, unless they declare media.
        let mut rest = mp4_box(b"moov", 8);
        rest.extend([0xff; 12]);
        assert_eq!(found(&rest), None);
    }

    #[test]
    fn a_riff_may_be_wrong_by_a_little_and_open() {
        let riff = |size: u32, there: usize| {
            [b"RIFF".as_slice(), &size.to_le_bytes(), b"WAVE", &vec![0; there - 12]].concat()
        };
        assert_eq!(found(&riff(92, 100)), None);
        assert_eq!(found(&riff(100, 100)), None, "as some count themselves");
        assert_eq!(found(&riff(101, 100)), Some(109));
        assert_eq!(found(&riff(0, 100)), None);
        assert_eq!(found(&riff(u32::MAX, 100)), None);
        let two = [riff(92, 100), riff(192, 120)].concat();
        assert_eq!(found(&two), Some(300));
    }

    #[test]
    fn a_segment_may_be_open() {
        let ebml = |size: &[u8]| {
            [&[0x1a, 0x45, 0xdf, 0xa3, 0x82, 0, 0][..], &[0x18, 0x53, 0x80, 0x67], size].concat()
        };
        assert_eq!(found(&ebml(&[0x81, 9])), None);
        assert_eq!(found(&ebml(&[0x82, 9])), Some(14));
        assert_eq!(found(&ebml(&[0xff])), None, "its length is not known");
        assert_eq!(found(&ebml(&[0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])), None);
        assert_eq!(found(&ebml(&[0x01, 0, 0, 0, 0, 0, 1, 0])), Some(19 + 256));
        assert_eq!(found(&ebml(&[0x00, 1, 1])), None, "no length of any form");
    }

    #[test]
    fn what_does_not_tell_is_whole() {
        for file in [&b""[..], b"R", b"RIFF", b"ftyp", &[0x47; 188], &[0; 64], b"\x1a\x45\xdf\xa3"]
        {
            assert_eq!(found(file), None, "{file:?}");
        }
    }
}
