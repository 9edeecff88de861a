//! Finds where the payloads of packets lie in the media file that they were made of, so that a pack
//! ([`crate::pack`]) need not hold them. It knows no container: it looks for equal bytes, in order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::memmem;

use crate::pack::Piece;

/// Bytes that must be equal before a place counts as found.
const LEAST: usize = 16;
/// How far ahead of the last place bytes are looked for: other tracks lie between. A container of small packets has
/// few of others between two of one track, but its packets may end within [`LEAST`] bytes.
const REACH: usize = 1 << 20;
const NEAR_REACH: usize = 16 << 10;
/// Bytes that a payload may have before those of the file, such as headers of packets.
const SKIP: usize = 6;
const NEAR_SKIP: usize = 24;
/// Bytes of the file between two places: headers of its own packets, start codes, lengths.
const GAP: usize = 40;
/// How often one payload is searched for before what is left goes into the pack.
const SEARCHES: usize = 8;

/// A media file, searched forward.
#[derive(Debug)]
pub struct Locator {
    file: File,
    /// A part of the file, and where it begins.
    window: Vec<u8>,
    start: u64,
    /// Where the last bytes that were found end.
    at: u64,
}

impl Locator {
    /// A search from the file's beginning.
    #[must_use]
    pub const fn new(file: File) -> Self {
        Self { file, window: Vec::new(), start: 0, at: 0 }
    }

    /// The pieces of a payload, in its order. Its bytes are looked for behind those of the payload before.
    ///
    /// # Errors
    /// The kernel's, if the file can't be read.
    pub fn pieces(&mut self, payload: &[u8]) -> io::Result<Vec<Piece>> {
        self.cover(REACH + payload.len())?;
        let mut pieces = Vec::new();
        let (mut from, mut literal, mut searches) = (0, 0, 0);
        while from < payload.len() {
            let near = self.near(&payload[from..]);
            let place = near.or_else(|| {
                searches += 1;
                (searches <= SEARCHES).then(|| self.far(&payload[from..])).flatten()
            });
            let Some((skipped, at)) = place else { break };
            from += skipped;
            let len = self.equal(&payload[from..], at).min(usize::from(u16::MAX));
            if from > literal {
                pieces.push(Piece::Inline(literal..from));
            }
            pieces.push(Piece::Media { at: self.start + at as u64, len: len as u16 });
            from += len;
            literal = from;
            self.at = self.start + (at + len) as u64;
        }
        if literal < payload.len() {
            pieces.push(Piece::Inline(literal..payload.len()));
        }
        Ok(pieces)
    }

    /// Where bytes go on a few bytes behind the last place: how many bytes of these are not part of it, and
    /// the place in the window.
    fn near(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let at = (self.at - self.start) as usize;
        let mut places =
            (0..=NEAR_SKIP).flat_map(|skipped| (0..=GAP).map(move |gap| (skipped, at + gap)));
        places.find(|&(skipped, at)| {
            let Some(rest) = bytes.get(skipped..).filter(|rest| !rest.is_empty()) else {
                return false;
            };
            self.equal(rest, at) >= rest.len().min(LEAST)
        })
    }

    /// The same anywhere ahead.
    fn far(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let at = (self.at - self.start) as usize;
        let ahead = self.window.get(at..)?;
        let find = |skipped: usize, reach: usize| {
            let needle = bytes.get(skipped..skipped + LEAST)?;
            Some((skipped, at + memmem::find(&ahead[..ahead.len().min(reach)], needle)?))
        };
        let close = (0..=NEAR_SKIP).find_map(|skipped| find(skipped, NEAR_REACH));
        close.or_else(|| (0..=SKIP).find_map(|skipped| find(skipped, REACH)))
    }

    /// How many of these bytes stand at a place of the window.
    fn equal(&self, bytes: &[u8], at: usize) -> usize {
        let there = self.window.get(at..).unwrap_or_default();
        bytes.iter().zip(there).take_while(|(one, other)| one == other).count()
    }

    /// Has so many bytes of the file behind the last place in the window, or all that there are.
    fn cover(&mut self, bytes: usize) -> io::Result<()> {
        let done = (self.at - self.start) as usize;
        if done > 4 * REACH {
            self.window.drain(..done);
            self.start = self.at;
        }
        let (from, wanted) = (self.window.len(), (self.at - self.start) as usize + bytes);
        if from >= wanted {
            return Ok(());
        }
        // More than is needed, so that the file is read in large pieces.
        self.window.resize(wanted + REACH, 0);
        let mut filled = from;
        while filled < self.window.len() {
            let read = self.file.read_at(&mut self.window[filled..], self.start + filled as u64)?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        self.window.truncate(filled);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Bytes without a pattern.
    fn noise(seed: u32, len: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn locator(bytes: &[u8]) -> Locator {
        let path = std::env::temp_dir().join(format!("selvedge-locator-{}", bytes.len()));
        File::create(&path).and_then(|mut file| file.write_all(bytes)).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        Locator::new(file)
    }

    /// What pieces of a payload stand for.
    fn joined(pieces: &[Piece], file: &[u8], payload: &[u8]) -> Vec<u8> {
        let bytes = |piece: &Piece| match piece {
            Piece::Media { at, len } => file[*at as usize..][..usize::from(*len)].to_vec(),
            Piece::Inline(range) => payload[range.clone()].to_vec(),
        };
        pieces.iter().flat_map(bytes).collect()
    }

    #[test]
    fn a_fragment_is_its_header_and_bytes_of_the_file() {
        let unit = noise(7, 3000);
        let file = [noise(1, 500), unit.clone(), noise(2, 100)].concat();
        let mut locator = locator(&file);
        for (n, part) in unit.chunks(1000).enumerate() {
            let payload = [&[0x7c, n as u8], part].concat();
            let pieces = locator.pieces(&payload).unwrap();
            let at = 500 + 1000 * n as u64;
            assert_eq!(pieces, [Piece::Inline(0..2), Piece::Media { at, len: 1000 }]);
            assert_eq!(joined(&pieces, &file, &payload), payload);
        }
    }

    #[test]
    fn small_packets_of_other_tracks_lie_between() {
        let unit = noise(9, 4000);
        let mut file = noise(3, 188 * 20);
        for (n, part) in unit.chunks(184).enumerate() {
            file.extend([0x47, 1, 0, n as u8]);
            file.extend(part);
            if n % 5 == 0 {
                file.extend(noise(n as u32 + 50, 188));
            }
        }
        let mut locator = locator(&file);
        for payload in unit.chunks(1200) {
            let pieces = locator.pieces(payload).unwrap();
            assert_eq!(joined(&pieces, &file, payload), payload);
            let inline = pieces.iter().filter(|piece| matches!(piece, Piece::Inline(_)));
            assert!(inline.map(Piece::len).sum::<usize>() < 100, "{pieces:?}");
        }
    }

    #[test]
    fn what_is_not_in_the_file_stays_in_the_pack() {
        let (file, payload) = (noise(1, 10_000), noise(2, 900));
        assert_eq!(locator(&file).pieces(&payload).unwrap(), [Piece::Inline(0..900)]);
    }
}
