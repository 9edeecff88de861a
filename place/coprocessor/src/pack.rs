//! A pack: what a coprocessor needs to read a media file itself, made by `selvedge pack`. It lies beside the file
//! and holds each frame's due time, meaning and packets, and of each packet's payload where its bytes lie in the
//! media file. So a coprocessor knows neither containers nor codecs (NI coprocessors, section 2.2.1, path C).
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `SLVGPACK` |
//! | 4 | version: 1 |
//! | 8, 8 | the media file's length, and when it was modified, in ns since 1970 |
//! | 8, 1 | the period of frames in ns, and the RTP payload type |
//! | 2, n | length of the media file's name, and the name, in the pack's folder |
//!
//! and then each frame: the length of what follows (4), due time in ns (8), RTP timestamp (4), references (8),
//! kind (1), flags (1: 1 referenced, 2 closes, 4 references are known), packets (2). Each packet: marker in the
//! highest bit, payload type in the others (1), number of pieces (2), the pieces. A piece is a word (8): the
//! length in the lowest 16 bits, the offset in the media file in the others; all ones there stand for bytes that
//! follow the word.

use std::ops::Range;

use selvedge_data_stream::{Kind, PacketShape, References};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::{Bytes, Duration};

const MAGIC: &[u8; 8] = b"SLVGPACK";
const VERSION: u32 = 1;
/// Bytes of the header before the name, and of a frame's record after its length, before its packets.
const HEADER: usize = 8 + 4 + 8 + 8 + 8 + 1 + 2;
const FRAME: usize = 8 + 4 + 8 + 1 + 1 + 2;
/// The longest record of a frame.
const RECORD_MAX: usize = 16 << 20;
/// The offset that stands for bytes in the pack.
const INLINE: u64 = u64::MAX >> 16;

/// Why bytes are not a pack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// Its header is of another kind or version, or cut off.
    #[error("not a pack of version {VERSION}; make one by `selvedge pack`")]
    Header,
    /// The media file's name would lead out of the pack's folder.
    #[error(
        "its media file is named \"{0}\", which is not a file of its folder; pack the file again"
    )]
    Name(String),
    /// A frame's record contradicts itself.
    #[error("the record of frame {0} is damaged; pack the file again")]
    Frame(u64),
    /// The media file is not the one that was packed.
    #[error("\"{0}\" was changed since it was packed; pack it again")]
    Changed(String),
}

/// The header of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// The media file, in the folder of the pack.
    pub media: String,
    /// Its length.
    pub length: Bytes,
    /// When it was modified, since 1970.
    pub modified: Duration,
    /// Time between frames.
    pub period: Duration,
    /// RTP payload type of all packets.
    pub payload_type: u8,
}

impl PackHeader {
    /// Whether a file begins as a pack does.
    #[must_use]
    pub fn is_pack(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// The header as bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        for word in [self.length.0, self.modified.0, self.period.0] {
            out.extend(word.to_le_bytes());
        }
        out.push(self.payload_type);
        let name = &self.media.as_bytes()[..self.media.len().min(usize::from(u16::MAX))];
        out.extend((name.len() as u16).to_le_bytes());
        out.extend(name);
        out
    }

    /// Reads the header, and how many bytes it has.
    ///
    /// # Errors
    /// [`PackError::Header`], [`PackError::Name`].
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), PackError> {
        let mut from = Fields(bytes);
        let header = (|| {
            let is_pack = from.take(8)? == MAGIC && from.number(4)? == u64::from(VERSION);
            let [length, modified, period] = [from.number(8)?, from.number(8)?, from.number(8)?];
            let payload_type = from.number(1)? as u8;
            let len = from.number(2)? as usize;
            let media = String::from_utf8(from.take(len)?.to_vec()).ok()?;
            let (length, modified) = (Bytes(length), Duration(modified));
            let period = Duration(period);
            let read = Self { media, length, modified, period, payload_type };
            (is_pack && payload_type < 128).then_some(read)
        })();
        let header = header.ok_or(PackError::Header)?;
        let is_plain = !matches!(header.media.as_str(), "" | "." | "..");
        if !is_plain || header.media.contains(['/', '\0']) {
            return Err(PackError::Name(header.media));
        }
        let len = HEADER + header.media.len();
        Ok((header, len))
    }
}

/// Bytes of a packet's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// In the media file.
    Media {
        /// Where.
        at: u64,
        /// How many.
        len: u16,
    },
    /// In the pack; of a frame that was read, a place in [`PackedFrame::inline`].
    Inline(Range<usize>),
}

impl Piece {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Media { len, .. } => usize::from(*len),
            Self::Inline(range) => range.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A frame of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedFrame {
    /// When it is due, since the first.
    pub at: Duration,
    /// Its meaning for other frames.
    pub metadata: FrameMetadata,
    /// Its packets.
    pub packets: Vec<PacketShape>,
    /// All packets' bytes, in order.
    pub pieces: Vec<Piece>,
    /// The bytes that are not in the media file.
    pub inline: Vec<u8>,
}

impl PackedFrame {
    /// An empty frame.
    #[must_use]
    pub const fn new(at: Duration, metadata: FrameMetadata) -> Self {
        Self { at, metadata, packets: Vec::new(), pieces: Vec::new(), inline: Vec::new() }
    }

    /// Adds a packet of these pieces of `payload`, as a [`Locator`](crate::locator::Locator) found them.
    pub fn push(&mut self, shape: PacketShape, payload: &[u8], pieces: &[Piece]) {
        let mut from = 0;
        for piece in pieces {
            let bytes = &payload[from..from + piece.len()];
            from += piece.len();
            self.pieces.push(match piece {
                Piece::Media { .. } => piece.clone(),
                Piece::Inline(_) => {
                    self.inline.extend_from_slice(bytes);
                    Piece::Inline(self.inline.len() - bytes.len()..self.inline.len())
                }
            });
        }
        self.packets.push(shape);
    }

    /// The frame's record, its length before it.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let FrameMetadata { kind, referenced, closes, refs, timestamp } = self.metadata;
        let mut out = vec![0; 4];
        out.extend(self.at.0.to_le_bytes());
        out.extend(timestamp.to_le_bytes());
        out.extend(refs.unwrap_or(References::NONE).bits().to_le_bytes());
        out.push(kind as u8);
        out.push(u8::from(referenced) | u8::from(closes) << 1 | u8::from(refs.is_some()) << 2);
        out.extend((self.packets.len() as u16).to_le_bytes());
        let mut pieces = self.pieces.iter();
        for shape in &self.packets {
            out.push(u8::from(shape.marker) << 7 | shape.payload_type & 0x7f);
            let (count_at, mut left) = (out.len(), shape.payload.0 as usize);
            out.extend([0; 2]);
            let mut count = 0_u16;
            while left > 0
                && let Some(piece) = pieces.next()
            {
                let place = match piece {
                    Piece::Media { at, .. } => *at,
                    Piece::Inline(_) => INLINE,
                };
                out.extend((place << 16 | piece.len() as u64).to_le_bytes());
                if let Piece::Inline(range) = piece {
                    out.extend(&self.inline[range.clone()]);
                }
                left -= piece.len();
                count += 1;
            }
            out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
        }
        let len = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&len.to_le_bytes());
        out
    }

    /// Reads the record without its length; `None` if it contradicts itself.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        let (at, timestamp) = (Duration(from.number(8)?), from.number(4)? as u32);
        let refs = References::from_bits(from.number(8)?);
        let kind = Kind::from_number(from.number(1)? as u8)?;
        let flags = from.number(1)?;
        let metadata = FrameMetadata {
            kind,
            referenced: flags & 1 != 0,
            closes: flags & 2 != 0,
            refs: (flags & 4 != 0).then_some(refs),
            timestamp,
        };
        let mut frame = Self::new(at, metadata);
        for _ in 0..from.number(2)? {
            let second = from.number(1)? as u8;
            let mut payload = Bytes(0);
            for _ in 0..from.number(2)? {
                let word = from.number(8)?;
                let (at, len) = (word >> 16, word as u16);
                payload += Bytes(len.into());
                frame.pieces.push(if at == INLINE {
                    let start = frame.inline.len();
                    frame.inline.extend_from_slice(from.take(len.into())?);
                    Piece::Inline(start..frame.inline.len())
                } else {
                    Piece::Media { at, len }
                });
            }
            let (marker, payload_type) = (second & 0x80 != 0, second & 0x7f);
            frame.packets.push(PacketShape { marker, payload_type, payload });
        }
        from.0.is_empty().then_some(frame)
    }
}

/// Reads frames from the bytes of a pack behind its header, in chunks of any length.
#[derive(Debug, Default)]
pub struct PackReader {
    /// Bytes that are not a whole record yet; at most [`RECORD_MAX`] and one chunk.
    rest: Vec<u8>,
    /// Bytes of the header that are still to be skipped.
    header: usize,
    frames: u64,
}

impl PackReader {
    /// For a pack whose header has so many bytes.
    #[must_use]
    pub const fn new(header: usize) -> Self {
        Self { rest: Vec::new(), header, frames: 0 }
    }

    /// Takes the pack's next bytes; `ready` gets each whole frame.
    ///
    /// # Errors
    /// [`PackError::Frame`]; nothing more can be read then.
    pub fn push(
        &mut self,
        bytes: &[u8],
        ready: &mut impl FnMut(&PackedFrame),
    ) -> Result<(), PackError> {
        let skipped = self.header.min(bytes.len());
        self.header -= skipped;
        self.rest.extend_from_slice(&bytes[skipped..]);
        let mut from = 0;
        while let Some(len) = Fields(&self.rest[from..]).number(4) {
            let len = len as usize;
            if !(FRAME..=RECORD_MAX).contains(&len) {
                return Err(PackError::Frame(self.frames));
            }
            let Some(record) = self.rest.get(from + 4..from + 4 + len) else { break };
            let frame = PackedFrame::read(record).ok_or(PackError::Frame(self.frames))?;
            ready(&frame);
            self.frames += 1;
            from += 4 + len;
        }
        self.rest.drain(..from);
        Ok(())
    }

    /// Ends the input.
    ///
    /// # Errors
    /// [`PackError::Frame`] if the last record is cut off.
    pub const fn end(&self) -> Result<(), PackError> {
        if self.rest.is_empty() { Ok(()) } else { Err(PackError::Frame(self.frames)) }
    }
}

/// Bytes of which fields are taken from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    /// A number of at most eight bytes.
    fn number(&mut self, len: usize) -> Option<u64> {
        let mut word = [0; 8];
        word.get_mut(..len)?.copy_from_slice(self.take(len)?);
        Some(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> PackHeader {
        PackHeader {
            media: "film.mp4".to_owned(),
            length: Bytes(1 << 40),
            modified: Duration(1_700_000_000_123_456_789),
            period: Duration::from_millis(40),
            payload_type: 96,
        }
    }

    /// Frames of up to three packets, whose payloads lie partly in the media file.
    fn frames() -> impl Strategy<Value = Vec<PackedFrame>> {
        let piece = (any::<bool>(), 1_usize..40, 0..INLINE);
        let packet = (any::<bool>(), 0_u8..128, prop::collection::vec(piece, 0..4));
        let frame = (any::<u64>(), any::<u32>(), any::<(bool, bool, Option<u64>)>());
        let frame = (frame, prop::collection::vec(packet, 0..4));
        prop::collection::vec(frame, 0..5).prop_map(|frames| {
            frames
                .into_iter()
                .map(|(frame, packets)| {
                    let (at, timestamp, (referenced, closes, refs)) = frame;
                    let refs = refs.map(References::from_bits);
                    let kind = Kind::Predicted;
                    let metadata = FrameMetadata { kind, referenced, closes, refs, timestamp };
                    let mut frame = PackedFrame::new(Duration(at), metadata);
                    for (marker, payload_type, places) in packets {
                        let mut pieces = Vec::new();
                        let mut len = 0;
                        for (is_media, bytes, at) in places {
                            pieces.push(match is_media {
                                true => Piece::Media { at, len: bytes as u16 },
                                false => Piece::Inline(len..len + bytes),
                            });
                            len += bytes;
                        }
                        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
                        let shape =
                            PacketShape { marker, payload_type, payload: Bytes(len as u64) };
                        frame.push(shape, &payload, &pieces);
                    }
                    frame
                })
                .collect()
        })
    }

    fn read(bytes: &[u8], chunk: usize) -> Result<Vec<PackedFrame>, PackError> {
        let (_, len) = PackHeader::read(bytes)?;
        let (mut reader, mut found) = (PackReader::new(len), Vec::new());
        for bytes in bytes.chunks(chunk) {
            reader.push(bytes, &mut |frame| found.push(frame.clone()))?;
        }
        reader.end().map(|()| found)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_in_chunks_of_any_length(frames in frames(), chunk in 1_usize..200) {
            let mut bytes = header().write();
            frames.iter().for_each(|frame| bytes.extend(frame.write()));
            prop_assert_eq!(PackHeader::read(&bytes).map(|read| read.0), Ok(header()));
            prop_assert_eq!(read(&bytes, chunk), Ok(frames));
        }

        #[test]
        fn damaged_bytes_are_refused_or_read(
            frames in frames(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = header().write();
            frames.iter().for_each(|frame| bytes.extend(frame.write()));
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len()));
            if let Ok(found) = read(&bytes, 64) {
                prop_assert!(found.iter().all(|frame| frame.inline.len() <= bytes.len()));
            }
        }
    }

    #[test]
    fn a_pack_names_a_file_of_its_own_folder() {
        for media in ["", "..", "../etc/passwd", "/etc/passwd"] {
            let bytes = PackHeader { media: media.to_owned(), ..header() }.write();
            assert_eq!(PackHeader::read(&bytes), Err(PackError::Name(media.to_owned())));
        }
        assert_eq!(PackHeader::read(b"SLVGPACK\x02\0\0\0"), Err(PackError::Header));
    }
}
