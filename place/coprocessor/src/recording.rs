//! Frames out of a recording (`selvedge play --record`): an `rtpdump` file whose packets bear our
//! header extension, so that they can be put together to frames again without knowing any codec.

use selvedge_host::inlet::Offer;
use selvedge_stream::rtp::{FrameTag, Packet};
use selvedge_units::Span;

/// The longest first line.
const LINE_MAX: usize = 256;
/// Bytes of the binary header behind it, and before each packet.
const FILE_HEADER: usize = 16;
const PACKET_HEADER: usize = 8;
/// Packets of one frame; the rest of a longer one is another's.
const PACKETS_MAX: usize = 4096;

/// Why bytes are no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It begins with something else.
    #[error(
        "not an rtpdump file: it does not begin with \"#!rtpplay1.0\"; record one by `selvedge play --record`"
    )]
    Header,
    /// A record that makes no sense.
    #[error("the record at byte {at} is shorter than its own header; the file is damaged")]
    Record {
        /// Where it begins.
        at: u64,
    },
}

/// A frame of a recording: when it came, counted from the recording's beginning.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Since the beginning, in whole milliseconds.
    pub at: Span,
    /// The packets, one behind the other, each from where the one before it ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    tag: Option<FrameTag>,
    timestamp: u32,
}

impl Recorded {
    /// Its packets.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// What it is to others. A frame that others refer to is told as it was; whether a group is
    /// closed is not recorded, and an intra picture is taken to begin a new one.
    #[must_use]
    pub fn offer(&self) -> Option<Offer> {
        let tag = self.tag?;
        Some(Offer {
            kind: tag.kind,
            referenced: tag.referenced,
            closes: tag.kind == selvedge_stream::Kind::Intra,
            timestamp: self.timestamp,
        })
    }
}

/// Puts frames together from the bytes of a recording, however they are cut.
#[derive(Debug, Default)]
pub struct Assembler {
    /// Bytes that are no whole record yet; never more than one record and the first line.
    rest: Vec<u8>,
    /// Where in the file `rest` begins.
    at: u64,
    begun: bool,
    frame: Recorded,
    /// Packets that bear no frame's mark, or are no RTP.
    pub skipped: u64,
}

impl Assembler {
    /// Takes the file's next bytes; `ready` gets each frame that is whole.
    ///
    /// # Errors
    /// [`RecordingError`]; nothing more can be read then.
    pub fn push(
        &mut self,
        bytes: &[u8],
        ready: &mut impl FnMut(&Recorded),
    ) -> Result<(), RecordingError> {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        if !self.begun {
            let Some(len) = self.first()? else { return Ok(()) };
            from = len;
            self.begun = true;
        }
        while let Some(header) = self.rest.get(from..from + PACKET_HEADER) {
            let word = |n: usize| usize::from(u16::from_be_bytes([header[n], header[n + 1]]));
            let total = word(0);
            if total < PACKET_HEADER {
                return Err(RecordingError::Record { at: self.at + from as u64 });
            }
            let ms = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let control = word(2) == 0;
            let Some(record) = self.rest.get(from + PACKET_HEADER..from + total) else { break };
            if control || !Self::packet(&mut self.frame, record, ms, ready) {
                self.skipped += u64::from(!control);
            }
            from += total;
        }
        self.rest.drain(..from);
        self.at += from as u64;
        Ok(())
    }

    /// Nothing follows: the last frame is whole, if there is one.
    pub fn end(&mut self, ready: &mut impl FnMut(&Recorded)) {
        if self.frame.tag.is_some() {
            ready(&self.frame);
        }
        *self = Self::default();
    }

    /// Bytes of the first line and the header behind it, if they are all there.
    fn first(&self) -> Result<Option<usize>, RecordingError> {
        const MAGIC: &[u8] = b"#!rtpplay1.0 ";
        let seen = self.rest.len().min(MAGIC.len());
        if self.rest[..seen] != MAGIC[..seen] {
            return Err(RecordingError::Header);
        }
        let line = self.rest.iter().take(LINE_MAX).position(|&byte| byte == b'\n');
        match line {
            Some(end) => Ok(Some(end + 1 + FILE_HEADER).filter(|&len| len <= self.rest.len())),
            None if self.rest.len() >= LINE_MAX => Err(RecordingError::Header),
            None => Ok(None),
        }
    }

    /// Adds a packet to its frame; a packet of another frame ends the one before. False if it is
    /// no packet of a frame.
    fn packet(
        frame: &mut Recorded,
        bytes: &[u8],
        ms: u32,
        ready: &mut impl FnMut(&Recorded),
    ) -> bool {
        let Ok(packet) = Packet::parse(bytes) else { return false };
        let Some(tag) = packet.tag else { return false };
        let same = frame.tag.is_some_and(|before| before.seq == tag.seq);
        if !same || frame.ends.len() == PACKETS_MAX {
            if frame.tag.is_some() {
                ready(frame);
            }
            frame.bytes.clear();
            frame.ends.clear();
            frame.at = Span::from_millis(u64::from(ms));
            frame.timestamp = packet.header.timestamp;
            frame.tag = Some(tag);
        }
        frame.bytes.extend_from_slice(bytes);
        frame.ends.push(frame.bytes.len());
        if tag.last {
            ready(frame);
            frame.tag = None;
            frame.bytes.clear();
            frame.ends.clear();
        }
        true
    }
}
